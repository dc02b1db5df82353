//! The parsers of HTTP requests.

use serde_json::json;

use crate::counts::TOP_LIMIT_ITEMS;
use crate::domain::{
    ActKind, CHOICES_LIMIT_ITEMS, Edit, ItemId, ItemKey, ItemName, NewItem, VoterEditKind, VoterId,
};
use crate::watching::Fingerprint;
use crate::web::ProblemKind;
use crate::web::limits::{REQUEST_LIMIT_VOTES, STREAM_LIMIT_ITEMS, STREAM_LIMIT_POLLS};
use crate::web::parsing::{
    self, BALLOTS_LIMIT, GRACE_LIMIT_SECONDS, HELD_LIMIT_ITEMS, HELD_LIMIT_POLLS, Listed, PAGE_LIMIT_ITEMS,
    PAGE_LIMIT_POLLS, PAGE_LIMIT_VOIDINGS, PAGE_LIMIT_VOTER_EDITS, Refusal, TRAIL_LIMIT_ACTS, TopAskedOf,
};

/// Words that mean nothing to a client of JSON over HTTP. They are those of Rust, of serde and of
/// Tally's own types. `read` stands for "it cannot be read", which Tally only says when it finds no
/// reason for refusing.
const FOREIGN: &[&str] = &[
    "i8",
    "i16",
    "i32",
    "i64",
    "i128",
    "isize",
    "u8",
    "u16",
    "u32",
    "u64",
    "u128",
    "usize",
    "f32",
    "f64",
    "bool",
    "char",
    "str",
    "String",
    "Option",
    "Some",
    "None",
    "Vec",
    "struct",
    "enum",
    "variant",
    "tuple",
    "unit",
    "map",
    "sequence",
    "floating",
    "serde",
    "expected",
    "invalid",
    "deserialize",
    "VoteBody",
    "NewItemBody",
    "ChangeBody",
    "BatchBody",
    "BatchVote",
    "NewPollBody",
    "NewChoiceBody",
    "PollCopyBody",
    "TopQuery",
    "SelectionBody",
    "ListQuery",
    "PollListQuery",
    "HeldQuery",
    "StreamQuery",
    "NewVoidingBody",
    "NewVoterEditBody",
    "NewApiKeyBody",
    "RotationBody",
    "TrailQuery",
    "VoidingsQuery",
    "VoterEditsQuery",
    "HistoryQuery",
    "read",
];

/// Checks that a refusal blames the client's input. It does so as RFC 9457 says, in words of JSON
/// and HTTP.
fn is_proper(refusal: &Refusal) {
    assert!((400..500).contains(&refusal.status), "{refusal:?}");
    assert_eq!(refusal.content_type, "application/problem+json");
    let problem: serde_json::Value = serde_json::from_slice(&refusal.body).expect("JSON");
    assert_eq!(problem["status"], refusal.status);
    let kinds = [
        ProblemKind::Malformed,
        ProblemKind::InvalidValue,
        ProblemKind::BatchTooLarge,
        ProblemKind::NeverChanges,
    ];
    let kind = kinds.iter().find(|kind| problem["type"] == kind.address());
    assert_eq!(
        kind.map(|kind| kind.status().as_u16()),
        Some(refusal.status),
        "{problem}"
    );
    for part in ["title", "detail", "field"] {
        assert!(problem[part].is_string(), "{problem}");
    }
    let detail = problem["detail"].as_str().expect("text");
    // The name of a field that does not exist is the client's own.
    let field = format!("{}: ", problem["field"].as_str().expect("text"));
    let said = detail.strip_prefix(&field).unwrap_or(detail);
    let is_letter = |letter: char| letter.is_alphanumeric() || letter == '_';
    for word in said.split(|letter| !is_letter(letter)) {
        assert!(!FOREIGN.contains(&word), "{word}: {detail}");
    }
}

/// The body of a vote.
pub fn vote_body(bytes: &[u8]) {
    let item = ItemId::new(1).expect("positive");
    let vote = match parsing::vote(item, bytes) {
        Ok(vote) => vote,
        Err(refusal) => return is_proper(&refusal),
    };
    assert!([1, -1].contains(&vote.value.get()));
    if let Some(voter) = &vote.voter_id {
        is_printable(voter.as_str(), voter.as_str().len(), VoterId::LIMIT_BYTES);
    }
    if !bytes.is_empty() {
        let object: serde_json::Value = serde_json::from_slice(bytes).expect("what is taken is JSON");
        assert!(object.is_object(), "{object}");
    }
    let again = json!({
        "voter_id": vote.voter_id.as_ref().map(VoterId::as_str),
        "value": vote.value.get(),
    });
    let again = parsing::vote(item, again.to_string().as_bytes()).expect("it was taken before");
    assert_eq!(again, vote);
}

/// The body of a batch of votes.
pub fn batch_body(bytes: &[u8]) {
    let votes = match parsing::batch(bytes) {
        Ok(votes) => votes,
        Err(refusal) => return is_proper(&refusal),
    };
    assert!((1..=REQUEST_LIMIT_VOTES).contains(&votes.len()));
    for vote in votes {
        match vote {
            Ok(entry) => {
                if let Some(voter) = &entry.vote.voter_id {
                    is_printable(voter.as_str(), voter.as_str().len(), VoterId::LIMIT_BYTES);
                }
            }
            Err(refusal) => is_proper(&refusal),
        }
    }
}

