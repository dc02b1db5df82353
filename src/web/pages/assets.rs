//! The files that pages load, embedded in the binary. Each is at `/assets/{name}`, and the name has a hash of
//! the content. A browser keeps a file for ever, because a new version of Tally has other names.
//!
//! While two versions run behind one address, a page of one version may ask the other version for a file. It
//! gets that version's file, and must ask again the next time.

use std::sync::LazyLock;

use actix_web::http::header::{self, HeaderValue};
use actix_web::web::Bytes;
use actix_web::{HttpRequest, HttpResponse};
use sha2::{Digest as _, Sha256};

use crate::web::problem::Problem;
use crate::web::transport::POLICY_OF_DATA;
use crate::web::transport::kept::{Fresh, Kept};

/// The folder of all assets.
const FOLDER: &str = "/assets/";
/// The hexadecimal digits of the hash in a name: 32 bits, to tell apart two versions at a time.
const HASH_LENGTH: usize = 8;
/// The line before a style sheet in a script.
const STYLES_BEGIN: &str = "replaceSync(`";

const CSS: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";

/// Every asset: its name, its type, and its parts in order. An asset names only assets before it.
const FILES: [(&str, &str, &[&[u8]]); 27] = [
    (
        "page.css",
        CSS,
        &[include_bytes!("tokens.css"), include_bytes!("page.css")],
    ),
    (
        "docs.css",
        CSS,
        &[include_bytes!("tokens.css"), include_bytes!("docs/page.css")],
    ),
    (
        "ops.css",
        CSS,
        &[include_bytes!("tokens.css"), include_bytes!("operator/page.css")],
    ),
    (
        "frame.css",
        CSS,
        &[
            include_bytes!("tokens.css"),
            include_bytes!("page.css"),
            include_bytes!("frames/page.css"),
        ],
    ),
    ("ops.js", SCRIPT, &[include_bytes!("operator/page.js")]),
    ("words-ar.js", SCRIPT, &[include_bytes!("embed/words/ar.js")]),
    ("words-de.js", SCRIPT, &[include_bytes!("embed/words/de.js")]),
    ("words-es.js", SCRIPT, &[include_bytes!("embed/words/es.js")]),
    ("words-fr.js", SCRIPT, &[include_bytes!("embed/words/fr.js")]),
    ("words-he.js", SCRIPT, &[include_bytes!("embed/words/he.js")]),
    ("words-hi.js", SCRIPT, &[include_bytes!("embed/words/hi.js")]),
    ("words-it.js", SCRIPT, &[include_bytes!("embed/words/it.js")]),
    ("words-ja.js", SCRIPT, &[include_bytes!("embed/words/ja.js")]),
    ("words-nl.js", SCRIPT, &[include_bytes!("embed/words/nl.js")]),
    ("words-pl.js", SCRIPT, &[include_bytes!("embed/words/pl.js")]),
    ("words-pt.js", SCRIPT, &[include_bytes!("embed/words/pt.js")]),
    ("words-tr.js", SCRIPT, &[include_bytes!("embed/words/tr.js")]),
    ("words-zh.js", SCRIPT, &[include_bytes!("embed/words/zh.js")]),
    (
        "words-zh-Hant.js",
        SCRIPT,
        &[include_bytes!("embed/words/zh-Hant.js")],
    ),
    ("reactions.js", SCRIPT, &[include_bytes!("embed/reactions.js")]),
    ("chart.js", SCRIPT, &[include_bytes!("embed/chart.js")]),
    (
        "embed.js",
        SCRIPT,
        &[
            include_bytes!("embed/words/en.js"),
            include_bytes!("embed/ask.js"),
            include_bytes!("embed/clock.js"),
            include_bytes!("embed/words.js"),
            include_bytes!("embed/voter.js"),
            include_bytes!("embed/watch.js"),
            include_bytes!("embed/look.js"),
            include_bytes!("embed/element.js"),
            include_bytes!("embed/ballot.js"),
            include_bytes!("embed/count.js"),
            include_bytes!("embed/vote.js"),
            include_bytes!("embed/poll.js"),
            include_bytes!("embed/history.js"),
            include_bytes!("embed/define.js"),
        ],
    ),
    ("page.js", SCRIPT, &[include_bytes!("voting/page.js")]),
    ("frame.js", SCRIPT, &[include_bytes!("frames/page.js")]),
    ("embed-page.js", SCRIPT, &[include_bytes!("embed/page.js")]),
    ("icon.svg", "image/svg+xml", &[include_bytes!("icon.svg")]),
    ("preview.png", "image/png", &[include_bytes!("preview.png")]),
];

