//! Connections to the nodes of a Redis Cluster, and calls of one bucket over them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use futures_util::future::join_all;
use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::{Cmd, ErrorKind, Pipeline, RedisError, RedisFuture, RedisResult, Value};
use tokio::time::{Instant, timeout};

use super::lookup::{ASK_LIMIT, Cluster};
use super::nodes::{At, OwnSlots};
use super::redirects::{Leads, leads};
use crate::live::LiveError;
use crate::live::buckets::{BUCKETS, Bucket};
use crate::live::groups::by_place;
use crate::live::{login, scripts};

/// How often a call is sent on to where a node says that the bucket is.
const REDIRECTS_LIMIT: usize = 3;
/// Sent on more often: nodes do not agree. Nothing of it ran.
const NODES_DISAGREE: &[u8] = b"-TRYAGAIN nodes send the call to and fro\r\n";

/// Connections to the nodes, one to each. The runtime that first uses one drives it.
pub struct NodeConnections {
    cluster: Arc<Cluster>,
    nodes: Mutex<HashMap<At, Arc<KeptNode>>>,
}

#[derive(Default)]
struct KeptNode(tokio::sync::Mutex<Kept>);

#[derive(Default)]
struct Kept {
    connection: Option<MultiplexedConnection>,
    /// How many connections to the node had failed before this one was made. It is used until the next fails.
    made_after: u64,
    failed_at: Option<Instant>,
}

/// A connection to a node, and how many to that node had failed before it was made.
#[derive(Clone)]
struct Open {
    at: At,
    made_after: u64,
    connection: MultiplexedConnection,
}

impl NodeConnections {
    pub fn new(cluster: Arc<Cluster>) -> Arc<Self> {
        let nodes = Mutex::default();
        Arc::new(Self { cluster, nodes })
    }

    /// A connection to the node that is known to have this bucket. Nodes are asked only if nothing is known.
    ///
    /// # Errors
    /// When nobody knows it, or it cannot be reached.
    pub async fn known(self: &Arc<Self>, bucket: Bucket) -> Result<BucketConnection, LiveError> {
        let at = self.known_at(bucket).await?;
        self.connection(bucket, &at).await
    }

    /// A connection to the node that has this bucket, as nodes said within the last second.
    ///
    /// # Errors
    /// As [`NodeConnections::known`].
    pub async fn current(self: &Arc<Self>, bucket: Bucket) -> Result<BucketConnection, LiveError> {
        let owner = self.cluster.owner(bucket).await?;
        self.connection(bucket, &owner.at).await
    }

    async fn known_at(&self, bucket: Bucket) -> Result<At, LiveError> {
        match self.cluster.known_owner(bucket) {
            Some(owner) => Ok(owner.at),
            None => self.cluster.owner(bucket).await.map(|owner| owner.at),
        }
    }

    async fn connection(self: &Arc<Self>, bucket: Bucket, at: &At) -> Result<BucketConnection, LiveError> {
        let open = self.to(at).await.inspect_err(|_| self.cluster.question())?;
        Ok(BucketConnection {
            connections: Arc::clone(self),
            bucket,
            open,
        })
    }

    /// The nodes that are known to have these buckets, each with the places of its buckets among all.
    ///
    /// # Errors
    /// Of each node: when nobody knows it, or it cannot be reached.
    pub async fn nodes(
        self: &Arc<Self>,
        buckets: &[Bucket],
    ) -> Vec<(Result<NodeConnection, LiveError>, Vec<usize>)> {
        let mut of_nodes: HashMap<At, Vec<usize>> = HashMap::new();
        let mut nodes = Vec::new();
        for (place, bucket) in buckets.iter().enumerate() {
            match self.known_at(*bucket).await {
                Ok(at) => of_nodes.entry(at).or_default().push(place),
                Err(error) => nodes.push((Err(error), vec![place])),
            }
        }
        let opened = of_nodes.into_iter().map(async |(at, places)| {
            let open = self.to(&at).await.inspect_err(|_| self.cluster.question());
            let connections = Arc::clone(self);
            (open.map(|open| NodeConnection { connections, open }), places)
        });
        nodes.extend(join_all(opened).await);
        nodes
    }

