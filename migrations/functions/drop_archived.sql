-- Deletes the next votes of a checked archive from the ledger, with the hashes of their addresses, and notes how far
-- it is, in one transaction.
--
-- p_archive: the archive. p_hash: SHA-256 of the file that the caller has. p_limit_ids: the most vote ids that it
-- looks at.
-- Returns the last id that it looked at, how many votes it deleted, and whether that was the end.
-- Raises object_not_in_prerequisite_state if the archive is not checked, was cancelled, or was checked with another
-- file, and while the ledger is being split; and data_corrupted if at the end fewer votes were dropped than the file has.
-- Called by operators (`tally archive`). Locks: the archive, and the rows that it deletes.
create or replace function drop_archived(
    p_archive bigint, p_hash bytea, p_limit_ids bigint,
    out up_to bigint, out dropped bigint, out is_end boolean
)
security definer
language plpgsql as $$
#variable_conflict use_variable
declare
    held archive%rowtype;
    from_id bigint;
    gone bigint[];
begin
    -- As in edit_voter.
    if not pg_try_advisory_xact_lock_shared(7416153285) then
        raise exception 'the ledger is being split into ranges, or an empty range is dropped: go on with the archive afterwards'
            using errcode = 'object_not_in_prerequisite_state';
    end if;
    select * into strict held from archive where archive.id = p_archive for update;
    if held.checked_at is null or held.cancelled_at is not null or held.file_hash is distinct from p_hash then
        raise exception 'archive % has no checked file, or another one', p_archive
            using errcode = 'object_not_in_prerequisite_state';
    end if;
    dropped := 0;
    up_to := held.dropped_vote_id;
    is_end := true;
    if held.ended_at is not null then return; end if;
    if held.last_vote_id is not null then
        -- There may be a large gap.
        select coalesce(min(vote.id) - 1, held.last_vote_id) into from_id from vote where vote.id > held.dropped_vote_id;
        up_to := least(from_id + p_limit_ids, held.last_vote_id);
        with deleted as (
            delete from vote
            using archived_item
            where vote.id > held.dropped_vote_id and vote.id <= up_to
              and archived_item.item_id = vote.item_id and archived_item.archive_id = p_archive
            returning vote.id
        )
        select coalesce(array_agg(deleted.id), '{}') into gone from deleted;
        dropped := cardinality(gone);
        -- In a ledger in ranges it is a table; else these rows are gone by now.
        delete from vote_of_voter where vote_of_voter.id = any(gone);
        delete from vote_address where vote_address.vote_id = any(gone);
        is_end := up_to >= held.last_vote_id;
    end if;
    if is_end and held.dropped_total + dropped <> held.vote_total then
        raise exception 'archive % has % votes, and % are dropped', p_archive, held.vote_total, held.dropped_total + dropped
            using errcode = 'data_corrupted';
    end if;
    update archive
    set dropped_vote_id = up_to, dropped_total = held.dropped_total + dropped,
        ended_at = case when is_end then clock_timestamp() end
    where archive.id = p_archive;
end $$;

-- It uses the tables of this schema, and never someone's temporary ones.
do $$ begin
    execute format('alter function drop_archived set search_path = %I, pg_temp', current_schema());
end $$;
-- A plan that is made while a table is empty must also suit a full table.
alter function drop_archived set enable_seqscan = off;
revoke execute on function drop_archived from public;
