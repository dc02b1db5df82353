-- The schema as SQL, in an order that depends on names alone: migrations/schema.sql. Read from the
-- catalogue, since the texts of pg_dump differ from version to version. sqlx makes _sqlx_migrations.
with tables as (
    select oid, relname, relpersistence, reloptions
    from pg_class
    where relnamespace = current_schema()::regnamespace and relkind = 'r' and relname <> '_sqlx_migrations'
), parts (tables, part, name, line) as (
    select relname, 1, attnum::text,
           format('    %I %s', attname, format_type(atttypid, atttypmod))
           || coalesce((
               select format(' collate %I', collname) from pg_collation
               where pg_collation.oid = attcollation and attcollation <> typcollation), '')
           || case when attnotnull then ' not null' else '' end
           || coalesce(' default ' || pg_get_expr(adbin, adrelid, true), '')
           || coalesce((
               select format(' generated %s as identity (sequence name %s start %s increment %s cache %s%s)',
                             case attidentity when 'a' then 'always' else 'by default' end,
                             seqrelid::regclass, seqstart, seqincrement, seqcache,
                             case when seqcycle then ' cycle' else '' end)
               from pg_sequence
               where seqrelid = pg_get_serial_sequence(quote_ident(relname), attname)::regclass
                 and attidentity <> ''), '')
    from tables
    join pg_attribute on attrelid = tables.oid and attnum > 0 and not attisdropped
    join pg_type on pg_type.oid = atttypid
    left join pg_attrdef on adrelid = attrelid and adnum = attnum
    union all
    select relname, case contype when 'p' then 2 when 'u' then 3 else 4 end, conname,
           format('    constraint %I %s', conname, pg_get_constraintdef(pg_constraint.oid, true))
    from tables join pg_constraint on conrelid = tables.oid and contype in ('p', 'u', 'c')
), lines (section, of, part, name, line) as (
    select 1, relname, 1, '',
           format(E'\ncreate %stable %I (\n%s\n)%s;', case relpersistence when 'u' then 'unlogged ' else '' end, relname,
                  (select string_agg(line, E',\n' order by part, length(name) * (part = 1)::int, name collate "C")
                   from parts where parts.tables = relname),
                  ' with (' || array_to_string(reloptions, ', ') || ')')
    from tables
    union all
    select 1, relname, 2, attname,
           format('alter table %I alter column %I set statistics %s;', relname, attname, attstattarget)
    from tables join pg_attribute on attrelid = tables.oid and attnum > 0 and not attisdropped and attstattarget >= 0
    union all
    select 1, relname, 2, indexrelid::regclass::text, pg_get_indexdef(indexrelid, 0, true) || ';'
    from tables join pg_index on indrelid = tables.oid
    where not exists (select from pg_constraint where conindid = indexrelid)
    union all
    select 1, relname, 3, tgname, pg_get_triggerdef(pg_trigger.oid, true) || ';'
    from tables join pg_trigger on tgrelid = tables.oid and not tgisinternal
    union all
    select 1, relname, 4, tgname,
           format('alter table %I %s trigger %I;', relname,
                  case tgenabled when 'A' then 'enable always' when 'R' then 'enable replica' else 'disable' end, tgname)
    from tables join pg_trigger on tgrelid = tables.oid and not tgisinternal and tgenabled <> 'O'
    union all
    select 2, '', 1, '', E'\n-- Foreign keys.'
    union all
    select 2, relname, 2, conname,
           format('alter table %I add constraint %I %s;', relname, conname, pg_get_constraintdef(pg_constraint.oid, true))
    from tables join pg_constraint on conrelid = tables.oid and contype = 'f'
    union all
    select 2, '', 3, '', E'\n-- Views.'
    union all
    select 2, relname, 4, '', format(E'create view %I as\n%s', relname, pg_get_viewdef(oid, true))
    from pg_class where relnamespace = current_schema()::regnamespace and relkind = 'v'
    union all
    select 3, '', 1, '', E'\n-- Functions: their texts are in functions/.'
    union all
    select 3, proname, 2, pg_get_function_identity_arguments(pg_proc.oid),
           format('-- %s(%s) returns %s: %s', proname, pg_get_function_arguments(pg_proc.oid),
                  pg_get_function_result(pg_proc.oid),
                  concat_ws(', ', lanname,
                            case provolatile when 'i' then 'immutable' when 's' then 'stable' else 'volatile' end,
                            case when proisstrict then 'strict' end,
                            case proparallel when 's' then 'parallel safe' when 'r' then 'parallel restricted' end,
                            case when prosecdef then 'security definer' end,
                            'with ' || array_to_string(proconfig, ' and '),
                            case when not exists (
                                select from aclexplode(coalesce(proacl, acldefault('f', proowner)))
                                where grantee = 0) then 'not for everyone' end))
    from pg_proc join pg_language on pg_language.oid = prolang
    where pronamespace = current_schema()::regnamespace
)
select string_agg(line, E'\n' order by section, of collate "C", part, name collate "C")
from lines
