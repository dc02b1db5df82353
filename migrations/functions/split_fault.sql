-- Finds what depends on the table `vote`, or is set for it, and would stay with the first range or be lost if the ledger
-- were split.
--
-- Returns what it is and what to do, in words; null: there is nothing.
-- Called by begin_ranges. Locks nothing.
create or replace function split_fault() returns text
language sql stable as $$
    with of_tally (relation) as (
        values ('vote'::regclass), ('vote_of_voter'::regclass)
    ), readers as (
        select distinct pg_class.relkind, pg_class.oid::regclass as reader, pg_class.relowner, pg_rewrite.rulename
        from pg_depend
        join of_tally on pg_depend.refobjid = of_tally.relation
        join pg_rewrite on pg_rewrite.oid = pg_depend.objid
        join pg_class on pg_class.oid = pg_rewrite.ev_class
        where pg_depend.classid = 'pg_rewrite'::regclass and pg_class.oid <> 'vote'::regclass
    )
    select min(fault) from (
        -- The new tables belong to who makes them, and Tally's functions run as the owner of the old ones.
        select format('vote belongs to %s: run this with the login of %1$s', relowner::regrole) as fault
        from pg_class where oid = 'vote'::regclass and relowner <> current_user::regrole
        union all
        -- A view is made again by enter_ranges, which only its owner may do.
        select case
                   when rulename <> '_RETURN' then format('the rule %I of %s names vote: drop it', rulename, reader)
                   when relkind = 'm' then format('the materialized view %s reads vote: drop it', reader)
                   else format('the view %s reads vote and belongs to %s: drop it, or give this login that role', reader, relowner::regrole)
               end || ', and make it again afterwards'
        from readers
        where rulename <> '_RETURN' or relkind <> 'v' or not pg_has_role(relowner, 'usage')
        union all
        select format('%s is bound to the table vote: drop it, and make it again afterwards', pg_describe_object(classid, objid, objsubid))
        from pg_depend join of_tally on refobjid = relation
        where classid in ('pg_proc'::regclass, 'pg_policy'::regclass, 'pg_statistic_ext'::regclass)
        union all
        select format('the foreign key %I of %s refers to vote or is of vote: drop it, and make it again afterwards', conname, conrelid::regclass)
        from pg_constraint where contype = 'f' and 'vote'::regclass in (confrelid, conrelid)
        union all
        select format('the publication %I has vote: drop it, or take vote out, and add it again afterwards', pubname)
        from pg_publication_tables where schemaname = current_schema() and tablename = 'vote'
        union all
        select format('the table %s inherits from vote: alter table %s no inherit vote', inhrelid::regclass, inhrelid::regclass)
        from pg_inherits where inhparent = 'vote'::regclass
        union all
        select format('the trigger %I is not Tally''s: drop it, and make it again on vote or vote_of_voter afterwards', tgname)
        from pg_trigger
        where tgrelid = 'vote'::regclass and not tgisinternal
          and tgname not in ('vote_changes_only_its_voter', 'vote_is_append_only', 'vote_is_archived_first')
        union all
        select format('the rule %I is not Tally''s: drop it', rulename)
        from pg_rules where schemaname = current_schema() and tablename = 'vote'
        union all
        select 'row level security of vote is on: alter table vote disable row level security'
        from pg_class where oid = 'vote'::regclass and relrowsecurity
        union all
        select 'vote has a replica identity: alter table vote replica identity default, and set it again afterwards'
        from pg_class where oid = 'vote'::regclass and relreplident <> 'd'
    ) as found
$$;

revoke execute on function split_fault from public;
