-- Takes all rights on a table or sequence from everyone but its owner, also those of default privileges.
--
-- p_of: the table or sequence.
-- Called by copy_rights, enter_ranges and add_ranges. Locks nothing.
create or replace function revoke_rights(p_of text) returns void
language plpgsql as $$
declare
    one text;
begin
    for one in
        select distinct format('revoke all on %s %I from %s cascade', case relkind when 'S' then 'sequence' else 'table' end, p_of,
                               case when acl.grantee = 0 then 'public' else quote_ident(pg_get_userbyid(acl.grantee)) end)
        from (
            select relacl as rights, relowner, relkind from pg_class where oid = p_of::regclass
            union all
            select attacl, relowner, relkind from pg_attribute join pg_class on pg_class.oid = attrelid
            where attrelid = p_of::regclass
        ) as held
        cross join aclexplode(held.rights) as acl
        where acl.grantee <> held.relowner
    loop
        execute one;
    end loop;
end $$;

revoke execute on function revoke_rights from public;
