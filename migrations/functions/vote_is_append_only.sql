-- The trigger of `vote`: refuses to change a vote, and to truncate the table.
create or replace function vote_is_append_only() returns trigger language plpgsql as $$
begin
    raise exception 'the ledger is append-only: votes are never updated or deleted'
        using errcode = 'restrict_violation',
              hint = 'A change or a retraction is a further row.';
end $$;
