-- What votes changed on the items $1, in their order: in the last hour if $2, else in the last day. And their
-- counts with all votes that are summed. One statement has one snapshot, so the changes are those of the counts.
-- Times in µs since 1970. There is a row for each change, and at least one for each item.
with times as materialized (
    -- Begins in full five minutes or full hours, as top lists do.
    select case when $2 then date_bin('5 minutes', now() - interval '1 hour', timestamptz 'epoch')
                else date_bin('1 hour', now() - interval '1 day', timestamptz 'epoch') end as since,
           (select reached_at from watermark) as reached_at
)
select (extract(epoch from times.since) * 1000000)::bigint        as "since!",
       (extract(epoch from times.reached_at) * 1000000)::bigint   as "summed_at?",
       given.at                                                   as "at!",
       coalesce(audited.vote_count, 0)                            as "vote_count!",
       coalesce(audited.down_count, 0)                            as "down_count!",
       (extract(epoch from changed.starts_at) * 1000000)::bigint  as "starts_at?",
       changed.minutes                                            as "minutes?",
       changed.ups                                                as "ups?",
       changed.downs                                              as "downs?"
from times
cross join unnest($1::bigint[]) with ordinality as given (id, at)
left join lateral (
    -- `offset 0`: one lookup for each item, whatever a plan knows of the tables.
    select vote_count, down_count from audited_count where audited_count.item_id = given.id offset 0
) as audited on true
left join lateral (
    select starts_at, minutes, ups, downs from recent_change
    where recent_change.item_id = given.id and recent_change.starts_at >= times.since offset 0
) as changed on true
order by given.at, changed.starts_at, changed.minutes
