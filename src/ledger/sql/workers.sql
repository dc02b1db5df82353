-- The workers, in the order in which they began; times in µs since 1970.
-- $1 for how long a worker that is alive may be silent (µs), $2 at most this many.
select name as "name!", (extract(epoch from started_at) * 1000000)::bigint as "started_at!",
       (extract(epoch from seen_at) * 1000000)::bigint as "seen_at!",
       -- A time in the future counts too: the clock was set back.
       seen_at > clock_timestamp() - $1::bigint / 1000 * interval '1 millisecond' as "is_alive!",
       (extract(epoch from pass_ended_at) * 1000000)::bigint as pass_ended_at, pass_took_micros, pass_outcome,
       unsaved_counts as "unsaved_counts!", oldest_unsaved_micros as "oldest_unsaved_micros!",
       saved_counts as "saved_counts!"
from worker order by started_at, name limit $2
