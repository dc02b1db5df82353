-- Rules: what an item may require of its votes beside "one vote a voter". An item has a rule if
-- it has a limit of votes, numbers its votes, opens or closes, or is a choice of a poll. Votes on
-- such items, changes and retractions are stored by the function cast_votes (0016), which decides
-- them one after the other; votes on other items never wait for that.
create table rule (
    id           bigint generated always as identity primary key,
    -- Set: a poll, and its items are the choices. Null: the rule of one item.
    title        text
                 constraint rule_title_length check (char_length(title) between 1 and 200),
    -- How many choices of the poll one voter may hold. 1: another choice moves the vote.
    -- Null: any number.
    max_choices  smallint
                 constraint rule_max_choices check (max_choices > 0),
    -- Votes are taken from and until these times, by the database's clock. Null: no limit.
    opens_at     timestamptz,
    closes_at    timestamptz,
    constraint rule_closes_after_it_opens check (closes_at > opens_at),
    -- Whether the poll's counts are shown before it closes.
    shows_results boolean not null default true,
    -- How many voters hold a choice of the poll: the turnout.
    voter_count  bigint not null default 0
                 constraint rule_voter_count check (voter_count >= 0),
    created_at   timestamptz not null default now()
);

alter table item
    -- Set with the item, never changed: servers remember which items have no rule.
    add column rule_id bigint references rule,
    -- Whether the item takes down-votes; likewise never changed.
    add column takes_down_votes boolean not null default true;

-- A poll's choices.
create index item_of_rule on item (rule_id, id) where rule_id is not null;

drop trigger item_is_permanent on item;
create or replace function item_is_permanent() returns trigger language plpgsql as $$
begin
    raise exception 'items are never deleted and keep their id, rule_id and takes_down_votes: votes refer to them'
        using errcode = 'restrict_violation';
end $$;
create trigger item_is_permanent
    before delete or truncate or update of id, rule_id, takes_down_votes on item
    for each statement execute function item_is_permanent();

-- The places of an item whose votes are limited or numbered. Apart from `item`, whose rows the
-- worker writes. Written only by cast_votes, in the transaction of the votes.
create table place (
    item_id     bigint primary key references item,
    -- Votes that the item takes; a vote that is taken back gives its place back. Null: any number.
    max_votes   bigint
                constraint place_max_votes check (max_votes > 0),
    -- Whether votes get the numbers 1, 2, 3 and so on.
    is_numbered boolean not null default false,
    -- Votes that are held.
    taken       bigint not null default 0
                constraint place_taken check (taken >= 0),
    constraint place_is_not_overfull check (taken <= max_votes),
    -- The last number that was given.
    last_number bigint not null default 0
)
-- Two columns change often and neither is indexed: free space in each page keeps that inside it (HOT).
with (fillfactor = 50);

alter table vote
    -- The rule of the poll that the item is a choice of: then one index has all that a voter
    -- holds in a poll.
    add column poll_id bigint,
    -- The vote's number on an item that numbers its votes.
    add column number  bigint;

-- Neither has entries for votes without a rule. Votes wait while the ledger is read for them.
create index vote_in_poll on vote (poll_id, voter_id, item_id, change_number) where poll_id is not null;
create unique index vote_number on vote (item_id, number) where number is not null;

-- Servers from before this migration would store votes on items with a rule as if they had none.
alter table writer_connection
    -- Whether the server knows of rules.
    add column knows_rules boolean not null default false;

-- A rule is made only while all batch writers know of rules, and no other one connects once
-- there is a rule. The number has no meaning and is Tally's own.
create function rule_is_known_to_writers() returns trigger language plpgsql as $$
begin
    perform pg_advisory_xact_lock(7416153281);
    if exists (select from writer_connection where not knows_rules) then
        raise exception 'servers of a version without rules are connected'
            using errcode = 'object_in_use',
                  hint = 'Stop them; a sync worker then forgets their connections.';
    end if;
    return null;
end $$;
create trigger rule_is_known_to_writers
    before insert on rule
    for each statement execute function rule_is_known_to_writers();

create function writer_connection_knows_rules() returns trigger language plpgsql as $$
begin
    if not new.knows_rules then
        perform pg_advisory_xact_lock(7416153281);
        if exists (select from rule) then
            raise exception 'this server is of a version without rules, and there are some'
                using errcode = 'object_not_in_prerequisite_state';
        end if;
    end if;
    return new;
end $$;
create trigger writer_connection_knows_rules
    before insert on writer_connection
    for each row execute function writer_connection_knows_rules();
