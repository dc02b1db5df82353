-- Makes the events of items whose votes a roll-up has just added to their audited counts, in its transaction: counts
-- that reached a threshold, and items that take no more votes.
--
-- A threshold is reached once, also if the count falls and rises again (`reached_threshold`). An item is full again
-- once a roll-up has seen it with a free place. The places are those of now, which may be of later votes: each later vote
-- has a roll-up that looks again. Counts of polls with hidden results stay hidden until the poll closes.
--
-- p_items: the items, each once. p_nets: by how much the roll-up changed the count of each.
-- Called by workers that hold the job roll_up, one at a time. Locks: rows of `full_item` and `reached_threshold`.
create or replace function note_item_events(p_items bigint[], p_nets bigint[]) returns void
security definer
language plpgsql as $$
declare
    made_total bigint;
begin
    if not events_are_made() then return; end if;
    with crossed as materialized (
        select item.id, item.key, threshold, audited_count.vote_count
        from unnest(p_items, p_nets) as given (item_id, net)
        cross join (select unnest(outbox.thresholds) as threshold from outbox) as wanted
        join audited_count on audited_count.item_id = given.item_id
        join item on item.id = given.item_id
        where audited_count.vote_count >= threshold and audited_count.vote_count - given.net < threshold
          and not exists (
              select from rule
              where rule.id = item.rule_id and not rule.shows_results and rule.closes_at > clock_timestamp())
    ), newly as (
        insert into reached_threshold (item_id, threshold)
        select crossed.id, crossed.threshold from crossed order by crossed.id, crossed.threshold
        on conflict (item_id, threshold) do nothing
        returning item_id, threshold
    ), made as (
        select note_event(
            'item.threshold', 'item:' || one.id, one.id || ':' || one.threshold,
            jsonb_strip_nulls(jsonb_build_object(
                'item_id', one.id, 'key', one.key, 'threshold', one.threshold, 'vote_count', one.vote_count)))
        from (
            select crossed.*
            from newly join crossed on crossed.id = newly.item_id and crossed.threshold = newly.threshold
            order by crossed.id, crossed.threshold
        ) as one
    )
    -- All of it is read, so that all of it is made.
    select count(*) into made_total from made;
    with looked as materialized (
        select place.item_id, place.max_votes, place.taken >= place.max_votes as is_full
        from unnest(p_items) as given (item_id)
        join place on place.item_id = given.item_id
        where place.max_votes is not null
    ), no_longer_full as (
        delete from full_item using looked where full_item.item_id = looked.item_id and not looked.is_full
    ), newly_full as (
        insert into full_item (item_id)
        select item_id from looked where is_full order by item_id
        on conflict (item_id) do nothing
        returning item_id
    ), made as (
        select note_event(
            'item.full', 'item:' || one.item_id, null,
            jsonb_strip_nulls(jsonb_build_object('item_id', one.item_id, 'key', one.key, 'max_votes', one.max_votes)))
        from (
            select newly_full.item_id, item.key, looked.max_votes
            from newly_full
            join looked on looked.item_id = newly_full.item_id
            join item on item.id = newly_full.item_id
            order by newly_full.item_id
        ) as one
    )
    -- All of it is read, so that all of it is made.
    select count(*) into made_total from made;
end $$;

-- It uses the tables of this schema, and never someone's temporary ones.
do $$ begin
    execute format('alter function note_item_events set search_path = %I, pg_temp', current_schema());
end $$;
-- A plan that is made while a table is empty must also suit a full table.
alter function note_item_events set enable_seqscan = off;
revoke execute on function note_item_events from public;
