-- The trigger of `vote` for deletes: refuses to delete a vote that no checked archive has. drop_archived deletes
-- no other ones. The owner of the tables can do no more.
create or replace function vote_is_archived_first() returns trigger language plpgsql as $$
begin
    if exists (
        select from gone
        where not exists (
            select from archived_item
            join archive on archive.id = archived_item.archive_id
            where archived_item.item_id = gone.item_id
              and archive.checked_at is not null and archive.ended_at is null and archive.cancelled_at is null
              and gone.id between archive.first_vote_id and archive.last_vote_id)
    ) then
        raise exception 'the ledger is append-only: votes are never updated or deleted'
            using errcode = 'restrict_violation',
                  hint = 'Votes on what has closed can be archived: tally archive.';
    end if;
    return null;
end $$;

-- It uses the tables of this schema, and never someone's temporary ones.
do $$ begin
    execute format('alter function vote_is_archived_first set search_path = %I, pg_temp', current_schema());
end $$;
