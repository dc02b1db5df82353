-- Drops a range of the ledger that has no votes left, since all were archived. Votes go on.
--
-- p_act: what the trail notes, as in note_act.
-- Returns the number of the range that it dropped; null: there is no such range, or the ledger is one table.
-- Raises lock_not_available if others use `vote` for longer than a vote may wait, change old votes, or split the
-- ledger: try again.
-- Called by operators (`tally archive`). Locks: the advisory locks 7416153285, so that nobody changes or deletes old
-- votes, and 7416153284, so that no range is made; the range against writes; then `vote` against everything, for a
-- moment, and no other range: autovacuum may be in one, and gives way too late.
create or replace function drop_empty_range(p_act text) returns int
security definer
language plpgsql as $$
declare
    one vote_range%rowtype;
    name text;
    first_id bigint;
begin
    if not exists (select from vote_range) then return null; end if;
    if not pg_try_advisory_xact_lock(7416153285) then
        raise exception 'others change old votes' using errcode = 'lock_not_available';
    end if;
    perform pg_advisory_xact_lock(7416153284);
    for one in
        -- Ids beyond may be in flight, or looked for after the death of a server.
        select vote_range.* from vote_range, watermark
        where vote_range.end_vote_id <= watermark.saved_vote_id + 1
          and not exists (select from writer_connection
                          where writer_connection.counted_vote_id + 1 < vote_range.end_vote_id)
        order by vote_range.number
    loop
        name := format('vote_range_%s', one.number);
        execute format('select min(id) from %I', name) into first_id;
        continue when first_id is not null;
        -- Nobody writes into it from now on, not even by hand; no vote does. Autovacuum, which comes after many
        -- deletes, gives way to who waits for a second.
        perform set_config('lock_timeout', '10s', true);
        execute format('lock table %I in share row exclusive mode', name);
        -- Votes do not wait for this look either: after 5 million deletes it took 0.08 s, and the first one 0.8 s.
        execute format('select min(id) from %I', name) into first_id;
        continue when first_id is not null;
        perform set_config('lock_timeout', '50ms', true);
        lock table only vote in access exclusive mode;
        execute format('drop table %I', name);
        delete from vote_range where vote_range.number = one.number;
        perform note_act(p_act, format('vote_range:%s', one.number));
        -- Votes wait from here to the end of the transaction: no look at a further range.
        return one.number;
    end loop;
    return null;
end $$;

-- It uses the tables of this schema, and never someone's temporary ones.
do $$ begin
    execute format('alter function drop_empty_range set search_path = %I, pg_temp', current_schema());
end $$;
-- It looks for the first row of an index, and not at all of them.
alter function drop_empty_range set enable_seqscan = off;
revoke execute on function drop_empty_range from public;
