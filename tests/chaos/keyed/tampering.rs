//! Ways to break the votes by key, and those by id, each with a part of the finding that it must cause.

/// Breaks the ledger.
pub const STATEMENTS: &[(&str, &str)] = &[
    (
        "update recent_change set ups = ups + 1 where ctid = (select max(ctid) from recent_change)",
        "the changes of item",
    ),
    (
        "update total_change set downs = downs + 1 where starts_at = (select max(starts_at) from total_change)",
        "the changes of all items together",
    ),
    (
        "update vote set item_id = other.id from item, item as other
         where vote.id = (
                 select max(vote.id) from vote join item on item.id = item_id
                 where starts_with(key, 'keyed-') and voter_id is not null)
           and item.id = item_id and starts_with(other.key, 'keyed-') and other.id <> item.id
           and other.id = (select max(id) from item where starts_with(key, 'keyed-') and id <> vote.item_id)",
        "its client named key",
    ),
    (
        "update vote set item_id = 1 where id = (
             select max(vote.id) from vote join item on item.id = item_id
             where starts_with(key, 'keyed-') and voter_id is not null)",
        "its client named key",
    ),
    (
        "update vote set item_id = 1 where id = (
             select max(vote.id) from vote join item on item.id = item_id
             where starts_with(key, 'keyed-') and voter_id is not null)",
        "none of these clients names",
    ),
    (
        "insert into vote (item_id) select max(id) from item where starts_with(key, 'keyed-')
         union all select max(id) from item where starts_with(key, 'keyed-')
         union all select max(id) from item where starts_with(key, 'keyed-')
         union all select max(id) from item where starts_with(key, 'keyed-')
         union all select max(id) from item where starts_with(key, 'keyed-')
         union all select max(id) from item where starts_with(key, 'keyed-')",
        "requests that named it",
    ),
    (
        "delete from vote where id = (select max(vote.id) from vote where starts_with(voter_id, 'keyed-'))",
        "acknowledged, and not there",
    ),
    (
        "insert into vote (item_id, voter_id)
         select max(id), 'keyed-nobody' from item where starts_with(key, 'keyed-')",
        "no client asked for",
    ),
    (
        "update vote set item_id = 1 + item_id % 2 where id = (
             select max(id) from vote where starts_with(voter_id, 'voter-') and item_id <= 2)",
        "its client named another item",
    ),
    (
        "insert into vote (item_id, voter_id) values (1, 'ruled-1')",
        "none of these clients names",
    ),
    (
        "delete from vote where id = (select max(id) from vote where starts_with(voter_id, 'voter-'))",
        "which is not its row",
    ),
];