    /// Sends the commands of each bucket to the node that is known to have it: one pipeline to each node. Each bucket is
    /// given once, and its replies are its own: what a node did not run is sent on as with a [`BucketConnection`].
    pub async fn send(self: &Arc<Self>, calls: Vec<BucketCalls>) -> Vec<Result<Vec<Value>, LiveError>> {
        let buckets: Vec<Bucket> = calls.iter().map(|call| call.bucket).collect();
        let mut calls: Vec<Option<BucketCalls>> = calls.into_iter().map(Some).collect();
        let nodes = self.nodes(&buckets).await;
        let sent = nodes.into_iter().map(|(node, places)| {
            let calls = places.iter().filter_map(|place| calls[*place].take()).collect();
            async {
                let answers = match node {
                    Ok(node) => node.send(calls).await,
                    Err(error) => places.iter().map(|_| Err(error.again())).collect(),
                };
                places.into_iter().zip(answers).collect::<Vec<_>>()
            }
        });
        let sent: Vec<_> = sent.collect();
        by_place(join_all(sent).await.into_iter().flatten().collect())
    }

    /// Sends a pipeline over this connection, and closes it if it fails.
    async fn send_over(
        &self,
        open: &mut Open,
        pipeline: &Pipeline,
        offset: usize,
        count: usize,
    ) -> RedisResult<Vec<Value>> {
        let sent = open.connection.req_packed_commands(pipeline, offset, count).await;
        if sent.is_err() {
            self.close(open).await;
        }
        sent
    }

    /// The buckets that some node says it takes over, as far as nodes answer. A node whose source has failed over goes on
    /// saying so, and has keys that may come back.
    pub async fn arriving(&self) -> Vec<Bucket> {
        let asked = self.cluster.all_primaries();
        let answers = join_all(asked.iter().map(|at| async {
            let mut open = self.to(at).await.ok()?;
            match timeout(ASK_LIMIT, OwnSlots::ask(&mut open.connection)).await {
                Ok(Ok(own)) => Some(own),
                Ok(Err(_)) | Err(_) => {
                    self.close(&open).await;
                    None
                }
            }
        }));
        let answers: Vec<OwnSlots> = answers.await.into_iter().flatten().collect();
        let is_arriving = |bucket: &Bucket| answers.iter().any(|own| own.is_arriving(*bucket));
        Bucket::first(BUCKETS).filter(is_arriving).collect()
    }

    fn node(&self, at: &At) -> Arc<KeptNode> {
        let mut nodes = self.nodes.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(node) = nodes.get(at) {
            return Arc::clone(node);
        }
        Arc::clone(nodes.entry(at.clone()).or_default())
    }

    async fn to(&self, at: &At) -> Result<Open, LiveError> {
        let came = Instant::now();
        let node = self.node(at);
        // Held while connecting, so that others who wait use the same connection, or fail with it.
        let mut kept = node.0.lock().await;
        let failures = self.cluster.failures(at);
        if let Some(connection) = &kept.connection
            && kept.made_after == failures
        {
            return Ok(Open {
                at: at.clone(),
                made_after: failures,
                connection: connection.clone(),
            });
        }
        // Closed first: the node may accept no more.
        kept.connection = None;
        if kept.failed_at.is_some_and(|failed_at| failed_at >= came) {
            return Err(LiveError::Unavailable);
        }
        let info = self.cluster.info(at);
        match login::connect(&info, &self.cluster.url, &self.cluster.config).await {
            Ok(connection) => {
                kept.made_after = failures;
                kept.connection = Some(connection.clone());
                Ok(Open {
                    at: at.clone(),
                    made_after: failures,
                    connection,
                })
            }
            Err(error) => {
                kept.failed_at = Some(Instant::now());
                Err(error)
            }
        }
    }

