-- The triggers of `vote`: refuse to change a vote, and to truncate the table. Only an edit of a voter that is
-- under way may give that voter's rows the other voter id (see edit_voter).
create or replace function vote_is_append_only() returns trigger language plpgsql as $$
begin
    if tg_op = 'UPDATE' then
        if (new.id, new.item_id, new.created_at, new.value, new.poll_id, new.number)
               is not distinct from (old.id, old.item_id, old.created_at, old.value, old.poll_id, old.number)
           -- It casts a vote, or takes one back, as before.
           and (new.change_number - old.change_number) % 2 = 0
           and exists (
               select from voter_edit
               where voter_edit.ended_at is null
                 and new.voter_id = voter_edit.to_voter_id
                 and (old.voter_id = voter_edit.from_voter_id or old.voter_id = voter_edit.to_voter_id)) then
            return new;
        end if;
    end if;
    raise exception 'the ledger is append-only: votes are never updated or deleted'
        using errcode = 'restrict_violation',
              hint = 'A change or a retraction is a further row.';
end $$;

-- It uses the tables of this schema, and never someone's temporary ones.
do $$ begin
    execute format('alter function vote_is_append_only set search_path = %I, pg_temp', current_schema());
end $$;
