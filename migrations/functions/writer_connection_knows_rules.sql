-- The trigger of `writer_connection`: once there is a rule, refuses the connection of a server that
-- does not know of rules.
--
-- Locks: for such a server, the advisory lock of rule_is_known_to_writers until the transaction ends.
create or replace function writer_connection_knows_rules() returns trigger language plpgsql as $$
begin
    if not new.knows_rules then
        perform pg_advisory_xact_lock(7416153281);
        if exists (select from rule) then
            raise exception 'this server is of a version without rules, and there are some'
                using errcode = 'object_not_in_prerequisite_state';
        end if;
    end if;
    return new;
end $$;
