//! Archives that another Tally reads.

use std::path::{Path, PathBuf};

use sqlx::PgPool;
use tally::ledger::Role;

use super::{archive, audit, close, execute, lines, numbered, operator, shown, start, until_rolled_up};
use crate::helpers::programs::start_worker;
use crate::helpers::stores::Stores;
use crate::helpers::tally::Tally;
use crate::operator::exports::export;

/// How many votes each item holds, and who holds them, on what has closed.
async fn held(pool: &PgPool) -> Vec<String> {
    lines(
        pool,
        "select format('%s holds %s on %s with the number %s', voter_id, sum(value), item_id, max(number))
         from vote join item on item.id = item_id join rule on rule.id = rule_id
         where closes_at < now() - interval '1 day' and voter_id is not null and voter_id not like 'import %'
         group by item_id, voter_id having sum(value) <> 0
         union all
         select format('item %s: %s', item_id, sum(value))
         from vote join item on item.id = item_id join rule on rule.id = rule_id
         where closes_at < now() - interval '1 day'
         group by item_id
         order by 1",
    )
    .await
}

/// Writes a file of this Tally as if it were another's: all Tallys of the tests are copies of one.
async fn as_of_other(stores: &Stores, from: &Path, to: &Path) -> PathBuf {
    let identity = lines(&stores.pool(), "select id from identity").await.remove(0);
    let content = std::fs::read_to_string(from).expect("a file");
    std::fs::write(to, content.replace(&identity, "another Tally")).expect("written");
    to.to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn archives_are_read_by_importing_them_into_another_tally() {
    let (from, _worker) = start().await;
    let (to, _other_worker) = {
        let tally = Tally::start().await;
        let worker = start_worker(&tally.stores, "other-worker", &[]);
        (tally, worker)
    };
    numbered(&from).await;
    close(&from.pool, "id % 3 <> 0").await;
    until_rolled_up(&from).await;
    let expected = held(&from.pool).await;
    let folder = from.stores.folder();
    // Two archives: their ids lie among each other.
    execute(
        &from.pool,
        "update rule set closes_at = '1999-01-01' where id % 6 = 1 and closes_at < now() - interval '1 day'",
    )
    .await;
    for before in ["2000-01-01T00:00:00Z", "2999-01-01T00:00:00Z"] {
        archive(
            &from.stores,
            &[
                "run",
                "--closed-before",
                before,
                "--out",
                shown(folder),
                "--apply",
            ],
        )
        .await;
    }
    assert_eq!(held(&from.pool).await, [""; 0]);
    let mut files = Vec::new();
    for table in ["polls", "items"] {
        let path = folder.join(table);
        let (done, _, said) = export(&from.stores, Role::Report, &[table, "--out", shown(&path)]).await;
        assert!(done, "{said}");
        files.push((
            table,
            as_of_other(&from.stores, &path, &to.stores.folder().join(table)).await,
        ));
    }
    for name in ["archive-1.csv", "archive-2.csv"] {
        let path = as_of_other(&from.stores, &folder.join(name), &to.stores.folder().join(name)).await;
        files.push(("votes", path));
    }
    for (table, path) in files {
        let (done, result, said) = operator(&to.stores, &["import", table, shown(&path)]).await;
        assert!(done, "{table}: {result:?} {said}");
    }
    assert_eq!(held(&to.pool).await, expected);
    until_rolled_up(&to).await;
    audit(&to).await;
}
