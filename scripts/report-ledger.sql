-- Fills a migrated, empty Tally with a ledger to try reports on, and rolls it up. By scripts/reports; for psql.
--
-- Variables: votes (about so many rows of the ledger), items, voters, days, seed (from -1 to 1).
-- Nine tenths of the items are plain or limited, the others are choices of polls with four choices each. Few items
-- and few voters have most of the votes. There are changes, moves, retractions, hidden items, secret polls,
-- voidings with undos, and votes by API keys.
\set ON_ERROR_STOP on
\set QUIET on
\pset tuples_only on
set jit = off;
set work_mem = '512MB';
set maintenance_work_mem = '1GB';
set synchronous_commit = off;
-- Otherwise random() depends on who reads which rows.
set max_parallel_workers = 0;
select setseed(:seed) \g /dev/null

create temporary table clock as select now() as ends_at, now() - :days * interval '1 day' as starts_at;

-- Items and polls.
insert into rule (title, max_choices, closes_at, by_ballot, is_secret, shows_results, created_at, is_hidden)
select 'Poll ' || n, case when n % 10 = 0 then null else 1 end,
       -- Half of them have closed, at any time of the period.
       case when n % 2 = 0 then starts_at + (0.1 + 0.9 * random()) * (ends_at - starts_at)
            when n % 7 = 0 then ends_at + interval '7 days' end,
       n % 20 = 9, n % 40 = 9, n % 5 <> 0, starts_at - interval '1 day', n % 50 = 3
from clock, generate_series(1, :items / 40) as n;
insert into rule (created_at) select starts_at - interval '1 day' from clock, generate_series(1, :items / 40);
insert into item (key, name, rule_id, takes_down_votes, is_hidden, created_at)
select case when n % 3 = 0 then 'post-' || n end,
       case when n > plain then format('Choice %s of poll %s', (n - plain - 1) % 4 + 1, (n - plain - 1) / 4 + 1) else 'Item ' || n end,
       case when n > plain then (n - plain - 1) / 4 + 1
            -- The last of the plain items are limited.
            when n > plain - :items / 40 then plain - n + 1 + :items / 40 end,
       n <= plain, n % 100 = 3,
       -- A tenth of them are new.
       case when n <= plain and n % 10 = 4 then starts_at + random() * (ends_at - starts_at) else starts_at - interval '1 day' end
from clock, (select :items - :items / 10 / 4 * 4 as plain) as given, generate_series(1, :items) as n;

-- When an item takes votes.
create temporary table span as
select item.id as item_id, rule.id as poll_id, coalesce(rule.by_ballot, false) as by_ballot, rule.max_choices,
       greatest(item.created_at, clock.starts_at) as starts_at,
       least(clock.ends_at, rule.closes_at,
             -- Some fell asleep.
             case when item.id % 20 = 7 then clock.starts_at + 0.6 * (clock.ends_at - clock.starts_at) end) as ends_at
from clock, item left join rule on rule.id = item.rule_id and rule.title is not null;
create index on span (item_id);
create index on span (poll_id, item_id);
analyze span;

-- First votes. A tick of ten seconds is a batch.
create unlogged table drawn (item_id bigint, voter_id text, poll_id bigint, at timestamptz, value smallint, fate float8);
insert into drawn
select one.item_id, one.voter_id, null, span.starts_at + one.moment * (span.ends_at - span.starts_at),
       case when one.taste * 25 < one.item_id % 10 then -1 else 1 end, one.fate
from (
    select item_id, voter_id, random() as moment, random() as taste, random() as fate
    from (
        select 1 + floor((:items - :items / 10) * power(random(), 3))::bigint as item_id,
               case when random() < 0.85 then 'voter-' || floor(:voters * power(random(), 1.5))::bigint end as voter_id, n
        from generate_series(1, (:votes * 0.82)::bigint) as n
    ) as wish
    group by item_id, voter_id, case when voter_id is null then n end
) as one
join span on span.item_id = one.item_id;
insert into drawn
select span.item_id, case when not span.by_ballot then one.voter_id end, one.poll_id,
       span.starts_at + one.moment * (span.ends_at - span.starts_at), 1, one.fate
