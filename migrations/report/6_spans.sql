-- Functions: a zone, or a span that ends now.
--
-- A span of days is at most 100 years long, and ends in a year from now: else an infinite date would fill Postgres' disk.
--
-- Those that read much may use more memory, and Postgres does not compile their plans: that can take longer than to run them.

create or replace function votes_by_day_in(zone text, first date, last date)
returns table (day date, up_votes bigint, down_votes bigint, votes bigint, score bigint, votes_cast bigint, votes_taken_back bigint)
language sql stable
begin atomic
    select given.day::date, coalesce(sum(one.up_votes), 0)::bigint, coalesce(sum(one.down_votes), 0)::bigint,
           coalesce(sum(one.votes), 0)::bigint, coalesce(sum(one.score), 0)::bigint,
           coalesce(sum(one.votes_cast), 0)::bigint, coalesce(sum(one.votes_taken_back), 0)::bigint
    from generate_series(greatest(first, least(last, current_date + 366) - 36525, date '0001-01-01')::timestamp, least(last, current_date + 366)::timestamp, interval '1 day') as given (day)
    left join votes_by_quarter_hour as one
        on date_trunc('day', one.starts_at at time zone zone) = given.day
       and one.starts_at >= first::timestamp at time zone zone
       and one.starts_at < (last::timestamp + interval '1 day') at time zone zone
    group by given.day;
end;
comment on function votes_by_day_in is 'Votes on all items together, by day of a time zone, from the first day to the last, also days without votes. Columns as in votes_by_day. Example: select * from report.votes_by_day_in(''Europe/Berlin'', ''2030-01-01'', ''2030-01-31'') order by day';

create or replace function votes_by_hour_in(zone text, first date, last date)
returns table (hour timestamptz, local_hour timestamp, up_votes bigint, down_votes bigint, votes bigint, score bigint, votes_cast bigint, votes_taken_back bigint)
language sql stable
begin atomic
    select given.hour, given.hour at time zone zone, coalesce(sum(one.up_votes), 0)::bigint, coalesce(sum(one.down_votes), 0)::bigint,
           coalesce(sum(one.votes), 0)::bigint, coalesce(sum(one.score), 0)::bigint,
           coalesce(sum(one.votes_cast), 0)::bigint, coalesce(sum(one.votes_taken_back), 0)::bigint
    -- An hour in which the clock is set back comes twice, as two hours.
    from generate_series(greatest(first, least(last, current_date + 366) - 36525, date '0001-01-01')::timestamp at time zone zone,
                         (least(last, current_date + 366)::timestamp + interval '1 day') at time zone zone - interval '1 microsecond', interval '1 hour') as given (hour)
    left join votes_by_quarter_hour as one
        on date_bin('1 hour', one.starts_at, greatest(first, least(last, current_date + 366) - 36525, date '0001-01-01')::timestamp at time zone zone) = given.hour
       and one.starts_at >= first::timestamp at time zone zone
       and one.starts_at < (last::timestamp + interval '1 day') at time zone zone
    group by given.hour;
end;
comment on function votes_by_hour_in is 'Votes on all items together, by hour of a time zone, from the first day''s first hour to the last day''s last, also hours without votes. local_hour is the zone''s time of day; other columns as in votes_by_hour. Example: select * from report.votes_by_hour_in(''Asia/Kolkata'', ''2030-01-01'', ''2030-01-07'') order by hour';

create or replace function voters_by_day_in(zone text, first date, last date)
returns table (day date, voters bigint, votes_cast bigint, anonymous_votes_cast bigint)
language sql stable
set jit = off
set work_mem = '64MB'
-- Sorting texts takes longer than a hash of them.
set enable_sort = off
begin atomic
    -- A day by itself, between two times: to ask each vote for its local day takes longer than to read it.
    with midnight as (
        select given.day::date as day,
               -- Where clocks go back over midnight, the day has begun before its second midnight.
               case when (one.at - interval '1 hour') at time zone zone >= given.day then one.at - interval '1 hour' else one.at end as at
        from generate_series(greatest(first, least(last, current_date + 366) - 36525, date '0001-01-01')::timestamp, least(last, current_date + 366)::timestamp + interval '1 day', interval '1 day') as given (day)
        cross join lateral (select given.day at time zone zone as at) as one
    ), given as materialized (
        select midnight.day, midnight.at as starts_at, lead(midnight.at) over (order by midnight.day) as ends_at
        from midnight
    )
    select given.day, count(one.voter_id), coalesce(sum(one.total), 0)::bigint,
           coalesce(sum(one.total) filter (where one.voter_id is null), 0)::bigint
    from given
    left join lateral (
        select votes.voter_id, count(*) as total
        from votes_between(given.starts_at, given.ends_at) as votes
        where votes.votes > 0
        group by votes.voter_id
    ) as one on true
    where given.day <= least(last, current_date + 366)
    group by given.day;
end;
comment on function voters_by_day_in is 'How many different voters cast a vote on each day of a time zone, how many votes were cast, and how many of these had no voter (anonymous, or with a ballot). From the ledger, without votes that were archived. Example: select * from report.voters_by_day_in(''UTC'', ''2030-01-01'', ''2030-01-02'') order by day';

