//! What operations have alike, added to the document once: headers, credentials, who may ask.

use utoipa::Modify;
use utoipa::openapi::path::Operation;
use utoipa::openapi::schema::{SchemaType, Type};
use utoipa::openapi::security::{
    ApiKey, ApiKeyValue, Http, HttpAuthScheme, SecurityRequirement, SecurityScheme,
};
use utoipa::openapi::{Components, OpenApi, RefOr, Required, Schema};

use crate::web::access::VOTER_COOKIE;
use crate::web::describe::headers;

/// The credentials, by the names that operations have for them.
const API_KEY: &str = "apiKey";
const VOTER_TOKEN: &str = "voterToken";
const VOTER_COOKIE_SCHEME: &str = "voterCookie";
/// A credential that a program sends.
#[derive(Clone, Copy)]
pub(in crate::web) enum Credential {
    ApiKey,
    VoterToken,
}

impl Credential {
    /// The variable that holds it, in samples.
    pub(in crate::web) fn variable(self) -> &'static str {
        match self {
            Self::ApiKey => "TALLY_API_KEY",
            Self::VoterToken => "VOTER_TOKEN",
        }
    }
}

/// What must be in TALLY_OPEN for an operation to be open to anyone; `all`: nothing.
const OPEN: &str = "x-open";

/// Adds what operations have alike.
pub(super) struct Shared;

impl Modify for Shared {
    fn modify(&self, document: &mut OpenApi) {
        // utoipa makes an empty licence where Cargo.toml has none.
        document.info.license = None;
        let components = document.components.get_or_insert_with(Components::new);
        components.headers = headers::components();
        for (name, scheme) in credentials() {
            components.add_security_scheme(name, scheme);
        }
        let optional = optional_bodies(components);
        for item in document.paths.paths.values_mut() {
            let operations = [
                &mut item.get,
                &mut item.put,
                &mut item.post,
                &mut item.delete,
                &mut item.patch,
            ];
            for operation in operations.into_iter().flatten() {
                add_headers(operation);
                for parameter in operation.parameters.iter_mut().flatten() {
                    if let RefOr::T(parameter) = parameter {
                        parameter.schema = parameter.schema.take().map(without_null);
                    }
                }
                if let Some(RefOr::T(body)) = &mut operation.request_body {
                    let contents = body.content.values();
                    let is_optional = contents
                        .filter_map(|content| serde_json::to_value(content).ok())
                        .any(|content| optional.iter().any(|name| content["schema"]["$ref"] == *name));
                    body.required = Some(if is_optional {
                        Required::False
                    } else {
                        Required::True
                    });
                }
                add_who_may_ask(operation);
            }
        }
    }
}

/// The schema of a parameter without null, which utoipa adds to a header that may be left out.
fn without_null(schema: RefOr<Schema>) -> RefOr<Schema> {
    let is_null = |one: &RefOr<Schema>| matches!(one, RefOr::T(Schema::Object(object)) if object.schema_type == SchemaType::Type(Type::Null));
    match schema {
        RefOr::T(Schema::OneOf(mut one)) => {
            one.items.retain(|item| !is_null(item));
            match one.items.len() {
                1 => one.items.remove(0),
                _ => RefOr::T(Schema::OneOf(one)),
            }
        }
        RefOr::T(Schema::Object(mut object)) => {
            if let SchemaType::Array(types) = &mut object.schema_type {
                types.retain(|one| *one != Type::Null);
                if let [one] = types.as_slice() {
                    object.schema_type = SchemaType::Type(one.clone());
                }
            }
            RefOr::T(Schema::Object(object))
        }
        other => other,
    }
}

/// The addresses of the bodies that need no field. An empty body reads as `{}`, so it may be left out.
fn optional_bodies(components: &Components) -> Vec<String> {
    let schemas = components.schemas.iter();
    schemas
        .filter(
            |(_, schema)| matches!(schema, RefOr::T(Schema::Object(object)) if object.required.is_empty()),
        )
        .map(|(name, _)| format!("#/components/schemas/{name}"))
        .collect()
}

