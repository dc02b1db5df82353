-- Four roles, each with only what its statements need. `tally migrate` runs this each time, after
-- the migrations and the functions. Afterwards the roles have exactly the grants below on Tally's
-- tables, whatever they had before.
--
-- The roles cannot log in. An operator creates logins in them:
--   create role web login password '…' in role tally_server;

-- Roles belong to the whole cluster, grants to one database. Several logins may run this at
-- once: in one database they take turns here; from another database, a role may be created
-- at any time. The number has no meaning and is Tally's own.
select pg_advisory_xact_lock(7416153280);

do $$
declare
    wanted name;
begin
    foreach wanted in array array['tally_server', 'tally_worker', 'tally_report', 'tally_operator']::name[] loop
        if not exists (select from pg_roles where rolname = wanted) then
            begin
                execute format('create role %I nologin', wanted);
            exception
                -- Someone else has just created it.
                when duplicate_object or unique_violation then null;
            end;
        end if;
    end loop;
    -- The tables are in the schema that the migrations created them in.
    execute format('grant usage on schema %I to tally_server, tally_worker, tally_report, tally_operator', current_schema());
end $$;

revoke all on table item, audited_count, open_item, open_poll, vote, vote_of_voter, vote_range, rule, place, ballot, idempotency_key, api_key, act, vote_address, vote_api_key, recent_change, day_change, total_change, vote_time, import, archive, archived_item, archived_rule, voiding, voided, voter_edit, watermark, epoch, epoch_entry, identity, incarnation, writer_connection, worker, job, job_run, loss, loss_item, outbox, event, full_item, reached_threshold, _sqlx_migrations
    from tally_server, tally_worker, tally_report, tally_operator;
-- Ranges of the ledger are read and written through `vote`.
do $$
declare
    one regclass;
begin
    for one in select inhrelid::regclass from pg_inherits where inhparent = 'vote'::regclass loop
        execute format('revoke all on %s from tally_server, tally_worker, tally_report, tally_operator', one);
    end loop;
end $$;
-- Only cast_votes calls it.
revoke all on function decide_votes from tally_server;
revoke all on sequence item_id_seq, vote_id_seq from tally_server, tally_worker, tally_report, tally_operator;

-- The server creates items, adds votes, and reads exact counts to seed with. It never writes
-- the count columns, which start at their defaults.
grant select (id, name, key, is_hidden, rule_id, takes_down_votes, vote_count, down_count, counted_at),
      insert (name, key, rule_id, takes_down_votes) on item to tally_server;
grant select on audited_count to tally_server;
grant select (id, item_id, created_at, value, change_number, voter_id, poll_id, number),
      insert (id, item_id, value) on vote to tally_server;
grant select (id, item_id, created_at, value, change_number, voter_id, poll_id, number),
      insert (id, item_id, value, voter_id) on vote_of_voter to tally_server;
-- After a failover it notes which of its votes are not there any more.
grant select, insert (token, vote_total, first_stored_at, last_stored_at, first_vote_id, last_vote_id, item_total, is_whole)
    on loss to tally_server;
grant select, insert (loss_id, item_id, vote_total) on loss_item to tally_server;
-- `tally audit` shows what is lost.
grant select on loss, loss_item to tally_worker;
-- It also shows how many votes are in files alone. A server says so of a vote that may be one of them.
grant select (dropped_total) on archive to tally_worker;
grant select (id, first_vote_id, last_vote_id, dropped_total) on archive to tally_server;
grant select (item_id, archive_id) on archived_item to tally_server;
-- Which client a vote came from: it writes that, and reads none of it.
grant insert (vote_id, address_hash) on vote_address to tally_server;
-- Which API key cast a vote: receipts show that to administrators.
grant select, insert (block, api_key_id, vote_ids) on vote_api_key to tally_server;
-- It creates rules. Only cast_votes, which has the owner's rights, stores changes, and writes what
-- a rule stores.
grant select (id, title, key, is_hidden, max_choices, opens_at, closes_at, shows_results, by_ballot, is_secret, voter_count),
      insert (title, key, max_choices, opens_at, closes_at, shows_results, by_ballot, is_secret) on rule to tally_server;
