//! Batches of first votes: `cast_votes` decides them in one statement.
//! It leaves all others to `decide_votes`, which takes one request after the other. Both must
//! decide the same.

use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use sqlx::{Connection, PgConnection, PgExecutor};

use super::assert_rules_hold;
use crate::helpers::stores::{Stores, blocker, until_blocked};

const BATCHES: u64 = 400;
const LINES_LIMIT: usize = 6;
/// Enough voters that most have not voted yet.
const VOTERS: u8 = 30;
/// After this many batches, each limit is reached, and the test begins again.
const BATCHES_UNTIL_FULL: u64 = 10;
/// Rules and items of each kind. Ids go up from 1, in this order.
/// 10 is a choice of a poll, and the last id belongs to no item.
const ITEMS: &str = "
    insert into rule (opens_at, closes_at, by_ballot, title, max_choices) values
        (null, null, false, null, null), (null, null, false, null, null), (null, null, false, null, null),
        ('2001-01-01', '2999-01-01', false, null, null), ('2999-01-01', null, false, null, null),
        (null, '2001-01-01', false, null, null), (null, null, true, null, null), (null, null, false, null, null),
        (null, null, false, 'poll', 1);
    insert into item (name, rule_id, takes_down_votes) values
        ('limited', 1, true), ('numbered', 2, true), ('both', 3, true), ('open', 4, true), ('not yet', 5, true),
        ('closed', 6, true), ('by ballot', 7, true), ('up only', 8, false), ('no rule', null, true),
        ('choice', 9, false);
    insert into place (item_id, max_votes, is_numbered) values
        (1, 3, false), (2, null, true), (3, 4, true), (8, 5, true)";
const ITEM_IDS: std::ops::RangeInclusive<i64> = 1..=11;

/// The lines of a batch, as the parameters of both functions.
#[derive(Debug, Default)]
struct Batch {
    items: Vec<i64>,
    voters: Vec<Option<String>>,
    values: Vec<i16>,
    keep: Vec<bool>,
}

/// The outcomes, and the stored rows without their ids.
type Decided = (Vec<String>, Vec<String>);

