-- Begins to archive the votes of items and polls that have closed. From then on these take no votes, whatever the
-- clock says, and nothing else changes their votes: no voiding, no undo and no import.
--
-- p_rules: the rules of the items, and the polls. p_act: what the trail notes, as in note_act.
-- Returns the archive, and the id of the trail's row; or why it cannot begin, and then nothing is changed.
-- Called by operators (`tally archive`).
-- Locks: the advisory lock 7416153282, as void_votes does, so no voiding is in the middle of a chunk, and one archive
-- begins at a time; then the rules, in the order of their ids. So every vote that was granted before is committed.
create or replace function begin_archive(
    p_rules bigint[], p_act text,
    out new_id bigint, out act_id bigint, out faults text[]
)
security definer
language plpgsql as $$
#variable_conflict use_variable
begin
    perform pg_advisory_xact_lock(7416153282);
    perform from rule where rule.id = any(p_rules) order by rule.id for no key update;
    faults := archive_faults(p_rules);
    if faults <> '{}' then return; end if;
    insert into archive (until_vote_id)
    select case when vote_id_seq.is_called then vote_id_seq.last_value else vote_id_seq.last_value - 1 end
    from vote_id_seq
    returning archive.id into new_id;
    insert into archived_rule (rule_id, archive_id) select given.id, new_id from unnest(p_rules) as given (id);
    insert into archived_item (item_id, archive_id)
    select item.id, new_id from item where item.rule_id = any(p_rules);
    update rule set archive_id = new_id where rule.id = any(p_rules);
    act_id := note_act(p_act, format('archive:%s', new_id));
end $$;

-- It uses the tables of this schema, and never someone's temporary ones.
do $$ begin
    execute format('alter function begin_archive set search_path = %I, pg_temp', current_schema());
end $$;
revoke execute on function begin_archive from public;