fn credentials() -> [(&'static str, SecurityScheme); 3] {
    let bearer = |format: &str, text: &str| {
        let mut scheme = Http::new(HttpAuthScheme::Bearer);
        scheme.bearer_format = Some(format.to_owned());
        scheme.description = Some(text.to_owned());
        SecurityScheme::Http(scheme)
    };
    let cookie = ApiKeyValue::with_description(
        VOTER_COOKIE,
        "The cookie of a voter's browser, which `POST /v1/voter` gives. It fixes the voter.",
    );
    [
        (
            API_KEY,
            bearer(
                "tally_ and 64 hexadecimal digits",
                "An API key, of a backend or an administrator: `tally key create` makes it, with the scopes `vote`, \
                 `admin`, `report`. The names behind it in an operation's `security` are the scopes that it takes.",
            ),
        ),
        (
            VOTER_TOKEN,
            bearer(
                "JWT",
                "A voter's token of your login service. Its claim `sub` is the voter, which it fixes.",
            ),
        ),
        (
            VOTER_COOKIE_SCHEME,
            SecurityScheme::ApiKey(ApiKey::Cookie(cookie)),
        ),
    ]
}

/// Whether a requirement is met by this credential, and its scopes.
fn scopes_of<'a>(requirement: &'a serde_json::Value, credential: &str) -> Option<Vec<&'a str>> {
    let scopes = requirement.get(credential)?.as_array()?;
    Some(scopes.iter().filter_map(serde_json::Value::as_str).collect())
}

/// The requirements of an operation, as they stand in the document.
fn requirements(operation: &Operation) -> Vec<serde_json::Value> {
    let all: &[SecurityRequirement] = operation.security.as_deref().unwrap_or_default();
    all.iter()
        .filter_map(|one| serde_json::to_value(one).ok())
        .collect()
}

/// The credential that a program sends with an operation: the one that stands first.
pub(in crate::web) fn first_credential(operation: &Operation) -> Option<Credential> {
    let requirements = requirements(operation);
    let first = requirements.first()?;
    let has = |name: &str| scopes_of(first, name).is_some();
    match (has(API_KEY), has(VOTER_TOKEN)) {
        (true, _) => Some(Credential::ApiKey),
        (_, true) => Some(Credential::VoterToken),
        _ => None,
    }
}

/// Whether a voter's cookie may come with an operation.
pub(in crate::web) fn takes_cookie(operation: &Operation) -> bool {
    requirements(operation)
        .iter()
        .any(|one| scopes_of(one, VOTER_COOKIE_SCHEME).is_some())
}

fn add_headers(operation: &mut Operation) {
    let has_cookie = takes_cookie(operation);
    for (status, response) in &mut operation.responses.responses {
        let RefOr::T(response) = response else { continue };
        for (name, header) in &mut response.headers {
            if let Some(shared) = headers::reference(name) {
                *header = shared;
            }
        }
        // A cookie that is due is renewed with whatever its voter is answered.
        let more = [
            Some(headers::REQUEST_ID),
            (has_cookie && status.starts_with('2')).then_some(headers::SET_COOKIE),
        ];
        for name in more.into_iter().flatten() {
            if let Some(header) = headers::reference(name) {
                response.headers.insert(name.to_owned(), header);
            }
        }
    }
}

/// Says who may ask: the same as `security`, in words.
fn add_who_may_ask(operation: &mut Operation) {
    let requirements = requirements(operation);
    let scopes = requirements.iter().find_map(|one| scopes_of(one, API_KEY));
    let is_own = takes_cookie(operation);
    let open = operation.extensions.as_ref().and_then(|all| all.get(OPEN));
    let open: Vec<String> = open
        .and_then(serde_json::Value::as_array)
        .map(|names| {
            names
                .iter()
                .filter_map(|name| Some(format!("`{}`", name.as_str()?)))
                .collect()
        })
        .unwrap_or_default();
    let words = match scopes.as_deref().and_then(<[_]>::first) {
        None => "No credential is looked at.".to_owned(),
        Some(_) if open.iter().any(|name| name == "`all`") => {
            "No credential is needed; one that is sent must be valid.".to_owned()
        }
        Some(scope) => {
            let own = if is_own {
                ", or a voter's own cookie or token for the voter's own votes"
            } else {
                ""
            };
            let open = open.join(" or ");
            format!(
                "It takes an API key with the scope `{scope}`{own}. `TALLY_OPEN` with {open} opens it to anyone."
            )
        }
    };
    let text = operation.description.take().unwrap_or_default();
    let text = text.trim();
    operation.description = Some(match text {
        "" => words,
        text => format!("{text}\n\n{words}"),
    });
}
