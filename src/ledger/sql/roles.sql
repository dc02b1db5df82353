-- Three roles, each with only what its statements need. `tally migrate` runs this
-- after the migrations, every time: whatever stood there before, Tally's tables then
-- grant to these three what stands here, and nothing else.
--
-- The roles cannot log in. An operator makes logins that are in them:
--   create role web login password '…' in role tally_server;

-- Roles belong to the whole cluster, grants to one database. Several may be at this
-- at once: in one database they take turns here, from another database a role may
-- come into being at any time. The number is Tally's own, of no meaning.
select pg_advisory_xact_lock(7416153280);

do $$
declare
    wanted name;
begin
    foreach wanted in array array['tally_server', 'tally_worker', 'tally_report']::name[] loop
        if not exists (select from pg_roles where rolname = wanted) then
            begin
                execute format('create role %I nologin', wanted);
            exception
                -- Someone else has just made it.
                when duplicate_object or unique_violation then null;
            end;
        end if;
    end loop;
    -- The tables are in whatever schema the migrations made them in.
    execute format('grant usage on schema %I to tally_server, tally_worker, tally_report', current_schema());
end $$;

revoke all on table item, vote, watermark, incarnation, writer_connection, _sqlx_migrations from tally_server, tally_worker, tally_report;
revoke all on sequence item_id_seq, vote_id_seq from tally_server, tally_worker, tally_report;

-- The server: makes items, adds votes, reads exact counts to seed with. The count
-- columns start at their defaults and are never its to write.
grant select (id, name, vote_count, counted_at, audited_count), insert (name) on item to tally_server;
grant select (id, item_id, value, change_number, voter_id),
      insert (id, item_id, value, voter_id) on vote to tally_server;
-- The batch draws its ids itself. Items draw theirs as an identity column does,
-- which asks for no grant.
grant usage on sequence vote_id_seq to tally_server;
grant select (vote_id) on watermark to tally_server;
-- It announces its batch writers' connections.
grant insert (name) on writer_connection to tally_server;
-- For /health/ready.
grant select (version, checksum) on _sqlx_migrations to tally_server;

-- The sync worker, and `tally audit`: write counts and the watermark, read votes but
-- not who voted.
grant select (id, vote_count, counted_at, audited_count),
      update (vote_count, counted_at, audited_count) on item to tally_worker;
grant select (id, item_id, value, created_at) on vote to tally_worker;
-- How far ids have been drawn.
grant select on sequence vote_id_seq to tally_worker;
grant select (vote_id, votes), update (vote_id, votes) on watermark to tally_worker;
-- Its row is always the default one. The whole table, for the row's xmin.
grant select, insert (one), delete on incarnation to tally_worker;
-- It notes those that are idle, finds those that are gone, and forgets them.
grant select (name, noted_at, idle_at), update (noted_at, idle_at), delete on writer_connection to tally_worker;

-- Reports: read what was voted on and every vote.
grant select on item, vote to tally_report;