    /// Closes a connection that failed, so that the next call makes another one, over any thread's.
    async fn close(&self, open: &Open) {
        self.cluster.question();
        self.cluster.failed(&open.at, open.made_after);
        let node = self.node(&open.at);
        let mut kept = node.0.lock().await;
        if kept.made_after == open.made_after {
            kept.connection = None;
        }
    }
}

/// Commands that touch keys of this bucket alone.
pub struct BucketCalls {
    pub bucket: Bucket,
    pub commands: Vec<Cmd>,
}

/// Calls of keys that one node should have. As a connection it sends nothing on.
pub struct NodeConnection {
    connections: Arc<NodeConnections>,
    open: Open,
}

impl NodeConnection {
    /// Sends these calls in one pipeline. What the node did not run is sent on.
    async fn send(mut self, calls: Vec<BucketCalls>) -> Vec<Result<Vec<Value>, LiveError>> {
        let mut pipeline = Pipeline::with_capacity(calls.len());
        let mut groups = Vec::with_capacity(calls.len());
        for BucketCalls { bucket, commands } in calls {
            groups.push((bucket, commands.len()));
            for command in commands {
                pipeline.add_command(command);
            }
        }
        let replies = match self.req_packed_commands(&pipeline, 0, pipeline.len()).await {
            Ok(replies) => replies,
            Err(error) => {
                let error = LiveError::from(error);
                return groups.iter().map(|_| Err(error.again())).collect();
            }
        };
        let mut replies = replies.into_iter();
        let mut commands = pipeline.cmd_iter();
        let answers = groups.into_iter().map(|(bucket, count)| {
            let commands: Vec<&Cmd> = commands.by_ref().take(count).collect();
            let replies: Vec<Value> = replies.by_ref().take(count).collect();
            let mut connection = BucketConnection {
                connections: Arc::clone(&self.connections),
                bucket,
                open: self.open.clone(),
            };
            async move {
                let is_answer = |reply| leads(reply, &connection.open.at) == Leads::Nowhere;
                if replies.iter().all(is_answer) {
                    return Ok(replies);
                }
                connection
                    .follow(&pipeline_of(commands), replies)
                    .await
                    .map_err(LiveError::from)
            }
        });
        join_all(answers).await
    }
}

impl ConnectionLike for NodeConnection {
    fn req_packed_command<'a>(&'a mut self, cmd: &'a Cmd) -> RedisFuture<'a, Value> {
        Box::pin(async move {
            let replies = self.req_packed_commands(&pipeline_of([cmd]), 0, 1).await?;
            only(replies)
        })
    }

    fn req_packed_commands<'a>(
        &'a mut self,
        pipeline: &'a Pipeline,
        offset: usize,
        count: usize,
    ) -> RedisFuture<'a, Vec<Value>> {
        Box::pin(
            self.connections
                .send_over(&mut self.open, pipeline, offset, count),
        )
    }

    fn get_db(&self) -> i64 {
        0
    }
}

fn pipeline_of<'c>(commands: impl IntoIterator<Item = &'c Cmd>) -> Pipeline {
    let mut pipeline = Pipeline::new();
    for command in commands {
        pipeline.add_command(command.clone());
    }
    pipeline
}

/// The reply to a pipeline of one command.
fn only(mut replies: Vec<Value>) -> RedisResult<Value> {
    replies.pop().unwrap_or(Value::Nil).extract_error()
}

/// Calls of the keys of one bucket. What a node did not run is sent to the one that has the bucket; what may have run is
/// never sent again.
#[derive(Clone)]
pub struct BucketConnection {
    connections: Arc<NodeConnections>,
    bucket: Bucket,
    open: Open,
}

impl BucketConnection {
    async fn open(&mut self, at: &At) -> RedisResult<()> {
        if self.open.at != *at {
            self.open = self.connections.to(at).await.map_err(|error| match error {
                LiveError::Redis(error) => error,
                error => RedisError::from((ErrorKind::Io, "a node is not reached", error.to_string())),
            })?;
        }
        Ok(())
    }

