//! Readers who ask for the most expensive pages, again and again, without a pause.

use std::collections::BTreeMap;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::seq::IndexedRandom as _;
use rand::{Rng as _, SeedableRng as _};
use reqwest::Client;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::data::{PLAIN_ITEMS, POLLS, WORDS};

/// Whether the server sees one address or many.
#[derive(Clone, Copy)]
pub enum Addresses {
    Shared,
    Own,
}

impl Addresses {
    pub fn name(self) -> &'static str {
        match self {
            Self::Shared => "all of one address",
            Self::Own => "each of an address of its own",
        }
    }

    fn of(self, reader: usize) -> String {
        match self {
            Self::Shared => "192.0.2.1".to_owned(),
            Self::Own => format!("198.51.100.{}", reader % 250 + 1),
        }
    }
}

/// The readers at work.
pub struct Readers {
    stop: watch::Sender<bool>,
    tasks: JoinSet<Read>,
}

/// Requests by kind and answer.
#[derive(Default)]
pub struct Read(BTreeMap<(&'static str, u16), u64>);

impl Read {
    pub fn print(&self, run: Duration) {
        for ((kind, status), requests) in &self.0 {
            println!(
                "  {kind}: {status}, {:.1} a second",
                *requests as f64 / run.as_secs_f64()
            );
        }
    }
}

/// Starts so many readers.
pub fn start(base: &str, count: usize, addresses: Addresses) -> Readers {
    let (stop, stopped) = watch::channel(false);
    let mut tasks = JoinSet::new();
    for reader in 0..count {
        tasks.spawn(read(base.to_owned(), reader, addresses, stopped.clone()));
    }
    Readers { stop, tasks }
}

impl Readers {
    pub async fn stop(mut self) -> Read {
        let _ = self.stop.send(true);
        let mut all = Read::default();
        while let Some(Ok(read)) = self.tasks.join_next().await {
            for (what, requests) in read.0 {
                *all.0.entry(what).or_default() += requests;
            }
        }
        all
    }
}

async fn read(base: String, reader: usize, addresses: Addresses, stopped: watch::Receiver<bool>) -> Read {
    let http = Client::builder()
        .timeout(Duration::from_secs(30))
        .build()
        .expect("a client");
    let address = addresses.of(reader);
    let mut draw = StdRng::seed_from_u64(reader as u64);
    // Pages are read to their ends, as a crawler does.
    let mut page: Option<String> = None;
    let mut read = Read::default();
    while !*stopped.borrow() {
        let (kind, path) = match page.take() {
            Some(path) => ("next page", path),
            None => drawn(&mut draw),
        };
        let get = http
            .get(format!("{base}{path}"))
            .header("x-forwarded-for", &address);
        let Ok(answer) = get.send().await else {
            *read.0.entry((kind, 0)).or_default() += 1;
            continue;
        };
        *read.0.entry((kind, answer.status().as_u16())).or_default() += 1;
        let next = answer.headers().get("link").and_then(|link| link.to_str().ok());
        let next = next.and_then(|link| Some(link.strip_prefix('<')?.split_once('>')?.0.to_owned()));
        let _ = answer.bytes().await;
        page = next.filter(|_| draw.random_bool(0.8));
    }
    read
}

/// A request for one of the expensive pages.
fn drawn(draw: &mut StdRng) -> (&'static str, String) {
    let common = draw.random_range(0..8);
    let rare = draw.random_range(8..WORDS);
    let item = draw.random_range(1..=PLAIN_ITEMS);
    let poll = draw.random_range(1..=POLLS);
    let ids: Vec<String> = (0..1000)
        .map(|_| draw.random_range(1..=PLAIN_ITEMS).to_string())
        .collect();
    let pages = [
        ("search, all match", "/v1/items?search=post&limit=1000".to_owned()),
        (
            "search, common word",
            format!("/v1/items?search=w{common}&limit=1000"),
        ),
        ("search, rare word", format!("/v1/items?search=w{rare}")),
        ("search, two words", format!("/v1/items?search=post%20w{rare}")),
        ("search, no match", "/v1/items?search=post%20nothing".to_owned()),
        ("search of polls", format!("/v1/polls?search=w{common}&limit=100")),
        (
            "search of polls, all match",
            "/v1/polls?search=poll&limit=100".to_owned(),
        ),
        ("list", "/v1/items?limit=1000".to_owned()),
        ("list by ids", format!("/v1/items?ids={}", ids.join(","))),
        ("list of polls", "/v1/polls?limit=100".to_owned()),
        ("top", "/v1/items/top?limit=100".to_owned()),
        (
            "top of the hour",
            "/v1/items/top?by=movement&over=hour&limit=100".to_owned(),
        ),
        ("poll", format!("/v1/polls/key:poll-{poll}")),
        ("history", format!("/v1/items/{item}/history")),
        ("page", "/".to_owned()),
        ("page", "/?search=post".to_owned()),
    ];
    pages.choose(draw).expect("a page").clone()
}
