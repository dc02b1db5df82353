-- As save_counts.sql, but leaves out items whose rows someone else has locked, such as an
-- operator's open transaction. This costs one more lock for each item.
-- $1 item ids, each once; $2 counts; $3 revisions (µs); $4 the epoch's number; $5 the counts of
-- down-votes.
with current as materialized (
    select number from epoch for share
), unlocked as materialized (
    select id from item
    where id = any($1::bigint[]) and (select number from current) = $4::bigint
    order by id
    for no key update skip locked
), written as (
    update item
    set vote_count = given.vote_count,
        down_count = given.down_count,
        counted_at = timestamptz 'epoch' + given.revision * interval '1 microsecond'
    from unlocked
    join unnest((select $1::bigint[]), (select $2::bigint[]), (select $3::bigint[]), (select $5::bigint[]))
         as given (id, vote_count, revision, down_count) on given.id = unlocked.id
    where item.id = unlocked.id
      and (item.counted_at is null
           or item.counted_at < timestamptz 'epoch' + given.revision * interval '1 microsecond'
           or item.counted_at = timestamptz 'epoch' + given.revision * interval '1 microsecond'
              and item.vote_count = given.vote_count and item.down_count = given.down_count)
    returning item.id
)
select array(select id from written)               as "written!",
       array(select id from unlocked)              as "unlocked!",
       (select number from current) = $4::bigint   as "is_current!"
