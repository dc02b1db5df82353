-- Whether a poll has closed and its counts never change again.
--
-- Votes that were granted, and choices that were added, before the poll closed may still wait for their commit under
-- the rule's lock. This function waits for them, and none comes later. So choices and exact counts that a further
-- statement reads are final.
--
-- p_poll: the poll. Returns false for a poll that is open or does not exist.
-- Called by servers. Locks: the rule, shared, which takes the owner's rights.
create or replace function poll_is_final(p_poll bigint) returns boolean
security definer
language plpgsql as $$
begin
    perform from rule
    where id = p_poll and title is not null and closes_at <= clock_timestamp()
    for share;
    return found;
end $$;

-- It uses the tables of this schema, and never someone's temporary ones.
do $$ begin
    execute format('alter function poll_is_final set search_path = %I, pg_temp', current_schema());
end $$;
revoke execute on function poll_is_final from public;
