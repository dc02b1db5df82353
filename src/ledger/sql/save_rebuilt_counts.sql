-- Saves exact counts to their items, each only if the saved count is still the one that was
-- read with the exact count (compare and set), and all only in the epoch in which the
-- rebuild requests were read. Returns the items that were written.
-- $1 item ids, each once; $2 counts; $3 revisions (µs); $4 the revisions of the saved
-- counts that were read (µs), null: never saved; $5 the epoch's number; $6 the counts of
-- down-votes.
with current as materialized (
    -- As in save_counts.sql.
    select number from epoch for share
), unlocked as materialized (
    -- One row that an operator's open transaction holds must not stop the others.
    select id from item
    where id = any($1::bigint[]) and (select number from current) = $5::bigint
    order by id
    for no key update skip locked
), written as (
    update item
    set vote_count = given.vote_count,
        down_count = given.down_count,
        counted_at = timestamptz 'epoch' + given.revision * interval '1 microsecond'
    from unlocked
    join unnest((select $1::bigint[]), (select $2::bigint[]), (select $3::bigint[]),
                (select $4::bigint[]), (select $6::bigint[]))
         as given (id, vote_count, revision, read_revision, down_count)
         on given.id = unlocked.id
    where item.id = unlocked.id
      and item.counted_at is not distinct from
          timestamptz 'epoch' + given.read_revision * interval '1 microsecond'
    returning item.id
)
select array(select id from written)               as "written!",
       (select number from current) = $5::bigint   as "is_current!"
