-- Adds to the changes of items by day.
-- As add_recent_changes.sql, but each pair may come several times.
insert into day_change (item_id, day, ups, downs, ups_taken_back, downs_taken_back)
select item_id, ((timestamptz 'epoch' + span * interval '5 minutes') at time zone 'UTC')::date as day,
       sum(ups), sum(downs), sum(ups_back), sum(downs_back)
from unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[])
    as given (item_id, span, ups, downs, ups_back, downs_back)
group by item_id, day
on conflict (item_id, day) do update
set ups = day_change.ups + excluded.ups,
    downs = day_change.downs + excluded.downs,
    ups_taken_back = day_change.ups_taken_back + excluded.ups_taken_back,
    downs_taken_back = day_change.downs_taken_back + excluded.downs_taken_back
