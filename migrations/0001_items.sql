-- What people vote on: items, polls, and what an item requires of its votes.

-- What an item requires beyond "one vote per voter". An item has a rule if it limits or numbers its
-- votes, opens or closes, takes ballots, or is a choice of a poll. A poll is a rule with a title.
-- The row is also the lock of its votes: `cast_votes` takes it before it decides. Votes on items
-- without a rule never wait for that.
create table rule (
    -- For a poll, the poll's id.
    id            bigint generated always as identity primary key,
    -- Set: a poll, and its items are the choices. Null: the rule of one item.
    title         text
                  constraint rule_title_length check (char_length(title) between 1 and 200),
    -- How many choices of the poll one voter may hold. 1: another choice moves the vote.
    -- Null: any number.
    max_choices   smallint
                  constraint rule_max_choices check (max_choices > 0),
    -- The rule takes votes from the first time on, until the second, by the database's clock. Null:
    -- no limit.
    opens_at      timestamptz,
    closes_at     timestamptz,
    constraint rule_closes_after_it_opens check (closes_at > opens_at),
    -- Whether the poll's counts are shown before it closes.
    shows_results boolean not null default true,
    -- How many voters hold a choice of the poll: the turnout. Each vote with a ballot is one voter.
    voter_count   bigint not null default 0
                  constraint rule_voter_count check (voter_count >= 0),
    created_at    timestamptz not null default now(),
    -- What the frontend calls the poll. It never changes.
    key           text collate "C"
                  constraint rule_key_length check (octet_length(key) between 1 and 200),
    -- Whether lists leave the poll out. Its votes and counts stay.
    is_hidden     boolean not null default false,
    -- Whether each vote takes a ballot. Such votes have no voter.
    by_ballot     boolean not null default false,
    -- Whether Tally keeps nothing that links a ballot to its vote.
    is_secret     boolean not null default false,
    -- How many ballots were made for the rule.
    ballot_count  bigint not null default 0,
    constraint rule_secret_takes_ballots check (by_ballot or not is_secret),
    -- A ballot buys one vote, so it cannot buy several choices.
    constraint rule_ballot_is_one_choice check (not by_ballot or title is null or max_choices = 1)
);

-- No key belongs to two polls.
create unique index rule_key on rule (key) where key is not null;
-- Lists of polls, newest first. Most rules belong to single items.
create index rule_listed on rule (id desc) where title is not null and not is_hidden;
-- Searches for polls by the words in their titles.
create index rule_words on rule using gin (search_vector(search_text(title))) where title is not null;

create trigger rule_is_known_to_writers
    before insert on rule
    for each statement execute function rule_is_known_to_writers();

-- What people vote on. Rows are never deleted, so a vote's item always exists. The trigger below
-- guarantees that in place of a foreign key, which would lock the item's row for each batch of votes
-- and make workers wait for it.
create table item (
    id               bigint generated always as identity primary key,
    -- What people see. Not unique: two polls may share a choice's name.
    name             text collate "C" not null
                     constraint item_name_length check (char_length(name) between 1 and 200),
    -- The saved count: up-votes less down-votes. Only workers write it, and only forward in
    -- counted_at. Reports read it.
    vote_count       bigint not null default 0,
    -- The revision of vote_count: the Redis time (µs, forced to grow) of the change that it holds.
    -- Null: the item has not been counted yet.
    counted_at       timestamptz,
    created_at       timestamptz not null default now(),
    -- The down-votes in the saved count, written together with vote_count. Up-votes are
    -- vote_count + down_count.
    down_count       bigint not null default 0,
    -- What the item requires of its votes; null: nothing. It never changes: servers remember which
    -- items have no rule.
    rule_id          bigint references rule,
    -- Whether the item takes votes of −1. It never changes.
    takes_down_votes boolean not null default true,
    -- What the frontend calls the item, such as the id of a post. It never changes: servers remember
    -- which item a key names.
    key              text collate "C"
                     constraint item_key_length check (octet_length(key) between 1 and 200),
    -- Whether lists leave the item out. Its votes and counts stay.
    is_hidden        boolean not null default false
)
-- Three columns change often, and no index has them. Free space in each page keeps the new versions
-- of a row in the same page (HOT).
with (fillfactor = 70);

-- Items by name, for lists and for `tally replay`.
create index item_name on item (name, id);
-- A poll's choices.
create index item_of_rule on item (rule_id, id) where rule_id is not null;
-- No key belongs to two items.
create unique index item_key on item (key) where key is not null;
-- Searches for items by the words in their names. Votes do not change names, so saving counts does
-- not write to this index.
create index item_words on item using gin (search_vector(search_text(name)));

create trigger item_is_permanent
    before delete or truncate or update of id, key, rule_id, takes_down_votes on item
    for each statement execute function item_is_permanent();

-- The places of an item that limits or numbers its votes. Apart from `item`, whose rows the workers
-- write. Functions write it, in the transaction of the votes.
create table place (
    item_id     bigint primary key references item,
    -- How many votes the item takes. A vote that is taken back gives its place back. Null: any number.
    max_votes   bigint
                constraint place_max_votes check (max_votes > 0),
    -- Whether votes get the numbers 1, 2, 3 and so on.
    is_numbered boolean not null default false,
    -- How many votes are held.
    taken       bigint not null default 0
                constraint place_taken check (taken >= 0),
    constraint place_is_not_overfull check (taken <= max_votes),
    -- The last number that was given.
    last_number bigint not null default 0
)
-- Two columns change often, and no index has them (HOT, as in `item`).
with (fillfactor = 50);
