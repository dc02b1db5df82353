-- Checks that the votes of a batch are beyond the watermark. Votes at or below it would never be
-- counted. That happens if someone has set vote_id_seq back (`setval`, a restore, a replication
-- that leaves sequences out), or if the sequence hands out blocks of ids (`cache`).
--
-- lowest: the lowest id of the batch; null: the batch stored nothing.
-- Returns true. If the ids are not new, it raises object_not_in_prerequisite_state, so that the
-- statement that stores the batch stores nothing.
-- Called by every statement and function that stores votes. Locks nothing.
create or replace function vote_ids_are_new(lowest bigint) returns boolean
language plpgsql as $$
declare
    -- Read by a statement of its own: the watermark may have moved since the batch began.
    rolled_up constant bigint := (select vote_id from watermark);
begin
    if lowest <= rolled_up then
        raise exception
            'vote_id_seq drew the id %, and votes up to the id % are rolled up: it was set back, or it caches ids',
            lowest, rolled_up
            using errcode = 'object_not_in_prerequisite_state';
    end if;
    return true;
end
$$;
