-- What votes changed on the items $1 since $2 (µs since 1970).
select item_id, (extract(epoch from starts_at) * 1000000)::bigint as "starts_at!", minutes, ups, downs
from recent_change
where item_id = any($1)
  and starts_at >= timestamptz 'epoch' + $2::bigint / 1000000 * interval '1 second'
order by item_id, starts_at, minutes
