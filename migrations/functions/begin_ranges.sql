-- Begins to split the ledger into ranges of ids: makes the empty table that `vote` becomes, and the one that
-- `vote_of_voter` becomes. What an earlier try has left is made again. Votes go on. Nothing reads these
-- tables before enter_ranges.
--
-- p_range_ids: how many ids a range has.
-- Returns the first id behind the first range, which is `vote` as it is; null: the ledger is in ranges.
-- Raises feature_not_supported, with what to do, if something depends on `vote` that cannot follow it.
-- Called by `tally migrate --partition`. Locks: `vote` against everything, for a moment.
create or replace function begin_ranges(p_range_ids bigint) returns bigint
language plpgsql as $$
declare
    -- Votes must not reach its end before the ledger is split, which takes hours if it is large.
    margin constant bigint := greatest(p_range_ids, 100000000);
    last constant bigint := (select case when is_called then last_value else last_value - 1 end from vote_id_seq);
    lowest constant bigint := (select coalesce(cell, 0)::bigint << 40 from identity);
    first_end constant bigint := lowest + ((last - lowest + margin) / p_range_ids + 1) * p_range_ids;
    fault text;
begin
    if exists (select from vote_range) then
        return null;
    end if;
    fault := split_fault();
    if fault is not null then
        raise exception '%', fault using errcode = 'feature_not_supported';
    end if;
    perform end_split();
    -- The default of `id` follows in enter_ranges: until then its sequence is the identity of `vote`.
    create table vote_in_ranges (
        like vote including constraints including comments including defaults including storage
    ) partition by range (id);
    comment on table vote_in_ranges is 'prepared by tally migrate --partition';
    alter table vote_in_ranges add constraint vote_in_ranges_pkey primary key (id);
    create index vote_in_ranges_change on vote_in_ranges (id) where change_number > 0;
    create index vote_in_ranges_poll on vote_in_ranges (poll_id, voter_id, item_id, change_number) where poll_id is not null;
    -- Postgres gives the trigger of a row to each range. A trigger of a statement looks at the table that the
    -- statement names.
    create trigger vote_changes_only_its_voter
        before update on vote_in_ranges
        for each row execute function vote_is_append_only();
    create trigger vote_has_voter_in_vote_of_voter
        before insert on vote_in_ranges
        for each row when (new.voter_id is not null and pg_trigger_depth() = 0)
        execute function vote_of_voter_is_copied();
    create trigger vote_is_append_only
        before truncate on vote_in_ranges
        for each statement execute function vote_is_append_only();
    create trigger vote_is_archived_first
        after delete on vote_in_ranges referencing old table as gone
        for each statement execute function vote_is_archived_first();

    -- As wide as a row of `vote`, so that what a voter holds is read here alone.
    create table vote_of_voter_filled (
        like vote including constraints including comments including defaults including storage
    ) with (autovacuum_vacuum_insert_scale_factor = 0.05,
            -- Until it is `vote_of_voter`: autovacuum would hold it where votes wait behind its change.
            autovacuum_enabled = false);
    comment on table vote_of_voter_filled is 'prepared by tally migrate --partition';
    alter table vote_of_voter_filled alter voter_id set not null;

    -- The rights follow in enter_ranges. Until then nobody else has any.
    perform revoke_rights('vote_in_ranges'), revoke_rights('vote_of_voter_filled');

    -- Postgres reads no row of `vote` to attach it once this is known of all of them.
    execute format('alter table vote add constraint vote_is_first_range check (id < %s) not valid', first_end);
    return first_end;
end $$;

revoke execute on function begin_ranges from public;
