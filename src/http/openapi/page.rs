//! The page at `/docs`: the document as plain HTML, without script. All text is escaped.

use std::fmt::{self, Display, Write as _};

use serde_json::Value;
use utoipa::openapi::content::Content;
use utoipa::openapi::path::{Operation, Parameter};
use utoipa::openapi::{OpenApi, RefOr, Required, Response, Schema};

use super::samples::Call;
use crate::http::description::problems::CONTENT_TYPE as PROBLEM;
use crate::http::problem::{Kind, meaning};

/// A schema that the document has in one place.
const SCHEMAS: &str = "#/components/schemas/";

/// Text in HTML.
struct Escaped<'a>(&'a str);

impl Display for Escaped<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for character in self.0.chars() {
            match character {
                '&' => out.write_str("&amp;")?,
                '<' => out.write_str("&lt;")?,
                '>' => out.write_str("&gt;")?,
                '"' => out.write_str("&quot;")?,
                '\'' => out.write_str("&#39;")?,
                other => out.write_char(other)?,
            }
        }
        Ok(())
    }
}

/// Text with `code` in back quotes, as descriptions have it.
struct Prose<'a>(&'a str);

impl Display for Prose<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, part) in self.0.split('`').enumerate() {
            match at % 2 {
                0 => write!(out, "{}", Escaped(part))?,
                _ => write!(out, "<code>{}</code>", Escaped(part))?,
            }
        }
        Ok(())
    }
}

/// A text's paragraphs.
struct Paragraphs<'a>(&'a str);

impl Display for Paragraphs<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = self
            .0
            .split("\n\n")
            .map(str::trim)
            .filter(|text| !text.is_empty());
        all.into_iter()
            .try_for_each(|text| writeln!(out, "<p>{}</p>", Prose(text)))
    }
}

/// An operation of the document.
struct Described<'a> {
    method: &'static str,
    path: &'a str,
    id: &'a str,
    operation: &'a Operation,
}

/// The page of this document.
pub(super) fn of(document: &OpenApi) -> String {
    let mut page = String::new();
    // Writing to a String cannot fail.
    let _ = write_page(&mut page, document);
    page
}

fn write_page(out: &mut String, document: &OpenApi) -> fmt::Result {
    let title = &document.info.title;
    let all = operations(document);
    let tags = document.tags.as_deref().unwrap_or_default();
    let sections: Vec<(&str, &str, Vec<&Described<'_>>)> = tags
        .iter()
        .map(|tag| {
            let of_tag = all
                .iter()
                .filter(|one| one.operation.tags.iter().flatten().any(|name| *name == tag.name));
            (
                tag.name.as_str(),
                tag.description.as_deref().unwrap_or_default(),
                of_tag.collect(),
            )
        })
        .collect();
    write!(
        out,
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>{0}: HTTP interface</title>\n<link rel=\"icon\" href=\"data:,\">\n\
         <link rel=\"stylesheet\" href=\"/docs.css\">\n</head>\n<body>\n\
         <a class=\"skip\" href=\"#main\">Skip to the content</a>\n<header>\n<h1>{0}: HTTP interface</h1>\n\
         <p>The same <a href=\"/openapi.json\">for programs</a>, in OpenAPI {1}.</p>\n</header>\n",
        Escaped(title),
        Escaped(
            serde_json::to_value(&document.openapi)
                .unwrap_or_default()
                .as_str()
                .unwrap_or_default()
        ),
    )?;
    out.push_str("<nav aria-label=\"Contents\">\n<ul>\n");
    for (name, _, operations) in &sections {
        write!(
            out,
            "<li><a href=\"#{}\">{}</a>\n<ul>\n",
            section_id(name),
            Escaped(name)
        )?;
        for one in operations {
            writeln!(
                out,
                "<li><a href=\"#{}\">{}</a></li>",
                Escaped(one.id),
                Escaped(summary(one.operation))
            )?;
        }
        out.push_str("</ul></li>\n");
    }
    out.push_str(
        "<li><a href=\"#bodies\">Bodies</a></li>\n</ul>\n</nav>\n<main id=\"main\" tabindex=\"-1\">\n",
    );
    out.push_str("<section aria-labelledby=\"about\">\n<h2 id=\"about\">In short</h2>\n");
    write!(
        out,
        "{}",
        Paragraphs(document.info.description.as_deref().unwrap_or_default())
    )?;
    out.push_str(
        "<p>The calls below are for a closed server on this machine. <code>$TALLY_API_KEY</code> is an API key, \
         <code>$VOTER_TOKEN</code> a voter's token; on an open server (<code>make run</code>) leave the header \
         Authorization out. In a page of the server's own origin the browser adds the voter's cookie by \
         itself.</p>\n</section>\n",
    );
    for (name, text, operations) in &sections {
        let id = section_id(name);
        write!(
            out,
            "<section aria-labelledby=\"{id}\">\n<h2 id=\"{id}\">{}</h2>\n{}",
            Escaped(name),
            Paragraphs(text)
        )?;
        for one in operations {
            write_operation(out, one)?;
        }
        out.push_str("</section>\n");
    }
    write_schemas(out, document)?;
    out.push_str("</main>\n</body>\n</html>\n");
    Ok(())
}

fn section_id(name: &str) -> String {
    format!("about-{}", name.to_lowercase().replace(' ', "-"))
}

fn schema_id(name: &str) -> String {
    format!("body-{name}")
}

/// All of them, in the order of the document.
fn operations(document: &OpenApi) -> Vec<Described<'_>> {
    let mut all = Vec::new();
    for (path, item) in &document.paths.paths {
        for (method, operation) in [
            ("GET", &item.get),
            ("POST", &item.post),
            ("PUT", &item.put),
            ("PATCH", &item.patch),
            ("DELETE", &item.delete),
        ] {
            let Some(operation) = operation else { continue };
            all.push(Described {
                method,
                path,
                id: operation.operation_id.as_deref().unwrap_or_default(),
                operation,
            });
        }
    }
    all
}