/// The body of a new poll.
pub fn poll_body(bytes: &[u8]) {
    let poll = match parsing::poll(bytes) {
        Ok(poll) => poll,
        Err(refusal) => return is_proper(&refusal),
    };
    assert!((1..=CHOICES_LIMIT_ITEMS).contains(&poll.choices.len()));
    for name in poll.choices.iter().chain([&poll.title]) {
        let length = name.as_str().chars().count();
        is_printable(name.as_str(), length, ItemName::LIMIT_CHARACTERS);
    }
    assert!(poll.shows_results || poll.closes_at.is_some());
    let is_in_order = |opens, closes| opens < closes;
    assert!(
        poll.opens_at
            .zip(poll.closes_at)
            .is_none_or(|(opens, closes)| is_in_order(opens, closes))
    );
}

/// The body of a selection.
pub fn selection_body(bytes: &[u8]) {
    let items = match parsing::selection(bytes) {
        Ok(items) => items,
        Err(refusal) => return is_proper(&refusal),
    };
    assert!(items.len() <= CHOICES_LIMIT_ITEMS);
    assert!(
        items.is_sorted_by(|one, other| one < other),
        "each once, in order"
    );
    let again = json!({ "items": items });
    let again = parsing::selection(again.to_string().as_bytes()).expect("it was taken before");
    assert_eq!(again, items);
}

/// A voter in a path.
pub fn path_voter(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    match parsing::voter(text) {
        Ok(voter) => is_printable(voter.as_str(), voter.as_str().len(), VoterId::LIMIT_BYTES),
        Err(refusal) => is_proper(&refusal),
    }
}

/// The body of a new item.
pub fn item_body(bytes: &[u8]) {
    let item = match parsing::item(bytes) {
        Ok(item) => item,
        Err(refusal) => return is_proper(&refusal),
    };
    let NewItem { name, key, rules } = &item;
    is_printable(
        name.as_str(),
        name.as_str().chars().count(),
        ItemName::LIMIT_CHARACTERS,
    );
    if let Some(key) = key {
        is_printable(key.as_str(), key.as_str().len(), ItemKey::LIMIT_BYTES);
    }
    let again = json!({
        "name": name.as_str(),
        "key": key.as_ref().map(ItemKey::as_str),
        "by_ballot": rules.by_ballot,
        "down_votes": rules.takes_down_votes,
        "max_votes": rules.max_votes,
        "numbered": rules.is_numbered,
        "opens_at": rules.opens_at,
        "closes_at": rules.closes_at,
    });
    let again = parsing::item(again.to_string().as_bytes()).expect("it was taken before");
    assert_eq!(again, item);
}

/// Checks a text that Postgres, logs and terminals take.
fn is_printable(text: &str, length: usize, limit: usize) {
    assert!((1..=limit).contains(&length), "{length}");
    assert!(!text.chars().any(char::is_control), "{text:?}");
}

/// The body of an item's edit.
pub fn item_edit_body(bytes: &[u8]) {
    is_edit(parsing::item_edit(bytes));
}

/// The body of a poll's edit.
pub fn poll_edit_body(bytes: &[u8]) {
    is_edit(parsing::poll_edit(bytes));
}

/// The body of a new choice of a poll.
pub fn choice_body(bytes: &[u8]) {
    let name = match parsing::choice(bytes) {
        Ok(name) => name,
        Err(refusal) => return is_proper(&refusal),
    };
    let length = name.as_str().chars().count();
    is_printable(name.as_str(), length, ItemName::LIMIT_CHARACTERS);
    let again = json!({ "name": name.as_str() });
    let again = parsing::choice(again.to_string().as_bytes()).expect("it was taken before");
    assert_eq!(again, name);
}

/// The body of a poll's copy.
pub fn poll_copy_body(bytes: &[u8]) {
    let copy = match parsing::poll_copy(bytes) {
        Ok(copy) => copy,
        Err(refusal) => return is_proper(&refusal),
    };
    let is_in_order = |opens, closes| opens < closes;
    assert!(
        copy.opens_at
            .zip(copy.closes_at)
            .is_none_or(|(opens, closes)| is_in_order(opens, closes))
    );
    let again = json!({
        "title": copy.title.as_ref().map(ItemName::as_str),
        "key": copy.key.as_ref().map(ItemKey::as_str),
        "opens_at": copy.opens_at,
        "closes_at": copy.closes_at,
    });
    let again = parsing::poll_copy(again.to_string().as_bytes()).expect("it was taken before");
    assert_eq!(again, copy);
}

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

fn is_edit(edit: Result<Edit, Refusal>) {
    match edit {
        Ok(edit) => {
            if let Some(name) = &edit.name {
                let length = name.as_str().chars().count();
                is_printable(name.as_str(), length, ItemName::LIMIT_CHARACTERS);
            }
        }
        Err(refusal) => is_proper(&refusal),
    }
}

