//! Plain load: anonymous votes over raw connections, each sent once and answered.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, bail};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};

/// How often an open loop sends what has come due.
const TICK: Duration = Duration::from_millis(2);
/// How long an answer may take. Longer than any limit of the server.
const ANSWER_LIMIT: Duration = Duration::from_secs(30);

/// What became of requests.
#[derive(Debug, Default)]
pub struct Answers {
    pub accepted: AtomicU64,
    /// Of these, with `vote_count: null`.
    pub without_count: AtomicU64,
    /// 503 with Retry-After.
    pub refused: AtomicU64,
    /// Anything else, and no answer at all.
    pub other: AtomicU64,
}

impl Answers {
    pub fn accepted(&self) -> u64 {
        self.accepted.load(Ordering::Relaxed)
    }

    pub fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    pub fn other(&self) -> u64 {
        self.other.load(Ordering::Relaxed)
    }
}

/// When a connection sends its next vote.
#[derive(Clone)]
enum Pace {
    /// As soon as it has its answer.
    Closed(Arc<AtomicBool>),
    /// When one is due.
    Open(Arc<Semaphore>),
}

/// Connections that cast votes.
pub struct Load {
    pub answers: Arc<Answers>,
    pace: Pace,
    connections: JoinSet<()>,
}

impl Load {
    /// A closed loop: every connection always has one vote under way.
    pub fn closed(servers: &[SocketAddr], items: i64, connections: usize) -> Self {
        Self::start(
            servers,
            items,
            connections,
            Pace::Closed(Arc::new(AtomicBool::new(false))),
        )
    }

    fn start(servers: &[SocketAddr], items: i64, connections: usize, pace: Pace) -> Self {
        let answers = Arc::new(Answers::default());
        let mut running = JoinSet::new();
        for number in 0..connections {
            let server = servers[number % servers.len()];
            let voting = vote(
                server,
                number as i64 % items + 1,
                pace.clone(),
                Arc::clone(&answers),
            );
            running.spawn(voting);
        }
        Self {
            answers,
            pace,
            connections: running,
        }
    }

    /// An open loop of this many votes a second for so long, over this many
    /// connections. Returns the answers and how many votes found no free connection.
    pub async fn open(
        server: SocketAddr,
        items: i64,
        connections: usize,
        rate: f64,
        lasting: Duration,
    ) -> anyhow::Result<(Arc<Answers>, u64)> {
        let due = Arc::new(Semaphore::new(0));
        let load = Self::start(&[server], items, connections, Pace::Open(Arc::clone(&due)));
        let began = Instant::now();
        let mut ticks = interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        let mut sent = 0_u64;
        while began.elapsed() < lasting {
            ticks.tick().await;
            let by_now = (began.elapsed().as_secs_f64() * rate) as u64;
            due.add_permits(usize::try_from(by_now - sent)?);
            sent = by_now;
        }
        let unsent = due.available_permits() as u64;
        let answers = load.finish().await?;
        Ok((answers, unsent))
    }

    /// Sends no more, and waits for the answers to what is under way.
    pub async fn finish(mut self) -> anyhow::Result<Arc<Answers>> {
        match &self.pace {
            Pace::Closed(over) => over.store(true, Ordering::Relaxed),
            Pace::Open(due) => due.close(),
        }
        while let Some(ended) = self.connections.join_next().await {
            ended?;
        }
        Ok(self.answers)
    }

    /// Votes accepted a second, over so long.
    pub async fn rate(&self, over: Duration) -> f64 {
        let (before, began) = (self.answers.accepted(), Instant::now());
        sleep(over).await;
        (self.answers.accepted() - before) as f64 / began.elapsed().as_secs_f64()
    }
}

async fn vote(server: SocketAddr, item: i64, pace: Pace, answers: Arc<Answers>) {
    let request = format!(
        "POST /v1/items/{item}/votes HTTP/1.1\r\nhost: chaos\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{{}}"
    );
    let mut stream = None;
    let mut buffer = Vec::with_capacity(1024);
    loop {
        match &pace {
            Pace::Closed(over) if over.load(Ordering::Relaxed) => return,
            Pace::Closed(_) => {}
            Pace::Open(due) => match due.acquire().await {
                Ok(permit) => permit.forget(),
                Err(_) => return,
            },
        }
        let asked = tokio::time::timeout(ANSWER_LIMIT, ask(server, &mut stream, &request, &mut buffer)).await;
        let count = match asked {
            Ok(Ok(201)) => {
                if find(&buffer, b"\"vote_count\":null").is_some() {
                    answers.without_count.fetch_add(1, Ordering::Relaxed);
                }
                &answers.accepted
            }
            Ok(Ok(503)) if find(&buffer, b"retry-after: ").is_some() => &answers.refused,
            _ => {
                stream = None;
                &answers.other
            }
        };
        count.fetch_add(1, Ordering::Relaxed);
    }
}

/// Sends one request and reads its answer into `buffer`; returns the status.
async fn ask(
    server: SocketAddr,
    held: &mut Option<TcpStream>,
    request: &str,
    buffer: &mut Vec<u8>,
) -> anyhow::Result<u16> {
    let mut stream = match held.take() {
        Some(stream) => stream,
        None => {
            let stream = TcpStream::connect(server).await?;
            stream.set_nodelay(true)?;
            stream
        }
    };
    stream.write_all(request.as_bytes()).await?;
    buffer.clear();
    loop {
        if stream.read_buf(buffer).await? == 0 {
            bail!("the server hung up");
        }
        let Some(head_bytes) = find(buffer, b"\r\n\r\n") else {
            continue;
        };
        let head = std::str::from_utf8(&buffer[..head_bytes])?;
        let length: usize = head
            .lines()
            .find_map(|line| line.strip_prefix("content-length: "))
            .context("a length")?
            .parse()?;
        if buffer.len() < head_bytes + 4 + length {
            continue;
        }
        let status = head.get(9..12).context("a status")?.parse()?;
        if !head.contains("connection: close") {
            *held = Some(stream);
        }
        return Ok(status);
    }
}

fn find(bytes: &[u8], text: &[u8]) -> Option<usize> {
    bytes.windows(text.len()).position(|window| window == text)
}
