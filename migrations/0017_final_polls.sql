-- Whether a poll has closed and its counts never change again. Votes that were granted before it
-- closed may still be on their way to their commit, under the rule's lock: this waits for them.
-- No vote is granted later, so exact counts that a further statement reads are final.
--
-- A shared lock needs a right to write the rule, which servers do not have: with the owner's rights.
create function poll_is_final(p_poll bigint) returns boolean
security definer
language plpgsql as $$
begin
    perform from rule
    where id = p_poll and title is not null and closes_at <= clock_timestamp()
    for share;
    return found;
end $$;
-- As for cast_votes (0016).
do $$ begin
    execute format('alter function poll_is_final set search_path = %I, pg_temp', current_schema());
end $$;
revoke execute on function poll_is_final from public;
