//! Answers that several routes give, as examples.

use serde_json::{Value, json};

/// An item.
pub(in crate::http) fn item() -> Value {
    json!({
        "id": 1, "name": "A post", "key": "post-42",
        "vote_count": 7, "up_count": 8, "down_count": 1, "current": true,
        "saved": { "vote_count": 6, "up_count": 7, "down_count": 1, "counted_at": "2030-01-31T18:00:00.123456Z" }
    })
}

/// A poll.
pub(in crate::http) fn poll() -> Value {
    json!({
        "id": 1, "title": "Lunch?", "max_choices": 1, "opens_at": null, "closes_at": null, "state": "open",
        "results_before_close": true, "voter_count": 4,
        "choices": [
            { "item_id": 2, "name": "soup", "vote_count": 3, "share": 0.75 },
            { "item_id": 3, "name": "salad", "vote_count": 1, "share": 0.25 }
        ],
        "current": true, "final": false
    })
}

/// A vote that was just cast.
pub(in crate::http) fn vote() -> Value {
    json!({
        "vote_id": 1, "item_id": 1, "voter_id": "ada", "value": 1,
        "vote_count": 8, "up_count": 9, "down_count": 1
    })
}

/// What a voter holds in a poll.
pub(in crate::http) fn selection() -> Value {
    json!({ "poll_id": 1, "voter_id": "ada", "items": [2] })
}

/// To whom an item or a poll is open.
pub(in crate::http) fn open_to_voters() -> Value {
    json!({ "open": ["voters"] })
}
