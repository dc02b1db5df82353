-- The schema `report`: views and functions for analysts (docs/reports.md). `tally migrate` runs this each time, after
-- the functions and before roles.sql. Names and columns stay when tables change: a view gets new columns at its end.
--
-- Views have the owner's rights, so analysts need no right on the tables. Functions read only these views, with
-- the caller's rights, so Postgres inlines the simple ones. Their bodies are bound to views when they are made, so no
-- search path of a caller changes what they read. No view shows a hash of a key, a ballot or an address.

-- The views are in the schema `report`, or, if that has the `items` of another Tally or of someone else, in one that is
-- named after this Tally's schema. What follows names them without a schema: the search path does. The last statement
-- resets it.
do $$
declare
    home constant name := current_schema();
    wanted name := 'report';
begin
    if to_regclass('report.items') is not null and not exists (
        select from pg_rewrite
        join pg_depend on pg_depend.classid = 'pg_rewrite'::regclass and pg_depend.objid = pg_rewrite.oid
        where pg_rewrite.ev_class = to_regclass('report.items')
          and pg_depend.refclassid = 'pg_class'::regclass and pg_depend.refobjid = 'item'::regclass) then
        wanted := home || '_report';
    end if;
    -- `create schema if not exists` asks for the right to create one even where it exists.
    if not exists (select from pg_namespace where nspname = wanted) then
        execute format('create schema %I', wanted);
    end if;
    execute format($comment$comment on schema %I is %L$comment$, wanted,
        'What Tally''s analysts read: start with report.items, report.polls and report.votes_by_day. '
        'In every view: up_votes and down_votes are votes that are held, votes is their sum, score is up_votes less down_votes. '
        'In a view by time they say by how much that grew: cast less taken back. Sums over all of time are the totals. '
        'votes_cast counts what was cast, votes_taken_back what was taken back: by a change, a move, a retraction or a voiding. '
        'A vote counts when it was cast; taking it back counts when that was done. Days are days of UTC, unless a function takes a zone. '
        'Shares are from 0 to 1. report.freshness says as of when each view is.');
    perform set_config('tally.search_path', current_setting('search_path'), false);
    perform set_config('search_path', format('%I, %I, pg_temp', wanted, home), false);
end $$;

-- Items and polls: saved counts.

create or replace view items as
select item.id                                     as item_id,
       item.name                                   as item_name,
       item.key                                    as item_key,
       case when rule.title is not null then rule.id end as poll_id,
       rule.title                                  as poll_title,
       item.vote_count + item.down_count           as up_votes,
       item.down_count                             as down_votes,
       item.vote_count + 2 * item.down_count       as votes,
       item.vote_count                             as score,
       round((item.vote_count + item.down_count)::numeric / nullif(item.vote_count + 2 * item.down_count, 0), 4) as up_share,
       case when rule.opens_at > now() then 'not open yet' when rule.closes_at <= now() then 'closed' else 'open' end as state,
       rule.opens_at,
       rule.closes_at,
       place.max_votes                             as places,
       case when place.max_votes is not null then place.taken end as places_taken,
       place.max_votes - place.taken               as places_free,
       coalesce(place.taken >= place.max_votes, false) as is_full,
       case when place.is_numbered then place.last_number end as last_number,
       item.takes_down_votes,
       coalesce(rule.by_ballot, false)             as by_ballot,
       item.is_hidden,
       item.created_at,
       item.counted_at
from item
left join rule on rule.id = item.rule_id
left join place on place.item_id = item.id;
comment on view items is 'One row per item, also hidden ones and the choices of polls: its votes, places, rule. Saved counts, about a second old.';
comment on column items.item_id is 'The id, for ever.';
comment on column items.item_name is 'What people see. Not unique.';
comment on column items.item_key is 'Your own key of the item, unique. Null: it has none.';
comment on column items.poll_id is 'The poll that the item is a choice of. Null: it is none.';
comment on column items.poll_title is 'That poll''s title.';
comment on column items.up_votes is 'Up-votes that are held: cast and not taken back.';
comment on column items.down_votes is 'Down-votes that are held.';
comment on column items.votes is 'up_votes and down_votes together.';
comment on column items.score is 'up_votes less down_votes: the count that Tally shows.';
comment on column items.up_share is 'up_votes / votes, from 0 to 1, rounded to 4 digits. Null: no votes.';
comment on column items.state is 'By opens_at, closes_at and now: not open yet, open, or closed.';
comment on column items.opens_at is 'Votes are taken from then on. Null: no limit.';
comment on column items.closes_at is 'Votes are taken until then. Null: no limit.';
comment on column items.places is 'How many votes the item takes. Null: any number.';
comment on column items.places_taken is 'How many places are taken. Exact now, so it may be ahead of votes. Null: any number of places.';
comment on column items.places_free is 'places less places_taken.';
comment on column items.is_full is 'Whether no place is free.';
comment on column items.last_number is 'The last number that was given. Null: the item does not number its votes.';
comment on column items.takes_down_votes is 'Whether the item takes down-votes.';
comment on column items.by_ballot is 'Whether each vote takes a ballot. Such votes have no voter.';
comment on column items.is_hidden is 'Whether lists leave the item out. Its votes count.';
comment on column items.created_at is 'When the item was created.';
comment on column items.counted_at is 'When the count that is saved last changed or was rebuilt, by Redis'' clock. Null: never saved.';

