-- What votes changed lately, for lists of the items that move most. A worker sums it from the ledger, up to
-- the watermark. Nothing exact depends on it.
create table recent_change (
    item_id   bigint not null,
    -- The votes that were cast from this time on, by the database's clock …
    starts_at timestamptz not null,
    -- … for so many minutes: 5, and 60 once that is longer ago than an hour.
    minutes   smallint not null
              constraint recent_change_minutes check (minutes in (5, 60)),
    -- Up-votes and down-votes that were cast, less those that were taken back.
    ups       bigint not null,
    downs     bigint not null,
    -- The items of a poll.
    primary key (item_id, starts_at, minutes)
) with (fillfactor = 80);
-- All items of a time; and what is old, which is looked for every few seconds.
create index recent_change_starts_at on recent_change (minutes, starts_at);

create table recent_progress (
    one     boolean primary key default true
            constraint recent_progress_is_one_row check (one),
    -- The last vote that is in it; null: none is yet.
    vote_id bigint,
    -- When all votes up to the watermark were in it; null: never.
    at      timestamptz
);
insert into recent_progress default values;

insert into job (name) values ('sum_recent');
