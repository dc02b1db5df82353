-- What an installation's Postgres is like, for `tally doctor`: one row. Null: this login may not see it.
-- Times in µs since 1970, durations in µs. $1: how long a worker that is alive may be silent (µs).
select current_setting('server_version_num')::int                          as "version!",
       pg_is_in_recovery()                                                 as "is_standby!",
       current_setting('fsync') = 'on'                                     as "fsync!",
       current_setting('full_page_writes') = 'on'                          as "full_page_writes!",
       current_setting('synchronous_commit')                               as "synchronous_commit!",
       current_setting('synchronous_standby_names')                        as "synchronous_standby_names!",
       current_setting('default_transaction_read_only') = 'on'             as "is_read_only!",
       current_setting('autovacuum') = 'on'                                as "autovacuum!",
       current_setting('max_connections')::bigint                          as "max_connections!",
       (select sum(numbackends)::bigint from pg_stat_database)             as "connections!",
       -- Whoever may not see the states of others sees nulls.
       (select count(*) from pg_stat_replication where sync_state in ('sync', 'quorum')) as "synchronous_standbys!",
       (select count(*) from pg_stat_replication)                          as "standbys!",
       (select bool_and(sync_state is not null) from pg_stat_replication)  as sees_standbys,
       -- Of the standby that is furthest behind. A standby that copies a base backup has no replay_lsn yet.
       (select max(case when pg_is_in_recovery() then 0
                        else pg_wal_lsn_diff(pg_current_wal_lsn(), replay_lsn) end)::bigint
        from pg_stat_replication)                                          as standby_lag_bytes,
       current_setting('archive_mode') <> 'off'                            as "archives!",
       -- Whether the last try failed.
       (select coalesce(last_failed_time > coalesce(last_archived_time, '-infinity'), false) from pg_stat_archiver)
                                                                           as archiving_fails,
       (select last_archived_time is null from pg_stat_archiver)           as "never_archived!",
       -- Where others on the network may connect, and no connection is encrypted.
       (select string_agg(address, ',')
        from regexp_split_to_table(current_setting('listen_addresses'), '\s*,\s*') as address
        where address not in ('', 'localhost', '127.0.0.1', '::1') and current_setting('ssl') = 'off') as plain_listeners,
       -- Null: through a Unix socket, or not seen.
       host(inet_client_addr())                                            as client_address,
       (select ssl from pg_stat_ssl where pid = pg_backend_pid())          as is_encrypted,
       (select max(pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn))::bigint
        from pg_replication_slots where not active and not pg_is_in_recovery()) as slot_keeps_bytes,
       (select string_agg(slot_name, ', ') from pg_replication_slots where not active) as idle_slots,
       (select count(*) from pg_prepared_xacts)                            as "prepared!",
       (select (extract(epoch from clock_timestamp() - min(prepared)) * 1000000)::bigint from pg_prepared_xacts)
                                                                           as oldest_prepared,
       (select (extract(epoch from clock_timestamp() - min(xact_start)) * 1000000)::bigint
        from pg_stat_activity where xact_start is not null and pid <> pg_backend_pid()
                                and backend_type = 'client backend')       as oldest_transaction,
       not exists (select from pg_stat_activity where backend_type is null) as "sees_sessions!",
       -- For the logins of servers, operators and all, in this database or in each.
       (select string_agg(coalesce(role.rolname, 'each login') || ' has ' || setting, ', ')
        from pg_db_role_setting as of_role
        left join pg_roles as role on role.oid = of_role.setrole
        cross join unnest(of_role.setconfig) as setting
        where of_role.setdatabase in (0, (select oid from pg_database where datname = current_database()))
          and setting in ('synchronous_commit=off', 'default_transaction_read_only=on')
          and (of_role.setrole = 0 or pg_has_role(of_role.setrole, 'tally_server', 'member')
               or pg_has_role(of_role.setrole, 'tally_operator', 'member'))) as harmful_settings,
       (select count(*) from pg_locks where not granted and locktype = 'relation'
                                        and database = (select oid from pg_database where datname = current_database()))
                                                                           as "waiting_for_tables!",
       (select count(*) from pg_locks
        where granted and locktype = 'relation'
          and database = (select oid from pg_database where datname = current_database()) and mode in ('AccessExclusiveLock', 'ExclusiveLock')
          and relation in ('vote'::regclass, 'vote_of_voter'::regclass, 'vote_api_key'::regclass, 'vote_address'::regclass, 'item'::regclass,
                           'audited_count'::regclass, 'watermark'::regclass))
                                                                           as "table_locks!",
       (select age(datfrozenxid)::bigint from pg_database where datname = current_database())
                                                                           as "transaction_age!",
       exists (select from pg_class
               where oid in ('vote'::regclass, 'item'::regclass, 'audited_count'::regclass, 'recent_change'::regclass)
                 and 'autovacuum_enabled=false' = any(reloptions))         as "vacuum_is_off!",
       -- A crash forgets the live rows, so those that vacuum has counted are taken as well.
       (select coalesce(max(n_dead_tup::float8 / greatest(n_live_tup, reltuples, 1)), 0)
        from pg_stat_user_tables join pg_class on pg_class.oid = relid
        where relid in ('item'::regclass, 'audited_count'::regclass) and n_dead_tup > 100000) as "dead_rows!",
       (select rolsuper or rolbypassrls or rolcreaterole or rolcreatedb from pg_roles where rolname = current_user)
                                                                           as "is_mighty!",
       pg_has_role(current_user, (select relowner from pg_class where oid = 'vote'::regclass), 'usage')
                                                                           as "owns_tables!",
       current_user::text                                                  as "login!",
       -- Logins of other running programs that may do more than these need.
       (select string_agg(distinct rolname::text, ', ')
        from pg_stat_activity join pg_roles on pg_roles.oid = usesysid
        where datname = current_database() and usename <> current_user
          and (application_name like 'tally serve%' or application_name like 'tally sync-worker%')
          and (rolsuper or rolbypassrls or rolcreaterole or rolcreatedb
               or pg_has_role(usesysid, (select relowner from pg_class where oid = 'vote'::regclass), 'usage')))
                                                                           as mighty_logins,
       -- Beside those of extensions, which may give rights to all.
       (select string_agg(distinct relname::text, ', ')
        from pg_class cross join aclexplode(relacl) as granted
        where relnamespace = (select relnamespace from pg_class where oid = 'vote'::regclass)
          and grantee = 0
          and not exists (select from pg_depend
                          where classid = 'pg_class'::regclass and objid = pg_class.oid and deptype = 'e'))
                                                                           as open_tables,
       (extract(epoch from clock_timestamp()) * 1000000)::bigint           as "now!",
       pg_database_size(current_database())                                as "size_bytes!",
       (select count(*) from worker where seen_at > clock_timestamp() - $1::bigint * interval '1 microsecond') as "workers!",
       (select count(*) from writer_connection)                            as "writers!",
       (select (extract(epoch from clock_timestamp() - min(succeeded_at)) * 1000000)::bigint
        from job where name = 'roll_up')                                   as roll_up_age,
       (select (extract(epoch from clock_timestamp() - min(succeeded_at)) * 1000000)::bigint
        from job where name = 'audit')                                     as audit_age,
       (select (details ->> 'wrong_items')::bigint from job_run
        where job = 'audit' and outcome = 'done' order by fencing_number desc limit 1) as wrong_items,
       greatest((select last_value from vote_id_seq) - (select vote_id from watermark), 0) as "watermark_lag!",
       -- A worker makes the next range when fewer ids are left than two ranges have. While the ledger is split, the
       -- ids of the first range must not end either.
       coalesce(
           (select newest.end_vote_id - drawn.last_value
            from (select end_vote_id, next_ids from vote_range order by number desc limit 1) as newest, vote_id_seq as drawn
            where newest.end_vote_id - drawn.last_value < newest.next_ids),
           (select split.end_vote_id - drawn.last_value
            from (select (regexp_match(pg_get_constraintdef(oid), '\d+'))[1]::bigint as end_vote_id from pg_constraint
                  where conrelid = 'vote'::regclass and conname = 'vote_is_first_range') as split, vote_id_seq as drawn
            where split.end_vote_id - drawn.last_value < 10000000))
                                                                           as late_range_ids,
       (select coalesce(sum(vote_total), 0)::bigint from loss)             as "lost_votes!"