create or replace view polls as
select rule.id                as poll_id,
       rule.title             as poll_title,
       rule.key               as poll_key,
       case when rule.opens_at > now() then 'not open yet' when rule.closes_at <= now() then 'closed' else 'open' end as state,
       rule.opens_at,
       rule.closes_at,
       choices.total          as choices,
       coalesce(choices.votes, 0)::bigint as votes,
       rule.voter_count       as voters,
       case when rule.by_ballot then rule.ballot_count end as ballots,
       case when rule.by_ballot then round(rule.voter_count::numeric / nullif(rule.ballot_count, 0), 4) end as turnout_share,
       rule.max_choices,
       rule.shows_results     as results_before_close,
       rule.by_ballot,
       rule.is_secret,
       rule.is_hidden,
       rule.created_at,
       choices.counted_at
from rule
cross join lateral (
    select count(*) as total, sum(item.vote_count + 2 * item.down_count) as votes, max(item.counted_at) as counted_at
    from item where item.rule_id = rule.id
) as choices
where rule.title is not null;
comment on view polls is 'One row per poll, also hidden ones: state, votes, turnout. Counts that a poll hides from its voters are shown here.';
comment on column polls.poll_id is 'The id, for ever.';
comment on column polls.poll_title is 'What people see.';
comment on column polls.poll_key is 'Your own key of the poll, unique. Null: it has none.';
comment on column polls.state is 'By opens_at, closes_at and now: not open yet, open, or closed.';
comment on column polls.opens_at is 'Votes are taken from then on. Null: no limit.';
comment on column polls.closes_at is 'Votes are taken until then. Null: no limit.';
comment on column polls.choices is 'How many choices it has. Each is an item.';
comment on column polls.votes is 'Votes that are held on all choices. A saved count, about a second old.';
comment on column polls.voters is 'The turnout: how many voters hold a choice. In a poll by ballot each vote is one voter. Exact now.';
comment on column polls.ballots is 'Ballots that were made. Null: the poll takes none.';
comment on column polls.turnout_share is 'voters / ballots, from 0 to 1, rounded to 4 digits. Null: not by ballot, so nobody knows how many could vote.';
comment on column polls.max_choices is 'How many choices a voter may hold. Null: any number.';
comment on column polls.results_before_close is 'Whether voters see the counts before the poll closes.';
comment on column polls.by_ballot is 'Whether each vote takes a ballot. Such votes have no voter.';
comment on column polls.is_secret is 'Whether nothing that Tally keeps says which ballot bought which vote.';
comment on column polls.is_hidden is 'Whether lists leave the poll out.';
comment on column polls.created_at is 'When the poll was created.';
comment on column polls.counted_at is 'When a saved count of its choices last changed, by Redis'' clock.';

create or replace view poll_results as
select rule.id              as poll_id,
       rule.title           as poll_title,
       case when rule.opens_at > now() then 'not open yet' when rule.closes_at <= now() then 'closed' else 'open' end as state,
       rank() over (partition by rule.id order by item.vote_count + 2 * item.down_count desc) as rank,
       item.id              as item_id,
       item.name            as item_name,
       item.vote_count + 2 * item.down_count as votes,
       round((item.vote_count + 2 * item.down_count)
             / nullif(sum(item.vote_count + 2 * item.down_count) over (partition by rule.id), 0), 4) as share_of_votes,
       round((item.vote_count + 2 * item.down_count)::numeric / nullif(rule.voter_count, 0), 4) as share_of_voters,
       (sum(item.vote_count + 2 * item.down_count) over (partition by rule.id))::bigint as poll_votes,
       rule.voter_count     as voters
