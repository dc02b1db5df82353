-- The oldest programs that may run beside this schema: those whose last migration has this number, and later ones.
-- An older program is refused at its start. A release raises the number to its own last migration if servers of the
-- release before would not be exact beside it. Until the first release it is the last migration of all.
-- Called by every program at its start. Locks nothing.
create or replace function oldest_program() returns bigint
language sql immutable parallel safe as $$
    select 5::bigint
$$;
