//! How the limits relate: what must be longer or larger than what, and why.
//!
//! A limit stands with the code that it limits. Its relations to other limits stand here. A program
//! that breaks a rule does not compile.

use std::time::Duration;

use crate::client::{HEALTH_LIMIT, REQUEST_LIMIT};
use crate::config::{
    AUDIT_PAGE_DEFAULT_ITEMS, DURATION_LIMIT, FLUSH_EVERY_DEFAULT, FLUSH_PAGE_DEFAULT_COUNTERS, PAGE_LIMIT,
    REPLAY_DEFAULT_CONNECTIONS, REPLAY_LIMIT_CONNECTIONS, SERVED_LIMIT_CONNECTIONS, WRITER_STALL_LEAST,
    WRITER_STALL_LIMIT_DEFAULT,
};
use crate::counts::{READ_BATCH_LIMIT_ITEMS, READ_QUEUE_LIMIT_READS};
use crate::domain::{ItemName, VoterId};
use crate::ledger::{
    ANSWER_MARGIN, DECIDE_LIMIT, FULLNESS_LIMIT, IDLE_TRANSACTION_LIMIT, JOB_LEASE_LIFE, KNOWN_LIMIT_BLOCKS,
    NAMES_LIMIT_ITEMS, ROLL_UP_LIMIT_IDS, SERVER_STATEMENT_LIMIT, SUM_REST_LIMIT, WORKER_ALIVE_LIMIT,
    WORKER_LIMIT_SILENCE, WORKER_STATEMENT_LIMIT, WRITE_REST_LIMIT, WRITER_KEEPALIVE,
};
use crate::live::{
    BACK_PRESSURE_LIMIT, CALL_LIMIT_KEYS, LEASE_LIMIT_MS, REPAIR_LIMIT_ITEMS, SUSPECTS_LIMIT_ITEMS,
};
use crate::live::{SERVER_ANSWER_LIMIT, WORKER_ANSWER_LIMIT};
use crate::replay::LATENCY_LIMIT_US;
use crate::sync::{
    BEAT_EVERY, COLD_TOKEN_LEAST, COLLECT_LIMIT, COLLECT_LIMIT_COUNTERS, EVENT_SEND_LIMIT_AGE,
    FLUSH_INTERVAL_LIMIT, GENTLE_FOR, GENTLE_LIMIT_COUNTERS, JOB_WAIT_LIMIT, RENEW_EVERY, RENEW_LIMIT,
    ROLL_UP_EVERY, VOTING_CHUNK_IDS,
};
use crate::telemetry::{LARGEST_BATCH_BOUND, LARGEST_SECONDS_BOUND};
use crate::votes::{
    AGAIN_LIMIT, BATCH_LIMIT_VOTES, BATCH_WRITERS_PER_THREAD, BATCHES_LIMIT, COLD_LIMIT, NOTE_EVERY,
    QUEUE_LEAST_VOTES, QUEUE_LIMIT_VOTES, SEED_LIMIT,
};
use crate::web::limits::{
    BATCH_BODY_LIMIT_BYTES, BODY_LIMIT, BODY_LIMIT_BYTES, CONNECTIONS_LIMIT, HEAD_LIMIT_BYTES,
    LISTS_LIMIT_BY_ADDRESS, THREADS_LIMIT,
};
use crate::web::{FOUND_LIMIT_AGE, FRESH_LIMIT, LOOK_LIMIT};
use crate::web::{KNOWN_LIMIT_AGE, PAGE_DEFAULT_ITEMS, PAGE_LIMIT_ITEMS, REFUSAL_LIMIT_BYTES};
use crate::{ledger, live};

/// Milliseconds.
const fn ms(duration: Duration) -> u128 {
    duration.as_millis()
}

/// The number that a text begins with.
const fn number(text: &str) -> u128 {
    let digits = text.as_bytes();
    let (mut at, mut number) = (0, 0);
    while at < digits.len() && digits[at].is_ascii_digit() {
        number = number * 10 + (digits[at] - b'0') as u128;
        at += 1;
    }
    assert!(at > 0, "it begins with a number");
    number
}

/// A setting's default in milliseconds; it is written in whole seconds.
const fn default_ms(text: &str) -> u128 {
    assert!(text.as_bytes()[text.len() - 1] == b's' && text.as_bytes()[text.len() - 2].is_ascii_digit());
    number(text) * 1000
}

