-- Finds polls by the words in their titles: the next p_limit ids below p_before, newest first, without hidden
-- polls. As search_items otherwise: up_to is where the page after this one begins, or null.
--
-- Called by servers. Locks nothing.
create or replace function search_polls(
    p_text text, p_before bigint, p_limit bigint, out ids bigint[], out up_to bigint
)
language plpgsql stable
set enable_bitmapscan = on set enable_seqscan = off set enable_sort = off set jit = off
set plan_cache_mode = force_custom_plan
as $$
#variable_conflict use_variable
declare
    wanted constant tsquery := search_query(p_text);
    -- As in search_items.
    next_polls constant bigint[] := array[5 * p_limit, 20000];
    limit_matches constant bigint := 10000;
    next_limit bigint;
    looked_up_to bigint := p_before;
    last_next bigint;
    total_next bigint;
    matches bigint;
    found bigint[];
begin
    ids := '{}';
    if wanted is null then return; end if;
    foreach next_limit in array next_polls loop
        ids := ids || array(
            select next.id
            from (
                select rule.id, rule.title from rule
                where rule.id < looked_up_to and rule.title is not null and not rule.is_hidden order by rule.id desc limit next_limit
            ) as next
            where search_vector(search_text(next.title)) @@ wanted
            order by next.id desc
            limit p_limit - cardinality(ids)
        );
        up_to := ids[p_limit];
        exit when up_to is not null;
        select min(next.id), count(*) into last_next, total_next
        from (
            select rule.id from rule
            where rule.id < looked_up_to and rule.title is not null and not rule.is_hidden order by rule.id desc limit next_limit
        ) as next;
        exit when total_next < next_limit;
        looked_up_to := last_next;
        up_to := last_next;
        continue when matches is not null;
        select count(*), array_agg(one.id order by one.id desc) filter (where one.id < p_before and not one.is_hidden)
        into matches, found
        from (
            select rule.id, rule.is_hidden from rule
            where rule.title is not null and search_vector(search_text(rule.title)) @@ wanted
            limit limit_matches + 1
        ) as one;
        if matches <= limit_matches then
            ids := coalesce(found[:p_limit], '{}');
            up_to := ids[p_limit];
            exit;
        end if;
    end loop;
end $$;
