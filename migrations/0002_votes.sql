-- The ledger, what buys or repeats a vote, and what takes votes back.

-- The ledger: one row per vote, never updated but for whose it is (see `voter_edit`), and deleted only once a checked
-- file has it (`archive`). A change or a retraction is a further row, so an item's count is always a plain sum.
create table vote (
    -- From a sequence that is never cached (cache 1) and only goes up. Roll-ups and crashed-writer
    -- recovery rely on that.
    id            bigint generated always as identity (sequence name vote_id_seq cache 1) primary key,
    -- The item. Not a foreign key: see `item`.
    item_id       bigint not null,
    -- When the vote's batch began. Only reports and voidings use it.
    created_at    timestamptz not null default now(),
    -- What the row adds to its item's count. Tally stores 1 and −1.
    value         smallint not null default 1
                  constraint vote_value check (value <> 0),
    -- Which of the voter's rows on this item it is: 0, 1, 2 and so on. An even number casts a vote;
    -- the odd number after it takes that vote back.
    change_number smallint not null default 0
                  constraint vote_change_number check (change_number >= 0),
    -- Who voted; null: an anonymous vote. Compared byte by byte.
    voter_id      text collate "C"
                  constraint vote_voter_id_length check (octet_length(voter_id) between 1 and 128),
    -- The poll (a rule) that the item is a choice of, so that one index has all that a voter holds in
    -- a poll. Null: the item is no choice.
    poll_id       bigint,
    -- The vote's number, on an item that numbers its votes.
    number        bigint
)
-- By default vacuum comes after a fifth of the table is new. Then it has
-- much to do at once.
with (autovacuum_vacuum_insert_scale_factor = 0.05);

-- One row per voter, item and change. Anonymous votes are not in it.
create unique index vote_once on vote (item_id, voter_id, change_number)
    where voter_id is not null;
-- There is no index by item: it would cost an anonymous vote more than all else here. Exact counts read
-- the votes beyond the watermark by their ids. Whoever reports on single items makes one
-- (docs/data-model.md).
-- What a voter holds in a poll.
create index vote_in_poll on vote (poll_id, voter_id, item_id, change_number) where poll_id is not null;
-- No number is given twice.
create unique index vote_number on vote (item_id, number) where number is not null;
-- There is no index by time, not even of block ranges (BRIN): that was a tenth of what Postgres 15 does for an
-- insert. `vote_time` says where the votes of some time are.
-- Changes and retractions, for the audit. They are few.
create index vote_change on vote (id) where change_number > 0;

create trigger vote_is_append_only
    before truncate on vote
    for each statement execute function vote_is_append_only();
create trigger vote_changes_only_its_voter
    before update on vote
    for each row execute function vote_is_append_only();

create trigger vote_is_archived_first
    after delete on vote referencing old table as gone
    for each statement execute function vote_is_archived_first();

-- The rows of `vote` with a voter: what decisions read and write. Once the ledger is in ranges (`tally migrate
-- --partition`), it is a table, since an index of `vote` then has one range alone, and a voter's vote must be unique
-- in all of them.
create view vote_of_voter as
select id, item_id, created_at, value, change_number, voter_id, poll_id, number
from vote where voter_id is not null;

-- The ranges of the ledger, if it is in ranges. A range has the votes between two ids, in the table `vote_range_` and
-- its number.
create table vote_range (
    -- 1, 2 and so on, as their ids.
    number        int primary key,
    first_vote_id bigint not null,
    -- The first id behind it, where the next one begins.
    end_vote_id   bigint not null unique
                  constraint vote_range_end check (end_vote_id > first_vote_id),
    -- How many ids the next range has.
    next_ids      bigint not null
                  constraint vote_range_next_ids check (next_ids > 0),
    created_at    timestamptz not null default clock_timestamp()
);

-- Ballots: one-time tokens, each of which buys one vote.
create table ballot (
    -- SHA-256 of the token's text. The token itself is shown once and kept nowhere.
    token_hash bytea primary key
               constraint ballot_token_hash_length check (octet_length(token_hash) = 32),
    -- The rule whose votes it buys.
    rule_id    bigint not null references rule,
    -- The ballot buys a vote until then. Null: no limit.
    expires_at timestamptz,
    -- The vote that it bought; null: none yet. If the rule is secret, the row is deleted instead.
    vote_id    bigint
);
-- A rule's ballots, for the audit.
create index ballot_of_rule on ballot (rule_id);

-- Idempotency keys: with each of them a request stores its vote once.
create table idempotency_key (
    -- SHA-256 of what the key is for, and the key.
    key_hash   bytea primary key
               constraint idempotency_key_hash_length check (octet_length(key_hash) = 32),
    -- SHA-256 of the request's body.
    body_hash  bytea not null,
    -- The vote that it stored, or that its voter held. Null: the key is that of a whole batch, whose
    -- votes have keys of their own.
    vote_id    bigint,
    -- Whether the voter held that vote already.
    is_repeat  boolean not null default false,
    -- A worker deletes the row a day later.
    created_at timestamptz not null default now()
);
-- Old keys, to delete them.
create index idempotency_key_age on idempotency_key (created_at);

