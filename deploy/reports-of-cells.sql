-- Reports over all cells (docs/operating/cells.md): in a database of their own, on any Postgres 14 or later that reaches
-- the cells, views that unite those of each cell's schema `report`. They have one column more, `cell`.
--
--     createdb reports
--     psql reports -f deploy/reports-of-cells.sql
--     psql reports -c "select add_cell(0, 'host=10.0.0.21 dbname=tally', 'report', '<password>')"
--     psql reports -c "select add_cell(1, 'host=10.0.1.21 dbname=tally', 'report', '<password>')"
--
-- The login is one in the role tally_report, also on a standby. After a new version of Tally, call `add_cell` again.
-- All analysts of this database use that login: `add_cell` maps it for everyone.

create extension if not exists postgres_fdw;
create schema if not exists report;

-- Adds a cell, or reads its views again. Gives the views that were united.
--
-- p_cell: the cell. p_connection: where its Postgres is, as `key=value` of libpq, without user and password.
-- p_login, p_password: a login in the role tally_report. p_schema: where the cell's views are.
create or replace function add_cell(
    p_cell integer, p_connection text, p_login text, p_password text, p_schema text default 'report'
) returns setof text
language plpgsql as $$
declare
    name constant text := 'cell_' || p_cell;
    options text;
begin
    select string_agg(format('%s %L', split_part(part, '=', 1), split_part(part, '=', 2)), ', ') into options
    from regexp_split_to_table(trim(p_connection), '\s+') as part;
    -- Its views go, too, and are united anew.
    execute format('drop server if exists %I cascade', name);
    execute format('drop schema if exists %I cascade', name);
    -- Cells are asked at the same time.
    execute format(
        $server$create server %I foreign data wrapper postgres_fdw
               options (%s, fetch_size '10000', async_capable 'true', updatable 'false')$server$,
        name, options);
    execute format('create user mapping for public server %I options (user %L, password %L)', name, p_login, p_password);
    execute format('create schema %I', name);
    execute format('import foreign schema %I from server %I into %I', p_schema, name, name);
    return query select unite_cells();
end $$;

-- Makes the views in the schema `report` of what each cell has. Gives their names. A view that a cell lacks, as one of
-- an older version of Tally does, is that of the others; so is a column.
create or replace function unite_cells() returns setof text
language plpgsql as $$
declare
    one record;
begin
    for one in
        with columns as (
            select substring(relation.relnamespace::regnamespace::text from 'cell_(\d+)')::integer as cell,
                   relation.relname as view, attribute.attname as name, attribute.attnum as place,
                   format_type(attribute.atttypid, attribute.atttypmod) as type
            from pg_class as relation
            join pg_attribute as attribute on attribute.attrelid = relation.oid
            where relation.relkind = 'f' and relation.relnamespace::regnamespace::text ~ '^cell_\d+$'
              and attribute.attnum > 0 and not attribute.attisdropped
        ), united as (
            select view, name, min(place) as place from columns group by view, name
        ), parts as (
            select cells.view, cells.cell,
                   format('select %s as cell, %s from cell_%s.%I', cells.cell,
                          string_agg(case when columns.name is null then format('null as %I', united.name)
                                          else format('%I', united.name) end,
                                     ', ' order by united.place, united.name),
                          cells.cell, cells.view) as text
            from (select distinct view, cell from columns) as cells
            join united on united.view = cells.view
            left join columns on columns.view = cells.view and columns.cell = cells.cell and columns.name = united.name
            group by cells.view, cells.cell
        )
        select view, string_agg(text, ' union all ' order by cell) as text from parts group by view order by view
    loop
        execute format('drop view if exists report.%I cascade', one.view);
        execute format('create view report.%I as %s', one.view, one.text);
        return next one.view;
    end loop;
end $$;
