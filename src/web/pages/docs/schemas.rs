//! The bodies of the document in words.

use std::fmt::{self, Display, Write as _};

use serde_json::Value;
use utoipa::openapi::{OpenApi, RefOr, Schema};

use crate::web::pages::html::{Code, Escaped, Paragraphs, Prose};

/// Where the document has its schemas.
const SCHEMAS: &str = "#/components/schemas/";

fn schema_id(name: &str) -> String {
    format!("body-{name}")
}

pub(super) fn write_schemas(out: &mut String, document: &OpenApi) -> fmt::Result {
    out.push_str(
        "<section aria-labelledby=\"bodies\">\n<h2 id=\"bodies\">Bodies</h2>\n\
         <p>The schemas of request and answer bodies, by name.</p>\n",
    );
    let schemas = document
        .components
        .iter()
        .flat_map(|components| &components.schemas);
    for (name, schema) in schemas {
        let id = schema_id(name);
        let value = serde_json::to_value(schema).unwrap_or_default();
        write!(
            out,
            "<article aria-labelledby=\"{id}\">\n<h3 id=\"{id}\">{}</h3>\n",
            Escaped(name)
        )?;
        write!(
            out,
            "{}",
            Paragraphs(value["description"].as_str().unwrap_or_default())
        )?;
        write_schema(out, schema, &value)?;
        out.push_str("</article>\n");
    }
    out.push_str("</section>\n");
    Ok(())
}

fn write_schema(out: &mut String, schema: &RefOr<Schema>, value: &Value) -> fmt::Result {
    let RefOr::T(Schema::Object(object)) = schema else {
        return writeln!(out, "<p>{}.</p>", Words(value));
    };
    if object.properties.is_empty() {
        return writeln!(out, "<p>{}.</p>", Words(value));
    }
    out.push_str("<dl>\n");
    // In the order of the program's own fields.
    for (name, _) in &object.properties {
        let property = &value["properties"][name];
        let is_required = object.required.contains(name);
        write!(
            out,
            "<dt><code>{}</code></dt>\n<dd>{}: {}. {}</dd>\n",
            Escaped(name),
            if is_required { "required" } else { "optional" },
            Words(property),
            Prose(property["description"].as_str().unwrap_or_default()),
        )?;
    }
    out.push_str("</dl>\n");
    if value["additionalProperties"] == Value::Bool(false) {
        out.push_str("<p>No other fields are allowed.</p>\n");
    }
    Ok(())
}

/// A schema in words, with links to the schemas that it names.
pub(super) struct Words<'a>(pub(super) &'a Value);

impl Display for Words<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let schema = self.0;
        if let Some(name) = schema["$ref"].as_str().and_then(|at| at.strip_prefix(SCHEMAS)) {
            return write!(
                out,
                "<a href=\"#{}\">{}</a>",
                Escaped(&schema_id(name)),
                Escaped(name)
            );
        }
        for (keyword, between) in [("oneOf", " or "), ("anyOf", " or "), ("allOf", " with ")] {
            if let Some(parts) = schema[keyword].as_array() {
                return joined(out, parts.iter().map(Words), between);
            }
        }
        if let Some(values) = schema["enum"].as_array() {
            let values = values.iter().map(|value| match value {
                Value::String(text) => Code(text.clone()),
                other => Code(other.to_string()),
            });
            return joined(out, values, ", ");
        }
        let kinds: Vec<&str> = match &schema["type"] {
            Value::String(kind) => vec![kind],
            Value::Array(kinds) => kinds.iter().filter_map(Value::as_str).collect(),
            _ => vec![],
        };
        for (at, kind) in kinds.iter().enumerate() {
            if at > 0 {
                out.write_str(" or ")?;
            }
            match *kind {
                "array" => write!(out, "array of {}", Words(&schema["items"]))?,
                "object" if schema["properties"].is_object() => properties(out, schema)?,
                "string" => out.write_str(match schema["format"].as_str() {
                    Some("date-time") => "a time (RFC 3339)",
                    _ => "string",
                })?,
                other => write!(out, "{}", Escaped(other))?,
            }
        }
        limits(out, schema)
    }
}

fn joined(
    out: &mut fmt::Formatter<'_>,
    parts: impl Iterator<Item = impl Display>,
    between: &str,
) -> fmt::Result {
    for (at, part) in parts.enumerate() {
        if at > 0 {
            out.write_str(between)?;
        }
        write!(out, "{part}")?;
    }
    Ok(())
}

/// Writes the properties of an object that has no name of its own.
fn properties(out: &mut fmt::Formatter<'_>, schema: &Value) -> fmt::Result {
    let properties = schema["properties"].as_object().into_iter().flatten();
    for (at, (name, property)) in properties.enumerate() {
        if at > 0 {
            out.write_str(", ")?;
        }
        write!(out, "<code>{}</code>: {}", Escaped(name), Words(property))?;
    }
    Ok(())
}

/// Writes the limits of a number, a text or an array.
fn limits(out: &mut fmt::Formatter<'_>, schema: &Value) -> fmt::Result {
    for (least, greatest, what) in [
        ("minimum", "maximum", ""),
        ("minLength", "maxLength", " characters"),
        ("minItems", "maxItems", " entries"),
    ] {
        match (schema[least].as_i64(), schema[greatest].as_i64()) {
            // The limits of 64 bits add no information.
            (Some(i64::MIN), _) | (None, None) => {}
            (Some(least), None | Some(i64::MAX)) => write!(out, ", at least {least}{what}")?,
            (None, Some(greatest)) => write!(out, ", at most {greatest}{what}")?,
            (Some(least), Some(greatest)) => write!(out, ", {least} to {greatest}{what}")?,
        }
    }
    Ok(())
}