from rule join item on item.rule_id = rule.id
where rule.title is not null;
comment on view poll_results is 'One row per choice of a poll: rank, votes, shares. Saved counts, about a second old. Final once the state is closed, but for voidings.';
comment on column poll_results.poll_id is 'The poll.';
comment on column poll_results.poll_title is 'Its title.';
comment on column poll_results.state is 'The poll''s: not open yet, open, or closed.';
comment on column poll_results.rank is '1: the most votes. Choices with equal votes have the same rank.';
comment on column poll_results.item_id is 'The choice: an item.';
comment on column poll_results.item_name is 'Its name.';
comment on column poll_results.votes is 'Votes that are held on the choice.';
comment on column poll_results.share_of_votes is 'votes / poll_votes, from 0 to 1, rounded to 4 digits. Null: no votes.';
comment on column poll_results.share_of_voters is 'votes / voters, from 0 to 1, rounded to 4 digits. The shares add up to more than 1 where a voter may hold several choices.';
comment on column poll_results.poll_votes is 'Votes on all choices of the poll.';
comment on column poll_results.voters is 'The turnout: how many voters hold a choice.';

-- The ledger.

create or replace view votes as
select vote.id         as vote_id,
       vote.created_at,
       case when vote.change_number % 2 = 0 then 'cast' else 'taken back' end as action,
       -- A subquery is run only where a query asks for the column.
       case when vote.change_number % 2 = 0 then
           case when exists (select from voided where voided.again_vote_id = vote.id) then 'undo'
                when vote.change_number > 0 and exists (
                    select from vote_of_voter as one
                    where one.item_id = vote.item_id and one.voter_id = vote.voter_id
                      and one.change_number = vote.change_number - 1 and one.created_at = vote.created_at) then 'change'
                when vote.poll_id is not null and exists (
                    select from vote_of_voter as one
                    where one.poll_id = vote.poll_id and one.voter_id = vote.voter_id and one.item_id <> vote.item_id
                      and one.change_number % 2 = 1 and one.created_at = vote.created_at) then 'move'
                else 'vote' end
       else
           case when exists (select from voided where voided.by_vote_id = vote.id) then 'voiding'
                when exists (
                    select from vote_of_voter as one
                    where one.item_id = vote.item_id and one.voter_id = vote.voter_id
                      and one.change_number = vote.change_number + 1 and one.created_at = vote.created_at) then 'change'
                when vote.poll_id is not null and exists (
                    select from vote_of_voter as one
                    where one.poll_id = vote.poll_id and one.voter_id = vote.voter_id and one.item_id <> vote.item_id
                      and one.change_number % 2 = 0 and one.created_at = vote.created_at) then 'move'
                else 'retraction' end
       end             as part_of,
       case when (vote.value > 0) = (vote.change_number % 2 = 0) then 'up' else 'down' end as direction,
       vote.item_id,
       item.name       as item_name,
       vote.poll_id,
       vote.voter_id,
       vote.number,
       vote.change_number,
       (1 - 2 * (vote.change_number % 2) + vote.value) / 2 as up_votes,
       (1 - 2 * (vote.change_number % 2) - vote.value) / 2 as down_votes,
       1 - 2 * (vote.change_number % 2) as votes,
       vote.value::int as score
from vote
left join item on item.id = vote.item_id;
comment on view votes is 'The ledger: one row each time that a vote was cast or taken back. Rows never change. A change or a move is two rows of one time. Without votes that were archived. For the votes of some time use votes_between, which does not read the whole ledger.';
comment on column votes.vote_id is 'The row''s id. It grows, not in the order of created_at, and has gaps.';
comment on column votes.created_at is 'When it was cast or taken back, by Postgres'' clock.';
comment on column votes.action is 'cast, or taken back.';
comment on column votes.part_of is 'cast: vote, change, move or undo (of a voiding). taken back: change (to the other direction), move (to another choice of the poll), retraction or voiding. Costs two look-ups a row.';
comment on column votes.direction is 'up or down: of the vote that was cast or taken back.';
comment on column votes.item_id is 'The item.';
comment on column votes.item_name is 'Its name.';
comment on column votes.poll_id is 'The poll, if the item is a choice.';
comment on column votes.voter_id is 'Who voted. Null: anonymous, or with a ballot.';
comment on column votes.number is 'The vote''s number, on an item that numbers its votes.';
comment on column votes.change_number is 'Which of the voter''s rows on this item: 0, 1, 2 … Even ones cast, odd ones take back.';
comment on column votes.up_votes is 'What the row adds to the up-votes: 1, 0 or -1. The sum is what is held.';
comment on column votes.down_votes is 'What it adds to the down-votes.';
comment on column votes.votes is 'What it adds to the votes: 1 or -1.';
comment on column votes.score is 'What it adds to the score: 1 or -1.';

