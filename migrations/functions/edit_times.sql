-- Sets when a rule opens and closes. If the closing time has passed, the rule closes at once.
--
-- p_rule: the rule. For each time: whether to set it, and to what (null: no limit).
-- Returns edited; closed: it has closed, and what has closed stays closed, since its results are final;
-- or order: it would close before it opens.
-- Called by edit_item and edit_poll alone. Locks: the rule, so it waits for votes that are being
-- decided.
create or replace function edit_times(
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
    -- What is archived stays closed, also if someone sets the clock back.
    if held.closes_at <= clock_timestamp() or held.archive_id is not null then return 'closed'; end if;
    if p_sets_opens_at then held.opens_at := p_opens_at; end if;
    if p_sets_closes_at then
        held.closes_at := case when p_closes_at is not null then greatest(p_closes_at, clock_timestamp()) end;
    end if;
    if held.closes_at <= held.opens_at then return 'order'; end if;
    update rule set opens_at = held.opens_at, closes_at = held.closes_at where id = p_rule;
    return 'edited';
end $$;

revoke execute on function edit_times from public;
