-- Makes the next range of the ledger in time: when fewer ids are left than two ranges have. Votes go on. Removes what a
-- split of the ledger has left that was broken off.
--
-- Returns how many ranges it made; 0 also if the ledger is one table.
-- Called by workers every 10 s, and by `tally migrate`.
-- Locks: the advisory lock 7416153284, so that one range is made at a time; `vote` against vacuum and changes of its
-- columns. To end a split that was broken off: `vote` against everything, for a moment.
create or replace function add_ranges() returns int
security definer
language plpgsql as $$
declare
    last bigint;
    newest vote_range%rowtype;
    name text;
    end_id bigint;
    made int := 0;
    something_is_left constant bool := to_regclass('vote_in_ranges') is not null or to_regclass('vote_of_voter_filled') is not null
        or exists (select from pg_constraint where conrelid = 'vote'::regclass and conname = 'vote_is_first_range');
begin
    perform pg_advisory_xact_lock(7416153284);
    select last_value into last from vote_id_seq;
    loop
        select * into newest from vote_range order by number desc limit 1;
        exit when newest.number is null or newest.end_vote_id - last > 2 * newest.next_ids;
        name := format('vote_range_%s', newest.number + 1);
        -- One for all ids that nobody drew, if a sequence was set far ahead.
        end_id := newest.end_vote_id
                  + newest.next_ids * (greatest(last - newest.end_vote_id, 0) / newest.next_ids + 1);
        execute format('create table %I (like vote including constraints including comments including defaults including storage)
                        with (autovacuum_vacuum_insert_scale_factor = 0.05)', name);
        -- No number is given twice in the range. In all of them, the lock on its item's row in `place` sees to that.
        execute format('create unique index %I on %I (item_id, number) where number is not null', name || '_number', name);
        execute format('create trigger vote_is_append_only before truncate on %I
                        for each statement execute function vote_is_append_only()', name);
        execute format('create trigger vote_is_archived_first after delete on %I referencing old table as gone
                        for each statement execute function vote_is_archived_first()', name);
        perform revoke_rights(name);
        execute format('alter table vote attach partition %I for values from (%s) to (%s)',
                       name, newest.end_vote_id, end_id);
        insert into vote_range (number, first_vote_id, end_vote_id, next_ids)
        values (newest.number + 1, newest.end_vote_id, end_id, newest.next_ids);
        made := made + 1;
    end loop;
    -- Whoever splits the ledger has that lock. It refuses edits of voters, so it is not taken for nothing.
    if newest.number is null and something_is_left and pg_try_advisory_xact_lock(7416153285) then
        -- Votes wait behind the lock that this may take. The next call tries again.
        begin
            perform set_config('lock_timeout', '50ms', true);
            perform end_split();
        exception when lock_not_available then null;
        end;
    end if;
    return made;
end $$;

-- It uses the tables of this schema, and never someone's temporary ones.
do $$ begin
    execute format('alter function add_ranges set search_path = %I, pg_temp', current_schema());
end $$;
revoke execute on function add_ranges from public;
