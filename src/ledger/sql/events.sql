-- Events, the newest first, at most $1: those before the event $2, in the state $3, or the event $4 alone. Null: it
-- does not matter.
select id, message_id, kind, subject, (extract(epoch from happened_at) * 1000000)::bigint as "happened_at!",
       tries, (extract(epoch from next_try_at) * 1000000)::bigint as "next_try_at!",
       (extract(epoch from delivered_at) * 1000000)::bigint as delivered_at,
       (extract(epoch from dead_at) * 1000000)::bigint as dead_at, last_problem, data::text as "data!"
from event
where ($2::bigint is null or id < $2)
  and ($3::text is null
       or $3 = case when dead_at is not null then 'dead' when delivered_at is not null then 'delivered' else 'waiting' end)
  and ($4::bigint is null or id = $4)
order by id desc
limit $1