from (
    select poll_id, voter_id, min(choice) as choice, random() as moment, random() as fate
    from (
        select 1 + floor(:items / 40 * power(random(), 2))::bigint as poll_id,
               'voter-' || floor(:voters * random())::bigint as voter_id,
               floor(4 * power(random(), 1.5))::bigint as choice
        from generate_series(1, (:votes * 0.15)::bigint) as n
    ) as wish
    -- With any number of choices: one vote for each choice.
    group by poll_id, voter_id, case when poll_id % 10 = 0 then choice end
) as one
join span on span.item_id = :items - :items / 10 / 4 * 4 + (one.poll_id - 1) * 4 + one.choice + 1;

-- What becomes of them.
create unlogged table entry (item_id bigint, voter_id text, poll_id bigint, at timestamptz, value smallint, change_number smallint);
insert into entry
select one.item_id, one.voter_id, one.poll_id, date_bin('10 seconds', step.at, timestamptz 'epoch'), step.value, step.change_number
from (
    -- Two later moments, soon or late.
    select drawn.*, second.at + interval '10 seconds' as second_at,
           second.at + interval '20 seconds' + power(random(), 3) * (span.ends_at - second.at) as third_at
    from drawn
    join span on span.item_id = drawn.item_id
    cross join lateral (select drawn.at + power(random(), 3) * (span.ends_at - drawn.at) as at) as second
) as one
cross join lateral (
    select one.at, one.value, 0
    union all
    select one.second_at, -one.value, 1 where one.voter_id is not null and one.fate < 0.05
    union all
    -- A change of the direction, or a later vote.
    select case when one.fate < 0.03 then one.second_at else one.third_at end, case when one.fate < 0.03 then -one.value else one.value end, 2
    where one.voter_id is not null and one.poll_id is null and one.fate < 0.035
    union all
    select one.third_at, one.value, 3 where one.voter_id is not null and one.poll_id is null and one.fate < 0.005
) as step (at, value, change_number);
-- What was taken back in a poll with one choice moved to another choice.
insert into entry
select moved_to.item_id, entry.voter_id, entry.poll_id, entry.at, 1, 0
from entry
join span on span.item_id = entry.item_id and span.max_choices = 1
join lateral (
    select other.item_id from span as other
    where other.poll_id = entry.poll_id and other.item_id <> entry.item_id
    order by other.item_id limit 1
) as moved_to on true
where entry.poll_id is not null and entry.change_number = 1 and hashtext(entry.voter_id) % 5 <> 0;
-- Not later than now, with the order of each voter's rows.
update entry set at = clock.ends_at - interval '20 seconds' + change_number * interval '1 second'
from clock where entry.at > clock.ends_at - interval '20 seconds';
drop table drawn;

-- The ledger. Indexes come later.
create temporary table later_index as
select pg_get_indexdef(indexrelid) as definition, indexrelid::regclass::text as name
from pg_index where indrelid = 'vote'::regclass and not indisprimary;
select format('drop index %s', name) from later_index \gexec
insert into vote (id, item_id, created_at, value, change_number, voter_id, poll_id)
overriding system value
select row_number() over (order by at, item_id, voter_id, change_number), item_id, at, value, change_number, voter_id, poll_id
from entry
order by 1;
drop table entry;
select definition from later_index \gexec
analyze vote;

-- Voidings of what is still held, with the same rows as void_votes and undo_votes write; every third is undone.
insert into voiding (voter_id, item_id, cast_from, cast_until, reason, created_at, until_vote_id, done_vote_id)
select case when n % 2 = 0 then 'voter-' || n * 3 end, case when n % 2 = 1 then n end,
       case when n % 2 = 1 then starts_at + n * 0.04 * (ends_at - starts_at) end,
       case when n % 2 = 1 then starts_at + (n * 0.04 + 0.02) * (ends_at - starts_at) end,
       case when n % 2 = 0 then 'a bot' else 'a script' end,
       starts_at + (n * 0.04 + 0.2) * (ends_at - starts_at), max_id, max_id
