-- Makes the events of polls that have closed, with their final results.
--
-- A poll whose rule someone has locked may still get votes that were granted before it closed: it waits for the next
-- call. What has closed stays closed, so a poll has one such event. `outbox.closed_until` says how far this is. It is
-- taken ten minutes back, since a closing time is committed some time after it was set.
--
-- p_limit: the most polls. Returns how many there were; null: some wait, or there may be more.
-- Called by workers that hold the job deliver_events. Locks: the polls' rules, shared, which takes the owner's
-- rights, and the row of `outbox`.
create or replace function note_poll_events(p_limit int) returns int
security definer
language plpgsql as $$
declare
    until_time timestamptz := clock_timestamp();
    from_time timestamptz;
    due bigint[];
    poll bigint;
    results jsonb;
    made int := 0;
    is_complete boolean := true;
begin
    select greatest(outbox.since, outbox.closed_until - interval '10 minutes') into from_time
    from outbox where events_are_made();
    if from_time is null then return 0; end if;
    due := array(
        select rule.id from rule
        where rule.title is not null and rule.closes_at > from_time and rule.closes_at <= until_time
          and not exists (select from event where event.once_key = 'poll.final:' || rule.id)
        order by rule.closes_at limit p_limit);
    foreach poll in array due loop
        perform from rule where rule.id = poll for share skip locked;
        if not found then
            is_complete := false;
            continue;
        end if;
        -- A statement of its own behind the lock: it sees every vote that was granted.
        select jsonb_strip_nulls(jsonb_build_object(
                   'poll_id', rule.id, 'key', rule.key, 'title', rule.title,
                   'closed_at', to_char(rule.closes_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'),
                   'voter_count', rule.voter_count, 'choices', (
                       select jsonb_agg(jsonb_build_object(
                                  'item_id', item.id, 'key', item.key, 'name', item.name,
                                  'vote_count', coalesce(audited_count.vote_count, 0) + coalesce(later.net, 0))
                              order by item.id)
                       from item
                       left join audited_count on audited_count.item_id = item.id
                       left join (
                           select vote.item_id, sum(vote.value) as net
                           from vote
                           -- Not by the index of polls: a poll may have millions of votes, and few are beyond the watermark.
                           where vote.id > (select watermark.vote_id from watermark) and vote.poll_id + 0 = poll
                           group by vote.item_id
                       ) as later on later.item_id = item.id
                       where item.rule_id = rule.id)))
        into results
        from rule where rule.id = poll;
        perform note_event('poll.final', 'poll:' || poll, poll::text, results);
        made := made + 1;
    end loop;
    if not is_complete or cardinality(due) = p_limit then return null; end if;
    update outbox set closed_until = until_time
    where closed_until not between until_time - interval '1 minute' and until_time;
    return made;
end $$;

-- It uses the tables of this schema, and never someone's temporary ones.
do $$ begin
    execute format('alter function note_poll_events set search_path = %I, pg_temp', current_schema());
end $$;
-- A plan that is made while a table is empty must also suit a full table.
alter function note_poll_events set enable_seqscan = off;
revoke execute on function note_poll_events from public;
