-- Which ledger a snapshot is of, and up to which vote nothing is in flight.
select identity.id as "identity!",
       pg_current_snapshot()::text as "snapshot!",
       (extract(epoch from now()) * 1000000)::bigint as "taken_at!",
       watermark.vote_id as until,
       (extract(epoch from watermark.reached_at) * 1000000)::bigint as reached_at
from watermark, identity