-- Each range of ids that may have votes of the time is looked up by itself: the offset keeps Postgres from joining all
-- ranges with the whole ledger at once, which it takes for cheaper than it is. What a caller does not select, it does
-- not read either.
create or replace function votes_between(since timestamptz, until timestamptz)
returns setof votes
language sql stable
begin atomic
    select one.*
    from (
        select vote_time.first_vote_id, vote_time.last_vote_id from vote_time
        where vote_time.last_at > since and vote_time.first_at < until
        union all
        -- What is not rolled up yet.
        select coalesce(max(vote_time.last_vote_id), 0) + 1, 9223372036854775807 from vote_time
    ) as part
    cross join lateral (
        select votes.* from votes
        where votes.vote_id between part.first_vote_id and part.last_vote_id
          and votes.created_at >= since and votes.created_at < until
        offset 0
    ) as one;
end;
comment on function votes_between is 'The rows of votes from one time on and before another one. It reads the votes of about that time alone. Example: select voter_id, count(*) from report.votes_between(now() - interval ''1 day'', now()) group by voter_id';

create or replace view votes_by_api_key as
select vote_api_key.api_key_id,
       api_key.name     as api_key_name,
       vote_api_key.created_at,
       (select sum(upper(part.ids) - lower(part.ids)) from unnest(vote_api_key.vote_ids) as part (ids))::bigint as votes_cast,
       lower(vote_api_key.vote_ids) as first_vote_id
from vote_api_key
left join api_key on api_key.id = vote_api_key.api_key_id;
comment on view votes_by_api_key is 'One row per batch of votes and API key that cast some of them: sum votes_cast. Without votes of secret polls, retractions, and votes cast without a key. A vote that was cast again after a voiding counts twice.';
comment on column votes_by_api_key.api_key_id is 'The API key.';
comment on column votes_by_api_key.api_key_name is 'Whose it is, or where it is used.';
comment on column votes_by_api_key.created_at is 'When the votes were cast.';
comment on column votes_by_api_key.votes_cast is 'How many votes.';
comment on column votes_by_api_key.first_vote_id is 'The first of them, to find it in report.votes.';

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

-- What operators voided.

create or replace view voidings as
select voiding.id as voiding_id,
       voiding.reason,
       case when voiding.undone_vote_id is not null then
                case when exists (select from voided where voided.voiding_id = voiding.id and voided.vote_id > voiding.undone_vote_id)
                     then 'being undone' else 'undone' end
            when voiding.done_vote_id < voiding.until_vote_id then 'under way'
            else 'done' end as state,
       voiding.created_at,
       voiding.voter_id,
       voiding.item_id,
       voiding.cast_from,
       voiding.cast_until,
       voiding.api_key_id,
       voiding.address_hashes is not null as is_by_address,
       totals.voided as votes_voided,
       totals.again as votes_cast_again,
       totals.left_void as votes_left_void
from voiding
cross join lateral (
    select count(*) as voided, count(voided.again_vote_id) as again, count(voided.left_void) as left_void
    from voided where voided.voiding_id = voiding.id
) as totals;
comment on view voidings is 'One row per voiding: which votes an operator took back, why, and how many. The votes match all filters that are not null.';
comment on column voidings.voiding_id is 'The voiding.';
comment on column voidings.reason is 'Why, in the operator''s words.';
comment on column voidings.state is 'under way, done, being undone or undone.';
comment on column voidings.created_at is 'When it began. Its votes count as taken back when that was done, from then on.';
comment on column voidings.voter_id is 'Filter: votes of this voter.';
comment on column voidings.item_id is 'Filter: votes on this item.';
comment on column voidings.cast_from is 'Filter: cast at this time or later.';
comment on column voidings.cast_until is 'Filter: cast before this time.';
comment on column voidings.api_key_id is 'Filter: cast with this API key.';
comment on column voidings.is_by_address is 'Filter: whether they are of certain client addresses. No view shows which.';
comment on column voidings.votes_voided is 'How many votes it took back.';
comment on column voidings.votes_cast_again is 'How many of them undoing it cast again.';
comment on column voidings.votes_left_void is 'How many of them undoing it left void.';