fn summary(operation: &Operation) -> &str {
    let text = operation.summary.as_deref().unwrap_or_default();
    text.trim_end_matches('.')
}

fn write_operation(out: &mut String, one: &Described<'_>) -> fmt::Result {
    let Described {
        method,
        path,
        id,
        operation,
    } = one;
    let id = Escaped(id);
    write!(
        out,
        "<article aria-labelledby=\"{id}\">\n<h3 id=\"{id}\">{}</h3>\n\
         <p class=\"call\"><code>{method} {}</code></p>\n",
        Prose(summary(operation)),
        Escaped(path),
    )?;
    let text = operation.description.as_deref().unwrap_or_default();
    write!(out, "{}", Paragraphs(text))?;
    let parameters: Vec<&Parameter> = operation
        .parameters
        .iter()
        .flatten()
        .filter_map(|one| match one {
            RefOr::T(parameter) => Some(parameter),
            RefOr::Ref(_) => None,
        })
        .collect();
    if !parameters.is_empty() {
        out.push_str("<h4>Parameters</h4>\n<dl>\n");
        for parameter in parameters {
            write_parameter(out, parameter)?;
        }
        out.push_str("</dl>\n");
    }
    if let Some(RefOr::T(body)) = &operation.request_body {
        out.push_str("<h4>Body</h4>\n");
        if !matches!(body.required, Some(Required::True)) {
            out.push_str("<p>It may be left out.</p>\n");
        }
        for (kind, content) in &body.content {
            write_content(out, kind, content)?;
        }
    }
    out.push_str("<h4>Answers</h4>\n");
    let answers = operation
        .responses
        .responses
        .iter()
        .filter_map(|(status, answer)| match answer {
            RefOr::T(answer) => Some((status.as_str(), answer)),
            RefOr::Ref(_) => None,
        });
    let (problems, good): (Vec<_>, Vec<_>) =
        answers.partition(|(_, answer)| answer.content.contains_key(PROBLEM));
    for (status, answer) in good {
        writeln!(
            out,
            "<p><strong>{status}</strong> {}</p>",
            Prose(&answer.description)
        )?;
        write_headers(out, answer)?;
        for (kind, content) in &answer.content {
            write_content(out, kind, content)?;
        }
    }
    write_problems(out, &problems)?;
    let call = Call::of(method, path, operation);
    write!(
        out,
        "<h4>Calls</h4>\n<p>With curl:</p>\n<pre tabindex=\"0\" data-call=\"curl\"><code>{}</code></pre>\n\
         <p>In JavaScript:</p>\n<pre tabindex=\"0\" data-call=\"javascript\"><code>{}</code></pre>\n</article>\n",
        Escaped(&call.curl()),
        Escaped(&call.javascript()),
    )
}

fn write_parameter(out: &mut String, parameter: &Parameter) -> fmt::Result {
    let place = serde_json::to_value(&parameter.parameter_in).unwrap_or_default();
    let schema = serde_json::to_value(&parameter.schema).unwrap_or_default();
    let is_required = matches!(parameter.required, Required::True);
    write!(
        out,
        "<dt><code>{}</code></dt>\n<dd>in the {}, {}: {}. {}</dd>\n",
        Escaped(&parameter.name),
        Escaped(place.as_str().unwrap_or_default()),
        if is_required { "required" } else { "optional" },
        Words(&schema),
        Prose(parameter.description.as_deref().unwrap_or_default()),
    )
}

