//! Filters: which votes a voiding is about, compared with a short model.

use sqlx::{PgConnection, PgPool};

use super::voiding::void;
use crate::helpers::tally::Tally;

/// A row of the ledger, as far as a voiding reads it.
#[derive(Debug)]
struct Row {
    id: i64,
    voter: Option<&'static str>,
    item: i64,
    address: Option<u8>,
    api_key: Option<i64>,
    /// Whether it casts a vote that nothing has taken back.
    is_held: bool,
}

/// The items of the rows, for three rows each.
/// Some of a voter's votes are changes, most are not.
const ITEMS: [i64; 13] = [1, 2, 3, 1, 1, 5, 4, 2, 6, 7, 2, 8, 1];

/// Rows by their ids. Voters take turns, nobody among them; addresses and API keys do, too.
fn rows() -> Vec<Row> {
    let row = |id: i64| {
        let number = usize::try_from(id).expect("small");
        Row {
            id,
            voter: [Some("ada"), Some("bob"), None][number % 3],
            item: ITEMS[number / 3],
            address: [None, Some(b'a'), Some(b'b'), Some(b'c')][number % 4],
            api_key: [None, Some(1), Some(2), Some(1), None][number % 5],
            is_held: true,
        }
    };
    // The last row takes a vote back.
    (1..=37).map(row).collect()
}

/// Stores the rows, one a second, the last one first.
/// A voter's further votes on an item are changes: each second one takes back the one before.
async fn store(pool: &PgPool, rows: &mut [Row]) {
    let mut changes = Vec::new();
    for at in 0..rows.len() {
        let before =
            |row: &Row| row.voter.is_some() && (row.voter, row.item) == (rows[at].voter, rows[at].item);
        let change = rows[..at].iter().filter(|row| before(row)).count();
        let last = rows[..at].iter().rposition(before);
        if change % 2 == 1 {
            rows[at].is_held = false;
            if let Some(last) = last {
                rows[last].is_held = false;
            }
        }
        changes.push(change);
    }
    for (row, change) in rows.iter().zip(changes).rev() {
        sqlx::query(
            "insert into vote (id, item_id, voter_id, value, change_number, created_at)
             overriding system value
             values ($5, $1, $2, $3, $4, timestamptz 'epoch' + $5 * interval '1 second')",
        )
        .bind(row.item)
        .bind(row.voter)
        .bind(if change % 2 == 1 { -1_i16 } else { 1 })
        .bind(i16::try_from(change).expect("small"))
        .bind(row.id)
        .execute(pool)
        .await
        .expect("a vote");
        if let Some(address) = row.address {
            sqlx::query("insert into vote_address (vote_id, address_hash) values ($1, $2)")
                .bind(row.id)
                .bind([address; 16])
                .execute(pool)
                .await
                .expect("an address");
        }
        if let Some(api_key) = row.api_key {
            // As two batches would: each has a part of the key's votes.
            sqlx::query(
                "with other as (
                     update vote_api_key set vote_ids = vote_ids + int8multirange(int8range($1, $1 + 1))
                     where api_key_id = $2 and (lower(vote_ids) + $1) % 4 < 2
                     returning block
                 )
                 insert into vote_api_key (block, api_key_id, vote_ids)
                 select $1 / 4096, $2, int8multirange(int8range($1, $1 + 1)) where not exists (select from other)",
            )
            .bind(row.id)
            .bind(api_key)
            .execute(pool)
            .await
            .expect("an API key's vote");
        }
    }
    sqlx::query("select setval('vote_id_seq', $1)")
        .bind(rows.len() as i64)
        .execute(pool)
        .await
        .expect("the owner may");
}

#[derive(Debug)]
struct Filter {
    voter: Option<&'static str>,
    item: Option<i64>,
    from: Option<i64>,
    until: Option<i64>,
    addresses: Option<&'static [u8]>,
    api_key: Option<i64>,
    last: i64,
}

impl Filter {
    fn takes(&self, row: &Row) -> bool {
        row.is_held
            && row.id <= self.last
            && self.voter.is_none_or(|voter| row.voter == Some(voter))
            && self.item.is_none_or(|item| row.item == item)
            && self.from.is_none_or(|from| row.id >= from)
            && self.until.is_none_or(|until| row.id < until)
            && self
                .addresses
                .is_none_or(|all| row.address.is_some_and(|address| all.contains(&address)))
            && self.api_key.is_none_or(|key| row.api_key == Some(key))
    }