create or replace view voided_votes as
select voided.vote_id,
       voided.voiding_id,
       voiding.reason,
       was.item_id,
       item.name as item_name,
       was.poll_id,
       was.voter_id,
       case when was.value > 0 then 'up' else 'down' end as direction,
       was.created_at   as cast_at,
       back.created_at  as voided_at,
       again.created_at as cast_again_at,
       voided.left_void as left_void_because,
       voided.by_vote_id    as voided_by_vote_id,
       voided.again_vote_id as cast_again_vote_id
from voided
left join voiding on voiding.id = voided.voiding_id
left join vote as was on was.id = voided.vote_id
left join vote as back on back.id = voided.by_vote_id
left join vote as again on again.id = voided.again_vote_id
left join item on item.id = was.item_id;
comment on view voided_votes is 'One row per vote that was voided. In counts by time it was cast on the day of cast_at, taken back on that of voided_at, and, after an undo, cast again on that of cast_again_at. Of a vote that was archived, only the numbers of the vote and of its voiding are left.';
comment on column voided_votes.vote_id is 'The vote: a row of report.votes.';
comment on column voided_votes.voiding_id is 'The voiding.';
comment on column voided_votes.reason is 'Why, in the operator''s words.';
comment on column voided_votes.item_id is 'The item.';
comment on column voided_votes.item_name is 'Its name.';
comment on column voided_votes.poll_id is 'The poll, if the item is a choice.';
comment on column voided_votes.voter_id is 'Who had voted. Null: anonymous, or with a ballot.';
comment on column voided_votes.direction is 'up or down.';
comment on column voided_votes.cast_at is 'When the vote was cast.';
comment on column voided_votes.voided_at is 'When it was taken back.';
comment on column voided_votes.cast_again_at is 'When an undo cast it again. Null: it is void.';
comment on column voided_votes.left_void_because is 'Why an undo left it void: changed (the voter has voted again), full (no place), choices (as many as the poll allows), archived. Null: no undo looked at it, or it was cast again.';
comment on column voided_votes.voided_by_vote_id is 'The row of report.votes that takes it back.';
comment on column voided_votes.cast_again_vote_id is 'The row of report.votes that casts it again. Null: it is void.';

-- Functions: a zone, or a span that ends now.
--
-- Those that read much may use more memory, and Postgres does not compile their plans: that can take longer than to run them.

create or replace function votes_by_day_in(zone text, first date, last date)
returns table (day date, up_votes bigint, down_votes bigint, votes bigint, score bigint, votes_cast bigint, votes_taken_back bigint)
language sql stable
begin atomic
    select given.day::date, coalesce(sum(one.up_votes), 0)::bigint, coalesce(sum(one.down_votes), 0)::bigint,
           coalesce(sum(one.votes), 0)::bigint, coalesce(sum(one.score), 0)::bigint,
           coalesce(sum(one.votes_cast), 0)::bigint, coalesce(sum(one.votes_taken_back), 0)::bigint
    from generate_series(first::timestamp, last::timestamp, interval '1 day') as given (day)
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
    from generate_series(first::timestamp at time zone zone,
                         (last::timestamp + interval '1 day') at time zone zone - interval '1 microsecond', interval '1 hour') as given (hour)
    left join votes_by_quarter_hour as one
        on date_bin('1 hour', one.starts_at, first::timestamp at time zone zone) = given.hour
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
        from generate_series(first::timestamp, last::timestamp + interval '1 day', interval '1 day') as given (day)
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
    where given.day <= last
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
    from generate_series(first::timestamp, last::timestamp, interval '1 day') as given (day)
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

-- As of when, and whether it is right.