-- Which client a vote came from, so that an operator can void votes by client. Rows are stored only
-- while servers have TALLY_ADDRESS_KEYS, and deleted after TALLY_ADDRESS_RETENTION.
create table vote_address (
    vote_id      bigint primary key,
    -- The first 128 bits of HMAC-SHA-256 of the client's network: an IPv4 address, or 64 bits of an
    -- IPv6 address. No table has the HMAC key, so a reader of this table cannot try all addresses.
    -- Votes of a secret poll have no row here.
    address_hash bytea not null
                 constraint vote_address_length check (octet_length(address_hash) = 16),
    -- By the database's clock.
    noted_at     timestamptz not null default now()
);
-- Old hashes, to delete them.
create index vote_address_noted_at on vote_address (noted_at);

-- Which votes were cast with which API key, so that an operator can void what a leaked key cast. A batch
-- of votes adds one row for each key and block. That costs a vote less than a column of `vote` would: its
-- ninth makes each row 8 bytes longer. Kept as long as the votes.
create table vote_api_key (
    -- The votes' ids divided by 4,096.
    block      bigint not null,
    -- Not a foreign key: each batch would look it up. API keys are never deleted.
    api_key_id bigint not null,
    -- Votes of a secret poll and retractions are not among them.
    vote_ids   int8multirange not null,
    -- When they were cast: `created_at` of each of them.
    created_at timestamptz not null default now()
);
-- To find the key of a vote, and the next votes to void.
create index vote_api_key_block on vote_api_key (block);

-- Voidings: an operator takes back votes that should not have been cast, and may undo that. A
-- voided vote gets a further row in the ledger that takes it back, like a retraction.
create table voiding (
    id             bigint generated always as identity primary key,
    -- The votes that it concerns: those that match all of these. Null: it does not matter.
    voter_id       text collate "C",
    item_id        bigint,
    -- Cast from the first time on and before the second, by the database's clock.
    cast_from      timestamptz,
    cast_until     timestamptz,
    -- Why, in the operator's words.
    reason         text not null
                   constraint voiding_reason_length check (char_length(reason) between 1 and 500),
    created_at     timestamptz not null default now(),
    -- The last vote that it concerns. Later votes are not voided.
    until_vote_id  bigint not null,
    -- The last vote that was looked at.
    done_vote_id   bigint not null default 0,
    -- The last voided vote that was looked at to undo the voiding. Null: it is not being undone.
    undone_vote_id bigint,
    -- Votes from a client with one of these hashes (see `vote_address`). Null: it does not matter.
    -- Empty: the hashes were deleted, and no vote has them any more.
    address_hashes bytea[],
    -- Cast with this API key (see `vote_api_key`). Null: it does not matter.
    api_key_id     bigint,
    constraint voiding_is_of_something
        check (num_nonnulls(voter_id, item_id, cast_from, cast_until, address_hashes, api_key_id) > 0)
);

-- Edits of voters: a voter gets another id (rename), becomes one with another voter (merge), or is forgotten
-- (erase).
create table voter_edit (
    id               bigint generated always as identity primary key,
    kind             text not null
                     constraint voter_edit_kind check (kind in ('rename', 'merge', 'erase')),
    -- Whose votes they were. Null: the voter was erased since. The same as to_voter_id: the voter got this id back.
    from_voter_id    text collate "C"
                     constraint voter_edit_from_length check (octet_length(from_voter_id) between 1 and 128),
    -- Whose they are now. Of an erased voter: `erased-` and 32 random hexadecimal digits.
    to_voter_id      text collate "C" not null
                     constraint voter_edit_to_length check (octet_length(to_voter_id) between 1 and 128),
    created_at       timestamptz not null default now(),
    -- The last vote that it concerns. Later votes stay as they are.
    until_vote_id    bigint not null,
    -- Of a renaming, which looks through the ledger first: the last vote that it looked at so, and whether the
    -- voter, and the new id, have votes up to it.
    looked_vote_id   bigint not null default 0,
    has_votes        boolean not null default false,
    is_taken         boolean not null default false,
    -- The last vote that was looked at.
    done_vote_id     bigint not null default 0,
    -- Rows of the ledger that have the other id.
    moved_rows       bigint not null default 0,
    -- Votes that were taken back, since the voter held too many.
    taken_back_votes bigint not null default 0,
    -- Null: not yet.
    ended_at         timestamptz,
    -- Whether nothing was changed, since the new id of a renaming had votes.
    is_refused       boolean not null default false
);
-- Edits under way: the ledger's trigger asks for them.
create index voter_edit_under_way on voter_edit (id) where ended_at is null;

