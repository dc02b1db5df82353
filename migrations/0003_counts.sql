-- What makes counts exact and fast: sums of the ledger, and what tells workers which live counts to
-- trust. The saved counts are in `item`.

-- How far the ledger is rolled up into audited counts and recent changes. One row.
create table watermark (
    -- Always true: there is one row.
    one        boolean primary key default true constraint watermark_is_one check (one),
    -- Every vote with an id up to this one is in its item's audited count; in `recent_change` or
    -- `day_change`; and in `total_change`.
    vote_id    bigint not null default 0,
    -- How many votes those are.
    vote_total bigint not null default 0,
    -- Every vote with an id up to this one is in its item's live count, or, if there is none, in its saved
    -- count. At most the watermark; below it, a worker has yet to save the counts of cold items.
    saved_vote_id bigint not null default 0,
    -- Votes that were stored before this time are among them, except for votes in flight; null: no
    -- roll-up has ended yet.
    reached_at timestamptz
);
insert into watermark default values;

-- The audited counts: sums of an item's votes up to the watermark. Apart from `item`, so that
-- roll-ups and flushes do not wait for each other. Only roll-ups write it.
create table audited_count (
    -- An item without a row has an audited count of 0. Not a foreign key: it would lock the item's row.
    item_id    bigint primary key,
    -- The sum of the item's votes up to the watermark.
    vote_count bigint not null,
    -- The down-votes among them.
    down_count bigint not null
)
-- Two columns change often, and no index has them. Free space in each page keeps the new versions
-- of a row in the same page (HOT).
with (fillfactor = 50);

-- What votes changed on an item lately, for top lists, histories and reports: votes up to the watermark. The
-- transaction that moves the watermark adds to it. No count depends on it. A row of the ledger that takes a
-- vote back counts when it was taken back.
create table recent_change (
    item_id   bigint not null,
    -- The votes that were cast from this time on, by the database's clock …
    starts_at timestamptz not null,
    -- … for so many minutes: 5, or 60 once that is longer than an hour ago. Once the day, by UTC, has ended
    -- for 25 hours, a worker moves the row to `day_change`.
    minutes   smallint not null
              constraint recent_change_minutes check (minutes in (5, 60)),
    -- Up-votes and down-votes that were cast, less those that were taken back.
    ups       bigint not null,
    downs     bigint not null,
    -- How many were taken back.
    ups_taken_back   bigint not null default 0,
    downs_taken_back bigint not null default 0,
    -- It also finds the changes of a poll's items.
    primary key (item_id, starts_at, minutes)
)
-- Its sums change often, and no index has them (HOT, as in `audited_count`). Most rows are of past
-- spans and hardly change any more, so there is less free space.
with (fillfactor = 70);
-- All items of a time; and old rows, which a worker looks for every few seconds.
create index recent_change_starts_at on recent_change (minutes, starts_at);

-- The same by day, for reports. What is too old for `recent_change` is here: with it, all votes up to the
-- watermark. Kept for ever, also if votes are archived.
create table day_change (
    item_id          bigint not null,
    -- By UTC.
    day              date not null,
    -- As in `recent_change`.
    ups              bigint not null,
    downs            bigint not null,
    ups_taken_back   bigint not null default 0,
    downs_taken_back bigint not null default 0,
    primary key (item_id, day)
)
-- A vote that is rolled up late is added to its day.
with (fillfactor = 80);
-- All items of some days. Rows come about in the order of days.
create index day_change_day on day_change using brin (day);

-- The same of all items together, for ever.
create table total_change (
    -- When the quarter of an hour begins. The hours and days of every time zone are whole quarters.
    starts_at        timestamptz primary key,
    -- As in `recent_change`.
    ups              bigint not null,
    downs            bigint not null,
    ups_taken_back   bigint not null,
    downs_taken_back bigint not null
)
with (fillfactor = 70);

-- Between which times the votes of a range of ids were cast: where reports find the votes of some time
-- (report.votes_between). The transaction that moves the watermark adds to it; votes beyond the watermark are in
-- no range. A range has about 65,536 ids, so the table stays small.
create table vote_time (
    -- The range: ids that the roll-up passed, with their votes. The next range begins after the last one.
    first_vote_id bigint not null,
    last_vote_id  bigint primary key,
    -- All its votes were cast from this time on …
    first_at      timestamptz not null,
    -- … and before this one, by whole five minutes. An import makes a range wide.
    last_at       timestamptz not null
);

-- In which epoch counts are saved. A worker raises the number before it invalidates the counters of
-- another epoch. From then on Postgres takes no count that was read before: a worker may have stalled
-- with it since before Redis lost its data (a fencing token). One row.
create table epoch (
    -- Always true: there is one row.
    one    boolean primary key default true constraint epoch_is_one check (one),
    -- Only grows.
    number bigint not null default 0
);
insert into epoch default values;

-- Which Redis the counts are in: the last entry of a worker into an epoch, of each bucket. A Redis whose entry is another
-- one was left for this one, or has gone back to earlier data: its counters are invalidated before they are used.
create table epoch_entry (
    -- How many buckets that Redis has: 1, or those of a Redis Cluster. Rows of another number are of a Redis that was left.
    bucket_count smallint not null,
    bucket       smallint not null,
    -- As in Redis at the key of the epoch; while a worker is entering it, the name of its mark.
    entry        text collate "C" not null,
    -- Which run of which Redis has the bucket, as that says itself.
    redis        text collate "C" not null,
    -- Shows for a while that its worker is alive, which may not have sent a heartbeat yet.
    noted_at     timestamptz not null default clock_timestamp(),
    primary key (bucket_count, bucket)
);

-- Which incarnation of Postgres this is. Postgres empties an unlogged table after a crash and on a
-- promoted replica. Transaction ids that were not yet on disk may then be drawn again, so visibility
-- snapshots from before say nothing: workers begin a new epoch when the token is another one.
create unlogged table incarnation (
    -- Always true: there is one row, or none after a crash.
    one      boolean primary key default true constraint incarnation_is_one check (one),
    -- Drawn by the worker that comes first.
    token    text not null default gen_random_uuid()::text,
    -- The transaction that drew the token. In this database it is the row's xmin; in a restored dump it
    -- is not, and a worker draws the token again.
    drawn_by xid8 not null default pg_current_xact_id()
);

-- The connections over which servers store votes. A server that dies between a batch's commit and its
-- count leaves votes that nobody counts. A worker finds its connections here, sees that they are gone,
-- and has the counts of the newest votes' items rebuilt (crashed-writer recovery). Unlogged: after a
-- crash of Postgres all counts are rebuilt anyway.
create unlogged table writer_connection (
    -- The connection's application_name, unlike any other.
    name            text collate "C" primary key,
    -- When it was made. For a human reader: no statement uses it.
    connected_at    timestamptz not null default now(),
    -- Each vote that this connection stored with an id up to this one is counted. Later ones may be in
    -- flight. If the connection is gone, they may never be counted. The server raises it several times
    -- a second while votes come.
    counted_vote_id bigint not null default 0,
    -- Whether the server knows of rules.
    knows_rules     boolean not null default false
);

create trigger writer_connection_knows_rules
    before insert on writer_connection
    for each row execute function writer_connection_knows_rules();