grant select, insert (item_id, max_votes, is_numbered) on place to tally_server;
grant execute on function cast_votes, poll_is_final, edit_item, edit_poll, add_choice, add_ballots to tally_server;
-- It looks up which run of Postgres this is, and searches. Each program asks which programs may run. Whoever
-- writes a name or a count makes an entry in the indexes of words. These do not rely on what everyone may
-- execute, which a cluster may take away.
grant execute on function postgres_run, search_items, search_polls, search_query to tally_server;
grant execute on function postgres_run to tally_worker, tally_operator;
grant execute on function oldest_program to tally_server, tally_worker, tally_operator;
grant execute on function search_text, search_vector to tally_server, tally_worker;
-- Top lists.
grant select on recent_change to tally_server;
-- Whom items and polls are open to.
grant select, insert, update (to_anonymous, to_voters) on open_item to tally_server;
grant select, insert, update (to_voters) on open_poll to tally_server;
-- It looks up, lists and revokes API keys. It cannot create one.
grant execute on function use_api_key, end_api_key to tally_server;
grant select (id, name, scopes, created_at, expires_at, last_used_at, revoked_at) on api_key to tally_server;
-- Each program adds to the trail; `tally trail` reads it.
grant execute on function note_act to tally_server, tally_worker, tally_operator;
-- Each program looks at the sequences when it starts.
grant execute on function late_sequences to tally_server, tally_worker, tally_operator;
grant select on act to tally_operator;
-- The key of a batch of votes.
grant select (key_hash, body_hash), insert (key_hash, body_hash) on idempotency_key to tally_server;
-- The statement that stores votes draws their ids itself. An identity column draws the ids
-- of items, which needs no grant.
grant usage, select on sequence vote_id_seq to tally_server;
grant select (vote_id, reached_at) on watermark to tally_server;
-- It looks at the watermark for the statement that stores votes.
grant execute on function vote_ids_are_new to tally_server;
-- It adds its batch writers' connections, and notes how far their votes are counted.
grant select (name, counted_vote_id, knows_rules), insert (name, counted_vote_id, knows_rules),
      update (counted_vote_id) on writer_connection to tally_server;
-- It notes nothing while workers count in another Redis.
grant select (bucket_count, bucket, entry) on epoch_entry to tally_server;
-- It shows the workers and their jobs, and asks for an audit.
grant select on worker, job, job_run to tally_server;
grant update (asked_at) on job to tally_server;
-- For /health/ready, and to tell Tally's tables from those of others.
grant select (version, checksum) on _sqlx_migrations to tally_server, tally_worker;
-- Which Tally this is.
grant select (id, cell) on identity to tally_server, tally_worker;

-- The sync worker and `tally audit` write counts and the watermark. They read votes, but not
-- who voted.
-- xmin: whether anybody has written the row since.
grant select (id, vote_count, down_count, counted_at, xmin), update (vote_count, down_count, counted_at) on item to tally_worker;
grant select, insert, update (vote_count, down_count) on audited_count to tally_worker;
grant select (id, item_id, value, change_number, created_at) on vote to tally_worker;
-- It makes the next range of the ledger in time, and says if it is late.
grant execute on function add_ranges to tally_worker;
grant select on vote_range to tally_worker;
-- What changed when.
grant select, insert, update (ups, downs, ups_taken_back, downs_taken_back), delete on recent_change to tally_worker;
grant select, insert, update (ups, downs, ups_taken_back, downs_taken_back) on day_change, total_change to tally_worker;
grant select, insert, update on vote_time to tally_worker;
-- The last id that was drawn.
grant select on sequence vote_id_seq to tally_worker;
grant select (vote_id, vote_total, saved_vote_id, reached_at), update (vote_id, vote_total, saved_vote_id, reached_at) on watermark to tally_worker;
-- `for share` asks for the right to update.
grant select (number), update (number) on epoch to tally_worker;
grant select, insert, delete, update (entry, redis, noted_at) on epoch_entry to tally_worker;
-- The row is always the default one. The whole table is granted, for the row's xmin.
grant select, insert (one), delete on incarnation to tally_worker;
-- They see how far each connection is, and find and remove those that are gone.
grant select (name, counted_vote_id), delete on writer_connection to tally_worker;

-- Who is doing which job, and how the last runs went.
grant select (name, fencing_number, holder, lease_until, succeeded_at, asked_at),
      update (fencing_number, holder, lease_until, succeeded_at, asked_at) on job to tally_worker;
grant select, insert (job, fencing_number, worker), update (ended_at, took_micros, outcome, details), delete
    on job_run to tally_worker;

-- Events: it makes those of items, polls and audits through functions, and delivers all.
grant execute on function events_are_made, want_events, note_event, note_item_events, note_poll_events to tally_worker;
grant select, update (tries, refusals, first_tried_at, next_try_at, delivered_at, dead_at, last_problem), delete on event to tally_worker;

-- How each worker is.
grant select, insert, update, delete on worker to tally_worker;

-- What the rules store, without who voted; and the keys and addresses that are old enough to
-- delete.
grant execute on function broken_rules, broken_changes to tally_worker;
grant select (key_hash, created_at), delete on idempotency_key to tally_worker;
grant select (vote_id, noted_at), delete on vote_address to tally_worker;
grant select (id, created_at, address_hashes), update (address_hashes) on voiding to tally_worker;

