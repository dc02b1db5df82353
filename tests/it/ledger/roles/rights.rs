//! What each role may do in Postgres, line by line.

use std::collections::BTreeSet;

use reqwest::{Method, StatusCode};
use serde_json::json;
use tally::domain::ItemId;

use super::connect;
use crate::helpers::eventually;
use crate::helpers::stores::Stores;
use crate::helpers::tally::Tally;

/// What each role may do, a line for each table, sequence and function.
/// `everyone` is any login. A table without column names means all its columns, also later ones.
const RIGHTS: &str = "\
everyone item_is_permanent: execute
everyone oldest_program: execute
everyone postgres_run: execute
everyone refuse_change_of_trail: execute
everyone rule_is_known_to_writers: execute
everyone search_items: execute
everyone search_polls: execute
everyone search_query: execute
everyone search_text: execute
everyone search_vector: execute
everyone shown_name: execute
everyone vote_ids_are_new: execute
everyone vote_is_append_only: execute
everyone vote_is_archived_first: execute
everyone writer_connection_knows_rules: execute
tally_server _sqlx_migrations: select (version, checksum)
tally_server add_ballots: execute
tally_server add_choice: execute
tally_server api_key: select (id, name, scopes, created_at, expires_at, last_used_at, revoked_at)
tally_server archive: select (id, first_vote_id, last_vote_id, dropped_total)
tally_server archived_item: select (item_id, archive_id)
tally_server audited_count: select
tally_server cast_votes: execute
tally_server edit_item: execute
tally_server edit_poll: execute
tally_server end_api_key: execute
tally_server epoch_entry: select (bucket_count, bucket, entry)
tally_server idempotency_key: insert (key_hash, body_hash), select (key_hash, body_hash)
tally_server identity: select (id, cell)
tally_server item: insert (name, rule_id, takes_down_votes, key), select (id, name, vote_count, counted_at, down_count, rule_id, takes_down_votes, key, is_hidden)
tally_server job: select, update (asked_at)
tally_server job_run: select
tally_server late_sequences: execute
tally_server loss: insert (token, vote_total, first_stored_at, last_stored_at, first_vote_id, last_vote_id, item_total, is_whole), select
tally_server loss_item: insert (loss_id, item_id, vote_total), select
tally_server note_act: execute
tally_server oldest_program: execute
tally_server open_item: insert, select, update (to_anonymous, to_voters)
tally_server open_poll: insert, select, update (to_voters)
tally_server place: insert (item_id, max_votes, is_numbered), select
tally_server poll_is_final: execute
tally_server postgres_run: execute
tally_server recent_change: select
tally_server rule: insert (title, max_choices, opens_at, closes_at, shows_results, key, by_ballot, is_secret), select (id, title, max_choices, opens_at, closes_at, shows_results, voter_count, key, is_hidden, by_ballot, is_secret)
tally_server search_items: execute
tally_server search_polls: execute
tally_server search_query: execute
tally_server search_text: execute
tally_server search_vector: execute
tally_server use_api_key: execute
tally_server vote: insert (id, item_id, value), select (id, item_id, created_at, value, change_number, voter_id, poll_id, number)
tally_server vote_address: insert (vote_id, address_hash)
tally_server vote_api_key: insert (block, api_key_id, vote_ids), select
tally_server vote_id_seq: select, usage
tally_server vote_ids_are_new: execute
tally_server vote_of_voter: insert (id, item_id, value, voter_id), select (id, item_id, created_at, value, change_number, voter_id, poll_id, number)
tally_server watermark: select (vote_id, reached_at)
tally_server worker: select
tally_server writer_connection: insert (name, counted_vote_id, knows_rules), select (name, counted_vote_id, knows_rules), update (counted_vote_id)
tally_worker _sqlx_migrations: select (version, checksum)
tally_worker add_ranges: execute
tally_worker archive: select (dropped_total)
tally_worker audited_count: insert, select, update (vote_count, down_count)
tally_worker broken_changes: execute
tally_worker broken_rules: execute
tally_worker day_change: insert, select, update (ups, downs, ups_taken_back, downs_taken_back)
tally_worker epoch: select (number), update (number)
tally_worker epoch_entry: delete, insert, select, update (entry, redis, noted_at)
tally_worker event: delete, select, update (tries, refusals, first_tried_at, next_try_at, delivered_at, dead_at, last_problem)
tally_worker events_are_made: execute
tally_worker idempotency_key: delete, select (key_hash, created_at)
tally_worker identity: select (id, cell)
tally_worker incarnation: delete, insert (one), select
tally_worker item: select (xmin, id, vote_count, counted_at, down_count), update (vote_count, counted_at, down_count)
tally_worker job: select (name, fencing_number, holder, lease_until, succeeded_at, asked_at), update (fencing_number, holder, lease_until, succeeded_at, asked_at)
tally_worker job_run: delete, insert (job, fencing_number, worker), select, update (ended_at, took_micros, outcome, details)
tally_worker late_sequences: execute
tally_worker loss: select
tally_worker loss_item: select
tally_worker note_act: execute
tally_worker note_event: execute
tally_worker note_item_events: execute
tally_worker note_poll_events: execute
tally_worker oldest_program: execute
tally_worker postgres_run: execute
tally_worker recent_change: delete, insert, select, update (ups, downs, ups_taken_back, downs_taken_back)
tally_worker search_text: execute
tally_worker search_vector: execute
tally_worker total_change: insert, select, update (ups, downs, ups_taken_back, downs_taken_back)
tally_worker voiding: select (id, created_at, address_hashes), update (address_hashes)
tally_worker vote: select (id, item_id, created_at, value, change_number)
tally_worker vote_address: delete, select (vote_id, noted_at)
tally_worker vote_id_seq: select
tally_worker vote_range: select
tally_worker vote_time: insert, select, update
tally_worker want_events: execute
tally_worker watermark: select (vote_id, vote_total, saved_vote_id, reached_at), update (vote_id, vote_total, saved_vote_id, reached_at)
tally_worker worker: delete, insert, select, update
tally_worker writer_connection: delete, select (name, counted_vote_id)
tally_operator _sqlx_migrations: select (version, checksum)
tally_operator act: select
tally_operator api_key: insert (key_hash, name, scopes, expires_at), select (id, name, scopes, created_at, expires_at, last_used_at, revoked_at), update (expires_at)
tally_operator archive: select
tally_operator archive_faults: execute
tally_operator archived_item: select
tally_operator archived_rule: select
tally_operator audited_count: select
tally_operator begin_archive: execute
tally_operator cancel_archive: execute
tally_operator check_archive: execute
tally_operator create_voter_edit: execute
tally_operator drop_archived: execute
tally_operator drop_empty_range: execute
tally_operator edit_voter: execute
tally_operator end_api_key: execute
tally_operator epoch_entry: select (bucket_count, bucket, entry)
tally_operator event: select, update (tries, refusals, first_tried_at, next_try_at, delivered_at, dead_at)
tally_operator identity: select (id, cell)
tally_operator import: insert (file_hash, file_name, source, after_vote_id, until_vote_id), select, update (ended_at)
tally_operator import_items: execute
tally_operator import_polls: execute
tally_operator import_votes: execute
tally_operator item: select (id, name, vote_count, counted_at, down_count, rule_id, key)
tally_operator late_sequences: execute
tally_operator note_act: execute
tally_operator oldest_program: execute
tally_operator postgres_run: execute
tally_operator reserve_ids: execute
tally_operator rule: select (id, title, closes_at, key, archive_id)
tally_operator undo_votes: execute
tally_operator void_votes: execute
tally_operator voided: select
tally_operator voiding: insert (voter_id, item_id, cast_from, cast_until, reason, until_vote_id, address_hashes, api_key_id), select
tally_operator vote: select
tally_operator vote_address: select
tally_operator vote_api_key: select
tally_operator vote_id_seq: select, usage
tally_operator vote_ids_are_new: execute
tally_operator vote_of_voter: select
tally_operator votes_to_void: execute
tally_operator voter_edit: select
tally_operator watermark: select (vote_id, saved_vote_id, reached_at)
tally_operator worker: select (seen_at)
tally_operator writer_connection: insert (name, counted_vote_id, knows_rules), select (name, counted_vote_id, knows_rules), update (counted_vote_id)
tally_report archive: select
tally_report archived_item: select
tally_report archived_rule: select
tally_report audited_count: select
tally_report day_change: select
tally_report identity: select (id, cell)
tally_report import: select
tally_report item: select
tally_report loss: select
tally_report loss_item: select
tally_report open_item: select
tally_report open_poll: select
tally_report place: select
tally_report recent_change: select
tally_report rule: select
tally_report total_change: select
tally_report voided: select
tally_report voiding: select (id, voter_id, item_id, cast_from, cast_until, reason, created_at, until_vote_id, done_vote_id, undone_vote_id, api_key_id)
tally_report vote: select
tally_report vote_api_key: select
tally_report vote_of_voter: select
tally_report vote_range: select
tally_report vote_time: select
tally_report watermark: select (vote_id, vote_total, reached_at)
";

