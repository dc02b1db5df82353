//! Example answers that several operations share.

use serde_json::{Value, json};

/// An item.
pub(in crate::web) fn item() -> Value {
    json!({
        "id": 1, "name": "A post", "key": "post-42",
        "vote_count": 7, "up_count": 8, "down_count": 1, "current": true,
        "saved": { "vote_count": 6, "up_count": 7, "down_count": 1, "counted_at": "2030-01-31T18:00:00.123456Z" }
    })
}

/// A poll.
pub(in crate::web) fn poll() -> Value {
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

/// A list of items in CSV.
pub(in crate::web) const ITEMS_CSV: &str =
    "id,name,key,vote_count,up_count,down_count,current,poll_id\r\n1,A post,post-42,7,8,1,true,\r\n";

/// A poll's results in CSV.
pub(in crate::web) const RESULTS_CSV: &str =
    "item_id,name,vote_count,share\r\n2,soup,3,0.75\r\n3,salad,1,0.25\r\n";

/// A top list over a time.
pub(in crate::web) fn top_list() -> Value {
    json!({
        "by": "net", "over": "hour", "since": "2030-01-31T17:00:00Z", "as_of": "2030-01-31T18:00:00.123456Z",
        "items": [{
            "id": 1, "name": "A post", "key": "post-42", "vote_count": 7, "up_count": 8, "down_count": 1,
            "change": { "vote_count": 2, "up_count": 3, "down_count": 1 }
        }]
    })
}

/// The same list in CSV.
pub(in crate::web) const TOP_LIST_CSV: &str = "id,name,key,vote_count,up_count,down_count,change_vote_count,\
    change_up_count,change_down_count\r\n1,A post,post-42,7,8,1,2,3,1\r\n";

/// The spans of a history.
fn spans() -> Value {
    let change = json!({ "vote_count": 2, "up_count": 3, "down_count": 1 });
    json!([{ "starts_at": "2030-01-31T17:55:00Z", "minutes": 5, "change": change }])
}

/// A history of an item.
pub(in crate::web) fn item_history() -> Value {
    json!({
        "item_id": 1, "over": "day", "since": "2030-01-30T18:00:00Z", "as_of": "2030-01-31T18:00:00.123456Z",
        "total": { "vote_count": 7, "up_count": 8, "down_count": 1 }, "spans": spans()
    })
}

/// A history of a poll.
pub(in crate::web) fn poll_history() -> Value {
    json!({
        "poll_id": 1, "over": "day", "since": "2030-01-30T18:00:00Z", "as_of": "2030-01-31T18:00:00.123456Z",
        "choices": [
            { "item_id": 2, "total": { "vote_count": 3, "up_count": 4, "down_count": 1 }, "spans": spans() },
            { "item_id": 3, "total": { "vote_count": 1, "up_count": 1, "down_count": 0 }, "spans": [] }
        ]
    })
}

/// The first events of a stream of an item.
pub(in crate::web) fn events() -> String {
    let data = json!({ "items": [item()], "polls": [] });
    format!("retry: 2000\n\nid: 0a1b2c3d4e5f\nevent: counts\ndata: {data}\n\n")
}

/// The first events of a stream that was asked for more than exists.
pub(in crate::web) fn events_without_some() -> String {
    let data = json!({ "items": [item()], "polls": [] });
    format!(
        "retry: 2000\n\nevent: unknown\ndata: {}\n\nid: 0a1b2c3d4e5f\nevent: counts\ndata: {data}\n\n",
        unknown()
    )
}

/// What does not exist.
fn unknown() -> Value {
    json!({ "items": ["key:post-43"], "polls": [], "creates_items": true })
}

/// Items and polls, and what a voter holds of them.
pub(in crate::web) fn feed() -> Value {
    let (mut item, mut poll) = (item(), poll());
    item["held"] = json!(1);
    poll["held"] = json!([2]);
    json!({ "voter_id": "ada", "items": [item], "polls": [poll], "unknown": unknown() })
}

/// A vote that was just cast.
pub(in crate::web) fn vote() -> Value {
    json!({
        "vote_id": 1, "item_id": 1, "voter_id": "ada", "value": 1,
        "vote_count": 8, "up_count": 9, "down_count": 1
    })
}

/// What a voter holds in a poll.
pub(in crate::web) fn selection() -> Value {
    json!({ "poll_id": 1, "voter_id": "ada", "items": [2] })
}

/// To whom an item or a poll is open.
pub(in crate::web) fn open_to_voters() -> Value {
    json!({ "open": ["voters"] })
}