/// The body of a request for ballots.
pub fn ballots_body(bytes: &[u8]) {
    match parsing::ballots(bytes) {
        Ok(ballots) => assert!((1..=BALLOTS_LIMIT).contains(&(ballots.len() as i64))),
        Err(refusal) => is_proper(&refusal),
    }
}

/// An item in a path: an id, or a key.
pub fn path_item(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    if let Err(refusal) = parsing::item_reference(text) {
        is_proper(&refusal);
    }
}

/// The header Idempotency-Key.
pub fn idempotency_key(bytes: &[u8]) {
    match parsing::idempotency_key(bytes) {
        Ok(key) => is_printable(&key, key.len(), 255),
        Err(refusal) => is_proper(&refusal),
    }
}

/// The header Authorization.
pub fn authorization(bytes: &[u8]) {
    let Some(text) = parsing::authorization(bytes) else {
        return;
    };
    is_printable(text, text.len(), bytes.len());
    assert!(!text.contains([' ', ',', ';']));
    assert!(bytes.windows(text.len()).any(|part| part == text.as_bytes()));
    assert_eq!(
        parsing::authorization(format!("Bearer {text}").as_bytes()),
        Some(text)
    );
}

/// The headers Host and Origin, with a line feed between them.
pub fn origin(bytes: &[u8]) {
    const ALLOWED: &str = "https://news.example.org";
    let (host, origin) = match bytes.iter().position(|byte| *byte == b'\n') {
        Some(at) => (&bytes[..at], &bytes[at + 1..]),
        None => (&b"votes.example.org"[..], bytes),
    };
    let allowed = ALLOWED.parse().expect("an origin");
    if parsing::may_write(&allowed, host, origin) != Some(true) {
        return;
    }
    // The allowed origin, or a scheme and the host unchanged.
    let host = host.to_ascii_lowercase();
    let is_own = [&b"http://"[..], b"https://"].iter().any(|scheme| {
        let own: Vec<u8> = [scheme, host.as_slice()].concat();
        own == origin.to_ascii_lowercase()
    });
    assert!(is_own || origin == ALLOWED.as_bytes(), "{origin:?}");
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

/// The header Last-Event-ID. It reads as exactly as many fingerprints as asked for, or as none.
pub fn last_event_id(bytes: &[u8]) {
    let total = bytes.len() / Fingerprint::CHARACTERS;
    if let Some(read) = Fingerprint::read(bytes, total) {
        assert_eq!(read.len(), total);
        let mut text = String::new();
        read.iter().for_each(|one| one.write(&mut text));
        assert_eq!(text.as_bytes(), bytes, "one spelling each");
    }
}

/// An item's id in a path.
pub fn item_id(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    match text.parse::<ItemId>() {
        Ok(id) => {
            assert!(id.get() > 0);
            // Each id has one spelling.
            assert_eq!(id.to_string(), text);
        }
        Err(()) => {
            let number = text.parse::<i64>();
            assert!(
                !number.is_ok_and(|id| id > 0 && id.to_string() == text),
                "{text:?}"
            );
        }
    }
}

/// The body of `POST /v1/voidings`.
pub fn voiding_body(bytes: &[u8]) {
    match parsing::voiding(bytes) {
        Ok(wanted) => {
            let filter = &wanted.filter;
            let is_of_something = filter.voter_id.is_some()
                || wanted.item.is_some()
                || filter.cast_from.is_some()
                || filter.cast_until.is_some();
            assert!(is_of_something, "never all votes: {wanted:?}");
            assert!((1..=500).contains(&wanted.reason.chars().count()));
            assert!(!wanted.reason.contains('\0'), "Postgres takes no NUL");
            assert!(wanted.after == 0 || (wanted.dry_run && wanted.after > 0));
            if let (Some(from), Some(until)) = (filter.cast_from, filter.cast_until) {
                assert!(from < until);
            }
        }
        Err(refusal) => is_proper(&refusal),
    }
}

/// The body of `POST /v1/voter-edits`.
pub fn voter_edit_body(bytes: &[u8]) {
    match parsing::voter_edit(bytes) {
        Ok(wanted) => {
            assert_ne!(wanted.new.from, wanted.new.to);
            assert!(!wanted.new.from.is_erased(), "nobody's votes stay nobody's");
            let is_erased = wanted.new.kind == VoterEditKind::Erase;
            assert_eq!(wanted.new.to.is_erased(), is_erased);
            assert!(wanted.after == 0 || (wanted.dry_run && wanted.after > 0));
        }
        Err(refusal) => is_proper(&refusal),
    }
}

/// The bodies that create and rotate an API key.
pub fn api_key_body(bytes: &[u8]) {
    match parsing::api_key(bytes) {
        Ok(key) => {
            assert!((1..=100).contains(&key.name.chars().count()));
            assert!(!key.name.chars().any(char::is_control));
            assert!(!key.scopes.names().is_empty());
        }
        Err(refusal) => is_proper(&refusal),
    }
    match parsing::rotation(bytes) {
        Ok(grace) => assert!(grace.as_secs() <= GRACE_LIMIT_SECONDS.unsigned_abs()),
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
