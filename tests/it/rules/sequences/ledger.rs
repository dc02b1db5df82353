//! Compares the model with the ledger, and with live and saved counts.

use serde_json::{Value, json};
use tally::domain::ItemId;

use super::model::Model;
use crate::helpers::eventually;
use crate::helpers::tally::Tally;

type NewItem = (i64, Option<String>, Option<i64>);
type NewRow = (i64, i64, i64, Option<String>, i16, i16, Option<i64>, Option<i64>);
type Kept = (
    i64,
    Option<i64>,
    Option<i64>,
    Option<i64>,
    Option<i64>,
    Option<i64>,
);

/// Gives the model the ids of the ledger's new rows.
/// The ledger must have exactly the rows for which the model has no ids yet.
pub async fn learn(tally: &Tally, model: &mut Model) -> Result<(), String> {
    let last = model.items.iter().map(|item| item.id).max().unwrap_or(0);
    let items: Vec<NewItem> = sqlx::query_as(
        "select item.id, item.key, case when rule.title is not null then rule.id end
         from item left join rule on rule.id = item.rule_id where item.id > $1 order by item.id",
    )
    .bind(last)
    .fetch_all(&tally.pool)
    .await
    .expect("Postgres answers");
    let mut new = items.into_iter();
    for at in 0..model.items.len() {
        if model.items[at].id != 0 {
            continue;
        }
        let item = &model.items[at];
        let (id, key, poll) = new
            .next()
            .ok_or(format!("the ledger lacks the item {:?}", item.name))?;
        if key != item.key || poll.is_some() != item.poll.is_some() {
            return Err(format!("item {id} has the key {key:?}, not {:?}", item.key));
        }
        if let (Some(at), Some(poll)) = (item.poll, poll) {
            model.polls[at].id = poll;
        }
        model.items[at].id = id;
    }
    if let Some((id, key, _)) = new.next() {
        return Err(format!(
            "the ledger has item {id} of the key {key:?}, and the model has not"
        ));
    }
    learn_rows(tally, model).await
}

async fn learn_rows(tally: &Tally, model: &mut Model) -> Result<(), String> {
    let known = model.rows.iter().take_while(|row| row.id != 0).count();
    let last = model.rows[..known].iter().map(|row| row.id).max().unwrap_or(0);
    let new: Vec<NewRow> = sqlx::query_as(
        "select id, (extract(epoch from created_at) * 1000000)::bigint, item_id, voter_id, value, change_number,
                number, poll_id
         from vote where id > $1 order by id",
    )
    .bind(last)
    .fetch_all(&tally.pool)
    .await
    .expect("Postgres answers");
    for (id, stored_at, item, voter, value, change, number, poll) in new {
        let shown = format!(
            "item {item}, voter {voter:?}, value {value}, change {change}, number {number:?}, poll {poll:?}"
        );
        let is_it = |at: &usize| {
            let row = &model.rows[*at];
            let of_item = &model.items[row.item];
            row.id == 0
                && (of_item.id, of_item.poll.map(|poll| model.polls[poll].id)) == (item, poll)
                && (row.voter, row.number) == (voter.as_deref(), number)
                // A row without a voter has the change number of the vote that it follows.
                && (row.value, row.change) == (i64::from(value), i64::from(change))
        };
        let at = (known..model.rows.len()).find(is_it);
        let at = at.ok_or(format!("the ledger has a row that the model has not: {shown}"))?;
        (model.rows[at].id, model.rows[at].stored_at) = (id, stored_at);
    }
    match model.rows.iter().find(|row| row.id == 0) {
        None => Ok(()),
        Some(row) => Err(format!(
            "the ledger lacks a row: item {}, voter {:?}, value {}, change {}, number {:?}",
            model.items[row.item].id, row.voter, row.value, row.change, row.number
        )),
    }
}

