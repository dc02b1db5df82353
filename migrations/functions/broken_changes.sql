-- Checks the next changes and retractions, for the audit. Each change must follow the row before
-- it, and an odd change number must take that row back.
--
-- p_after: the vote after which it looks. p_limit_votes: the most votes that it looks at.
-- Returns the last vote that it looked at (null: there are no more), and what is wrong, in words.
-- Called by workers, with the owner's rights, since a worker may not read who voted. Locks nothing.
create or replace function broken_changes(p_after bigint, p_limit_votes int, out last bigint, out faults text[])
security definer
language sql stable as $$
    with page as materialized (
        select vote.id, vote.item_id, vote.voter_id, vote.value, vote.change_number
        from vote where vote.change_number > 0 and vote.id > p_after
        -- What they follow may be dropped by now.
          and not exists (
              select from archived_item join archive on archive.id = archived_item.archive_id
              where archived_item.item_id = vote.item_id and archive.checked_at is not null)
        order by vote.id limit p_limit_votes
    )
    select (select max(id) from page),
           array(
               select format('vote %s on item %s: its change number is %s, its value %s, and the value before it %s',
                             page.id, page.item_id, page.change_number, page.value, before.value)
               from page
               left join lateral (
                   (select one.value from vote_of_voter as one
                    where one.item_id = page.item_id and one.voter_id = page.voter_id
                      and one.change_number = page.change_number - 1)
                   union all
                   -- Rows without a voter: by a voiding, and by undoing it.
                   (select one.value from voided join vote as one on one.id = voided.vote_id
                    where page.voter_id is null and voided.by_vote_id = page.id)
                   union all
                   (select one.value from voided join vote as one on one.id = voided.by_vote_id
                    where page.voter_id is null and voided.again_vote_id = page.id)
                   limit 1
               ) as before on true
               where before.value is null or page.change_number % 2 = 1 and page.value <> -before.value)
$$;

-- It uses the tables of this schema, and never someone's temporary ones.
do $$ begin
    execute format('alter function broken_changes set search_path = %I, pg_temp', current_schema());
end $$;
-- A plan that is made while a table is empty must also suit a full table.
alter function broken_changes set enable_seqscan = off;
revoke execute on function broken_changes from public;
