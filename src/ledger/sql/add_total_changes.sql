-- Adds to the changes of all items together.
-- $1 spans, of a quarter of an hour each, since 1970, each once; $2 to $5 as $3 to $6 of add_recent_changes.sql.
insert into total_change (starts_at, ups, downs, ups_taken_back, downs_taken_back)
select timestamptz 'epoch' + span * interval '15 minutes', ups, downs, ups_back, downs_back
from unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[])
    as given (span, ups, downs, ups_back, downs_back)
on conflict (starts_at) do update
set ups = total_change.ups + excluded.ups,
    downs = total_change.downs + excluded.downs,
    ups_taken_back = total_change.ups_taken_back + excluded.ups_taken_back,
    downs_taken_back = total_change.downs_taken_back + excluded.downs_taken_back
