//! The page at `/docs`: the document as plain HTML, without script. It escapes all text.

use std::fmt::{self, Write as _};

use serde_json::Value;
use utoipa::openapi::content::Content;
use utoipa::openapi::path::{Operation, Parameter};
use utoipa::openapi::{OpenApi, RefOr, Required, Response};

use crate::web::describe::problems::CONTENT_TYPE as PROBLEM;
use crate::web::pages::docs::samples::Call;
use crate::web::pages::docs::schemas::{Words, write_schemas};
use crate::web::pages::html::{Escaped, Paragraphs, Prose, without_links};
use crate::web::problem::{Kind, meaning};

/// An operation of the document.
struct Described<'a> {
    method: &'static str,
    path: &'a str,
    id: &'a str,
    operation: &'a Operation,
}

/// Writes the page of this document.
pub(super) fn of(document: &OpenApi) -> String {
    let mut page = String::new();
    // Writing to a String never fails.
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
         <title>{0}: HTTP API</title>\n<link rel=\"icon\" href=\"/assets/icon.svg\">\n\
         <link rel=\"stylesheet\" href=\"/assets/docs.css\">\n</head>\n<body>\n\
         <a class=\"skip\" href=\"#main\">Skip to the content</a>\n<header>\n<h1>{0}: HTTP API</h1>\n\
         <p><a href=\"/openapi.json\">For programs</a>: OpenAPI {1}.</p>\n</header>\n",
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
    out.push_str("<section aria-labelledby=\"about\">\n<h2 id=\"about\">Overview</h2>\n");
    write!(
        out,
        "{}",
        Paragraphs(document.info.description.as_deref().unwrap_or_default())
    )?;
    out.push_str(
        "<p>The example calls are for a closed server on this machine. <code>$TALLY_API_KEY</code> is an API key, \
         <code>$VOTER_TOKEN</code> a voter's token. For an open server (<code>make run</code>) leave out the header \
         Authorization. In a page of the server's own origin, the browser adds the voter's cookie.</p>\n</section>\n",
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

/// Returns all operations, in the order of the document.
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
            out.push_str("<p>Optional.</p>\n");
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