/// How long a batch writer waits for one statement.
const STATEMENT_MS: u128 = ms(SERVER_STATEMENT_LIMIT) + ms(ANSWER_MARGIN);
/// How long it takes to find a connection closed and to make another one.
const NEW_CONNECTION_MS: u128 = ms(ledger::CHECK_LIMIT) + ms(ledger::CONNECT_LIMIT);
/// How long a decision takes: the look at full items, and its statement. The look may cost the
/// connection.
const DECISION_MS: u128 = ms(FULLNESS_LIMIT) + ms(ledger::CONNECT_LIMIT) + STATEMENT_MS;
/// How long one call to Redis may take with a new connection.
const REDIS_CALL_MS: u128 = ms(live::CONNECT_LIMIT) + ms(live::SERVER_ANSWER_LIMIT);
/// How long a stored batch may take to get into the live counts. The last round may begin shortly
/// before the limit, and its exact counts are cancelled at the limit.
const COUNT_MS: u128 = ms(SEED_LIMIT) + ms(ledger::CHECK_LIMIT) + 2 * REDIS_CALL_MS;
/// Postgres ends a batch writer's connection after this long without an answer.
const KEEPALIVE_MS: u128 =
    (number(WRITER_KEEPALIVE[0].1) + number(WRITER_KEEPALIVE[1].1) * number(WRITER_KEEPALIVE[2].1)) * 1000;

// Queues and batches.

// Each connection waits for one answer at a time: a longer queue would only be full of batches.
const _: () = assert!(QUEUE_LIMIT_VOTES < CONNECTIONS_LIMIT && READ_QUEUE_LIMIT_READS < CONNECTIONS_LIMIT);
// A full batch can wait while another one is stored.
const _: () =
    assert!(QUEUE_LIMIT_VOTES >= BATCH_LIMIT_VOTES && READ_QUEUE_LIMIT_READS >= READ_BATCH_LIMIT_ITEMS);
// Each thread's queue takes all votes of one request.
const _: () = assert!(QUEUE_LEAST_VOTES >= crate::web::limits::REQUEST_LIMIT_VOTES);
// Every thread's share of the queues is at least one request.
const _: () = assert!(QUEUE_LIMIT_VOTES >= THREADS_LIMIT && READ_QUEUE_LIMIT_READS >= THREADS_LIMIT);
// A batch with an item of another block in each vote fits into what is known, as does a batch of reads.
const _: () = assert!(KNOWN_LIMIT_BLOCKS >= BATCH_LIMIT_VOTES && NAMES_LIMIT_ITEMS >= READ_BATCH_LIMIT_ITEMS);
// While one batch writer reads exact counts, another one stores.
const _: () = assert!(BATCH_WRITERS_PER_THREAD >= 2);
// The histograms cover all batch sizes and all times that a batch may take.
const _: () = assert!(LARGEST_BATCH_BOUND >= BATCH_LIMIT_VOTES as f64);
const _: () = assert!(LARGEST_SECONDS_BOUND * 1000.0 >= (STATEMENT_MS + ms(SEED_LIMIT)) as f64);

// Counting and seeding.

// A lease outlives the read of the exact counts and the seed. Otherwise another batch would replace
// it meanwhile, and every seed would come too late.
const _: () = assert!(LEASE_LIMIT_MS as u128 > COUNT_MS);
// A batch writer counts as stalled only after longer than its slowest batch takes: its statement,
// the lookup of first votes, the counting, and the note of it.
const _: () = assert!(default_ms(WRITER_STALL_LIMIT_DEFAULT) >= ms(WRITER_STALL_LEAST));
const _: () =
    assert!(ms(WRITER_STALL_LEAST) > 2 * STATEMENT_MS + COUNT_MS + ms(NOTE_EVERY) + ms(BATCHES_LIMIT));