    /// Sends a pipeline to the node of this connection. Closes the connection if it fails.
    async fn send(&mut self, pipeline: &Pipeline, offset: usize, count: usize) -> RedisResult<Vec<Value>> {
        let connections = Arc::clone(&self.connections);
        connections
            .send_over(&mut self.open, pipeline, offset, count)
            .await
    }

    async fn call(&mut self, pipeline: &Pipeline, count: usize) -> RedisResult<Vec<Value>> {
        let replies = self.send(pipeline, 0, count).await?;
        self.follow(pipeline, replies).await
    }

    /// Sends what a node did not run to the one that has the bucket. `replies`: those of the pipeline's commands.
    async fn follow(&mut self, pipeline: &Pipeline, mut replies: Vec<Value>) -> RedisResult<Vec<Value>> {
        for _ in 0..REDIRECTS_LIMIT {
            let mut moved: Option<(At, Vec<usize>)> = None;
            let mut asked: Vec<(At, usize)> = Vec::new();
            for (place, reply) in replies.iter().enumerate() {
                match leads(reply, &self.open.at) {
                    Leads::To(at) => moved.get_or_insert_with(|| (at, Vec::new())).1.push(place),
                    Leads::AskedTo(at) => asked.push((at, place)),
                    Leads::Astray => self.connections.cluster.question(),
                    Leads::Nowhere => {}
                }
            }
            if moved.is_none() && asked.is_empty() {
                return Ok(replies);
            }
            for (at, place) in asked {
                if let Some(command) = pipeline.cmd_iter().nth(place) {
                    replies[place] = self.ask(&at, command).await?;
                }
            }
            if let Some((at, places)) = moved {
                self.connections.cluster.moved(self.bucket, at.clone());
                self.open(&at).await?;
                let commands = pipeline.cmd_iter().enumerate();
                let again = commands.filter(|(place, _)| places.contains(place));
                let again = pipeline_of(again.map(|(_, command)| command));
                let answers = self.send(&again, 0, places.len()).await?;
                for (place, answer) in places.into_iter().zip(answers) {
                    replies[place] = answer;
                }
            }
        }
        for reply in &mut replies {
            if matches!(leads(reply, &self.open.at), Leads::To(_) | Leads::AskedTo(_)) {
                *reply = redis::parse_redis_value(NODES_DISAGREE)?;
            }
        }
        Ok(replies)
    }

    /// Sends a command to the node to which its keys are being moved. Both commands travel together, since the first is
    /// for the one behind it.
    async fn ask(&self, at: &At, command: &Cmd) -> RedisResult<Value> {
        let mut there = self.clone();
        there.open(at).await?;
        let pipeline = pipeline_of([&redis::cmd("ASKING"), command]);
        let mut replies = there.send(&pipeline, 0, 2).await?;
        let reply = replies.pop().unwrap_or(Value::Nil);
        // Whoever calls would load the script at the node that hands the slot over.
        let Some(code) = scripts::unknown(command, &reply) else {
            return Ok(reply);
        };
        let load = redis::cmd("SCRIPT").arg("LOAD").arg(code).clone();
        there.send(&pipeline_of([&load]), 0, 1).await?;
        let mut replies = there.send(&pipeline, 0, 2).await?;
        Ok(replies.pop().unwrap_or(Value::Nil))
    }
}

impl ConnectionLike for BucketConnection {
    fn req_packed_command<'a>(&'a mut self, cmd: &'a Cmd) -> RedisFuture<'a, Value> {
        Box::pin(async move {
            let replies = self.call(&pipeline_of([cmd]), 1).await?;
            only(replies)
        })
    }

    /// Only for pipelines whose replies are all wanted: an offset would need a transaction, and Tally has none.
    fn req_packed_commands<'a>(
        &'a mut self,
        pipeline: &'a Pipeline,
        offset: usize,
        count: usize,
    ) -> RedisFuture<'a, Vec<Value>> {
        Box::pin(async move {
            if offset == 0 {
                self.call(pipeline, count).await
            } else {
                self.send(pipeline, offset, count).await
            }
        })
    }

    fn get_db(&self) -> i64 {
        0
    }
}
