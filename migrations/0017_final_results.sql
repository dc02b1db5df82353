-- The exact counts of a poll that has closed. Votes that were granted before it closed may still
-- be on their way to their commit, under the rule's lock: this waits for them. No vote is granted
-- later, so what it returns is final. It returns nothing while the poll is open.
--
-- A shared lock needs a right to write the rule, which servers do not have: with the owner's rights.
create function final_results(p_poll bigint)
returns table (item_id bigint, vote_count bigint)
security definer
language plpgsql as $$
begin
    perform from rule
    where id = p_poll and title is not null and closes_at <= clock_timestamp()
    for share;
    if not found then
        return;
    end if;
    -- A statement of its own, so that its snapshot has all that was waited for.
    return query
        select item.id, (item.audited_count + coalesce((
            select sum(vote.value)
            from vote
            where (vote.item_id, vote.id) > (item.id, (select watermark.vote_id from watermark))
              and (vote.item_id, vote.id) <= (item.id, 9223372036854775807)
        ), 0))::bigint
        from item
        where item.rule_id = p_poll
        order by item.id;
end $$;
do $$ begin
    execute format('alter function final_results set search_path = %I, pg_temp', current_schema());
end $$;
revoke execute on function final_results from public;
