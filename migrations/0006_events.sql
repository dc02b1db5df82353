-- Events that a backend would otherwise poll for, and how far they are delivered to its webhook.

-- Whether events are made. One row.
create table outbox (
    -- Always true: there is one row.
    one          boolean primary key default true constraint outbox_is_one check (one),
    -- Events are made of what happened from then on. Null: none were ever wanted.
    since        timestamptz,
    -- When a worker with a webhook last said that it wants events. `events_are_made` says for how long that holds.
    wanted_at    timestamptz,
    -- Counts of an item at which an event is made.
    thresholds   bigint[] not null default '{}',
    -- Each poll that closed up to then has its event, but for some minutes before it: see note_poll_events.
    closed_until timestamptz,
    constraint outbox_is_whole check (num_nonnulls(since, wanted_at, closed_until) in (0, 3))
);
insert into outbox default values;

-- The events. Whatever makes one does so in the transaction of what happened. A worker deletes a row some days
-- after its delivery, or after it was given up.
create table event (
    id             bigint generated always as identity primary key,
    -- What the webhook calls it, the same at each try. Not the id: a restored Postgres would give one out twice.
    message_id     text collate "C" not null default 'evt_' || gen_random_uuid()
                   constraint event_message_id unique,
    -- item.threshold, item.full, poll.final, voiding.done, voiding.undone or audit.drift.
    kind           text collate "C" not null,
    -- Of what makes the event happen once.
    once_key       text collate "C" not null
                   constraint event_once_key unique,
    -- What it is about, such as item:5. Events about the same are delivered in the order of their ids.
    subject        text collate "C" not null,
    happened_at    timestamptz not null default clock_timestamp(),
    -- What the webhook is sent as `data`.
    data           jsonb not null,
    -- How often it was sent without success since it was made, or sent again by an operator.
    tries          integer not null default 0,
    -- How many of these the webhook refused with a status of 400 to 499.
    refusals       integer not null default 0,
    -- When the first of these tries was; null: none yet.
    first_tried_at timestamptz,
    -- Not before then, by Postgres' clock.
    next_try_at    timestamptz not null default clock_timestamp(),
    -- Null: it is not delivered.
    delivered_at   timestamptz,
    -- When a worker gave it up: a dead letter. Null: it did not.
    dead_at        timestamptz,
    -- Why the last try failed.
    last_problem   text,
    constraint event_ends_once check (num_nonnulls(delivered_at, dead_at) <= 1)
)
-- Tries change rows, and no index has what they change. Free space in each page keeps the new versions of a row in
-- the same page (HOT).
with (fillfactor = 70);

-- What is to be delivered, by subject.
create index event_waiting on event (subject, id) where delivered_at is null and dead_at is null;
-- The same, in the order in which it happened.
create index event_waiting_in_order on event (id) where delivered_at is null and dead_at is null;
-- What is old.
create index event_delivered on event (delivered_at) where delivered_at is not null;
create index event_dead on event (dead_at) where dead_at is not null;

-- Items that take no more votes, as far as events say: the next event needs a free place meanwhile.
create table full_item (
    -- No foreign key: a roll-up would wait for whoever has locked the item's row.
    item_id bigint primary key
);

-- Thresholds that items have reached: each has its event once, also after that is deleted.
create table reached_threshold (
    -- No foreign key: as in full_item.
    item_id   bigint,
    threshold bigint,
    primary key (item_id, threshold)
);

-- Polls by when they close.
create index rule_closing on rule (closes_at) where title is not null and closes_at is not null;
