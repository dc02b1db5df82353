-- Makes sure that items and rules that are created later have higher ids than these, which an import gives.
--
-- p_item, p_rule: the highest ids that will be given.
-- Called by operators (`tally import`). Locks: `item` and `rule` against inserts, for a moment, if a sequence has
-- to move. Who inserts a row takes its id behind that lock, so a sequence never goes back.
create or replace function reserve_ids(p_item bigint, p_rule bigint) returns void
security definer
language plpgsql as $$
begin
    if p_item > (select last_value - case when is_called then 0 else 1 end from item_id_seq) then
        lock table item in share row exclusive mode;
        perform setval('item_id_seq', greatest(p_item, (select last_value - case when is_called then 0 else 1 end from item_id_seq)));
    end if;
    if p_rule > (select last_value - case when is_called then 0 else 1 end from rule_id_seq) then
        lock table rule in share row exclusive mode;
        perform setval('rule_id_seq', greatest(p_rule, (select last_value - case when is_called then 0 else 1 end from rule_id_seq)));
    end if;
end $$;

-- It uses the tables of this schema, and never someone's temporary ones.
do $$ begin
    execute format('alter function reserve_ids set search_path = %I, pg_temp', current_schema());
end $$;
revoke execute on function reserve_ids from public;
