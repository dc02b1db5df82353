-- Removes what was prepared to split the ledger: the limit on the ids of `vote`, and the tables of begin_ranges, which
-- their comments name. Afterwards the ledger is as before.
--
-- Called by begin_ranges, add_ranges and `tally migrate --partition`. Locks: `vote` against everything, if there is a
-- limit.
create or replace function end_split() returns void
language plpgsql as $$
declare
    one text;
begin
    if exists (select from pg_constraint where conrelid = 'vote'::regclass and conname = 'vote_is_first_range') then
        alter table vote drop constraint vote_is_first_range;
    end if;
    foreach one in array array['vote_in_ranges', 'vote_of_voter_filled'] loop
        if obj_description(to_regclass(one), 'pg_class') = 'prepared by tally migrate --partition' then
            execute format('drop table %I', one);
        end if;
    end loop;
end $$;

revoke execute on function end_split from public;
