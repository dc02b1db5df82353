-- Why these rules cannot be archived.
--
-- p_rules: rules of single items, and polls.
-- Returns a sentence for each reason; none: they can be.
-- Called by begin_archive, which has locked the rules, and by `tally archive` to show what it would do. Locks nothing.
create or replace function archive_faults(p_rules bigint[]) returns text[]
security definer
language sql stable as $$
    with given as materialized (
        select one.id, rule.id is null as is_unknown, rule.closes_at, rule.archive_id,
               case when rule.title is not null then format('poll %s', one.id)
                    else format('item %s', (select item.id from item where item.rule_id = rule.id limit 1)) end as name
        from unnest(p_rules) as one (id) left join rule on rule.id = one.id
    )
    select array(
        select case
                   when is_unknown then format('there is no rule %s', id)
                   when archive_id is not null then format('%s is in archive %s already', name, archive_id)
                   when closes_at is null then format('%s has no closing time, so it takes votes', name)
                   -- Servers remember for ten minutes which votes they acknowledged, and look for them after a failover.
                   else format('%s closes at %s; it can be archived an hour later', name, closes_at)
               end
        from given
        where is_unknown or archive_id is not null or closes_at is null
           or closes_at > clock_timestamp() - interval '1 hour'
        union all
        -- It would have to take votes back, or to cast them again, that are not there.
        select format('voiding %s is not finished, and may be of these votes: tally void --resume %s', voiding.id, voiding.id)
        from voiding
        where (voiding.done_vote_id < voiding.until_vote_id
               or voiding.undone_vote_id is not null and exists (
                   select from voided where voided.voiding_id = voiding.id and voided.vote_id > voiding.undone_vote_id))
          and (voiding.item_id is null
               or exists (select from item where item.id = voiding.item_id and item.rule_id = any(p_rules)))
        union all
        select format('edit %s of a voter is not finished, and may be of these votes: tally voter list shows it', voter_edit.id)
        from voter_edit where voter_edit.ended_at is null
        union all
        select format('archive %s is not finished: tally archive resume %s', archive.id, archive.id)
        from archive where archive.ended_at is null and archive.cancelled_at is null)
$$;

-- It uses the tables of this schema, and never someone's temporary ones.
do $$ begin
    execute format('alter function archive_faults set search_path = %I, pg_temp', current_schema());
end $$;
revoke execute on function archive_faults from public;
