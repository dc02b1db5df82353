-- The triggers of a ledger in ranges: `vote` has each row of `vote_of_voter`, and gets rows with a voter in no other
-- way. So a voter's vote is unique over all ranges.
create or replace function vote_of_voter_is_copied() returns trigger
-- Who votes may write `vote_of_voter` and sees that alone.
security definer
language plpgsql as $$
begin
    if tg_level = 'ROW' then
        raise exception 'a row with a voter is inserted into vote_of_voter, which copies it to vote'
            using errcode = 'restrict_violation';
    elsif tg_op = 'INSERT' then
        insert into vote (id, item_id, created_at, value, change_number, voter_id, poll_id, number)
        select id, item_id, created_at, value, change_number, voter_id, poll_id, number from added;
    else
        update vote set voter_id = changed.voter_id, change_number = changed.change_number
        from changed where vote.id = changed.id;
    end if;
    return null;
end $$;

-- It uses the tables of this schema, and never someone's temporary ones.
do $$ begin
    execute format('alter function vote_of_voter_is_copied set search_path = %I, pg_temp', current_schema());
end $$;
-- A plan that is made while a table is empty must also suit a full table.
alter function vote_of_voter_is_copied set enable_seqscan = off;
revoke execute on function vote_of_voter_is_copied from public;
