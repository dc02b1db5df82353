//! Votes on cold items: they make no live count. Readers get them at once, and the roll-up saves them.

use reqwest::header::{ETAG, IF_NONE_MATCH};
use serde_json::json;
use tally::domain::ItemId;
use tally::ledger::{Pacing, ROLL_UP_LIMIT_IDS, Role};
use tally::live::{ColdToken, CounterValue, Seeding};
use tally::sync::{Repair, Worker};

use crate::helpers::eventually;
use crate::helpers::stores::blocker;
use crate::helpers::tally::{Tally, roll_up_lease};
use crate::web::streams::Reader;

async fn start() -> Tally {
    Tally::start_with(|options| options.seeding = Seeding::Warm).await
}

impl Tally {
    /// Every key in Redis that is of this item, and the token of cold votes.
    async fn cold_keys(&self, item: ItemId) -> (bool, Option<ColdToken>) {
        let counter = self.counters.value(item).await.expect("Redis answers").1;
        let token = self.counters.cold_token().await.expect("Redis answers");
        (counter != CounterValue::Absent, token)
    }

    /// What a reader gets.
    async fn shown(&self, item: ItemId) -> Option<i64> {
        self.get(&format!("/v1/items/{item}")).await.1["vote_count"].as_i64()
    }

    /// As a worker that dies after it rolled up, and before it saves cold items.
    async fn roll_up_and_die(&self) {
        let lease = roll_up_lease(&self.ledger).await;
        let safe = self.ledger.safe_vote_id().await.expect("Postgres answers");
        self.ledger
            .roll_up_votes(&lease, &safe, ROLL_UP_LIMIT_IDS, Pacing::AtOnce)
            .await
            .expect("Postgres answers")
            .expect("there are votes");
        self.ledger.give_back_jobs().await.expect("Postgres answers");
    }

    async fn saved_by(&self, worker: &Worker, item: ItemId, count: i64) {
        // A server notes every 250 ms which votes are counted.
        eventually(&format!("{count} is saved"), async || {
            worker.roll_up().await.expect("a roll-up");
            worker.flush().await.expect("a flush");
            (self.saved_count(item).await == count).then_some(())
        })
        .await;
    }
}

#[tokio::test]
async fn a_vote_on_a_cold_item_leaves_nothing_of_it_in_redis_and_is_shown_before_and_after_it_is_saved() {
    let tally = start().await;
    let item = tally.item("cold").await;
    assert_eq!(tally.add(item, -1).await, Some(-1));
    let (has_counter, token) = tally.cold_keys(item).await;
    assert!(!has_counter, "nobody has asked for the count since");
    assert!(token.is_some(), "readers know that saved counts may lack votes");
    assert_eq!(tally.saved_count(item).await, 0);
    let (_, shown) = tally.get(&format!("/v1/items/{item}")).await;
    assert_eq!(
        (&shown["vote_count"], &shown["down_count"]),
        (&json!(-1), &json!(1))
    );
    let (_, shown) = tally.get(&format!("/v1/items?ids={item}")).await;
    assert_eq!(shown["items"][0]["vote_count"], -1);
    let worker = tally.worker();
    tally.saved_by(&worker, item, -1).await;
    let saved = tally.saved(item).await;
    assert_eq!(saved.saved_count.downs, 1);
    assert!(saved.counted_at.is_some());
    assert!(!tally.cold_keys(item).await.0);
    assert_eq!(tally.shown(item).await, Some(-1));
}

#[tokio::test]
async fn the_first_vote_on_an_item_makes_a_live_count_as_long_as_few_are_made() {
    let tally = Tally::start_with(|options| options.seeding = Seeding::WarmOrFew).await;
    let item = tally.item("few").await;
    assert_eq!(tally.add(item, 1).await, Some(1));
    assert_eq!(tally.live_count(item).await, Some(1));
    let (_, token) = tally.cold_keys(item).await;
    assert_eq!(token, None);
    tally.assert_exact_when_quiescent(item).await;
}

#[tokio::test]
async fn an_item_that_is_voted_on_again_at_once_gets_a_live_count_which_has_all_its_votes() {
    let tally = start().await;
    let item = tally.item("warm").await;
    let mut votes = 0;
    eventually("it gets a live count", async || {
        votes += 1;
        assert_eq!(tally.add(item, 1).await, Some(votes));
        tally.live_count(item).await
    })
    .await;
    assert_eq!(tally.live_count(item).await, Some(votes));
    let worker = tally.worker();
    worker.roll_up().await.expect("a roll-up");
    tally.assert_exact_when_quiescent(item).await;
    assert_eq!(tally.saved_count(item).await, votes);
}