-- Imports of votes from files. A chunk of the file and how far the import is are stored in one transaction, so
-- each line is stored once, wherever a program dies.
create table import (
    id             bigint generated always as identity primary key,
    -- SHA-256 of the file's bytes and of what says how they are read: the same file is imported once.
    file_hash      bytea not null unique
                   constraint import_file_hash_length check (octet_length(file_hash) = 32),
    -- The file's name, for a human reader.
    file_name      text not null
                   constraint import_file_name_length check (char_length(file_name) between 1 and 1000),
    started_at     timestamptz not null default now(),
    -- Of a file that `tally export` wrote: of which Tally its votes are, and between which ids. Null: of others.
    source         text,
    after_vote_id  bigint,
    until_vote_id  bigint,
    -- The line up to which it is done.
    done_line      bigint not null default 0,
    -- Votes of the file that are new, and votes that were there already.
    stored_votes   bigint not null default 0,
    repeated_votes bigint not null default 0,
    -- Lines that could not be stored.
    refused_lines  bigint not null default 0,
    -- When the end of the file was reached. Null: not yet.
    ended_at       timestamptz
);

-- The votes that were voided.
create table voided (
    -- A vote is voided once. A vote that is cast again is another row of `vote`.
    vote_id       bigint primary key,
    voiding_id    bigint not null references voiding,
    -- The row of `vote` that takes it back.
    by_vote_id    bigint not null,
    -- The row of `vote` that casts it again, if the voiding was undone.
    again_vote_id bigint,
    -- Why the undoing left it void: changed (its voter has voted otherwise since), full (the item
    -- is), choices (the voter holds as many as the poll allows), archived (its item takes no votes any more).
    left_void     text
                  constraint voided_left_void check (left_void in ('changed', 'full', 'choices', 'archived'))
);
-- A voiding's votes, to undo them.
create index voided_of_voiding on voided (voiding_id, vote_id);
-- Which vote a row without a voter takes back, or casts again; for the audit.
create unique index voided_by on voided (by_vote_id);
create unique index voided_again on voided (again_vote_id) where again_vote_id is not null;

-- Archives: all votes of items that have closed go to a file. Once the file has been compared with the ledger,
-- they are deleted from it. An archive is written, then checked, then dropped; until it is dropped it may be
-- cancelled.
create table archive (
    id              bigint generated always as identity primary key,
    created_at      timestamptz not null default clock_timestamp(),
    -- The last vote id that was drawn when the archive began. No vote on its items has a higher one.
    until_vote_id   bigint not null,
    -- When the file was found to have the same votes as the ledger. Null: not yet, and nothing is dropped.
    checked_at      timestamptz,
    -- SHA-256 of the file, and its length.
    file_hash       bytea
                    constraint archive_file_hash_length check (octet_length(file_hash) = 32),
    file_bytes      bigint,
    -- The rows in it: how many, what their values add up to, the lowest and the highest id.
    vote_total      bigint,
    net_total       bigint,
    first_vote_id   bigint,
    last_vote_id    bigint,
    -- Rows up to this one are dropped, and how many these are.
    dropped_vote_id bigint not null default 0,
    dropped_total   bigint not null default 0,
    -- When the last one was dropped. Null: not yet.
    ended_at        timestamptz,
    -- When it was given up. Its items are as before, and the file means nothing.
    cancelled_at    timestamptz,
    constraint archive_drops_what_is_checked check (checked_at is not null or dropped_total = 0 and ended_at is null),
    constraint archive_ends_once check (ended_at is null or cancelled_at is null),
    constraint archive_check_is_whole
        check (num_nonnulls(checked_at, file_hash, file_bytes, vote_total, net_total) in (0, 5))
);

-- The items of archives, with sums of the votes. The audit compares what Tally keeps with these, once the
-- archive is checked: votes that are gone prove nothing.
create table archived_item (
    item_id      bigint primary key references item,
    archive_id   bigint not null references archive,
    -- How many rows, what their values add up to, and the down-votes in that.
    vote_total   bigint not null default 0,
    vote_count   bigint not null default 0,
    down_count   bigint not null default 0,
    -- How many votes are held.
    held         bigint not null default 0,
    -- How many rows have a number, and the highest one.
    number_total bigint not null default 0,
    last_number  bigint not null default 0,
    -- Votes that took a ballot, if the item takes ballots.
    bought       bigint not null default 0
);
create index archived_item_of_archive on archived_item (archive_id, item_id);

-- The rules of these items. A poll is archived with all its choices.
create table archived_rule (
    rule_id      bigint primary key references rule,
    archive_id   bigint not null references archive,
    -- Of a poll: how many voters hold a choice, and how many choices the one with the most of them holds.
    voter_count  bigint not null default 0,
    most_choices bigint not null default 0
);
create index archived_rule_of_archive on archived_rule (archive_id, rule_id);

-- Its votes are archived, or about to be: it takes none any more, whatever the clock says, and none of them is
-- voided or cast again. Null: they are in the ledger. The rule's lock is behind it.
alter table rule add column archive_id bigint references archive;
