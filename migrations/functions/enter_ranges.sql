-- Makes the tables of begin_ranges those that everyone reads and writes: `vote` becomes the first range of the new
-- `vote`. Statements that were prepared before go on with the new tables.
--
-- p_range_ids: how many ids a range has. p_filled_id: `vote_of_voter_filled` has all votes with a voter up to here.
-- p_limit_ids: the most ids behind it.
-- Returns whether that was done, and how long it held the lock. Not done: there are more ids than that, and nothing is
-- changed.
-- Raises feature_not_supported, as begin_ranges does, for what has come to depend on `vote` since.
-- Called by `tally migrate --partition`, which keeps others from changing what depends on `vote`. Locks: the views of
-- `vote`, then `vote_of_voter`, then `vote` against everything, as long as it takes to copy the last ids.
create or replace function enter_ranges(
    p_range_ids bigint, p_filled_id bigint, p_limit_ids bigint,
    -- How long `vote` was locked, in µs.
    out is_done boolean, out locked_micros bigint
)
language plpgsql as $$
declare
    fault constant text := split_fault();
    readers text[];
    taken text[];
    one text;
    drawn bigint;
    is_drawn boolean;
    first_end bigint;
    locked_at timestamptz;
    numbers pg_sequence%rowtype;
begin
    if fault is not null then
        raise exception '%', fault using errcode = 'feature_not_supported';
    end if;
    -- The rights as they are now, on the tables whose places these take.
    perform copy_rights('vote', 'vote_in_ranges'), copy_rights('vote_of_voter', 'vote_of_voter_filled');
    -- Views read a table whatever its name is. So those of `vote` are made again, as they are. Looked up before the
    -- lock, since it takes a while.
    select array_agg(format('create or replace view %s%s as %s', found.reader, coalesce(' with (' || found.options || ')', ''),
                            pg_get_viewdef(found.reader))),
           array_agg(format('alter view %s owner to %I', found.reader, found.owner))
    into readers, taken
    from (
            select distinct pg_rewrite.ev_class::regclass as reader, array_to_string(pg_class.reloptions, ', ') as options,
                            pg_get_userbyid(pg_class.relowner) as owner
            from pg_depend
            join pg_rewrite on pg_rewrite.oid = pg_depend.objid
            join pg_class on pg_class.oid = pg_rewrite.ev_class
            where pg_depend.classid = 'pg_rewrite'::regclass
              and pg_depend.refobjid in ('vote'::regclass, 'vote_of_voter'::regclass)
              and pg_rewrite.ev_class <> 'vote_of_voter'::regclass
        ) as found;
    select (regexp_match(pg_get_constraintdef(oid), '\d+'))[1] into strict first_end
    from pg_constraint where conrelid = 'vote'::regclass and conname = 'vote_is_first_range' and convalidated;

    -- In the order of everyone else: whoever reads a view locks it before `vote`. A view keeps its owner, and is locked
    -- without what it reads.
    foreach one in array coalesce(taken, '{}') loop
        execute one;
    end loop;
    -- With the view, that of `vote`.
    lock table vote_of_voter in access exclusive mode;
    locked_at := clock_timestamp();
    is_done := false;
    select last_value, is_called into drawn, is_drawn from vote_id_seq;
    if drawn > p_filled_id + p_limit_ids then
        return;
    end if;
    insert into vote_of_voter_filled (id, item_id, created_at, value, change_number, voter_id, poll_id, number)
    select id, item_id, created_at, value, change_number, voter_id, poll_id, number
    from vote where id > p_filled_id and voter_id is not null;

    alter table vote rename to vote_range_1;
    alter table vote_range_1 rename constraint vote_pkey to vote_range_1_pkey;
    alter index vote_change rename to vote_range_1_change;
    alter index vote_in_poll rename to vote_range_1_poll;
    alter index vote_number rename to vote_range_1_number;
    drop index vote_once;
    drop trigger vote_changes_only_its_voter on vote_range_1;
    -- Whoever may read or write `vote` does so through the new one.
    perform revoke_rights('vote_range_1');

    -- A partitioned table has no identity before Postgres 17, so its default draws the ids. They go on where they are.
    select * into strict numbers from pg_sequence where seqrelid = 'vote_id_seq'::regclass;
    create sequence vote_id_seq_in_ranges cache 1;
    perform copy_rights('vote_id_seq', 'vote_id_seq_in_ranges');
    execute format('alter sequence vote_id_seq_in_ranges minvalue %s maxvalue %s start %s restart %s',
                   numbers.seqmin, numbers.seqmax, numbers.seqstart, drawn);
    perform setval('vote_id_seq_in_ranges', drawn, is_drawn);
    alter table vote_range_1 alter id drop identity;
    alter sequence vote_id_seq_in_ranges rename to vote_id_seq;

    alter table vote_in_ranges rename to vote;
    alter table vote rename constraint vote_in_ranges_pkey to vote_pkey;
    alter index vote_in_ranges_change rename to vote_change;
    alter index vote_in_ranges_poll rename to vote_in_poll;
    comment on table vote is null;
    alter table vote alter id set default nextval('vote_id_seq');
    alter sequence vote_id_seq owned by vote.id;

    alter view vote_of_voter rename to vote_of_voter_before;
    alter table vote_of_voter_filled rename to vote_of_voter;
    alter table vote_of_voter reset (autovacuum_enabled);
    comment on table vote_of_voter is null;
    alter table vote_of_voter alter id set default nextval('vote_id_seq');
    alter table vote_of_voter rename constraint vote_of_voter_filled_pkey to vote_of_voter_pkey;
    create trigger vote_of_voter_is_copied
        after insert on vote_of_voter referencing new table as added
        for each statement execute function vote_of_voter_is_copied();
    create trigger vote_of_voter_change_is_copied
        after update on vote_of_voter referencing new table as changed
        for each statement execute function vote_of_voter_is_copied();
    create trigger vote_changes_only_its_voter
        before update on vote_of_voter
        for each row execute function vote_is_append_only();
    create trigger vote_is_append_only
        before truncate on vote_of_voter
        for each statement execute function vote_is_append_only();
    create trigger vote_is_archived_first
        after delete on vote_of_voter referencing old table as gone
        for each statement execute function vote_is_archived_first();
    foreach one in array coalesce(readers, '{}') loop
        begin
            execute one;
        exception when invalid_table_definition then
            raise exception 'a view cannot follow vote (%): drop it, and make it again afterwards: %', sqlerrm, one
                using errcode = 'feature_not_supported';
        end;
    end loop;
    drop view vote_of_voter_before;

    execute format('alter table vote attach partition vote_range_1 for values from (minvalue) to (%s)', first_end);
    alter table vote_range_1 drop constraint vote_is_first_range;
    insert into vote_range (number, first_vote_id, end_vote_id, next_ids)
    values (1, (select coalesce(cell, 0)::bigint << 40 from identity), first_end, p_range_ids);
    is_done := true;
    locked_micros := (extract(epoch from clock_timestamp() - locked_at) * 1000000)::bigint;
end $$;

revoke execute on function enter_ranges from public;
