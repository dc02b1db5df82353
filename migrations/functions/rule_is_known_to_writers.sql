-- The trigger of `rule`: refuses a rule while a server that does not know of rules is connected. That
-- server would store votes on items with a rule as if they had none.
--
-- Locks: the advisory lock 7416153281 until the transaction ends, which writer_connection_knows_rules
-- takes too. Its number has no meaning and is Tally's own.
create or replace function rule_is_known_to_writers() returns trigger language plpgsql as $$
begin
    perform pg_advisory_xact_lock(7416153281);
    if exists (select from writer_connection where not knows_rules) then
        raise exception 'servers of a version without rules are connected'
            using errcode = 'object_in_use',
                  hint = 'Stop them; a sync worker then forgets their connections.';
    end if;
    return null;
end $$;