#[tokio::test]
async fn an_item_that_was_just_read_gets_a_live_count_with_its_next_vote() {
    let tally = start().await;
    let item = tally.item("read").await;
    let mut votes = 0;
    eventually("it gets a live count", async || {
        assert_eq!(tally.shown(item).await, Some(votes));
        votes += 1;
        assert_eq!(tally.add(item, 1).await, Some(votes));
        tally.live_count(item).await
    })
    .await;
}

#[tokio::test]
async fn an_item_that_is_read_often_gets_a_live_count_and_then_is_answered_without_postgres() {
    let tally = start().await;
    let item = tally.item("read").await;
    assert_eq!(tally.add(item, -1).await, Some(-1));
    let worker = tally.worker();
    tally.saved_by(&worker, item, -1).await;
    eventually("its reads seed a live count", async || {
        assert_eq!(tally.shown(item).await, Some(-1));
        tally.live_count(item).await
    })
    .await;
    assert_eq!(tally.live_count(item).await, Some(-1));
    worker.flush_until_quiescent().await.expect("a flush");
    assert_eq!(tally.shown(item).await, Some(-1));
    let _locked = blocker(&tally.pool, "lock table item in access exclusive mode").await;
    assert_eq!(tally.shown(item).await, Some(-1));
}

#[tokio::test]
async fn reads_seed_nothing_for_an_item_that_does_not_exist_or_is_read_now_and_then() {
    let tally = start().await;
    let (item, unknown) = (
        tally.item("once").await,
        ItemId::new(i64::from(i32::MAX)).expect("positive"),
    );
    assert_eq!(tally.shown(item).await, Some(0));
    let often = tally.item("often").await;
    eventually("reads of another item seed it", async || {
        assert_eq!(tally.shown(unknown).await, None);
        assert_eq!(tally.shown(often).await, Some(0));
        tally.live_count(often).await
    })
    .await;
    for other in [item, unknown] {
        assert!(!tally.cold_keys(other).await.0, "item {other}");
    }
}

#[tokio::test]
async fn votes_that_meet_the_seeds_of_reads_are_each_counted_once() {
    const VOTES: i64 = 20;
    let tally = start().await;
    let mut items = Vec::new();
    for _ in 0..10 {
        items.push(tally.item("read and voted on").await);
    }
    // Each vote meets another moment of the seeds: reads go on beside all of them.
    let read = async |item: ItemId| while tally.shown(item).await != Some(VOTES) {};
    let vote = async |item: ItemId| {
        for _ in 0..VOTES {
            assert!(tally.add(item, 1).await.is_some());
        }
    };
    let all = items
        .iter()
        .flat_map(|item| [true, false].map(|reads| (*item, reads)));
    let all = all.map(async |(item, reads)| if reads { read(item).await } else { vote(item).await });
    futures_util::future::join_all(all).await;
    tally.roll_up_all().await;
    for item in items {
        tally.assert_exact_when_quiescent(item).await;
        assert_eq!(tally.saved_count(item).await, VOTES);
    }
}

#[tokio::test]
async fn a_conditional_read_sees_a_vote_on_a_cold_item_that_another_server_took() {
    let tally = start().await;
    let item = tally.item("cold").await;
    let other = tally
        .another_server_with(|options| options.seeding = Seeding::Warm)
        .await;
    let url = format!("{}/v1/items/{item}", tally.base);
    let read = async |tag: &str| {
        let asked = tally.http.get(&url).header(IF_NONE_MATCH, tag);
        asked.send().await.expect("an answer")
    };
    let tag = |answer: &reqwest::Response| answer.headers()[ETAG].to_str().expect("text").to_owned();
    let first = tag(&read("\"none\"").await);
    assert_eq!(read(&first).await.status(), 304);
    tally.add_at(&other, item, 1).await;
    let second = read(&first).await;
    assert_eq!(second.status(), 200);
    let second = tag(&second);
    assert_eq!(read(&second).await.status(), 304);
}

#[tokio::test]
async fn a_stream_shows_votes_on_cold_items_that_another_server_took() {
    let tally = start().await;
    let other = tally
        .another_server_with(|options| options.seeding = Seeding::Warm)
        .await;
    let worker = tally.worker();
    // On the other server each of them is cold.
    for name in ["x", "y", "z"] {
        let item = tally.item(name).await;
        let mut stream = Reader::open(&tally, &tally.base, &format!("/v1/stream?items={item}")).await;
        stream
            .until("the item is shown", |stream| stream.count(item.get()) == Some(0))
            .await;
        tally.add_at(&other, item, 1).await;
        assert_eq!(tally.live_count(item).await, None);
        stream
            .until("the vote is shown", |stream| stream.count(item.get()) == Some(1))
            .await;
        tally.saved_by(&worker, item, 1).await;
    }
}

