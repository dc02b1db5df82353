-- What is voted on. Rows are never deleted, so a vote's item is always there;
-- the trigger below holds that in place of a foreign key, which would lock the
-- item's row for each batch of votes and make the sync worker wait for it.
create table item (
    id            bigint generated always as identity primary key,
    -- What people see. Not unique: two polls may well share a choice's name.
    name          text not null
                  constraint item_name_length check (char_length(name) between 1 and 200),
    -- The saved count: the live count as last written behind. Written only by
    -- the sync worker, and only forward in counted_at. Reports read it.
    vote_count    bigint not null default 0,
    -- The Redis time (µs, forced to grow) of the change that vote_count holds;
    -- null until the item is first counted.
    counted_at    timestamptz,
    -- The sum of the item's votes up to the watermark. Written only by the audit.
    audited_count bigint not null default 0,
    created_at    timestamptz not null default now()
)
-- Three columns change often and none of them is indexed: room in each page
-- keeps those updates inside it (HOT).
with (fillfactor = 70);

-- `tally replay` and other importers find items by their name.
create index item_name on item (name, id);

create function item_is_permanent() returns trigger language plpgsql as $$
begin
    raise exception 'items are never deleted and keep their id: votes refer to them'
        using errcode = 'restrict_violation';
end $$;

create trigger item_is_permanent
    before delete or truncate or update of id on item
    for each statement execute function item_is_permanent();
