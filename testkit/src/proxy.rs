//! A TCP proxy before a store, which a test can break.
//! It can cut, stall or delay connections, lose replies, and hold a program at a certain request.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Context;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tokio::time::sleep;

/// How many bytes are forwarded at once.
const BUFFER_BYTES: usize = 64 * 1024;

/// What the proxy does with bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flow {
    /// They pass.
    Open,
    /// They wait, and connections stay open.
    Stalled,
    /// Requests pass. The first byte of an answer cuts the connection.
    RepliesLost,
}

#[derive(Clone, Debug)]
struct State {
    flow: Flow,
    /// How often connections were cut. A connection from before the last cut ends.
    cuts: u64,
    /// The store's port, which changes when the store fails over.
    port: u16,
    /// How late each answer comes.
    answers_late_by: Duration,
}

/// What happens to a request that contains a certain text.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Then {
    /// It waits.
    Waits,
    /// It is forwarded before the trap reports it.
    Passes,
    /// The same, and its answer waits. Instead of it the connection is cut.
    IsNotAnswered,
}

/// Holds a connection when a request contains a certain text.
struct Trap {
    text: Vec<u8>,
    then: Then,
    sprung: Arc<Notify>,
}

type TrapReceiver = watch::Receiver<Option<Arc<Trap>>>;

/// The way that bytes go.
enum Way {
    Requests,
    Answers,
}

/// A proxy. Dropping ends it.
pub struct Proxy {
    port: u16,
    state: watch::Sender<State>,
    trap: Arc<watch::Sender<Option<Arc<Trap>>>>,
    _accepting: JoinSet<()>,
}

impl Proxy {
    /// Listens on a free port, and forwards to the store on `port`.
    ///
    /// # Errors
    /// When no port is free.
    pub async fn start(port: u16) -> anyhow::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, tally::dev::free_port()?)).await?;
        let own_port = listener.local_addr()?.port();
        let state = watch::Sender::new(State {
            flow: Flow::Open,
            cuts: 0,
            port,
            answers_late_by: Duration::ZERO,
        });
        let trap = Arc::new(watch::Sender::new(None));
        let mut accepting = JoinSet::new();
        accepting.spawn(accept(listener, state.subscribe(), Arc::clone(&trap)));
        Ok(Self {
            port: own_port,
            state,
            trap,
            _accepting: accepting,
        })
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// Cuts every connection; new ones may be made at once.
    pub fn cut(&self) {
        self.state.send_modify(|state| state.cuts += 1);
    }

    /// Sends new connections to another port, and cuts the old ones.
    pub fn point_to(&self, port: u16) {
        self.state.send_modify(|state| {
            state.port = port;
            state.cuts += 1;
        });
    }

    /// Sends new connections to another port. The old ones stay where they are.
    pub fn point_new_to(&self, port: u16) {
        self.state.send_modify(|state| state.port = port);
    }

    /// Forwards nothing until [`Proxy::open`]. Connections stay open.
    pub fn stall(&self) {
        self.state.send_modify(|state| state.flow = Flow::Stalled);
    }

    /// Forwards requests, and cuts a connection instead of forwarding a reply.
    pub fn lose_replies(&self) {
        self.state.send_modify(|state| state.flow = Flow::RepliesLost);
    }

    /// Makes the store slow: each answer comes this much later.
    pub fn delay_answers(&self, by: Duration) {
        self.state.send_modify(|state| state.answers_late_by = by);
    }

    /// Forwards everything again.
    pub fn open(&self) {
        self.state.send_modify(|state| state.flow = Flow::Open);
    }

    /// Waits until a request contains this text.
    /// The request is forwarded, or waits until [`Proxy::release`].
    pub async fn trap(&self, text: &str, lets_through: bool) {
        let then = if lets_through { Then::Passes } else { Then::Waits };
        self.spring(text, then).await;
    }

    /// Waits until a request contains this text. The store gets it, and its answer waits until [`Proxy::release`], which
    /// cuts the connection instead.
    pub async fn lose_answer(&self, text: &str) {
        self.spring(text, Then::IsNotAnswered).await;
    }

    async fn spring(&self, text: &str, then: Then) {
        let sprung = Arc::new(Notify::new());
        self.trap.send_replace(Some(Arc::new(Trap {
            text: text.as_bytes().to_vec(),
            then,
            sprung: Arc::clone(&sprung),
        })));
        sprung.notified().await;
    }

    /// Removes the trap.
    pub fn release(&self) {
        self.trap.send_replace(None);
    }
}

