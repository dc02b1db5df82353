-- Gives everyone the rights on a table or sequence that they have on another one, and on its columns, and no others.
--
-- p_from: the one with the rights. p_to: the one that gets them.
-- Called by begin_ranges and enter_ranges. Locks nothing.
create or replace function copy_rights(p_from text, p_to text) returns void
language plpgsql as $$
declare
    one text;
begin
    perform revoke_rights(p_to);
    for one in
        select format('grant %s%s on %s %I to %s%s', held.privilege_type, held.of_column,
                      case when held.is_sequence then 'sequence' else 'table' end, p_to,
                      case when held.grantee = 0 then 'public' else quote_ident(pg_get_userbyid(held.grantee)) end,
                      case when held.is_grantable then ' with grant option' else '' end)
        from (
            select acl.*, '' as of_column, relkind = 'S' as is_sequence, relowner
            from pg_class cross join aclexplode(relacl) as acl where oid = p_from::regclass
            union all
            select acl.*, format(' (%I)', attname), false, relowner
            from pg_attribute join pg_class on pg_class.oid = attrelid cross join aclexplode(attacl) as acl
            where attrelid = p_from::regclass and attnum > 0 and not attisdropped
        ) as held
        where held.grantee <> held.relowner
    loop
        execute one;
    end loop;
end $$;

revoke execute on function copy_rights from public;
