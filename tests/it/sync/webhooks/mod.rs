//! Events: made in the transaction of what happened, and delivered to a webhook.

mod delivery;
mod events;
mod faults;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use ring::hmac;
use serde_json::Value;
use sqlx::PgPool;
use tally::sync::{Webhook, WebhookOptions};
use testkit::receiver::{Delivery, Receiver};

use crate::helpers::programs::{Program, start_worker};
use crate::helpers::stores::Stores;

const KEY: &str = "1f1e1d1c1b1a191817161514131211100f0e0d0c0b0a09080706050403020100";

/// A worker's process that sends events to this receiver.
fn worker_for(receiver: &Receiver, stores: &Stores, name: &str, settings: &[(&str, &str)]) -> Program {
    let webhook = [
        ("TALLY_WEBHOOK_URL", receiver.url.as_str()),
        ("TALLY_WEBHOOK_KEYS", KEY),
    ];
    start_worker(stores, name, &[&webhook, settings].concat())
}

/// A webhook that sends to this receiver, with these keys.
fn webhook(receiver: &Receiver, keys: &str) -> Webhook {
    let options = WebhookOptions {
        url: receiver.url.parse().expect("a URL"),
        keys: keys.parse().expect("keys"),
        thresholds: "".parse().expect("none"),
    };
    Webhook::new(&options).expect("a client")
}

/// Whether one of its signatures is by this key, as the specification's libraries check.
fn is_signed_by(delivery: &Delivery, key: &str) -> bool {
    let key: Vec<u8> = (0..key.len() / 2)
        .map(|at| u8::from_str_radix(&key[2 * at..2 * at + 2], 16).expect("a digit"))
        .collect();
    let key = hmac::Key::new(hmac::HMAC_SHA256, &key);
    let headers = &delivery.headers;
    let mut signed = format!("{}.{}.", delivery.id(), headers["webhook-timestamp"]).into_bytes();
    signed.extend(&delivery.body);
    let mut signatures = headers["webhook-signature"].split(' ');
    signatures.any(|signature| {
        let signature = signature.strip_prefix("v1,").expect("a version");
        let signature = BASE64_STANDARD.decode(signature).expect("base64");
        hmac::verify(&key, &signed, &signature).is_ok()
    })
}

/// Switches events on, as a worker does.
async fn want_events(pool: &PgPool) {
    execute(pool, "select want_events('{}')").await;
}

async fn execute(pool: &PgPool, statement: &str) {
    sqlx::raw_sql(statement).execute(pool).await.expect(statement);
}

/// Makes so many events about each of these subjects, in turns. Each says which of its subject it is.
async fn make_events(pool: &PgPool, subjects: i32, each: i32) {
    sqlx::query(
        "select note_event('x', 'item:' || subject, null, jsonb_build_object('subject', subject, 'number', number))
         from generate_series(1, $2) as number, generate_series(1, $1) as subject order by number, subject",
    )
    .bind(subjects)
    .bind(each)
    .execute(pool)
    .await
    .expect("events");
}

async fn number(pool: &PgPool, condition: &str) -> i64 {
    sqlx::query_scalar(&format!("select count(*) from event where {condition}"))
        .fetch_one(pool)
        .await
        .expect(condition)
}

/// Lets all events be tried again at once.
async fn let_try(pool: &PgPool) {
    execute(pool, "update event set next_try_at = clock_timestamp()").await;
}

/// The numbers of the events of each subject, as the receiver took them.
fn numbers_of(receiver: &Receiver, subject: i32) -> Vec<i64> {
    let taken = receiver.deliveries().into_iter().filter(|one| one.is_taken);
    taken
        .map(|one| one.json()["data"].clone())
        .filter(|data: &Value| data["subject"] == subject)
        .map(|data| data["number"].as_i64().expect("a number"))
        .collect()
}