from clock, (select max(id) as max_id from vote) as given, generate_series(1, 19) as n;
create temporary table target as
select distinct on (one.id) one.*, voiding.id as voiding_id, voiding.created_at as voided_at
from voiding
cross join lateral (
    select vote.* from vote
    where vote.voter_id = voiding.voter_id and vote.item_id between 1 and :items
    union all
    select vote.* from vote
    where voiding.item_id is not null and vote.item_id = voiding.item_id
      and vote.created_at >= voiding.cast_from and vote.created_at < voiding.cast_until
) as one
where one.change_number % 2 = 0 and one.created_at < voiding.created_at
  and not exists (
      select from vote as next
      where next.item_id = one.item_id and next.voter_id = one.voter_id and next.change_number = one.change_number + 1)
order by one.id, voiding.id;
alter table target add by_id bigint, add again_id bigint;
update target set by_id = (select max(id) from vote) + numbered.n
from (select id, row_number() over (order by id) as n from target) as numbered where numbered.id = target.id;
update target set again_id = (select max(by_id) from target) + numbered.n
from (select id, row_number() over (order by id) as n from target where voiding_id % 3 = 0 and id % 10 <> 0) as numbered where numbered.id = target.id;
insert into vote (id, item_id, created_at, value, change_number, voter_id, poll_id) overriding system value
select by_id, item_id, voided_at, -value, change_number + 1, voter_id, poll_id from target
union all
select again_id, item_id, least(voided_at + interval '1 day', clock.ends_at), value, change_number + 2, voter_id, poll_id from target, clock where again_id is not null;
insert into voided (vote_id, voiding_id, by_vote_id, again_vote_id, left_void)
select id, voiding_id, by_id, again_id, case when voiding_id % 3 = 0 and again_id is null then 'full' end from target;
update voiding set undone_vote_id = until_vote_id where id % 3 = 0;

-- API keys, in rows as batches of votes add them.
insert into api_key (key_hash, name, scopes)
select sha256(n::text::bytea), (array['shop', 'app', 'forum'])[n], '{vote}' from generate_series(1, 3) as n;
insert into vote_api_key (block, api_key_id, vote_ids, created_at)
select vote.id / 4096, 1 + abs(hashtext(vote.voter_id)) % 10, range_agg(int8range(vote.id, vote.id + 1)), vote.created_at
from vote
where vote.voter_id is not null and abs(hashtext(vote.voter_id)) % 10 < 3 and vote.change_number % 2 = 0
  and not exists (select from voided where voided.by_vote_id = vote.id)
group by vote.id / 4096, vote.created_at, abs(hashtext(vote.voter_id)) % 10
order by 1;

-- What the rules store.
insert into place (item_id, max_votes, taken)
select item.id, held.total + case when item.id % 3 = 0 then 0 else 1 + item.id % 40 end, held.total
from item
join rule on rule.id = item.rule_id and rule.title is null
join (select item_id, sum(1 - 2 * (change_number % 2)) as total from vote group by item_id) as held on held.item_id = item.id
where held.total > 0;
update rule set voter_count = turnout.total, ballot_count = case when by_ballot then turnout.total * 4 / 3 else 0 end
from (
    select poll_id, count(*) filter (where held > 0 and voter_id is not null) + coalesce(sum(held) filter (where voter_id is null), 0) as total
    from (select poll_id, voter_id, sum(1 - 2 * (change_number % 2)) as held from vote where poll_id is not null group by poll_id, voter_id) as one
    group by poll_id
) as turnout
where rule.id = turnout.poll_id;

insert into ballot (token_hash, rule_id)
select sha256((rule.id || '-' || n)::bytea), rule.id
from rule, generate_series(1, rule.ballot_count - rule.voter_count) as n
where rule.by_ballot;