struct Asset {
    name: &'static str,
    /// The name with the hash: `page-01234567.css`.
    hashed_name: String,
    kept: Kept,
}

static ASSETS: LazyLock<Vec<Asset>> = LazyLock::new(|| {
    let mut assets: Vec<Asset> = Vec::with_capacity(FILES.len());
    for (name, content_type, parts) in FILES {
        let mut body = parts.concat();
        if let Ok(text) = std::str::from_utf8(&body) {
            let text = with_hashes(text, &assets);
            body = if content_type == SCRIPT { bare(&text) } else { text }.into_bytes();
        }
        let hash = format!("{:x}", Sha256::digest(&body));
        let (stem, kind) = name.rsplit_once('.').unwrap_or((name, ""));
        assets.push(Asset {
            name,
            hashed_name: format!("{stem}-{}.{kind}", &hash[..HASH_LENGTH]),
            kept: Kept::new(content_type, POLICY_OF_DATA, Bytes::from(body)),
        });
    }
    assets
});

/// Makes all assets, before the first request.
pub(in crate::web) fn prepare() {
    LazyLock::force(&ASSETS);
}

/// Replaces names such as `/assets/page.css` in a text by the addresses of the assets.
pub(in crate::web) fn addressed(text: &str) -> String {
    with_hashes(text, &ASSETS)
}

fn with_hashes(text: &str, assets: &[Asset]) -> String {
    let mut text = text.to_owned();
    for asset in assets {
        let [plain, hashed] = [asset.name, &asset.hashed_name].map(|name| format!("{FOLDER}{name}"));
        text = text.replace(&plain, &hashed);
    }
    text
}

/// A script without its indentation, its comments, most blanks and most ends of lines, which a browser does not need: about
/// a third.
fn bare(script: &str) -> String {
    let lines = script.lines().map(|line| without_comment(line).trim());
    let mut bare = String::with_capacity(script.len());
    let mut is_in_template = false; // a text of several lines, which keeps them
    let mut are_styles = false;
    for line in lines.filter(|line| !line.is_empty()) {
        let was_in_template = is_in_template;
        is_in_template ^= line.matches('`').count() % 2 == 1;
        if was_in_template && is_in_template && are_styles {
            bare.push_str(&bare_styles(line));
            continue;
        }
        are_styles = is_in_template && line.ends_with(STYLES_BEGIN);
        if was_in_template || is_in_template {
            bare.push_str(line);
        } else {
            bare.push_str(&bare_code(line));
        }
        // Behind these nothing needs an end of a line, but for a comment that stays.
        let is_joined = !is_in_template && !line.contains("//") && line.ends_with(['{', '(', '[', ',', ';']);
        if !is_joined && !are_styles {
            bare.push('\n');
        }
    }
    bare
}

/// Signs that need no blank beside them. Beside `+` and `-` it may say something: `a - -b`.
const SIGNS: [char; 20] = [
    '=', ',', ';', ':', '?', '(', ')', '{', '}', '[', ']', '<', '>', '&', '|', '!', '*', '%', '^', '~',
];

/// A line of code without the blanks beside its signs, but in texts. A line with a template, a pattern or another quote
/// stays.
fn bare_code(line: &str) -> String {
    let parts: Vec<&str> = line.split('"').collect();
    if line.contains(['`', '/', '\'', '\\']) || parts.len().is_multiple_of(2) {
        return line.to_owned();
    }
    let mut bare = String::with_capacity(line.len());
    for (at, part) in parts.iter().enumerate() {
        if at > 0 {
            bare.push('"');
        }
        if at % 2 == 1 {
            bare.push_str(part);
            continue;
        }
        for (at, sign) in part.char_indices() {
            let is_beside = || bare.ends_with(SIGNS) || part[at..].trim_start().starts_with(SIGNS);
            if sign != ' ' || !is_beside() {
                bare.push(sign);
            }
        }
    }
    bare
}

/// A line of a style sheet, which ends with a rule or within one, without the blanks that say nothing.
fn bare_styles(line: &str) -> String {
    let mut bare = String::with_capacity(line.len());
    for part in line.split(' ') {
        let is_needed = !bare.is_empty()
            && !bare.ends_with(['{', '}', ';', ':', ',', '>'])
            && !part.starts_with(['{', '}', '>']);
        if is_needed {
            bare.push(' ');
        }
        bare.push_str(part);
    }
    // A fraction needs no zero before its point.
    for before in [' ', ':', ',', '('] {
        bare = bare.replace(&format!("{before}0."), &format!("{before}."));
    }
    bare.replace(";}", "}")
}

