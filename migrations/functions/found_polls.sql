-- Finds polls by the words in their titles: the next p_limit ids below p_before, newest first, without hidden
-- polls. As found_items otherwise.
--
-- Called by servers. Locks nothing.
create or replace function found_polls(p_text text, p_before bigint, p_limit bigint)
returns setof bigint
language plpgsql stable rows 100
set enable_bitmapscan = on set enable_seqscan = off set jit = off set plan_cache_mode = force_custom_plan
as $$
begin
    return query
    select rule.id from rule
    where rule.id + 0 < p_before and rule.title is not null and not rule.is_hidden
      and search_vector(search_text(rule.title)) @@ search_query(p_text)
    order by rule.id + 0 desc
    limit p_limit;
end $$;