// A vote finds its item cold long before a roll-up may pass it uncounted. The worker's look at the writer may
// be older than the vote by as long as roll-ups are apart.
const _: () = assert!(ms(WRITER_STALL_LEAST) > ms(COLD_LIMIT) + 2 * ms(ROLL_UP_EVERY));
// Who remembers that there was no live count asks Redis again while the token of cold votes still stands.
const _: () = assert!(ms(COLD_TOKEN_LEAST) > 2 * ms(KNOWN_LIMIT_AGE));
// Postgres cancels a statement before its writer gives up: only a cancellation is certain.
const _: () = assert!(ms(ANSWER_MARGIN) > 0);
// A request that is held back for the repair task goes on before Redis would have timed out.
const _: () = assert!(ms(BACK_PRESSURE_LIMIT) < ms(SERVER_ANSWER_LIMIT));
// The repair task takes only some of the suspects at a time.
const _: () = assert!(REPAIR_LIMIT_ITEMS < SUSPECTS_LIMIT_ITEMS);

// Clients.

// A client's limit is longer than the server's limits together, so that the answer comes first.
// This one is for a vote whose batch is stored at once.
const _: () = assert!(ms(REQUEST_LIMIT) > ms(BODY_LIMIT) + NEW_CONNECTION_MS + 2 * STATEMENT_MS + COUNT_MS);
// The same for a vote that is decided after its item was looked up, and that may be on a full item.
const _: () =
    assert!(ms(REQUEST_LIMIT) > ms(BODY_LIMIT) + NEW_CONNECTION_MS + STATEMENT_MS + DECISION_MS + COUNT_MS);
// The same for a request that is retried while others of its voter come first.
const _: () = assert!(ms(REQUEST_LIMIT) > ms(BODY_LIMIT) + ms(AGAIN_LIMIT) + DECISION_MS + COUNT_MS);
// The health check waits for an answer. A load balancer that waits 200 ms gets one, too.
const _: () = assert!(ms(HEALTH_LIMIT) > ms(FRESH_LIMIT) && 200 > ms(FRESH_LIMIT));
// What a look found stays known while the next look is under way, until that is cut off.
const _: () = assert!(ms(FOUND_LIMIT_AGE) > 2 * ms(LOOK_LIMIT));
// `tally replay` can measure every answer that it waits for.
const _: () = assert!(LATENCY_LIMIT_US as u128 > REQUEST_LIMIT.as_micros());
// How much memory one connection may hold, as `config::SERVED_LIMIT_CONNECTIONS` says.
const _: () = assert!(HEAD_LIMIT_BYTES + BATCH_BODY_LIMIT_BYTES <= 256 * 1024);
// A refused client's whole body is read, so that it gets the answer.
const _: () = assert!(REFUSAL_LIMIT_BYTES > BODY_LIMIT_BYTES);
// The longest value fits into a body. JSON may write a byte as \u0000, and a character as two of
// these.
const _: () = assert!(
    BODY_LIMIT_BYTES > 6 * VoterId::LIMIT_BYTES && BODY_LIMIT_BYTES > 12 * ItemName::LIMIT_CHARACTERS
);

// Connections.

// Whoever waits for one of the pool's connections has time to make one.
const _: () = assert!(ms(ledger::ACQUIRE_LIMIT) > ms(ledger::CONNECT_LIMIT));
const _: () = assert!(ms(live::ACQUIRE_LIMIT) > ms(live::CONNECT_LIMIT));
// One client address does not queue for connections of public reads. Who comes next waits for one
// statement of each, and not for so long that it gives up.
const _: () = assert!(LISTS_LIMIT_BY_ADDRESS <= ledger::PUBLIC_POOL_LIMIT_CONNECTIONS as usize);
const _: () = assert!(ms(ledger::PUBLIC_STATEMENT_LIMIT) < ms(ledger::ACQUIRE_LIMIT));
// Two servers and two workers fit into the 97 connections that a Postgres with its default settings
// gives to logins like theirs. Each thread has its batch writers, a writer of decisions, and a
// reader.
const _: () = assert!(
    2 * (THREADS_LIMIT * (BATCH_WRITERS_PER_THREAD + 2)
        + (ledger::SERVER_POOL_LIMIT_CONNECTIONS
            + ledger::PUBLIC_POOL_LIMIT_CONNECTIONS
            + ledger::PROBE_POOL_LIMIT_CONNECTIONS) as usize)
        + 2 * ledger::POOL_LIMIT_CONNECTIONS as usize
        <= 97
);
// An operator's requests to servers, and `tally void`, come on top while they last. They use few
// connections.
const _: () = assert!(ledger::OPERATOR_POOL_LIMIT_CONNECTIONS < ledger::SERVER_POOL_LIMIT_CONNECTIONS);
// The system ends an unanswered connection when the probes of an idle one would end it.
const _: () = assert!(number(WRITER_KEEPALIVE[3].1) == KEEPALIVE_MS);
// The worker.