-- `tally void` takes votes back through functions with the owner's rights, and counts that as a
-- server counts its votes.
grant select on vote, vote_of_voter, vote_address, vote_api_key, voiding, voided to tally_operator;
-- `tally key`. Nobody who logs in reads a hash.
grant select (id, name, scopes, created_at, expires_at, last_used_at, revoked_at),
      insert (key_hash, name, scopes, expires_at), update (expires_at) on api_key to tally_operator;
grant execute on function end_api_key to tally_operator;
grant insert (voter_id, item_id, cast_from, cast_until, reason, until_vote_id, address_hashes, api_key_id) on voiding to tally_operator;
grant execute on function votes_to_void, void_votes, undo_votes to tally_operator;
-- `tally voter` changes whose votes are through functions, too.
grant select on voter_edit to tally_operator;
grant execute on function create_voter_edit, edit_voter to tally_operator;
-- `tally import` stores votes, items and polls through functions, too, and counts as `tally void` does.
grant select, insert (file_hash, file_name, source, after_vote_id, until_vote_id), update (ended_at) on import to tally_operator;
grant execute on function import_votes, import_items, import_polls, reserve_ids to tally_operator;
-- `tally archive` finds what has closed. Functions mark it and drop its votes.
grant select on archive, archived_item, archived_rule to tally_operator;
grant select (id, title, key, closes_at, archive_id) on rule to tally_operator;
grant execute on function archive_faults, begin_archive, check_archive, drop_archived, cancel_archive,
    drop_empty_range to tally_operator;
grant select (id, key, name, vote_count, down_count, counted_at, rule_id) on item to tally_operator;
grant select on audited_count to tally_operator;
grant usage, select on sequence vote_id_seq to tally_operator;
grant select (vote_id) on watermark to tally_operator;
grant execute on function vote_ids_are_new to tally_operator;
grant select (name, counted_vote_id, knows_rules), insert (name, counted_vote_id, knows_rules),
      update (counted_vote_id) on writer_connection to tally_operator;
grant select (bucket_count, bucket, entry) on epoch_entry to tally_operator;
grant select (seen_at) on worker to tally_operator;
grant select (version, checksum) on _sqlx_migrations to tally_operator;
grant select (id, cell) on identity to tally_operator;

-- `tally event` shows events, and has them sent again.
grant select, update (tries, refusals, first_tried_at, next_try_at, delivered_at, dead_at) on event to tally_operator;

-- Reports read all items, all votes, the rules, voidings and recent changes. They read no ballots:
-- a ballot's hash says who had it. They read no addresses: of a voiding, they read everything but
-- its address hashes.
grant select on item, audited_count, open_item, open_poll, vote, vote_of_voter, vote_range, rule, place, voided, import, archive, archived_item, archived_rule, vote_api_key, recent_change, day_change, total_change, vote_time, loss, loss_item to tally_report;
grant select (id, voter_id, item_id, cast_from, cast_until, reason, created_at, until_vote_id, done_vote_id,
              undone_vote_id, api_key_id) on voiding to tally_report;
-- `tally export` says of which Tally its rows are, and up to which vote. A server that is given this login for the
-- operator's asks a new connection for the cell first, and says then what the login may not do.
grant select (id, cell) on identity to tally_report;
grant select (vote_id, vote_total, reached_at) on watermark to tally_report;
grant select (reached_at, saved_vote_id) on watermark to tally_operator;

-- The views of migrations/report/ have the owner's rights. They are in the schema that shows this Tally's items.
do $$
declare
    shown name;
    one name;
begin
    select pg_namespace.nspname into shown
    from pg_class
    join pg_namespace on pg_namespace.oid = pg_class.relnamespace
    where pg_class.relname = 'items' and pg_namespace.nspname in ('report', current_schema() || '_report')
      and exists (
          select from pg_rewrite
          join pg_depend on pg_depend.classid = 'pg_rewrite'::regclass and pg_depend.objid = pg_rewrite.oid
          where pg_rewrite.ev_class = pg_class.oid
            and pg_depend.refclassid = 'pg_class'::regclass and pg_depend.refobjid = 'item'::regclass);
    -- Whoever owns the tables may not have been allowed to create the schema.
    if shown is null then
        return;
    end if;
    execute format('grant usage on schema %I to tally_report', shown);
    foreach one in array array['items', 'polls', 'poll_results', 'poll_votes_by_day', 'votes', 'votes_by_api_key',
                               'votes_by_quarter_hour', 'votes_by_hour', 'votes_by_day', 'item_votes_by_day', 'recent_item_votes',
                               'voidings', 'voided_votes', 'freshness', 'audits', 'jobs', 'losses']::name[] loop
        execute format('grant select on %I.%I to tally_report', shown, one);
    end loop;
    foreach one in array array['votes_by_day_in', 'votes_by_hour_in', 'voters_by_day_in', 'changes_by_day_in', 'top_movers']::name[] loop
        execute format('grant execute on function %I.%I to tally_report', shown, one);
    end loop;
end $$;
