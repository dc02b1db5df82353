-- Rolled up: as of the watermark.

create or replace view votes_by_quarter_hour as
select total_change.starts_at,
       total_change.ups                                as up_votes,
       total_change.downs                              as down_votes,
       total_change.ups + total_change.downs           as votes,
       total_change.ups - total_change.downs           as score,
       total_change.ups + total_change.downs + total_change.ups_taken_back + total_change.downs_taken_back as votes_cast,
       total_change.ups_taken_back + total_change.downs_taken_back as votes_taken_back,
       total_change.ups + total_change.ups_taken_back     as up_votes_cast,
       total_change.downs + total_change.downs_taken_back as down_votes_cast,
       total_change.ups_taken_back                     as up_votes_taken_back,
       total_change.downs_taken_back                   as down_votes_taken_back
from total_change;
comment on view votes_by_quarter_hour is 'Votes on all items together, by quarter of an hour, for hours and days of any zone: votes_by_hour_in and votes_by_day_in sum them. No row: nothing changed.';

create or replace view votes_by_hour as
select date_trunc('hour', one.starts_at, 'UTC') as hour,
       sum(one.up_votes)::bigint as up_votes, sum(one.down_votes)::bigint as down_votes,
       sum(one.votes)::bigint as votes, sum(one.score)::bigint as score,
       sum(one.votes_cast)::bigint as votes_cast, sum(one.votes_taken_back)::bigint as votes_taken_back,
       sum(one.up_votes_cast)::bigint as up_votes_cast, sum(one.down_votes_cast)::bigint as down_votes_cast,
       sum(one.up_votes_taken_back)::bigint as up_votes_taken_back, sum(one.down_votes_taken_back)::bigint as down_votes_taken_back
from votes_by_quarter_hour as one
group by 1;
comment on view votes_by_hour is 'Votes on all items together, by hour of UTC. No row: nothing changed. Hours of a zone: the function votes_by_hour_in.';

create or replace view votes_by_day as
select (one.starts_at at time zone 'UTC')::date as day,
       sum(one.up_votes)::bigint as up_votes, sum(one.down_votes)::bigint as down_votes,
       sum(one.votes)::bigint as votes, sum(one.score)::bigint as score,
       sum(one.votes_cast)::bigint as votes_cast, sum(one.votes_taken_back)::bigint as votes_taken_back,
       sum(one.up_votes_cast)::bigint as up_votes_cast, sum(one.down_votes_cast)::bigint as down_votes_cast,
       sum(one.up_votes_taken_back)::bigint as up_votes_taken_back, sum(one.down_votes_taken_back)::bigint as down_votes_taken_back
from votes_by_quarter_hour as one
group by 1;
comment on view votes_by_day is 'Votes on all items together, by UTC day. No row: nothing changed. By item: item_votes_by_day. Days of a zone: the function votes_by_day_in.';

create or replace view item_votes_by_day as
with first_recent as (
    -- One minimum for each length of a span: an index finds both.
    select coalesce((least((select min(starts_at) from recent_change where minutes = 5),
                           (select min(starts_at) from recent_change where minutes = 60)) at time zone 'UTC')::date, 'infinity') as first_day
)
select changed.item_id,
       item.name as item_name,
       changed.day,
       changed.ups as up_votes,
       changed.downs as down_votes,
       changed.ups + changed.downs as votes,
       changed.ups - changed.downs as score,
       changed.ups + changed.downs + changed.ups_taken_back + changed.downs_taken_back as votes_cast,
       changed.ups_taken_back + changed.downs_taken_back as votes_taken_back,
       changed.ups + changed.ups_taken_back as up_votes_cast,
       changed.downs + changed.downs_taken_back as down_votes_cast,
       changed.ups_taken_back as up_votes_taken_back,
       changed.downs_taken_back as down_votes_taken_back
from (
    -- Days before those of recent_change are whole, a row each.
    select day_change.item_id, day_change.day, day_change.ups, day_change.downs, day_change.ups_taken_back, day_change.downs_taken_back
    from day_change
    where day_change.day < (select first_day from first_recent)
    union all
    -- A worker may have moved some spans of a later day, and others not yet.
    select one.item_id, one.day, sum(one.ups)::bigint, sum(one.downs)::bigint, sum(one.ups_taken_back)::bigint, sum(one.downs_taken_back)::bigint
    from (
        select day_change.item_id, day_change.day, day_change.ups, day_change.downs, day_change.ups_taken_back, day_change.downs_taken_back
        from day_change
        where day_change.day >= (select first_day from first_recent)
        union all
        select recent_change.item_id, (recent_change.starts_at at time zone 'UTC')::date, recent_change.ups, recent_change.downs,
               recent_change.ups_taken_back, recent_change.downs_taken_back
        from recent_change
    ) as one
    group by one.item_id, one.day
) as changed
left join item on item.id = changed.item_id;
comment on view item_votes_by_day is 'Votes on each item by UTC day. No row: nothing changed on the item on that day.';

