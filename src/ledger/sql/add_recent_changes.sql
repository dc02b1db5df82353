-- Adds to the recent changes of items.
-- $1 item ids and $2 spans (as in sum_votes.sql), each pair once; $3 up-votes; $4 down-votes.
insert into recent_change (item_id, starts_at, minutes, ups, downs)
select item_id, timestamptz 'epoch' + span * interval '5 minutes', 5, ups, downs
from unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[]) as given (item_id, span, ups, downs)
on conflict (item_id, starts_at, minutes) do update
set ups = recent_change.ups + excluded.ups, downs = recent_change.downs + excluded.downs