/// The rights in the schema of Tally's tables, in the form of [`RIGHTS`].
pub(super) async fn rights(url: &str) -> BTreeSet<String> {
    let lines: Vec<String> = sqlx::query_scalar(
        r"with granted as (
             select grantee, relname as what, privilege_type, null as column_name, 0 as position
             from pg_class, aclexplode(relacl) where relnamespace = current_schema()::regnamespace
             union all
             select grantee, relname, privilege_type, attname, attnum
             from pg_class join pg_attribute on attrelid = pg_class.oid, aclexplode(attacl)
             where relnamespace = current_schema()::regnamespace
             union all
             -- Without a list of its own a function has the default one.
             select grantee, proname, privilege_type, null, 0
             from pg_proc, aclexplode(coalesce(proacl, acldefault('f', proowner)))
             where pronamespace = current_schema()::regnamespace
         ), single (grantee, what, allowed) as (
             select grantee, what, lower(privilege_type) || coalesce(' (' || string_agg(column_name, ', ' order by position) || ')', '')
             from granted group by grantee, what, privilege_type, column_name is null
         )
         select format('%s %s: %s', case grantee when 0 then 'everyone' else grantee::regrole::text end, what,
                       string_agg(allowed, ', ' order by allowed))
         from single
         where grantee = 0 or grantee in (select oid from pg_roles where rolname like 'tally\_%')
         group by grantee, what
         order by 1",
    )
    .fetch_all(&mut connect(url).await)
    .await
    .expect("Postgres answers");
    lines.into_iter().collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn each_role_has_the_rights_that_are_written_here_and_no_others() {
    let stores = Stores::start().await;
    let granted = rights(&stores.database_url).await;
    let written: BTreeSet<String> = RIGHTS.lines().map(str::to_owned).collect();
    let missing: Vec<&String> = written.difference(&granted).collect();
    let further: Vec<&String> = granted.difference(&written).collect();
    assert!(
        missing.is_empty() && further.is_empty(),
        "missing {missing:#?}, further {further:#?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn programs_work_where_nobody_may_execute_functions_without_a_grant() {
    let tally = Tally::start().await;
    let revoke = "do $$ begin
        execute format('revoke execute on all functions in schema %I from public', current_schema());
    end $$";
    sqlx::raw_sql(revoke)
        .execute(&tally.pool)
        .await
        .expect("the owner may");
    let base = tally.another_server().await;
    let new = json!({ "name": "a name", "key": "k", "max_votes": 5 });
    let (status, item) = tally.send_to(&base, Method::POST, "/v1/items", Some(&new)).await;
    assert_eq!(status, StatusCode::CREATED, "{item}");
    let (status, poll) = tally
        .send_to(
            &base,
            Method::POST,
            "/v1/polls",
            Some(&json!({ "title": "a title", "choices": ["b"] })),
        )
        .await;
    assert_eq!(status, StatusCode::CREATED, "{poll}");
    for path in ["/v1/items?search=name", "/v1/polls?search=title"] {
        let (status, found) = tally.send_to(&base, Method::GET, path, None).await;
        assert_eq!(status, StatusCode::OK, "{found}");
    }
    let vote = json!({ "voter_id": "ada" });
    let (status, cast) = tally
        .send_to(&base, Method::POST, "/v1/items/key:k/votes", Some(&vote))
        .await;
    assert_eq!(status, StatusCode::CREATED, "{cast}");
    let item = ItemId::new(item["id"].as_i64().expect("an id")).expect("positive");
    tally.assert_exact_when_quiescent(item).await;
    let void = json!({ "voter_id": "ada", "reason": "x", "dry_run": false });
    let (status, voiding) = tally
        .send_to(&base, Method::POST, "/v1/voidings", Some(&void))
        .await;
    assert_eq!(status, StatusCode::ACCEPTED, "{voiding}");
    eventually("the voiding is done", async || {
        let path = format!("/v1/voidings/{}", voiding["id"]);
        let (_, voiding) = tally.send_to(&base, Method::GET, &path, None).await;
        (voiding["voided_votes"] == 1).then_some(())
    })
    .await;
}
