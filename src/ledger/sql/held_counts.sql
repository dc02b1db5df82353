-- Which of these items have the given count, under the given revision or a later one.
-- $1 item ids, $2 counts, $3 revisions (µs).
select item.id as "id!"
from unnest((select $1::bigint[]), (select $2::bigint[]), (select $3::bigint[]))
     as given (id, vote_count, revision)
join item on item.id = given.id
where item.vote_count = given.vote_count
  and item.counted_at >= timestamptz 'epoch' + given.revision * interval '1 microsecond'