-- The roll-up.
insert into audited_count (item_id, vote_count, down_count)
select item_id, sum(value),
       count(*) filter (where value < 0 and change_number % 2 = 0) - count(*) filter (where value > 0 and change_number % 2 = 1)
from vote group by item_id;
update item set vote_count = audited_count.vote_count, down_count = audited_count.down_count, counted_at = clock.ends_at
from audited_count, clock where audited_count.item_id = item.id;
create temporary table changed as
select item_id, date_bin('5 minutes', created_at, timestamptz 'epoch') as starts_at,
       count(*) filter (where value > 0 and change_number % 2 = 0) as ups_cast,
       count(*) filter (where value < 0 and change_number % 2 = 0) as downs_cast,
       count(*) filter (where value < 0 and change_number % 2 = 1) as ups_taken_back,
       count(*) filter (where value > 0 and change_number % 2 = 1) as downs_taken_back
from vote group by 1, 2;
insert into total_change (starts_at, ups, downs, ups_taken_back, downs_taken_back)
select date_bin('15 minutes', starts_at, timestamptz 'epoch'), sum(ups_cast - ups_taken_back), sum(downs_cast - downs_taken_back),
       sum(ups_taken_back), sum(downs_taken_back)
from changed group by 1 order by 1;
-- The newest UTC day that ended more than 25 hours ago.
create temporary table last_day as select ((ends_at - interval '25 hours') at time zone 'UTC')::date - 1 as day from clock;
insert into day_change (day, item_id, ups, downs, ups_taken_back, downs_taken_back)
select (starts_at at time zone 'UTC')::date, item_id, sum(ups_cast - ups_taken_back), sum(downs_cast - downs_taken_back),
       sum(ups_taken_back), sum(downs_taken_back)
from changed, last_day where (starts_at at time zone 'UTC')::date <= last_day.day
group by 1, 2 order by 1, 2;
insert into recent_change (item_id, starts_at, minutes, ups, downs, ups_taken_back, downs_taken_back)
select item_id, case when is_new then starts_at else date_bin('1 hour', starts_at, timestamptz 'epoch') end,
       case when is_new then 5 else 60 end, sum(ups_cast - ups_taken_back), sum(downs_cast - downs_taken_back),
       sum(ups_taken_back), sum(downs_taken_back)
from (
    select changed.*, changed.starts_at >= date_bin('1 hour', clock.ends_at - interval '65 minutes', timestamptz 'epoch') as is_new
    from changed, last_day, clock where (changed.starts_at at time zone 'UTC')::date > last_day.day
) as one
group by 1, 2, 3;
insert into vote_time (first_vote_id, last_vote_id, first_at, last_at)
select min(id), max(id), date_bin('5 minutes', min(created_at), timestamptz 'epoch'),
       date_bin('5 minutes', max(created_at), timestamptz 'epoch') + interval '5 minutes'
from vote group by id / 65536;
update watermark set vote_id = totals.last, vote_total = totals.total, saved_vote_id = totals.last, reached_at = clock.ends_at
from (select max(id) as last, count(*) as total from vote) as totals, clock;
select setval('vote_id_seq', vote_id) from watermark \g /dev/null

-- The jobs.
update job set fencing_number = 8, succeeded_at = now() - interval '1 hour';
insert into job_run (job, fencing_number, worker, started_at, ended_at, took_micros, outcome, details)
select job.name, n, 'sync-worker 0123456789abcdef', now() - (9 - n) * interval '1 hour', now() - (9 - n) * interval '1 hour' + interval '7 seconds',
       7000000, case n when 3 then 'failed' else 'done' end,
       case when job.name = 'audit' and n <> 3 then '{"items": 20000, "votes": 10000000, "wrong_items": 0, "wrong_votes": 0, "repaired_items": 0}'::jsonb end
from job, generate_series(1, 8) as n;
insert into worker (name, started_at, seen_at, pass_ended_at, pass_took_micros, pass_outcome)
values ('sync-worker 0123456789abcdef', now() - interval '1 day', now(), now(), 2000, 'done');
vacuum (freeze, analyze);
