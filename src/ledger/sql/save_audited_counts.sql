-- Saves the audited counts of cold items, right after a roll-up: of items whose saved counts were the audited
-- counts before it, and whose rows nobody has written since. Returns the items that were written.
-- $1 item ids, each once; $2 the sums of their votes that were rolled up; $3 the sums of their down-votes;
-- $4 a revision (µs) for them, unless they have a higher one; $5 a transaction id (without its epoch): rows that
-- were written by a lower one hold no votes that are neither among these sums nor in the audited counts before;
-- $6 the number of the epoch in which that was so.
with current as materialized (
    -- As in save_counts.sql.
    select number from epoch for share
), written as (
    update item
    set vote_count = given.vote_count,
        down_count = given.down_count,
        -- Only just above the last one: a live count that was seeded since must have a higher one.
        counted_at = greatest(
            item.counted_at + interval '1 microsecond',
            timestamptz 'epoch' + $4::bigint * interval '1 microsecond'
        )
    from (
        select given.id, given.sum, given.downs, audited.vote_count, audited.down_count
        -- As in save_counts.sql.
        from unnest((select $1::bigint[]), (select $2::bigint[]), (select $3::bigint[])) as given (id, sum, downs)
        cross join lateral (
            select audited_count.vote_count, audited_count.down_count
            from audited_count where audited_count.item_id = given.id
            offset 0
        ) as audited
        where (select number from current) = $6::bigint
        order by given.id
    ) as given
    where item.id = given.id
      and item.vote_count = given.vote_count - given.sum
      and item.down_count = given.down_count - given.downs
      -- Ages of transaction ids, since the ids themselves wrap around.
      and age(item.xmin) > age(($5::text)::xid)
    returning item.id
)
select -- Null if all were written, the usual case.
       case when (select count(*) from written) < cardinality($1::bigint[])
            then array(select id from written) end as "written"
