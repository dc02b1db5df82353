//! What operations have in common, added to the document once: headers, credentials, who may call.

use utoipa::Modify;
use utoipa::openapi::path::Operation;
use utoipa::openapi::schema::{SchemaType, Type};
use utoipa::openapi::security::{
    ApiKey, ApiKeyValue, Http, HttpAuthScheme, SecurityRequirement, SecurityScheme,
};
use utoipa::openapi::{Components, OpenApi, RefOr, Required, Schema};

use crate::web::access::VOTER_COOKIE;
use crate::web::describe::headers;

/// The credentials, by their names in the document.
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
    /// Returns the variable that holds the credential in samples.
    pub(in crate::web) fn variable(self) -> &'static str {
        match self {
            Self::ApiKey => "TALLY_API_KEY",
            Self::VoterToken => "VOTER_TOKEN",
        }
    }
}

/// TALLY_OPEN must contain one of these to open the operation to anyone. `all`: it is always open.
const OPEN: &str = "x-open";

/// Adds what operations have in common.
pub(super) struct Shared;

impl Modify for Shared {
    fn modify(&self, document: &mut OpenApi) {
        // utoipa makes an empty licence if Cargo.toml has none.
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

/// Removes null from a parameter's schema. utoipa adds it to headers that may be left out.
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

/// Returns the bodies that have no required field. An empty body reads as `{}`, so it may be left out.
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
        "The cookie of a voter's browser, from `POST /v1/voter`. It names the voter.",
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
                "A voter's token of your login service. Its claim `sub` names the voter.",
            ),
        ),
        (
            VOTER_COOKIE_SCHEME,
            SecurityScheme::ApiKey(ApiKey::Cookie(cookie)),
        ),
    ]
}

/// Returns the scopes if this credential meets a requirement.
fn scopes_of<'a>(requirement: &'a serde_json::Value, credential: &str) -> Option<Vec<&'a str>> {
    let scopes = requirement.get(credential)?.as_array()?;
    Some(scopes.iter().filter_map(serde_json::Value::as_str).collect())
}

/// Returns the requirements of an operation, as the document has them.
fn requirements(operation: &Operation) -> Vec<serde_json::Value> {
    let all: &[SecurityRequirement] = operation.security.as_deref().unwrap_or_default();
    all.iter()
        .filter_map(|one| serde_json::to_value(one).ok())
        .collect()
}

/// Returns the credential that a program sends with an operation: the first one.
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

/// Returns whether an operation takes a voter's cookie.
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
        // A cookie that is due is renewed with any answer to its voter.
        let more = [
            Some(headers::REQUEST_ID),
            Some(headers::CACHE_CONTROL),
            (has_cookie && status.starts_with('2')).then_some(headers::SET_COOKIE),
        ];
        for name in more.into_iter().flatten() {
            if let Some(header) = headers::reference(name) {
                response.headers.insert(name.to_owned(), header);
            }
        }
    }
}

/// Says who may call an operation: the same as `security`, in words.
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
        None => "No credential is needed.".to_owned(),
        Some(_) if open.iter().any(|name| name == "`all`") => {
            "No credential is needed. If you send one, it must be valid.".to_owned()
        }
        Some(scope) => {
            let own = if is_own {
                ", or a voter's own cookie or token for the voter's own votes"
            } else {
                ""
            };
            let open = open.join(" or ");
            format!(
                "Needs an API key with the scope `{scope}`{own}. `TALLY_OPEN` with {open} opens it to anyone."
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
