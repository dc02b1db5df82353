-- Finds items by the words in their names: the next p_limit ids above p_after, in order, without hidden items.
-- The rows that it reads do not grow with the table: a search for a common word looks at the next items, one for
-- a rare word at what the index has of it.
--
-- p_text: each word of it begins a word of the name (see search_query). A text without a word finds nothing.
-- p_without_choices: without the choices of polls.
-- Returns the ids; and up_to: the page after this one begins after this id. Null: there is none. If a word is
-- common elsewhere and rare here, the ids may be fewer than p_limit, or none, and up_to not null.
-- Only a bitmap scan can use the index item_words, and Tally's sessions have bitmap scans off. So the function
-- has them on. Without sorts, Postgres reads the next items in the order of ids.
-- Called by servers. Locks nothing.
create or replace function search_items(
    p_text text, p_after bigint, p_limit bigint, p_without_choices boolean, out ids bigint[], out up_to bigint
)
language plpgsql stable
set enable_bitmapscan = on set enable_seqscan = off set enable_sort = off set jit = off
set plan_cache_mode = force_custom_plan
as $$
#variable_conflict use_variable
declare
    wanted constant tsquery := search_query(p_text);
    -- Items that are looked at in order, before the index is asked, and after it had too many.
    next_items constant bigint[] := array[5 * p_limit, 20000];
    -- Items with all words that the index may give.
    limit_matches constant bigint := 10000;
    next_limit bigint;
    looked_up_to bigint := p_after;
    last_next bigint;
    total_next bigint;
    matches bigint;
    found bigint[];
begin
    ids := '{}';
    if wanted is null then return; end if;
    foreach next_limit in array next_items loop
        ids := ids || array(
            select next.id
            from (
                select item.id, item.name, item.is_hidden, item.rule_id from item
                where item.id > looked_up_to order by item.id limit next_limit
            ) as next
            where not next.is_hidden and search_vector(search_text(next.name)) @@ wanted
              -- One look into an index for each row found. For "exists", Postgres would read all rules first.
              and (not p_without_choices
                   or coalesce((select rule.title is null from rule where rule.id = next.rule_id), true))
            order by next.id
            limit p_limit - cardinality(ids)
        );
        up_to := ids[p_limit];
        exit when up_to is not null;
        select max(next.id), count(*) into last_next, total_next
        from (select item.id from item where item.id > looked_up_to order by item.id limit next_limit) as next;
        -- There are no others.
        exit when total_next < next_limit;
        looked_up_to := last_next;
        up_to := last_next;
        continue when matches is not null;
        -- No order and no id here: only the index item_words serves, and ends at the limit.
        select count(*), array_agg(one.id order by one.id) filter (
                   where one.id > p_after and not one.is_hidden
                     and (not p_without_choices
                          or coalesce((select rule.title is null from rule where rule.id = one.rule_id), true)))
        into matches, found
        from (
            select item.id, item.is_hidden, item.rule_id from item
            where search_vector(search_text(item.name)) @@ wanted
            limit limit_matches + 1
        ) as one;
        if matches <= limit_matches then
            ids := coalesce(found[:p_limit], '{}');
            up_to := ids[p_limit];
            exit;
        end if;
    end loop;
end $$;