create or replace function changes_by_day_in(zone text, first date, last date)
returns table (day date, votes_taken_back bigint, changes bigint, moves bigint, retractions bigint, voided bigint, undone bigint)
language sql stable
set jit = off
set work_mem = '64MB'
-- Sorting texts takes longer.
set enable_mergejoin = off
begin atomic
    -- As votes.part_of, but all at once.
    with changed as materialized (
        select date_trunc('day', votes.created_at at time zone zone) as day, votes.created_at, votes.vote_id, votes.item_id, votes.poll_id,
               votes.voter_id, votes.change_number, votes.change_number % 2 = 1 as is_back
        -- An index has the few rows with a change number above 0, also what a change casts.
        from votes_between(first::timestamp at time zone zone, (last::timestamp + interval '1 day') at time zone zone) as votes
        where votes.change_number > 0
    ), part as (
        select changed.day, changed.is_back,
               case when not changed.is_back then 'undo'
                    when voided.voided_by_vote_id is not null then 'voiding'
                    when again.vote_id is not null then 'change'
                    when changed.poll_id is not null and exists (
                        select from votes as one
                        where one.poll_id = changed.poll_id and one.voter_id = changed.voter_id and one.item_id <> changed.item_id
                          and one.votes > 0 and one.created_at = changed.created_at) then 'move'
                    else 'retraction' end as part_of
        from changed
        left join changed as again
            on not again.is_back and again.item_id = changed.item_id and again.voter_id = changed.voter_id
           and again.change_number = changed.change_number + 1 and again.created_at = changed.created_at
        left join voided_votes as voided on voided.voided_by_vote_id = changed.vote_id
        where changed.is_back or exists (select from voided_votes as undone where undone.cast_again_vote_id = changed.vote_id)
        -- The offset keeps Postgres from deciding anew for each column.
        offset 0
    )
    select given.day::date, count(*) filter (where part.is_back), count(*) filter (where part.part_of = 'change'),
           count(*) filter (where part.part_of = 'move'), count(*) filter (where part.part_of = 'retraction'),
           count(*) filter (where part.part_of = 'voiding'), count(*) filter (where part.part_of = 'undo')
    from generate_series(greatest(first, least(last, current_date + 366) - 36525, date '0001-01-01')::timestamp, least(last, current_date + 366)::timestamp, interval '1 day') as given (day)
    left join part on part.day = given.day
    group by given.day;
end;
comment on function changes_by_day_in is 'What was taken back on each day of a time zone, and why: changes (to the other direction), moves (to another choice of the poll), retractions, voided; undone: voided votes that were cast again. Each on the day when it was done, not when the vote was cast. From the ledger, without votes that were archived. Example: select * from report.changes_by_day_in(''UTC'', ''2030-01-01'', ''2030-01-07'') order by day';

create or replace function top_movers(since interval default interval '1 day', top bigint default 10)
returns table (item_id bigint, item_name text, poll_id bigint, is_hidden boolean, since_time timestamptz, up_votes bigint, down_votes bigint, votes bigint, score bigint, votes_cast bigint, votes_taken_back bigint)
language sql stable
set jit = off
set work_mem = '64MB'
begin atomic
    with since_when as materialized (
        select case when since <= interval '1 hour' then date_bin('5 minutes', now() - since, timestamptz 'epoch')
                    when since <= interval '1 day' then date_bin('1 hour', now() - since, timestamptz 'epoch')
                    else date_trunc('day', now() - since, 'UTC') end as time
    )
    select items.item_id, items.item_name, items.poll_id, items.is_hidden, (select time from since_when),
           one.up_votes, one.down_votes, one.up_votes + one.down_votes, one.up_votes - one.down_votes,
           one.up_votes + one.down_votes + one.votes_taken_back, one.votes_taken_back
    from (
        select changed.item_id, sum(changed.ups)::bigint as up_votes, sum(changed.downs)::bigint as down_votes,
               sum(changed.ups_taken_back + changed.downs_taken_back)::bigint as votes_taken_back
        from (
            -- The tables and not item_votes_by_day, which would sum each day by itself first.
            select recent_change.item_id, recent_change.ups, recent_change.downs, recent_change.ups_taken_back, recent_change.downs_taken_back
            from recent_change
            -- These are all values. The condition lets Postgres use the index.
            where recent_change.minutes in (5, 60) and recent_change.starts_at >= (select time from since_when)
            union all
            select day_change.item_id, day_change.ups, day_change.downs, day_change.ups_taken_back, day_change.downs_taken_back
            from day_change
            where since > interval '1 day' and day_change.day >= (select (time at time zone 'UTC')::date from since_when)
        ) as changed
        group by changed.item_id
    ) as one
    join items on items.item_id = one.item_id
    order by one.up_votes + one.down_votes desc, one.item_id
    limit top;
end;
comment on function top_movers is 'The items whose held votes grew most since then, most first; top: how many (null: all). since_time says from when: a full five minutes for up to an hour, a full hour for up to a day, else a full UTC day. Example: select * from report.top_movers(''1 hour''), select * from report.top_movers(''7 days'', 100)';