/// Compares what stands beside votes: turnout, places, last numbers, and ballots.
pub async fn compare_kept(tally: &Tally, model: &Model) -> Result<(), String> {
    let kept: Vec<Kept> = sqlx::query_as(
        "select item.id, case when rule.title is not null then rule.voter_count end, place.taken,
                case when place.is_numbered then place.last_number end,
                case when rule.by_ballot then rule.ballot_count end,
                case when rule.by_ballot then
                    (select count(*) from ballot where ballot.rule_id = rule.id and ballot.vote_id is null)
                end
         from item left join rule on rule.id = item.rule_id left join place on place.item_id = item.id
         order by item.id",
    )
    .fetch_all(&tally.pool)
    .await
    .expect("Postgres answers");
    for (at, kept) in kept.into_iter().enumerate() {
        let item = &model.items[at];
        let of_ballots = model.rule(at).filter(|rule| rule.by_ballot);
        let has_place = item.is_numbered || item.max_votes.is_some();
        let expected: Kept = (
            item.id,
            item.poll.map(|poll| model.turnout(poll) as i64),
            has_place.then(|| model.held_on(at).count() as i64),
            item.is_numbered.then_some(item.last_number),
            of_ballots.map(|rule| rule.ballots_made as i64),
            of_ballots.and(item.rule).map(|rule| model.unspent(rule) as i64),
        );
        if kept != expected {
            return Err(format!(
                "item, turnout, places taken, last number, ballots and those unspent are {kept:?}, not {expected:?}"
            ));
        }
    }
    Ok(())
}

/// What the server shows, once all of it has live counts: on a machine that is too busy for Redis to
/// answer in time, a server does without it for a moment, and says so.
async fn current(tally: &Tally, path: &str) -> Value {
    eventually(&format!("{path} is current"), async || {
        let (_, shown) = tally.get(path).await;
        is_current(&shown).then_some(shown)
    })
    .await
}

/// Whether no count in this is a saved one in place of a live one.
pub fn is_current(shown: &Value) -> bool {
    match shown {
        Value::Object(members) => {
            members.get("current") != Some(&json!(false)) && members.values().all(is_current)
        }
        Value::Array(all) => all.iter().all(is_current),
        _ => true,
    }
}

/// Compares what the server shows of all items, with their live counts.
pub async fn compare_shown(tally: &Tally, model: &Model) -> Result<(), String> {
    let ids: Vec<String> = model.items.iter().map(|item| item.id.to_string()).collect();
    let shown = current(tally, &format!("/v1/items?ids={}", ids.join(","))).await;
    let expected: Vec<Value> = (0..model.items.len()).map(|at| model.item_body(at)).collect();
    model.compare("", &json!({ "items": expected }), &shown)
}

/// Flushes, and compares all live and saved counts, and all polls' results.
pub async fn compare_all(tally: &Tally, model: &Model) -> Result<(), String> {
    compare_shown(tally, model).await?;
    tally.worker().flush_until_quiescent().await.expect("a flush");
    let ids = model.items.iter().filter_map(|item| ItemId::new(item.id));
    let ids: Vec<ItemId> = ids.collect();
    let counters = tally.counters.read(&ids).await.expect("Redis answers");
    for (at, counter) in counters.into_iter().enumerate() {
        let live = counter
            .count
            .map(|(count, _)| [count.net, count.ups(), count.downs]);
        let counts = model.counts(at);
        if live.is_some_and(|live| live != counts) {
            return Err(format!(
                "item {}: live counts are {live:?}, not {counts:?}",
                ids[at]
            ));
        }
    }
    let read = tally.server_ledger.item_reader().read(&ids).await;
    for item in read.expect("Postgres answers") {
        let saved = [
            item.saved_count.net,
            item.saved_count.ups(),
            item.saved_count.downs,
        ];
        let at = model.items.iter().position(|one| one.id == item.id.get());
        let counts = at.map(|at| model.counts(at));
        if Some(saved) != counts {
            return Err(format!(
                "item {}: saved counts are {saved:?}, not {counts:?}",
                item.id
            ));
        }
    }
    for at in 0..model.polls.len() {
        let shown = current(tally, &format!("/v1/polls/{}", model.polls[at].id)).await;
        model.compare("poll", &model.poll_body(at), &shown)?;
    }
    compare_shown(tally, model).await
}