create or replace view recent_item_votes as
select recent_change.item_id,
       item.name as item_name,
       recent_change.starts_at,
       recent_change.minutes,
       recent_change.ups as up_votes,
       recent_change.downs as down_votes,
       recent_change.ups + recent_change.downs as votes,
       recent_change.ups - recent_change.downs as score,
       recent_change.ups + recent_change.downs + recent_change.ups_taken_back + recent_change.downs_taken_back as votes_cast,
       recent_change.ups_taken_back + recent_change.downs_taken_back as votes_taken_back
from recent_change
left join item on item.id = recent_change.item_id;
comment on view recent_item_votes is 'Votes on each item in the last 25 hours or more, by spans of 5 minutes for the last hour and of 60 minutes before. No row: nothing changed.';
comment on column recent_item_votes.minutes is 'How long it is: 5 or 60.';

create or replace view poll_votes_by_day as
select rule.id as poll_id,
       rule.title as poll_title,
       item.id as item_id,
       item.name as item_name,
       changed.day,
       changed.votes_cast - changed.votes_taken_back as votes,
       changed.votes_cast,
       changed.votes_taken_back,
       (sum(changed.votes_cast - changed.votes_taken_back) over (partition by rule.id, item.id order by changed.day))::bigint as votes_so_far
from rule
join item on item.rule_id = rule.id
-- For each choice by itself, so that one poll is found by an index.
cross join lateral (
    select one.day, sum(one.net + one.taken_back)::bigint as votes_cast, sum(one.taken_back)::bigint as votes_taken_back
    from (
        select day_change.day, day_change.ups + day_change.downs as net, day_change.ups_taken_back + day_change.downs_taken_back as taken_back
        from day_change where day_change.item_id = item.id
        union all
        select (recent_change.starts_at at time zone 'UTC')::date, recent_change.ups + recent_change.downs,
               recent_change.ups_taken_back + recent_change.downs_taken_back
        from recent_change where recent_change.item_id = item.id
    ) as one
    group by one.day
) as changed
where rule.title is not null;
comment on view poll_votes_by_day is 'A poll''s results over time: votes on each choice by UTC day, and up to its end. No row: nothing changed on the choice on that day.';
comment on column poll_votes_by_day.poll_id is 'The poll.';
comment on column poll_votes_by_day.poll_title is 'Its title.';
comment on column poll_votes_by_day.votes_so_far is 'Votes held on the choice at the end of the day.';

-- The same columns have the same comments.
do $$
declare
    one record;
begin
    for one in
        select pg_class.oid::regclass as named, pg_attribute.attname, said.meaning
        from (values
            ('starts_at', 'When the quarter of an hour, or the span, begins.'),
            ('hour', 'When the hour begins.'),
            ('day', 'The UTC day.'),
            ('item_id', 'The item.'),
            ('item_name', 'Its name.'),
            ('up_votes', 'By how much the up-votes that are held grew: cast less taken back.'),
            ('down_votes', 'By how much the down-votes that are held grew.'),
            ('votes', 'By how much the votes that are held grew: votes_cast less votes_taken_back.'),
            ('score', 'By how much the score grew: up_votes less down_votes.'),
            ('votes_cast', 'Votes that were cast then, also by changes, moves and undone voidings.'),
            ('votes_taken_back', 'Votes that were taken back then, by changes, moves, retractions and voidings, whenever they were cast.'),
            ('up_votes_cast', 'The up-votes of votes_cast.'),
            ('down_votes_cast', 'The down-votes of votes_cast.'),
            ('up_votes_taken_back', 'The up-votes of votes_taken_back.'),
            ('down_votes_taken_back', 'The down-votes of votes_taken_back.')) as said (name, meaning)
        join pg_attribute on pg_attribute.attname = said.name
        join pg_class on pg_class.oid = pg_attribute.attrelid and pg_class.relkind = 'v'
        where pg_class.relnamespace = quote_ident(current_schema())::regnamespace
          and pg_class.relname in ('votes_by_quarter_hour', 'votes_by_hour', 'votes_by_day', 'item_votes_by_day', 'recent_item_votes', 'poll_votes_by_day')
    loop
        execute format('comment on column %s.%I is %L', one.named, one.attname, one.meaning);
    end loop;
end $$;