    /// The votes that the database finds, chunk by chunk.
    async fn found(&self, connection: &mut PgConnection, limit_votes: i32, limit_ids: i64) -> Vec<i64> {
        let (mut after, mut found) = (0, Vec::new());
        while after < self.last {
            let (up_to, ids): (i64, Vec<i64>) = sqlx::query_as(
                "select up_to, ids
                 from votes_to_void($1, $2, timestamptz 'epoch' + $3 * interval '1 second',
                                    timestamptz 'epoch' + $4 * interval '1 second', $5, $10, $6, $7, $8, $9)",
            )
            .bind(self.voter)
            .bind(self.item)
            .bind(self.from)
            .bind(self.until)
            .bind(
                self.addresses
                    .map(|all| all.iter().map(|one| [*one; 16]).collect::<Vec<_>>()),
            )
            .bind(after)
            .bind(self.last)
            .bind(limit_votes)
            .bind(limit_ids)
            .bind(self.api_key)
            .fetch_one(&mut *connection)
            .await
            .expect("a chunk");
            assert!(
                up_to > after && up_to <= self.last,
                "{self:?}: {up_to} after {after}"
            );
            assert!(
                ids.len() <= usize::try_from(limit_votes).expect("positive"),
                "{self:?}"
            );
            assert!(
                ids.iter().all(|id| (after + 1..=up_to).contains(id)),
                "{self:?}: {ids:?}"
            );
            found.extend(ids);
            after = up_to;
        }
        found
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_voiding_finds_the_votes_that_its_filter_says_in_chunks_of_any_size() {
    let tally = Tally::start().await;
    for _ in 0..8 {
        tally.item("x").await;
    }
    let mut rows = rows();
    store(&tally.pool, &mut rows).await;
    let last = rows.len() as i64;
    // Some votes are voided already.
    let from = "1970-01-01T00:00:05Z";
    let (done, voided) = void(
        &tally,
        &[
            "--item",
            "1",
            "--from",
            from,
            "--until",
            "1970-01-01T00:00:15Z",
            "--reason",
            "x",
            "--apply",
        ],
    )
    .await;
    assert!(done, "{voided}");
    let mut voided = 0;
    for row in rows
        .iter_mut()
        .filter(|row| row.item == 1 && (5..15).contains(&row.id))
    {
        voided += i64::from(row.is_held);
        row.is_held = false;
    }
    assert!(voided > 1);
    for voter in ["ada", "bob"] {
        let held = rows.iter().filter(|row| row.is_held && row.voter == Some(voter));
        assert!(held.count() > 5, "{voter} holds votes");
    }
    // Without indexes, no plan has the votes in the order of their ids by chance.
    let mut connection = tally.pool.acquire().await.expect("a connection").detach();
    sqlx::raw_sql("set enable_indexscan = off; set enable_indexonlyscan = off; set enable_bitmapscan = off")
        .execute(&mut connection)
        .await
        .expect("settings");
    for voter in [None, Some("ada"), Some("bob")] {
        for item in [None, Some(1), Some(2)] {
            for (addresses, api_key) in [
                (None, None),
                (Some(&b""[..]), None),
                (Some(b"a"), None),
                (Some(b"bc"), None),
                (None, Some(1)),
                (None, Some(2)),
                (None, Some(3)),
                (Some(b"bc"), Some(1)),
            ] {
                // Each span begins and ends with a vote that nobody takes back.
                for (from, until) in [
                    (None, None),
                    (Some(17), None),
                    (None, Some(29)),
                    (Some(17), Some(29)),
                    (Some(23), Some(32)),
                ] {
                    // The rows of the voiding itself come after the last.
                    for (last, limit_votes, limit_ids) in [
                        (last, 1000, 1000),
                        (last, 2, 7),
                        (23, 1, 1000),
                        (last + voided, 3, 9),
                    ] {
                        let filter = Filter {
                            voter,
                            item,
                            from,
                            until,
                            addresses,
                            api_key,
                            last,
                        };
                        let expected: Vec<i64> = rows
                            .iter()
                            .filter(|row| filter.takes(row))
                            .map(|row| row.id)
                            .collect();
                        assert_eq!(
                            filter.found(&mut connection, limit_votes, limit_ids).await,
                            expected,
                            "{filter:?}"
                        );
                    }
                }
            }
        }
    }
}
