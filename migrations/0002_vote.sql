-- The ledger: one row a vote, never updated, never deleted. A change or a
-- retraction is a further row, so an item's count is always a plain sum.
create table vote (
    -- Drawn from a sequence that is never cached (cache 1): the audit's safe
    -- vote id relies on ids being handed out in the open.
    id            bigint generated always as identity (sequence name vote_id_seq cache 1) primary key,
    -- item.id; see 0001_item.sql for why it is no foreign key.
    item_id       bigint not null,
    -- When the vote's batch began.
    created_at    timestamptz not null default now(),
    -- What this row adds to its item's count.
    value         smallint not null default 1
                  constraint vote_value check (value <> 0),
    -- Which of the voter's rows on this item: 0 for the vote itself, then
    -- 1, 2, … for each later change or retraction.
    change_number smallint not null default 0
                  constraint vote_change_number check (change_number >= 0),
    -- Who voted; null for an anonymous vote. Compared byte by byte.
    voter_id      text collate "C"
                  constraint vote_voter_id_length check (octet_length(voter_id) between 1 and 128)
);

-- One vote per voter and item. Anonymous votes are not in it and cost nothing here.
create unique index vote_once on vote (item_id, voter_id, change_number)
    where voter_id is not null;

-- An item's votes beyond the watermark, to seed or recount it: without this, every
-- batch with one missing live count would read all votes since the last audit.
create index vote_of_item on vote (item_id, id) include (value);

create function vote_is_append_only() returns trigger language plpgsql as $$
begin
    raise exception 'the ledger is append-only: votes are never updated or deleted'
        using errcode = 'restrict_violation',
              hint = 'A change or a retraction is a further row.';
end $$;

create trigger vote_is_append_only
    before update or delete or truncate on vote
    for each statement execute function vote_is_append_only();
