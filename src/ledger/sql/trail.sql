-- The trail, the newest first; times in µs since 1970.
-- $1 older than this row, $2 since and $3 until when (µs since 1970), $4 who, $5 what (null: any), $6 how many.
select id, (extract(epoch from acted_at) * 1000000)::bigint as "acted_at!", who, what, target, outcome, problem, tool,
       host(address) as address, login, begun_id, details::text as details
from act
where ($1::bigint is null or id < $1)
  -- Seconds and µs apart: an interval is multiplied as a floating-point number.
  and ($2::bigint is null
       or acted_at >= timestamptz 'epoch' + $2::bigint / 1000000 * interval '1 second' + $2::bigint % 1000000 * interval '1 microsecond')
  and ($3::bigint is null
       or acted_at < timestamptz 'epoch' + $3::bigint / 1000000 * interval '1 second' + $3::bigint % 1000000 * interval '1 microsecond')
  and ($4::text is null or who = $4)
  and ($5::text is null or what = $5)
order by id desc limit $6