/// Item, voter, value, and whether a held vote stays unchanged.
type Line = (i64, Option<&'static str>, i16, bool);

impl Batch {
    fn of(lines: &[Line]) -> Self {
        let mut batch = Self::default();
        for (item, voter, value, keep) in lines {
            batch.items.push(*item);
            batch.voters.push(voter.map(str::to_owned));
            batch.values.push(*value);
            batch.keep.push(*keep);
        }
        batch
    }

    /// Draws mostly first votes on items with a limit or numbers.
    fn draw(random: &mut StdRng) -> Self {
        let mut batch = Self::default();
        let is_mixed = random.random_bool(0.3);
        for _ in 0..random.random_range(1..=LINES_LIMIT) {
            let item = match is_mixed {
                true => random.random_range(ITEM_IDS),
                false => *[1, 2, 3, 4, 8].choose(random).expect("an item"),
            };
            batch.items.push(item);
            let voter = random.random_range(0..VOTERS);
            batch
                .voters
                .push(random.random_bool(0.7).then(|| format!("voter-{voter}")));
            // 0 takes a vote back, so only a line that does not keep votes may have it.
            let keeps = !is_mixed || random.random_bool(0.8);
            batch.keep.push(keeps);
            let values: &[i16] = if keeps { &[1, 1, 1, -1] } else { &[1, 0, -1] };
            batch.values.push(*values.choose(random).expect("a value"));
        }
        batch
    }

    /// What this function decides.
    async fn decided_by(&self, function: &str, postgres: impl PgExecutor<'_>) -> Decided {
        let requests: Vec<i32> = (1..).zip(&self.items).map(|(number, _)| number).collect();
        sqlx::query_as(&format!(
            "select outcomes, array(
                 select format('request %s: item %s, value %s, change %s, number %s, id %s, new %s',
                               request, item, value, change, number, case when id > 0 then 'there' end, is_new)
                 from unnest(row_requests, row_items, row_values, row_changes, row_numbers, row_ids, row_is_new)
                      as stored (request, item, value, change, number, id, is_new)
                 order by request, item, change)
             from {function}($1, $2, $3, $4, $5, $6, $7)"
        ))
        .bind(&requests)
        .bind(vec![None::<i64>; requests.len()])
        .bind(&self.items)
        .bind(&self.voters)
        .bind(&self.values)
        .bind(&self.keep)
        .bind(vec![false; requests.len()])
        .fetch_one(postgres)
        .await
        .unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// What `cast_votes` decides in this transaction, and whether on its own.
    async fn cast(&self, transaction: &mut PgConnection) -> (Decided, bool) {
        sqlx::query("set local track_functions = 'pl'")
            .execute(&mut *transaction)
            .await
            .expect("a setting");
        let calls = calls_of_decide_votes(&mut *transaction).await;
        let decided = self.decided_by("cast_votes", &mut *transaction).await;
        let is_at_once = calls_of_decide_votes(&mut *transaction).await == calls;
        (decided, is_at_once)
    }
}

/// All that a decision writes.
async fn written(postgres: &mut PgConnection) -> Vec<String> {
    sqlx::query_scalar(
        "select format('%s %s %s %s %s', item_id, voter_id, value, change_number, number) from vote
         union all
         select format('item %s: %s taken, last number %s', item_id, taken, last_number) from place
         union all
         select format('rule %s: %s voters', id, voter_count) from rule
         order by 1",
    )
    .fetch_all(postgres)
    .await
    .expect("Postgres answers")
}

/// Calls that this connection has counted and not yet reported.
async fn calls_of_decide_votes(postgres: impl PgExecutor<'_>) -> i64 {
    sqlx::query_scalar("select coalesce(pg_stat_get_xact_function_calls('decide_votes'::regproc), 0)")
        .fetch_one(postgres)
        .await
        .expect("Postgres answers")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_of_first_votes_is_decided_as_one_request_after_the_other_is() {
    let stores = Stores::start().await;
    let pool = stores.pool();
    sqlx::raw_sql(ITEMS).execute(&pool).await.expect("items");
    let random = &mut StdRng::seed_from_u64(1);
    let (mut at_once, mut one_by_one, mut full) = (0, 0, 0);
    for number in 0..BATCHES {
        if number % BATCHES_UNTIL_FULL == 0 {
            sqlx::raw_sql(
                "alter table vote disable trigger user; truncate vote; alter table vote enable trigger user;
                 update place set taken = 0, last_number = 0; update rule set voter_count = 0",
            )
            .execute(&pool)
            .await
            .expect("an empty ledger");
        }
        let batch = Batch::draw(random);
        let mut transaction = pool.begin().await.expect("a transaction");
        let one = batch.decided_by("decide_votes", &mut *transaction).await;
        let rows_of_one = written(&mut transaction).await;
        transaction.rollback().await.expect("an end");
        let mut transaction = pool.begin().await.expect("a transaction");
        let (other, is_at_once) = batch.cast(&mut transaction).await;
        assert_eq!(one, other, "{batch:?}");
        assert_eq!(rows_of_one, written(&mut transaction).await, "{batch:?}");
        match is_at_once {
            true => at_once += 1,
            false => one_by_one += 1,
        }
        full += one.0.iter().filter(|outcome| *outcome == "full").count();
        transaction.commit().await.expect("a commit");
    }
    println!("{at_once} batches were decided at once, {one_by_one} one by one; {full} votes were too many");
    assert!(at_once > 50 && one_by_one > 50 && full > 50);
    assert_rules_hold(&pool).await;
}

/// The batch waits for its own rule's lock and no other.
/// Votes under different rules do not wait for each other.
#[tokio::test(flavor = "multi_thread")]
async fn a_batch_of_first_votes_waits_for_whoever_decides_under_its_rule_and_for_nobody_else() {
    let stores = Stores::start().await;
    let pool = stores.pool();
    sqlx::raw_sql(ITEMS).execute(&pool).await.expect("items");
    let locked = blocker(&pool, "select from rule where id = 1 for no key update").await;
    for item in [1_i64, 2] {
        let mut transaction = pool.begin().await.expect("a transaction");
        sqlx::query("set local lock_timeout = '100ms'")
            .execute(&mut *transaction)
            .await
            .expect("a setting");
        let ended = sqlx::query("select cast_votes('{1}', '{null}', $1, '{ada}', '{1}', '{t}', '{f}')")
            .bind(vec![item])
            .execute(&mut *transaction)
            .await;
        match (item, ended) {
            // 55P03: the batch would have waited for the lock.
            (1, Err(sqlx::Error::Database(error))) => assert_eq!(error.code().as_deref(), Some("55P03")),
            (2, Ok(_)) => {}
            (item, ended) => panic!("item {item}: {ended:?}"),
        }
    }
    locked.rollback().await.expect("an end");
    let vote = Batch {
        items: vec![1],
        voters: vec![Some("ada".to_owned())],
        values: vec![1],
        keep: vec![true],
    };
    let (outcomes, _) = vote.decided_by("cast_votes", &pool).await;
    assert_eq!(outcomes, ["stored"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn first_votes_are_decided_at_once_whatever_else_is_voted_and_all_other_requests_one_by_one() {
    let stores = Stores::start().await;
    let pool = stores.pool();
    sqlx::raw_sql(ITEMS).execute(&pool).await.expect("items");
    let (ada, bob, cy, dee) = (Some("ada"), Some("bob"), Some("cy"), Some("dee"));
    // One batch after the other: each meets what the earlier ones have stored.
    let batches: [(bool, &[Line]); 14] = [
        (true, &[(2, ada, 1, true), (2, bob, 1, true), (3, None, 1, true)]),
        (false, &[(2, ada, 0, false)]),
        // Others have voted on the item, and the voter has voted on other items.
        (true, &[(2, cy, 1, true), (4, ada, 1, true), (4, bob, -1, true)]),
        // Ada has taken her vote back, and Bob still holds his.
        (false, &[(2, ada, 1, true)]),
        (false, &[(2, bob, 1, true)]),
        // The voter's second vote in the batch.
        (false, &[(4, dee, 1, true), (4, dee, 1, true)]),
        (
            true,
            &[
                (4, None, 1, true),
                (4, None, 1, true),
                (2, dee, 1, true),
                (3, dee, 1, true),
            ],
        ),
        // Nothing to cast, on items with and without down-votes.
        (false, &[(3, ada, 0, true)]),
        (false, &[(8, ada, 0, true)]),
        (false, &[(8, ada, -1, true)]),
        // Not open yet, closed, by ballot.
        (false, &[(5, ada, 1, true)]),
        (false, &[(6, ada, 1, true)]),
        (false, &[(7, ada, 1, true)]),
        // One line that must be decided by itself has all lines decided that way.
        (false, &[(3, cy, 1, true), (2, bob, 1, true)]),
    ];
    for (at_once, lines) in batches {
        let batch = Batch::of(lines);
        let mut transaction = pool.begin().await.expect("a transaction");
        let one = batch.decided_by("decide_votes", &mut *transaction).await;
        transaction.rollback().await.expect("an end");
        let mut transaction = pool.begin().await.expect("a transaction");
        let (other, is_at_once) = batch.cast(&mut transaction).await;
        transaction.commit().await.expect("a commit");
        assert_eq!(one, other, "{batch:?}");
        assert_eq!(is_at_once, at_once, "{batch:?}: {other:?}");
    }
    assert_rules_hold(&pool).await;
}

/// Has enough votes that Postgres' sort would mix up equal ones.
#[tokio::test(flavor = "multi_thread")]
async fn the_votes_of_a_long_batch_get_their_places_and_numbers_in_the_order_of_the_batch() {
    let stores = Stores::start().await;
    let pool = stores.pool();
    sqlx::raw_sql(ITEMS).execute(&pool).await.expect("items");
    let lines: Vec<Line> = [3, 2, 1]
        .repeat(20)
        .into_iter()
        .map(|item| (item, None, 1, true))
        .collect();
    let batch = Batch::of(&lines);
    let mut transaction = pool.begin().await.expect("a transaction");
    let one_by_one = batch.decided_by("decide_votes", &mut *transaction).await;
    transaction.rollback().await.expect("an end");
    let mut transaction = pool.begin().await.expect("a transaction");
    let (at_once, is_at_once) = batch.cast(&mut transaction).await;
    transaction.commit().await.expect("a commit");
    assert!(is_at_once);
    assert_eq!(at_once, one_by_one);
    // Three places, four places, and no limit.
    let stored = at_once.0.iter().filter(|outcome| *outcome == "stored").count();
    assert_eq!(stored, 3 + 4 + 20);
    assert_rules_hold(&pool).await;
}

/// A batch that waits for a rule has locked no later one.
/// So batches cannot wait for each other.
#[tokio::test(flavor = "multi_thread")]
async fn a_batch_of_first_votes_that_waits_for_a_rule_has_locked_none_behind_it() {
    let stores = Stores::start().await;
    let pool = stores.pool();
    sqlx::raw_sql(
        "insert into rule (id) overriding system value values (2), (1);
         insert into item (name, rule_id) values ('one', 1), ('two', 2)",
    )
    .execute(&pool)
    .await
    .expect("items");
    let locked = blocker(&pool, "select from rule where id = 1 for no key update").await;
    let mut connection = PgConnection::connect(&stores.database_url)
        .await
        .expect("Postgres");
    // Without indexes: the second rule lies first on disk, so only the statement's own order helps.
    sqlx::query("set enable_indexscan = off")
        .execute(&mut connection)
        .await
        .expect("a setting");
    let batch = Batch::of(&[(2, None, 1, true), (1, None, 1, true)]);
    let look = async {
        until_blocked(&pool, "select outcomes").await;
        let free: Vec<i64> = sqlx::query_scalar("select id from rule for no key update skip locked")
            .fetch_all(&pool)
            .await
            .expect("rules");
        locked.rollback().await.expect("an end");
        free
    };
    let ((outcomes, _), free) = tokio::join!(batch.decided_by("cast_votes", &mut connection), look);
    assert_eq!(free, [2]);
    assert_eq!(outcomes, ["stored", "stored"]);
}