fn write_headers(out: &mut String, answer: &Response) -> fmt::Result {
    if answer.headers.is_empty() {
        return Ok(());
    }
    let names: Vec<String> = answer
        .headers
        .keys()
        .map(|name| format!("{}", Escaped(name)))
        .collect();
    writeln!(out, "<p>Headers: {}.</p>", names.join(", "))
}

fn write_content(out: &mut String, kind: &str, content: &RefOr<Content>) -> fmt::Result {
    let RefOr::T(content) = content else {
        return Ok(());
    };
    let schema = serde_json::to_value(&content.schema).unwrap_or_default();
    writeln!(out, "<p><code>{}</code>: {}</p>", Escaped(kind), Words(&schema))?;
    if let Some(example) = &content.example {
        let text = match example {
            Value::String(text) => text.clone(),
            value => serde_json::to_string_pretty(value).unwrap_or_default(),
        };
        write!(
            out,
            "<details>\n<summary>Example</summary>\n<pre tabindex=\"0\"><code>{}</code></pre>\n</details>\n",
            Escaped(&text)
        )?;
    }
    Ok(())
}

fn write_problems(out: &mut String, answers: &[(&str, &Response)]) -> fmt::Result {
    let is_of = |answer: &Response, kind: Kind| match answer.content.get(PROBLEM) {
        Some(RefOr::T(content)) => content.examples.contains_key(kind.slug()),
        _ => false,
    };
    let sent: Vec<Kind> = Kind::ALL
        .iter()
        .copied()
        .filter(|kind| answers.iter().any(|(_, answer)| is_of(answer, *kind)))
        .collect();
    write!(
        out,
        "<details>\n<summary>Problems: {}</summary>\n<dl>\n",
        sent.len()
    )?;
    for kind in sent {
        write!(
            out,
            "<dt>{} <a href=\"{}\"><code>{}</code></a></dt>\n<dd>{}</dd>\n",
            kind.status().as_u16(),
            Escaped(kind.address()),
            Escaped(kind.slug()),
            Prose(&without_links(meaning(kind))),
        )?;
    }
    out.push_str("</dl>\n</details>\n");
    Ok(())
}

/// Markdown without its links' addresses.
fn without_links(text: &str) -> String {
    let mut plain = String::new();
    let mut rest = text;
    while let Some((before, link)) = rest.split_once('[') {
        plain.push_str(before);
        match link
            .split_once("](")
            .and_then(|(name, after)| Some((name, after.split_once(')')?.1)))
        {
            Some((name, after)) => {
                plain.push_str(name);
                rest = after;
            }
            None => {
                plain.push('[');
                rest = link;
            }
        }
    }
    plain + rest
}

fn write_schemas(out: &mut String, document: &OpenApi) -> fmt::Result {
    out.push_str(
        "<section aria-labelledby=\"bodies\">\n<h2 id=\"bodies\">Bodies</h2>\n\
         <p>What stands in bodies, by the names that the description has for it.</p>\n",
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
            if is_required {
                "required"
            } else {
                "may be left out"
            },
            Words(property),
            Prose(property["description"].as_str().unwrap_or_default()),
        )?;
    }
    out.push_str("</dl>\n");
    if value["additionalProperties"] == Value::Bool(false) {
        out.push_str("<p>It takes no other field.</p>\n");
    }
    Ok(())
}

/// A schema in words, with links to the schemas that it names.
struct Words<'a>(&'a Value);

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

/// Code in HTML.
struct Code(String);

impl Display for Code {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "<code>{}</code>", Escaped(&self.0))
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

/// The properties of an object that has no name of its own.
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

/// What a number, a text or an array is limited to.
fn limits(out: &mut fmt::Formatter<'_>, schema: &Value) -> fmt::Result {
    for (least, greatest, what) in [
        ("minimum", "maximum", ""),
        ("minLength", "maxLength", " characters"),
        ("minItems", "maxItems", " entries"),
    ] {
        match (schema[least].as_i64(), schema[greatest].as_i64()) {
            // The limits of 64 bits say nothing more.
            (Some(i64::MIN), _) | (None, None) => {}
            (Some(least), None | Some(i64::MAX)) => write!(out, ", at least {least}{what}")?,
            (None, Some(greatest)) => write!(out, ", at most {greatest}{what}")?,
            (Some(least), Some(greatest)) => write!(out, ", {least} to {greatest}{what}")?,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_markup_in_a_text_is_none_on_the_page() {
        let text = "a < b & \"c\" > 'd' `<script>`";
        assert_eq!(
            Prose(text).to_string(),
            "a &lt; b &amp; &quot;c&quot; &gt; &#39;d&#39; <code>&lt;script&gt;</code>"
        );
    }

    #[test]
    fn a_link_leaves_its_name() {
        assert_eq!(
            without_links("see [the draft](https://x/y), or [that] [one"),
            "see the draft, or [that] [one"
        );
    }
}
