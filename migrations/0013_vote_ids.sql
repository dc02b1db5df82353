-- Counts rest on vote ids that only go up: no vote is stored at or below the watermark, since
-- nobody would count it. A sequence that was set back (`setval`, a restore, a replication that
-- leaves sequences out), or that hands out blocks of ids (`cache`), breaks that.
--
-- Whether the ids of a batch, from `lowest` on, are beyond the watermark; null: it has none.
-- Raises an error if they are not, so that the statement that stores the batch stores nothing.
create function vote_ids_are_new(lowest bigint) returns boolean
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