// A lease outlives two renewals that fail. The transaction of a stalled worker ends before its
// lease does, so that a job can be taken over as soon as the lease has run out.
const _: () =
    assert!(ms(JOB_LEASE_LIFE) > 3 * ms(RENEW_EVERY) && ms(JOB_LEASE_LIFE) > ms(IDLE_TRANSACTION_LIMIT));
// Postgres does not end a transaction that only rests.
const _: () = assert!(
    ms(SUM_REST_LIMIT) < ms(IDLE_TRANSACTION_LIMIT) && ms(WRITE_REST_LIMIT) < ms(IDLE_TRANSACTION_LIMIT)
);
// A command waits for longer than a killed worker keeps its job, and for less than a hanging worker
// does.
// A worker that stalls with events in its hands sends none of them once another one may have taken the job over. It
// read them under a lease that it had renewed by then.
const _: () = assert!(ms(EVENT_SEND_LIMIT_AGE) + ms(RENEW_EVERY) < ms(JOB_LEASE_LIFE));
const _: () = assert!(ms(JOB_WAIT_LIMIT) > 2 * ms(JOB_LEASE_LIFE) && ms(RENEW_LIMIT) > ms(JOB_WAIT_LIMIT));

// A worker is shown as silent for a while before it is forgotten, but not for one late heartbeat.
const _: () = assert!(
    ms(WORKER_LIMIT_SILENCE) > 2 * ms(WORKER_ALIVE_LIMIT) && ms(WORKER_ALIVE_LIMIT) > 2 * ms(BEAT_EVERY)
);
// While the audit waits, the transactions of servers end, and those of workers that were cut off.
const _: () = assert!(ms(DECIDE_LIMIT) > STATEMENT_MS && ms(DECIDE_LIMIT) > ms(IDLE_TRANSACTION_LIMIT));
// Nobody waits for the worker: its statements and calls may take longer than the server's.
const _: () = assert!(ms(WORKER_STATEMENT_LIMIT) > ms(SERVER_STATEMENT_LIMIT));
const _: () = assert!(ms(WORKER_ANSWER_LIMIT) > ms(SERVER_ANSWER_LIMIT));
// The roll-up takes smaller chunks while voters are at work.
const _: () = assert!(VOTING_CHUNK_IDS < ROLL_UP_LIMIT_IDS);
// A scheduled scan is gentle for a part of the time until the next one, and writes often.
const _: () = assert!(
    ms(GENTLE_FOR) < default_ms(FLUSH_EVERY_DEFAULT) && ms(COLLECT_LIMIT) < default_ms(FLUSH_EVERY_DEFAULT)
);
// Flushes get rarer, also with the default.
const _: () = assert!(ms(FLUSH_INTERVAL_LIMIT) > default_ms(FLUSH_EVERY_DEFAULT));
// A gentle scan passes on at once what fits into one call to Redis, and only part of what it may
// collect.
const _: () =
    assert!(GENTLE_LIMIT_COUNTERS <= CALL_LIMIT_KEYS && GENTLE_LIMIT_COUNTERS < COLLECT_LIMIT_COUNTERS);

// Settings.

// Each default is a value that its setting accepts.
const _: () = assert!(FLUSH_PAGE_DEFAULT_COUNTERS <= PAGE_LIMIT && AUDIT_PAGE_DEFAULT_ITEMS <= PAGE_LIMIT);
const _: () = assert!(CONNECTIONS_LIMIT <= SERVED_LIMIT_CONNECTIONS);
const _: () = assert!(REPLAY_DEFAULT_CONNECTIONS <= REPLAY_LIMIT_CONNECTIONS);
const _: () = assert!(PAGE_DEFAULT_ITEMS <= PAGE_LIMIT_ITEMS);
// Redis' scripts calculate with microseconds in doubles, which are exact up to 2^53.
const _: () = assert!(DURATION_LIMIT.as_micros() < 1 << 53);