#[tokio::test]
async fn an_audit_does_not_take_an_unsaved_cold_item_for_wrong_and_finds_one_that_is() {
    let tally = start().await;
    let (cold, wrong) = (tally.item("cold").await, tally.item("wrong").await);
    tally.add(wrong, 1).await;
    let worker = tally.worker();
    tally.saved_by(&worker, wrong, 1).await;
    sqlx::query("update item set vote_count = 7 where id = $1")
        .bind(wrong.get())
        .execute(&tally.pool)
        .await
        .expect("the owner may");
    tally.add(cold, 1).await;
    let report = worker.audit(Repair::Yes).await.expect("an audit");
    assert_eq!((report.wrong_items, report.wrong_votes), (1, 6));
    worker.flush_until_quiescent().await.expect("a flush");
    assert_eq!(tally.saved_count(wrong).await, 1);
    tally.saved_by(&worker, cold, 1).await;
}

#[tokio::test]
async fn what_a_worker_rolled_up_and_did_not_save_the_next_one_saves() {
    let tally = start().await;
    let item = tally.item("cold").await;
    tally.add(item, 1).await;
    tally.roll_up_and_die().await;
    assert_eq!(tally.saved_count(item).await, 0);
    tally.worker().roll_up().await.expect("a roll-up");
    assert_eq!(tally.saved_count(item).await, 1);
    let progress = tally.ledger.saving_progress().await.expect("Postgres answers");
    assert_eq!(progress.saved, progress.watermark);
}

/// A roll-up saves what is left for two seconds.
#[tokio::test]
async fn a_whole_flush_saves_all_cold_items_however_many_are_left() {
    let tally = start().await;
    let item = tally.item("cold").await;
    tally.add(item, 1).await;
    sqlx::raw_sql(
        "insert into item (name) select 'cold' from generate_series(1, 80000);
         insert into vote (item_id) select id from item where vote_count = 0 and id > 1",
    )
    .execute(&tally.pool)
    .await
    .expect("the owner may");
    tally.roll_up_and_die().await;
    let (_, audit) = tally.worker().once().await.expect("a flush and an audit");
    assert_eq!((audit.items, audit.wrong_items), (80_001, 0));
    let unsaved: i64 = sqlx::query_scalar("select count(*) from item where vote_count <> 1")
        .fetch_one(&tally.pool)
        .await
        .expect("Postgres answers");
    assert_eq!(unsaved, 0);
}

#[tokio::test]
async fn the_watermark_moves_without_redis_and_cold_items_are_saved_once_it_is_back() {
    let tally = start().await;
    let item = tally.item("cold").await;
    tally.add(item, 1).await;
    let worker = tally.worker();
    // The worker's login may read neither counters nor the time for a while.
    let mut redis = tally.stores.redis_connection().await;
    let url = tally.stores.redis_login_url(Role::Worker);
    let login = url.split(['/', ':']).nth(3).expect("a login").to_owned();
    let mut may_read = async |rules: &[&str]| {
        redis::cmd("ACL")
            .arg("SETUSER")
            .arg(&login)
            .arg(rules)
            .exec_async(&mut redis)
            .await
            .expect("Redis answers");
    };
    may_read(&["-mget", "-time"]).await;
    eventually("the watermark moves", async || {
        worker.roll_up().await.expect("a roll-up");
        let progress = tally.ledger.saving_progress().await.ok()?;
        (progress.watermark == progress.drawn && progress.saved < progress.drawn).then_some(())
    })
    .await;
    assert_eq!(tally.saved_count(item).await, 0);
    may_read(&["+mget", "+time"]).await;
    worker.roll_up().await.expect("a roll-up");
    assert_eq!(tally.saved_count(item).await, 1);
}

#[tokio::test]
async fn a_cold_item_whose_row_is_locked_is_saved_later_and_holds_up_no_other() {
    let tally = start().await;
    let (locked, free) = (tally.item("locked").await, tally.item("free").await);
    let lock = format!("select from item where id = {locked} for no key update");
    let blocker = blocker(&tally.pool, &lock).await;
    tally.add(locked, 1).await;
    tally.add(free, 1).await;
    let worker = tally.worker();
    tally.saved_by(&worker, free, 1).await;
    assert_eq!(tally.saved_count(locked).await, 0);
    let progress = tally.ledger.saving_progress().await.expect("Postgres answers");
    assert_eq!(progress.saved, progress.watermark, "other items go on");
    assert_eq!(tally.shown(locked).await, Some(1));
    blocker.rollback().await.expect("Postgres answers");
    worker.flush_until_quiescent().await.expect("a flush");
    assert_eq!(tally.saved_count(locked).await, 1);
}