/// A line without the comment at its end. What has a quote behind it may be in a text, and stays.
fn without_comment(line: &str) -> &str {
    if line.trim_start().starts_with("//") {
        return "";
    }
    match line.rsplit_once(" // ") {
        Some((code, comment)) if !comment.contains(['"', '`']) => code,
        _ => line,
    }
}

/// Finds the asset with this name, with any hash.
pub(in crate::web) fn find(name: &str) -> Option<(&'static Kept, Fresh)> {
    ASSETS.iter().find_map(|asset| {
        if asset.hashed_name == name {
            return Some((&asset.kept, Fresh::ForEver));
        }
        let (stem, kind) = asset.name.rsplit_once('.')?;
        let hash = name.strip_prefix(stem)?.strip_suffix(kind)?;
        let hash = hash.strip_prefix('-')?.strip_suffix('.')?;
        let is_hash = hash.len() == HASH_LENGTH && hash.bytes().all(|byte| byte.is_ascii_hexdigit());
        is_hash.then_some((&asset.kept, Fresh::IfAsked))
    })
}

/// Answers with the elements' script, at an address that never changes.
///
/// # Errors
/// 404 if there is no such file.
pub(in crate::web) fn elements(request: &HttpRequest) -> Result<HttpResponse, Problem> {
    let asset = ASSETS.iter().find(|asset| asset.name == "embed.js");
    let asset = asset.ok_or_else(|| Problem::not_found(request.path()))?;
    Ok(asset.kept.answer(request, Fresh::IfAsked))
}

/// `/assets/{name}`.
///
/// # Errors
/// 404 if no asset has this name.
pub(in crate::web) async fn show(request: HttpRequest) -> Result<HttpResponse, Problem> {
    let found = find(request.match_info().query("name"));
    let (kept, fresh) = found.ok_or_else(|| Problem::not_found(request.path()))?;
    let mut answer = kept.answer(&request, fresh);
    // The elements fetch their words from pages of any origin.
    answer
        .headers_mut()
        .insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, HeaderValue::from_static("*"));
    Ok(answer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_names_an_asset_names_its_hash() {
        let page = ASSETS
            .iter()
            .find(|asset| asset.name == "page.css")
            .expect("it is there");
        let text = addressed("<link href=\"/assets/page.css\">");
        assert_eq!(text, format!("<link href=\"/assets/{}\">", page.hashed_name));
        for asset in ASSETS.iter() {
            assert!(!asset.hashed_name.contains(asset.name), "{}", asset.hashed_name);
        }
    }

    #[test]
    fn a_script_is_sent_without_its_comments_and_with_all_of_its_texts() {
        let script = "// Whole lines.\n\n  const limit = 5; // of the server's lines\n  say(\"a // b\");\n  say(`c // d`); // e\n";
        assert_eq!(bare(script), "const limit=5;say(\"a // b\");\nsay(`c // d`);\n");
        let script = "if (a) {\n  say(`x {\n  y;\n`, [\n    1,\n  ]);\n}\nb()\n";
        assert_eq!(bare(script), "if(a){say(`x {\ny;\n`, [1,]);}\nb()\n");
        let script = "if (a ? b : - -c) say(\"d = (e)\", { f: [1, 2] }); else return { g }\nh = i / 2\nsay('j = k', l)\n";
        assert_eq!(
            bare(script),
            "if(a?b:- -c)say(\"d = (e)\",{f:[1,2]});else return{g}\nh = i / 2\nsay('j = k', l)\n"
        );
        let script = "one.replaceSync(`\na, :host b:is(c) > d { e: f(g, 0.5em) 0.2s; i: 10.5px; }\n@k (l: m) {\n  n { o: p }\n}\n`);\nq();\n";
        assert_eq!(
            bare(script),
            "one.replaceSync(`a,:host b:is(c)>d{e:f(g,.5em) .2s;i:10.5px}@k (l:m){n{o:p}}`);q();"
        );
    }

    #[test]
    fn every_asset_is_found_by_its_name_for_ever_and_by_another_versions_for_now() {
        for asset in ASSETS.iter() {
            let fresh = |name: &str| find(name).map(|(_, fresh)| matches!(fresh, Fresh::ForEver));
            assert_eq!(fresh(&asset.hashed_name), Some(true));
            let (stem, kind) = asset.name.rsplit_once('.').expect("a kind");
            assert_eq!(fresh(&format!("{stem}-01234567.{kind}")), Some(false));
            assert_eq!(fresh(asset.name), None);
            assert_eq!(fresh(&format!("{stem}-0123456.{kind}")), None);
            assert_eq!(fresh(&format!("{stem}-012345zz.{kind}")), None);
        }
    }
}
