-- The frontend's own keys, and what may be edited.
alter table item
    -- What the frontend calls the item: the id of the post or page that it stands for, say. Set
    -- with the item, never changed: servers remember which item a key is of.
    add column key       text collate "C"
               constraint item_key_length check (octet_length(key) between 1 and 200),
    -- Whether lists leave the item out. Its votes and counts stay.
    add column is_hidden boolean not null default false;
create unique index item_key on item (key) where key is not null;

alter table rule
    -- Likewise of a poll.
    add column key       text collate "C"
               constraint rule_key_length check (octet_length(key) between 1 and 200),
    add column is_hidden boolean not null default false;
create unique index rule_key on rule (key) where key is not null;

drop trigger item_is_permanent on item;
create or replace function item_is_permanent() returns trigger language plpgsql as $$
begin
    raise exception 'items are never deleted and keep their id, key, rule_id and takes_down_votes: votes and frontends refer to them'
        using errcode = 'restrict_violation';
end $$;
create trigger item_is_permanent
    before delete or truncate or update of id, key, rule_id, takes_down_votes on item
    for each statement execute function item_is_permanent();

-- Edits the times of a rule; says edited, closed (what has closed stays closed: its results are
-- final), or order (it would close before it opens). Waits for the votes that are being decided.
-- A closing time that has passed closes at once.
create function edit_times(
    p_rule bigint,
    -- Whether this time is to be set, and to what; null: none.
    p_sets_opens_at boolean, p_opens_at timestamptz,
    p_sets_closes_at boolean, p_closes_at timestamptz
) returns text
language plpgsql as $$
declare
    held rule%rowtype;
begin
    if not (p_sets_opens_at or p_sets_closes_at) then return 'edited'; end if;
    select * into held from rule where id = p_rule for no key update;
    if held.closes_at <= clock_timestamp() then return 'closed'; end if;
    if p_sets_opens_at then held.opens_at := p_opens_at; end if;
    if p_sets_closes_at then
        held.closes_at := case when p_closes_at is not null then greatest(p_closes_at, clock_timestamp()) end;
    end if;
    if held.closes_at <= held.opens_at then return 'order'; end if;
    update rule set opens_at = held.opens_at, closes_at = held.closes_at where id = p_rule;
    return 'edited';
end $$;

-- Edits an item; null leaves a value as it is. Says as edit_times, or unknown, plain (an item
-- that was made without a rule gets no times: servers remember that its votes need no decision),
-- or choice (its poll has the times).
create function edit_item(
    p_item bigint, p_name text, p_is_hidden boolean,
    p_sets_opens_at boolean, p_opens_at timestamptz,
    p_sets_closes_at boolean, p_closes_at timestamptz
) returns text
security definer
language plpgsql as $$
declare
    held record;
    outcome text := 'edited';
begin
    select item.rule_id, rule.title into held
    from item left join rule on rule.id = item.rule_id where item.id = p_item;
    if not found then return 'unknown'; end if;
    if p_sets_opens_at or p_sets_closes_at then
        if held.rule_id is null then return 'plain'; end if;
        if held.title is not null then return 'choice'; end if;
        outcome := edit_times(held.rule_id, p_sets_opens_at, p_opens_at, p_sets_closes_at, p_closes_at);
    end if;
    if outcome = 'edited' then
        update item set name = coalesce(p_name, name), is_hidden = coalesce(p_is_hidden, is_hidden)
        where id = p_item and (p_name is not null or p_is_hidden is not null);
    end if;
    return outcome;
end $$;

-- Edits a poll. Says as edit_times, or unknown, or hidden_results (a poll whose results are hidden
-- until it closes keeps a closing time).
create function edit_poll(
    p_poll bigint, p_title text, p_is_hidden boolean,
    p_sets_opens_at boolean, p_opens_at timestamptz,
    p_sets_closes_at boolean, p_closes_at timestamptz
) returns text
security definer
language plpgsql as $$
declare
    shown boolean;
    outcome text;
begin
    select shows_results into shown from rule where id = p_poll and title is not null;
    if not found then return 'unknown'; end if;
    if p_sets_closes_at and p_closes_at is null and not shown then return 'hidden_results'; end if;
    outcome := edit_times(p_poll, p_sets_opens_at, p_opens_at, p_sets_closes_at, p_closes_at);
    if outcome = 'edited' then
        update rule set title = coalesce(p_title, title), is_hidden = coalesce(p_is_hidden, is_hidden)
        where id = p_poll and (p_title is not null or p_is_hidden is not null);
    end if;
    return outcome;
end $$;

-- As for cast_votes (0016).
do $$ begin
    execute format('alter function edit_item set search_path = %I, pg_temp', current_schema());
    execute format('alter function edit_poll set search_path = %I, pg_temp', current_schema());
end $$;
revoke execute on function edit_times, edit_item, edit_poll from public;
