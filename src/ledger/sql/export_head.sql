-- Which ledger a snapshot is of, up to which vote nothing is in flight, and how many votes are in archives alone.
select identity.id as "identity!",
       pg_current_snapshot()::text as "snapshot!",
       (extract(epoch from now()) * 1000000)::bigint as "taken_at!",
       watermark.vote_id as until,
       (extract(epoch from watermark.reached_at) * 1000000)::bigint as reached_at,
       (select coalesce(sum(dropped_total), 0) from archive)::bigint as "archived_votes!"
from watermark, identity
