-- The trigger of `act`: refuses to change or delete a row, and to truncate the table.
-- docs/operating/trail.md says how an operator removes old rows.
create or replace function refuse_change_of_trail() returns trigger
language plpgsql as $$
begin
    raise exception 'the trail is never changed: % of act', lower(tg_op)
        using errcode = 'restrict_violation';
end $$;
