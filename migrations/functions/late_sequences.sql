-- Finds the sequences that are behind the rows that got their ids from them. Then a new row would get
-- an id that is taken. A logical replication and a dump of some tables leave sequences out.
--
-- Returns a row for each such sequence: its name, the last id that it drew, and the highest id in use.
-- Called by every program at its start, and by `tally migrate`. Locks nothing.
create or replace function late_sequences(out sequence text, out last bigint, out newest bigint) returns setof record
-- With the owner's rights: no role reads every sequence and every table.
security definer
language plpgsql as $$
#variable_conflict use_variable
declare
    one record;
begin
    for one in
        -- The sequences of columns of Tally's tables, by the catalogue. Other owners' tables in this
        -- schema are not Tally's.
        select drawing.oid::regclass as drawing, owning.oid::regclass as owning, attribute.attname as attribute
        from pg_depend
        join pg_class as drawing on drawing.oid = pg_depend.objid and drawing.relkind = 'S'
        join pg_class as owning on owning.oid = pg_depend.refobjid
        join pg_attribute as attribute
          on attribute.attrelid = owning.oid and attribute.attnum = pg_depend.refobjsubid
        where pg_depend.classid = 'pg_class'::regclass and pg_depend.refclassid = 'pg_class'::regclass
          and pg_depend.deptype in ('i', 'a')
          and owning.relnamespace = quote_ident(current_schema())::regnamespace
          and owning.relowner = quote_ident(current_user)::regrole
        order by 1
    loop
        -- The rows are read first: none of them has an id that was not drawn before.
        execute format('select coalesce(max(%I), 0) from %s', one.attribute, one.owning) into newest;
        -- Votes may be rolled up and then be gone, as in a dump without them.
        if one.drawing = 'vote_id_seq'::regclass then
            newest := greatest(newest, (select watermark.vote_id from watermark));
        end if;
        execute format('select case when is_called then last_value else last_value - 1 end from %s', one.drawing)
            into last;
        if last < newest then
            sequence := one.drawing::text;
            return next;
        end if;
    end loop;
end $$;

-- It uses the tables of this schema, and never someone's temporary ones.
do $$ begin
    execute format('alter function late_sequences set search_path = %I, pg_temp', current_schema());
end $$;
-- The highest id is at the end of an index.
alter function late_sequences set enable_seqscan = off;
revoke execute on function late_sequences from public;
