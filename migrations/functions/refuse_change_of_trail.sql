-- The trigger of `act`: refuses to change or delete what was noted, and to truncate the table. How an
-- operator removes old rows: docs/operating.md.
create or replace function refuse_change_of_trail() returns trigger
language plpgsql as $$
begin
    raise exception 'the trail is never changed: % of act', lower(tg_op)
        using errcode = 'restrict_violation';
end $$;
