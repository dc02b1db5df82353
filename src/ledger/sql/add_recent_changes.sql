-- Adds to the recent changes of items.
-- $1 item ids and $2 spans (as in sum_votes.sql), each pair once; $3 up-votes; $4 down-votes; $5 and $6 how
-- many of these were taken back.
insert into recent_change (item_id, starts_at, minutes, ups, downs, ups_taken_back, downs_taken_back)
select item_id, timestamptz 'epoch' + span * interval '5 minutes', 5, ups, downs, ups_back, downs_back
from unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[])
    as given (item_id, span, ups, downs, ups_back, downs_back)
on conflict (item_id, starts_at, minutes) do update
set ups = recent_change.ups + excluded.ups,
    downs = recent_change.downs + excluded.downs,
    ups_taken_back = recent_change.ups_taken_back + excluded.ups_taken_back,
    downs_taken_back = recent_change.downs_taken_back + excluded.downs_taken_back
