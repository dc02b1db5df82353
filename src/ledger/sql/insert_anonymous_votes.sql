-- One batch of votes without voters, which all count: stores those whose item exists.
-- $1 item ids, $2 values, one array entry a vote; $3 those items of $1 that the caller
-- does not yet know to exist, each once: mostly none.
-- insert_votes.sql can do the same and more, at half as much again a vote.
with found as materialized (
    -- An array, so that however this is planned, maybe while the tables are empty, the
    -- votes below are read in one pass and not joined to anything.
    select array(select id from item where id = any($3::bigint[])) as ids
), inserted as (
    -- Drawn by the column's default as each row is made, so ids go up in the order
    -- in which the votes are given.
    insert into vote (item_id, value)
    select given.item_id, given.value
    from unnest($1::bigint[], $2::smallint[]) as given (item_id, value)
    where given.item_id <> all($3::bigint[])
       or given.item_id = any((select ids from found)::bigint[])
    returning id
)
-- One row of arrays: a row a vote would cost more to send than to insert.
select pg_current_xact_id()::text::bigint    as "xid!",
       (select ids from found)               as "found!: Vec<i64>",
       array(select id from inserted)        as "inserted!: Vec<i64>"
