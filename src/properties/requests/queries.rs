//! The queries of requests.

use super::{is_printable, is_proper};
use crate::counts::TOP_LIMIT_ITEMS;
use crate::domain::{ActKind, ItemKey};
use crate::web::limits::{STREAM_LIMIT_ITEMS, STREAM_LIMIT_POLLS};
use crate::web::parsing::{
    self, HELD_LIMIT_ITEMS, HELD_LIMIT_POLLS, Listed, PAGE_LIMIT_ITEMS, PAGE_LIMIT_POLLS,
    PAGE_LIMIT_VOIDINGS, PAGE_LIMIT_VOTER_EDITS, TRAIL_LIMIT_ACTS, TopAskedOf,
};

/// The query of a top list.
pub fn top_query(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    let asked = match parsing::top(text) {
        Ok(asked) => asked,
        Err(refusal) => return is_proper(&refusal),
    };
    assert!((1..=TOP_LIMIT_ITEMS).contains(&asked.limit));
    if let TopAskedOf::Items {
        key_prefix: Some(prefix),
        ..
    } = asked.of
    {
        let (begin, end) = (prefix.as_str(), prefix.end());
        is_printable(begin, begin.len(), ItemKey::LIMIT_BYTES);
        assert!(end.is_none_or(|end| begin < end.as_str()), "{begin:?}");
    }
}

/// The header Host and the query of oEmbed, with a line feed between them.
pub fn oembed_query(bytes: &[u8]) {
    let (host, query) = match bytes.iter().position(|byte| *byte == b'\n') {
        Some(at) => (&bytes[..at], &bytes[at + 1..]),
        None => (&b"votes.example.org"[..], bytes),
    };
    let Ok(query) = std::str::from_utf8(query) else {
        return;
    };
    match parsing::oembed(host, query) {
        Ok(frame) => {
            let url = reqwest::Url::parse(&frame).expect("an address");
            assert!(matches!(url.scheme(), "http" | "https"), "{frame}");
            assert!(url.username().is_empty() && url.password().is_none(), "{frame}");
            // At the host that was asked, with its port or with the default of http or https.
            let name = url.host_str().expect("a host").as_bytes();
            let rest = host.get(name.len()..).expect("a host as long");
            assert!(host[..name.len()].eq_ignore_ascii_case(name), "{frame}");
            match url.port() {
                None | Some(80 | 443) => assert!(matches!(rest, b"" | b":80" | b":443"), "{frame}"),
                Some(port) => assert_eq!(rest, format!(":{port}").as_bytes(), "{frame}"),
            }
            assert!(url.path().ends_with("/polls/1/frame"), "{frame}");
            let is_look = |byte: u8| byte.is_ascii_alphanumeric() || b"-=&".contains(&byte);
            assert!(url.query().unwrap_or_default().bytes().all(is_look), "{frame}");
        }
        // No page of this host, or another format.
        Err(refusal) if [404, 501].contains(&refusal.status) => {
            let problem: serde_json::Value = serde_json::from_slice(&refusal.body).expect("JSON");
            assert!(
                problem["field"] == "url" || problem["field"] == "format",
                "{problem}"
            );
        }
        Err(refusal) => is_proper(&refusal),
    }
}

/// The query of the list of items.
pub fn list_query(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    match parsing::list(text) {
        Ok(Listed::Items(items)) => assert!((1..=PAGE_LIMIT_ITEMS).contains(&(items.len() as i64))),
        Ok(Listed::Page(page)) => {
            assert!((1..=PAGE_LIMIT_ITEMS).contains(&page.limit), "{page:?}");
            assert!(
                ![page.name, page.search]
                    .into_iter()
                    .flatten()
                    .any(|text| text.contains('\0'))
            );
        }
        Err(refusal) => is_proper(&refusal),
    }
}

/// The query of the list of polls.
pub fn poll_list_query(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    match parsing::poll_list(text) {
        Ok(page) => {
            assert!((1..=PAGE_LIMIT_POLLS).contains(&page.limit), "{page:?}");
            assert!(!page.search.is_some_and(|text| text.contains('\0')));
        }
        Err(refusal) => is_proper(&refusal),
    }
}

/// The query for what a voter holds.
pub fn held_query(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    match parsing::held(text) {
        Ok(asked) => {
            assert!(asked.items.len() <= HELD_LIMIT_ITEMS && asked.polls.len() <= HELD_LIMIT_POLLS);
            assert!(!asked.items.is_empty() || !asked.polls.is_empty());
        }
        Err(refusal) => is_proper(&refusal),
    }
}

/// The query of a stream.
pub fn stream_query(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    match parsing::stream(text) {
        Ok(wanted) => {
            assert!(wanted.items.len() <= STREAM_LIMIT_ITEMS && wanted.polls.len() <= STREAM_LIMIT_POLLS);
            assert!(!wanted.items.is_empty() || !wanted.polls.is_empty());
        }
        Err(refusal) => is_proper(&refusal),
    }
}

/// The queries of what an operator reads: the trail, voidings, edits of voters, the last hour.
pub fn operator_query(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    match parsing::trail(text) {
        Ok((filter, limit)) => {
            assert!((1..=TRAIL_LIMIT_ACTS).contains(&limit));
            assert!(filter.before_id.is_none_or(|before| before > 0));
            assert!(!filter.who.is_some_and(|who| who.contains('\0')));
            let is_known = |what: &String| ActKind::ALL.iter().any(|kind| kind.name() == what);
            assert!(filter.what.iter().all(is_known));
        }
        Err(refusal) => is_proper(&refusal),
    }
    match parsing::voidings(text) {
        Ok((before, limit)) => {
            assert!((1..=PAGE_LIMIT_VOIDINGS).contains(&limit));
            assert!(before.is_none_or(|before| before.0 > 0));
        }
        Err(refusal) => is_proper(&refusal),
    }
    match parsing::voter_edits(text) {
        Ok((before, limit)) => {
            assert!((1..=PAGE_LIMIT_VOTER_EDITS).contains(&limit));
            assert!(before.is_none_or(|before| before.0 > 0));
        }
        Err(refusal) => is_proper(&refusal),
    }
    if let Err(refusal) = parsing::history(text) {
        is_proper(&refusal);
    }
}
