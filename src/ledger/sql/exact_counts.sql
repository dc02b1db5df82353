-- What exact counts are made of: audited counts, and votes beyond the watermark that the caller has not
-- read yet. One statement has one snapshot, so all of it agrees.
-- $1 items, each once; $5 those of them whose saved counts' revisions are asked for: it is noted which of
-- these exist.
-- $2: the caller has read the votes up to this id, but for those with the ids $3, which were not there.
-- $4: the most votes that it takes now.
with mark as materialized (
    select vote_id, greatest(vote_id, $2::bigint) as after from watermark
)
select pg_current_snapshot()::text      as "snapshot!",
       mark.vote_id                     as "watermark!",
       -- Behind the snapshot: no id that it sees is higher, unless someone has set the sequence back.
       (select last_value from vote_id_seq) as "last_id!",
       vote.ids                         as "vote_ids",
       vote.item_ids                    as "vote_items",
       vote.values                      as "vote_values",
       vote.change_numbers              as "vote_changes",
       counted.ids                      as "items",
       counted.vote_counts              as "vote_counts",
       counted.down_counts              as "down_counts",
       saved.ids                        as "saved_items",
       saved.counted_at                 as "counted_at: Vec<Option<i64>>"
from mark
-- One row of arrays: a row for each vote would cost more to send than to read.
cross join (
    select array_agg(id) as ids, array_agg(item_id) as item_ids,
           array_agg(value) as values, array_agg(change_number) as change_numbers
    from (
        (select id, item_id, value, change_number from vote
         where id > (select after from mark) order by id limit $4::bigint)
        union all
        select id, item_id, value, change_number from vote where id = any($3::bigint[])
    ) as one
) as vote
cross join (
    select array_agg(given.id) as ids,
           array_agg(coalesce(audited.vote_count, 0)) as vote_counts,
           array_agg(coalesce(audited.down_count, 0)) as down_counts
    from unnest($1::bigint[]) as given (id)
    left join lateral (
        select audited_count.vote_count, audited_count.down_count
        from audited_count where audited_count.item_id = given.id
        -- `offset 0` makes this one index lookup for each item. Without it, a plan from the time when
        -- the table was empty may read all of it.
        offset 0
    ) as audited on true
) as counted
cross join (
    select array_agg(id) as ids,
           -- Exact to the microsecond until the year 2100, and five times as fast as `extract`.
           array_agg((date_part('epoch', counted_at) * 1000000)::bigint) as counted_at
    from item where id = any($5::bigint[])
) as saved
