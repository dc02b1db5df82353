//! A call of an operation, with curl and in JavaScript.

use serde_json::{Map, Value};
use utoipa::openapi::RefOr;
use utoipa::openapi::content::Content;
use utoipa::openapi::path::{Operation, Parameter, ParameterIn};
use utoipa::openapi::request_body::RequestBody;

use crate::web::openapi::shared;
use crate::web::openapi::shared::Credential;

/// The address of a server started by `make run`.
const SERVER: &str = "http://127.0.0.1:8080";

/// The parts of a call of an operation.
pub(super) struct Call {
    method: &'static str,
    path: String,
    body: Option<Value>,
    /// The credential that a program sends.
    credential: Option<Credential>,
    /// Whether a page calls the operation, with the voter's cookie.
    is_for_pages: bool,
    /// How the program reads the answer.
    answer: Answer,
}

#[derive(Clone, Copy)]
enum Answer {
    Json,
    Text,
    /// Events, one after the other, without an end.
    Events,
    Nothing,
}

impl Call {
    /// Makes the call of an operation with the values of its examples.
    pub(super) fn of(method: &'static str, path: &str, operation: &Operation) -> Self {
        let mut path = path.to_owned();
        for parameter in operation.parameters.iter().flatten() {
            let RefOr::T(parameter) = parameter else { continue };
            match (&parameter.parameter_in, example_of_parameter(parameter)) {
                (ParameterIn::Path, example) => {
                    path = path.replace(&format!("{{{}}}", parameter.name), &plain(&example));
                }
                // Without the parameters that have an example, the operation has nothing to do.
                (ParameterIn::Query, example) if !example.is_null() => {
                    let joint = if path.contains('?') { '&' } else { '?' };
                    path = format!("{path}{joint}{}={}", parameter.name, plain(&example));
                }
                _ => {}
            }
        }
        Self {
            method,
            path,
            body: example_of_body(operation.request_body.as_ref()),
            credential: shared::first_credential(operation),
            is_for_pages: shared::takes_cookie(operation),
            answer: answer_of(operation),
        }
    }

    /// Writes the call for a shell.
    pub(super) fn curl(&self) -> String {
        // curl adds these headers by itself.
        let method = match (self.method, &self.body) {
            ("GET", None) | ("POST", Some(_)) => String::new(),
            (other, _) => format!("-X {other} "),
        };
        let unbuffered = match self.answer {
            Answer::Events => "-N ",
            _ => "",
        };
        // Quotes what a shell would interpret.
        let quote = if self.path.contains('?') { "'" } else { "" };
        let mut lines = vec![format!(
            "curl -s {unbuffered}{method}{quote}{SERVER}{}{quote}",
            self.path
        )];
        if let Some(credential) = self.credential {
            lines.push(format!("-H \"Authorization: Bearer ${}\"", credential.variable()));
        }
        if let Some(body) = &self.body {
            lines.push("-H 'content-type: application/json'".to_owned());
            lines.push(format!("-d '{}'", body.to_string().replace('\'', "'\\''")));
        }
        lines.join(" \\\n  ")
    }

    /// Writes the call in JavaScript: for a page, or for a program if pages have no use for it.
    pub(super) fn javascript(&self) -> String {
        let server = if self.is_program() { SERVER } else { "" };
        let url = Value::from(format!("{server}{}", self.path));
        if let Answer::Events = self.answer {
            return format!(
                "const stream = new EventSource({url});\n\
                 stream.addEventListener(\"counts\", (event) => console.log(JSON.parse(event.data)));"
            );
        }
        let mut headers = Vec::new();
        if self.is_program()
            && let Some(credential) = self.credential
        {
            headers.push(format!(
                "authorization: `Bearer ${{process.env.{}}}`",
                credential.variable()
            ));
        }
        if self.body.is_some() {
            headers.push("\"content-type\": \"application/json\"".to_owned());
        }
        let mut options = Vec::new();
        if self.method != "GET" {
            options.push(format!("  method: \"{}\",\n", self.method));
        }
        if !headers.is_empty() {
            options.push(format!("  headers: {{ {} }},\n", headers.join(", ")));
        }
        if let Some(body) = &self.body {
            options.push(format!("  body: JSON.stringify({body}),\n"));
        }
        let options = match options.concat() {
            none if none.is_empty() => none,
            options => format!(", {{\n{options}}}"),
        };
        let read = match self.answer {
            Answer::Json => ", await answer.json()",
            Answer::Text | Answer::Events => ", await answer.text()",
            Answer::Nothing => "",
        };
        format!("const answer = await fetch({url}{options});\nconsole.log(answer.status{read});")
    }

    /// Whether a program calls the operation, because no page has an API key.
    fn is_program(&self) -> bool {
        self.credential.is_some() && !self.is_for_pages
    }
}

/// Writes a value as part of a path.
fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// Returns the example of a parameter, or the first of its allowed values.
fn example_of_parameter(parameter: &Parameter) -> Value {
    let parameter = serde_json::to_value(parameter).unwrap_or_default();
    match &parameter["example"] {
        Value::Null => parameter["schema"]["enum"][0].clone(),
        example => example.clone(),
    }
}

fn example_of_body(body: Option<&RefOr<RequestBody>>) -> Option<Value> {
    let RefOr::T(body) = body? else { return None };
    match body.content.values().next()? {
        RefOr::T(Content { example, .. }) => Some(example.clone().unwrap_or(Value::Object(Map::new()))),
        RefOr::Ref(_) => None,
    }
}

fn answer_of(operation: &Operation) -> Answer {
    let good = operation
        .responses
        .responses
        .iter()
        .find(|(status, _)| status.starts_with('2'));
    let Some((_, RefOr::T(response))) = good else {
        return Answer::Nothing;
    };
    match response.content.keys().next().map(String::as_str) {
        Some("application/json") => Answer::Json,
        Some("text/event-stream") => Answer::Events,
        Some(_) => Answer::Text,
        None => Answer::Nothing,
    }
}
