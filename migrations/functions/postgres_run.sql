-- Which run of Postgres this is, as a number that means nothing but itself. It differs after each start of Postgres, so on
-- each primary of a failover, in each database, and after the table item was made or filled again (a restore).
-- Ids are given out once in a run. What a server looked up in one run is not valid in another one.
-- Reads no table. Locks nothing but item, as any read of it does.
create or replace function postgres_run() returns bigint
language sql stable parallel safe as $$
    select hashint8extended(
        -- Two machines do not start Postgres in the same microsecond.
        (extract(epoch from pg_postmaster_start_time()) * 1000000)::bigint,
        hashint8extended(
            -- A view or a table in partitions has no file.
            coalesce(pg_relation_filenode('item'::regclass), 'item'::regclass::oid)::bigint,
            (select oid::bigint from pg_database where datname = current_database())))
$$;
