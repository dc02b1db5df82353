-- Gives an archive up, if none of its votes is dropped. Its items and polls are then as they were.
--
-- p_archive: the archive. p_act: what the trail notes, as in note_act.
-- Returns whether it was given up. False: there is none, it has ended, or votes are dropped.
-- Called by operators (`tally archive`). Locks: the archive, then its rules, in the order of their ids.
create or replace function cancel_archive(p_archive bigint, p_act text) returns boolean
security definer
language plpgsql as $$
begin
    perform from archive
    where archive.id = p_archive and archive.dropped_total = 0 and archive.ended_at is null and archive.cancelled_at is null
    for update;
    if not found then return false; end if;
    perform from rule where rule.archive_id = p_archive order by rule.id for no key update;
    update rule set archive_id = null
    where rule.id in (select archived_rule.rule_id from archived_rule where archived_rule.archive_id = p_archive);
    delete from archived_item where archived_item.archive_id = p_archive;
    delete from archived_rule where archived_rule.archive_id = p_archive;
    update archive set cancelled_at = clock_timestamp() where archive.id = p_archive;
    perform note_act(p_act, format('archive:%s', p_archive));
    return true;
end $$;

-- It uses the tables of this schema, and never someone's temporary ones.
do $$ begin
    execute format('alter function cancel_archive set search_path = %I, pg_temp', current_schema());
end $$;
revoke execute on function cancel_archive from public;