async fn accept(
    listener: TcpListener,
    state: watch::Receiver<State>,
    trap: Arc<watch::Sender<Option<Arc<Trap>>>>,
) {
    let mut forwarding = JoinSet::new();
    loop {
        tokio::select! {
            Some(_) = forwarding.join_next(), if !forwarding.is_empty() => {}
            accepted = listener.accept() => {
                // The system may have no socket left. Then the client sees its connection fail.
                let Ok((client, _)) = accepted else { continue };
                forwarding.spawn(forward(client, state.clone(), trap.subscribe()));
            }
        }
    }
}

/// Serves one connection. Both sides see its end when both halves are dropped.
async fn forward(client: TcpStream, state: watch::Receiver<State>, trap: TrapReceiver) {
    let mut cuts = state.clone();
    let (made_at, port) = {
        let state = state.borrow();
        (state.cuts, state.port)
    };
    let is_unanswered = AtomicBool::new(false);
    let forwarded = async {
        let store = TcpStream::connect((Ipv4Addr::LOCALHOST, port))
            .await
            .context("the store is down")?;
        client.set_nodelay(true)?;
        store.set_nodelay(true)?;
        let (client_reader, client_writer) = client.into_split();
        let (store_reader, store_writer) = store.into_split();
        // When one side ends, the connection ends.
        tokio::select! {
            ended = pass(Way::Requests, client_reader, store_writer, state.clone(), trap.clone(), &is_unanswered) => ended,
            ended = pass(Way::Answers, store_reader, client_writer, state.clone(), trap.clone(), &is_unanswered) => ended,
        }
    };
    tokio::select! {
        _ = forwarded => {}
        _ = cuts.wait_for(|state| state.cuts != made_at) => {}
    }
}

/// Forwards bytes one way. `is_unanswered`: whether the connection gets no further answer.
async fn pass(
    way: Way,
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    mut state: watch::Receiver<State>,
    mut trap: TrapReceiver,
    is_unanswered: &AtomicBool,
) -> anyhow::Result<()> {
    let mut buffer = vec![0; BUFFER_BYTES];
    loop {
        let read = from.read(&mut buffer).await?;
        let bytes = &buffer[..read];
        if bytes.is_empty() {
            return Ok(());
        }
        let (flow, late_by) = {
            let state = state.wait_for(|state| state.flow != Flow::Stalled).await?;
            (state.flow, state.answers_late_by)
        };
        match way {
            Way::Answers => {
                if !late_by.is_zero() {
                    sleep(late_by).await;
                }
                if flow == Flow::RepliesLost {
                    return Ok(());
                }
                if is_unanswered.load(Ordering::Acquire) {
                    trap.wait_for(Option::is_none).await?;
                    return Ok(());
                }
            }
            Way::Requests => {
                let set = trap.borrow().clone();
                if let Some(set) = set.filter(|set| contains(bytes, &set.text)) {
                    if set.then == Then::Waits {
                        set.sprung.notify_one();
                        trap.wait_for(Option::is_none).await?;
                    } else {
                        is_unanswered.fetch_or(set.then == Then::IsNotAnswered, Ordering::AcqRel);
                        to.write_all(bytes).await?;
                        set.sprung.notify_one();
                        continue;
                    }
                }
            }
        }
        to.write_all(bytes).await?;
    }
}

fn contains(bytes: &[u8], text: &[u8]) -> bool {
    bytes.windows(text.len()).any(|window| window == text)
}
