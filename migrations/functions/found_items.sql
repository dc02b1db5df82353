-- Finds items by the words in their names: the next p_limit ids above p_after, in order, without hidden items.
--
-- p_text: each word of it begins a word of the name (see search_query). A text without a word finds nothing.
-- p_without_choices: without the choices of polls.
-- Only a bitmap scan can use the index item_words, and Tally's sessions have bitmap scans off. So the function
-- has them on.
-- Called by servers. Locks nothing.
create or replace function found_items(p_text text, p_after bigint, p_limit bigint, p_without_choices boolean)
returns setof bigint
language plpgsql stable rows 100
set enable_bitmapscan = on set enable_seqscan = off set jit = off set plan_cache_mode = force_custom_plan
as $$
begin
    return query
    select item.id from item
    -- "+ 0": no index of ids has this. For a small limit, Postgres would read all items in the order of their
    -- ids until it has found enough.
    where item.id + 0 > p_after and not item.is_hidden
      and search_vector(search_text(item.name)) @@ search_query(p_text)
      -- One look into an index for each row found. For "exists", Postgres would read all rules first.
      and (not p_without_choices
           or coalesce((select rule.title is null from rule where rule.id = item.rule_id), true))
    order by item.id + 0
    limit p_limit;
end $$;