create or replace view freshness as
select source.name as source, source.views, source.as_of, now() - source.as_of as age
from (
    select 'ledger', 'votes, votes_by_api_key, voidings, voided_votes, voters_by_day_in, changes_by_day_in',
           case when pg_is_in_recovery() then pg_last_xact_replay_timestamp() else now() end
    union all
    select 'roll-up', 'votes_by_quarter_hour, votes_by_hour, votes_by_day, item_votes_by_day, poll_votes_by_day, recent_item_votes, votes_by_day_in, votes_by_hour_in, top_movers',
           (select watermark.reached_at from watermark)
    union all
    select 'saved counts', 'items, polls, poll_results',
           (select max(worker.pass_ended_at - (worker.pass_took_micros + worker.oldest_unsaved_micros) * interval '1 microsecond')
            from worker where worker.pass_outcome = 'done')
    union all
    select 'audit', 'all counts, compared with the ledger', (select job.succeeded_at from job where job.name = 'audit')
) as source (name, views, as_of);
comment on view freshness is 'As of when the other views are. Votes that were stored before as_of are in them, except for votes that were in flight.';
comment on column freshness.source is 'ledger: each committed vote. roll-up: sums of the ledger, some seconds old. saved counts: as workers wrote them. audit: the last that ended well.';
comment on column freshness.views is 'What reads it.';
comment on column freshness.as_of is 'As of when. On a standby the ledger is as of the last transaction that arrived. Null: never yet; for saved counts, no worker runs.';
comment on column freshness.age is 'now less as_of.';

create or replace view audits as
select job_run.started_at,
       job_run.ended_at,
       case when job_run.outcome is null then 'under way' else job_run.outcome end as outcome,
       job_run.took_micros * interval '1 microsecond' as took,
       (job_run.details ->> 'items')::bigint          as items,
       (job_run.details ->> 'votes')::bigint          as votes,
       (job_run.details ->> 'wrong_items')::bigint    as wrong_items,
       (job_run.details ->> 'wrong_votes')::bigint    as wrong_votes,
       (job_run.details ->> 'repaired_items')::bigint as repaired_items
from job_run
where job_run.job = 'audit';
comment on view audits is 'The last 100 audits: whether all counts were what the ledger says.';
comment on column audits.started_at is 'When it began.';
comment on column audits.ended_at is 'When it ended. Null: under way, or its worker was killed.';
comment on column audits.outcome is 'done, failed, lost (another worker took over), stopped, or under way.';
comment on column audits.took is 'How long it took.';
comment on column audits.items is 'Items that were compared. Null: it did not end well.';
comment on column audits.votes is 'Rows of the ledger that were compared.';
comment on column audits.wrong_items is 'Items with a wrong count.';
comment on column audits.wrong_votes is 'By how many votes they were wrong.';
comment on column audits.repaired_items is 'Items whose count was rebuilt.';

create or replace view jobs as
select job.name as job,
       job.succeeded_at,
       coalesce(job.lease_until > now(), false) as is_running,
       job.holder as worker,
       last_run.started_at as last_started_at,
       last_run.ended_at as last_ended_at,
       case when last_run.started_at is not null and last_run.outcome is null then 'under way' else last_run.outcome end as last_outcome,
       last_run.took_micros * interval '1 microsecond' as last_took
from job
left join lateral (
    select * from job_run where job_run.job = job.name order by job_run.fencing_number desc limit 1
) as last_run on true;
comment on view jobs is 'One row per job of the workers: roll_up (feeds the views by time), audit, deliver_events (to a webhook), and those that delete what is old.';
comment on column jobs.job is 'Its name.';
comment on column jobs.succeeded_at is 'When a run last ended well. Null: never yet.';
comment on column jobs.is_running is 'Whether a worker is doing it now.';
comment on column jobs.worker is 'Which worker is doing it. Null: nobody.';
comment on column jobs.last_started_at is 'When its last run began.';
comment on column jobs.last_ended_at is 'When that ended. Null: under way, or its worker was killed.';
comment on column jobs.last_outcome is 'done, failed, lost (another worker took over), stopped, or under way.';
comment on column jobs.last_took is 'How long it took.';

create or replace view losses as
select loss.id as loss_id,
       loss.found_at,
       loss.vote_total as lost_rows,
       loss.item_total as items,
       loss.first_stored_at,
       loss.last_stored_at,
       loss.is_whole
from loss;
comment on view losses is 'Acknowledged votes that are gone, after a failover or a restore: one row for what one server found missing at once. No row: none was found.';
comment on column losses.loss_id is 'The loss.';
comment on column losses.found_at is 'When a server found it.';
comment on column losses.lost_rows is 'Rows of the ledger that are gone: votes, changes, retractions.';
comment on column losses.items is 'How many items they were on.';
comment on column losses.first_stored_at is 'When the first of them had been stored, by the lost Postgres'' clock.';
comment on column losses.last_stored_at is 'When the last of them had been stored.';
comment on column losses.is_whole is 'Whether that server knows of all that it lost. false: it may have lost earlier ones, too.';

-- Resets what the first statement set.
do $$ begin
    perform set_config('search_path', current_setting('tally.search_path'), false);
end $$;
