-- Makes this database a cell, unless it is one: from then on all its ids are drawn from cell · 2⁴⁰ + 1 to
-- (cell + 1) · 2⁴⁰ − 1. They are unique over all cells, and no sequence runs into the next cell.
--
-- p_cell: the cell; null: 0, unless the database is another one.
-- Returns which cell the database is.
-- Called by `tally migrate`. Locks: the row of `identity`, and in a new database each sequence.
create or replace function set_cell(p_cell integer) returns integer
language plpgsql as $$
declare
    held integer;
    lowest bigint;
    one record;
begin
    select cell into held from identity for update;
    if held is not null then
        return held;
    end if;
    held := coalesce(p_cell, 0);
    lowest := held::bigint << 40;
    for one in
        -- As in late_sequences.
        select drawing.oid::regclass as drawing
        from pg_depend
        join pg_class as drawing on drawing.oid = pg_depend.objid and drawing.relkind = 'S'
        join pg_class as owning on owning.oid = pg_depend.refobjid
        where pg_depend.classid = 'pg_class'::regclass and pg_depend.refclassid = 'pg_class'::regclass
          and pg_depend.deptype in ('i', 'a')
          and owning.relnamespace = quote_ident(current_schema())::regnamespace
          and owning.relowner = (select relowner from pg_class where oid = 'identity'::regclass)
        order by 1
    loop
        execute format('alter sequence %s maxvalue %s', one.drawing, lowest + (1::bigint << 40) - 1);
        if held > 0 then
            execute format('alter sequence %s start %s restart', one.drawing, lowest + 1);
        end if;
    end loop;
    -- No vote lies below, so that no roll-up looks there.
    update watermark set vote_id = lowest, saved_vote_id = lowest where vote_id < lowest;
    update identity set cell = held;
    return held;
end $$;

revoke execute on function set_cell from public;
