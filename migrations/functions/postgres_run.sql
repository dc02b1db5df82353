-- Which run of Postgres this is, as a number that means nothing but itself. It differs after each start of Postgres, so on
-- each primary of a failover, in each database, and after the table item was made or filled again (a restore). From
-- Postgres 15 on it also differs after a crash of one process, after which the others begin again under the same
-- postmaster: with synchronous_commit off, commits that others have seen may be lost then.
-- Ids are given out once in a run. What a server looked up in one run is not valid in another one.
-- Reads no table. Locks nothing but item, as any read of it does.
create or replace function postgres_run() returns bigint
language sql stable parallel restricted as $$
    select hashint8extended(
        -- Two machines do not start Postgres in the same microsecond.
        (extract(epoch from pg_postmaster_start_time()) * 1000000)::bigint,
        hashint8extended(
            -- A crash resets these statistics. So does pg_stat_reset_shared, which then looks like a crash. Postgres 14 has
            -- them in a file that takes too long to read.
            case when current_setting('server_version_num')::int >= 150000
                 then (extract(epoch from pg_stat_get_bgwriter_stat_reset_time()) * 1000000)::bigint
                 else 0 end,
            hashint8extended(
                -- A view or a table in partitions has no file.
                coalesce(pg_relation_filenode('item'::regclass), 'item'::regclass::oid)::bigint,
                (select oid::bigint from pg_database where datname = current_database()))))
$$;
