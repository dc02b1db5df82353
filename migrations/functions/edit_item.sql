-- Edits an item.
--
-- p_item: the item. p_name, p_is_hidden: null leaves them as they are. The times: as in edit_times.
-- Returns what edit_times does; or unknown: there is no such item; plain: it was made without a rule
-- and gets no times, since servers remember that its votes need no decision; choice: its poll has the
-- times; same_choice: another choice of its poll looks the same by that name.
-- Called by servers. Locks: the item's rule, if it sets times or renames a choice, and the item's row.
create or replace function edit_item(
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
    if p_name is not null and held.title is not null then
        -- Two choices that get the same name at once take turns here.
        perform from rule where id = held.rule_id for update;
        if exists (select from item where rule_id = held.rule_id and id <> p_item
                   and shown_name(name) = shown_name(p_name)) then
            return 'same_choice';
        end if;
    end if;
    if outcome = 'edited' then
        update item set name = coalesce(p_name, name), is_hidden = coalesce(p_is_hidden, is_hidden)
        where id = p_item and (p_name is not null or p_is_hidden is not null);
    end if;
    return outcome;
end $$;

-- It uses the tables of this schema, and never someone's temporary ones.
do $$ begin
    execute format('alter function edit_item set search_path = %I, pg_temp', current_schema());
end $$;
revoke execute on function edit_item from public;
