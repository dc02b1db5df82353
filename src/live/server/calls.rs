//! How the server's calls reach Redis: over a connection for each thread, or, in a Redis Cluster, in one pipeline to each
//! node.

use std::sync::Arc;

use futures_util::future::{join, join_all};
use redis::{Cmd, Value};
use tokio::time::timeout;

use super::breaker::Generation;
use super::live_counts::{BACK_PRESSURE_LIMIT, FailedCall, LiveCounts, OfGroups};
use crate::domain::ItemId;
use crate::live::any_connection::AnyConnection;
use crate::live::buckets::Bucket;
use crate::live::cluster::{BucketCalls, NodeConnections};
use crate::live::groups::{Group, by_place};
use crate::live::scripts::{self, Script};
use crate::live::{Keys, LiveError};

/// What each of several buckets got; `None`: nothing of it ran.
type OfBuckets<Reply> = Vec<Result<Option<Reply>, LiveError>>;

impl LiveCounts {
    /// Calls a script for each group, and reads the reply for each of its entries.
    pub(super) async fn call_script<Entry, Reply>(
        &self,
        script: &Script,
        groups: &[Group<'_, Entry>],
        item: impl Fn(&Entry) -> ItemId,
        shared: impl Fn(&mut Cmd),
        own: impl Fn(&mut Cmd, &Entry),
        read: impl Fn(Value) -> Result<Reply, LiveError>,
    ) -> OfGroups<Vec<Reply>> {
        let keys = self.keys();
        let read = |replies: Vec<Value>| replies.into_iter().map(&read).collect::<Result<Vec<_>, _>>();
        let alone = async |group: &Group<'_, Entry>| {
            self.call(group.bucket, async |mut connection| {
                let replies = script.call(&mut connection, keys, group, &item, &shared, &own);
                read(replies.await?)
            })
            .await
        };
        let Some(connections) = &self.connections else {
            return join_all(groups.iter().map(alone)).await;
        };
        let together = Together::of(self, groups);
        let calling = async {
            if script.takes_buckets {
                return call_nodes(connections, script, keys, &together.groups, &item, &shared, &own).await;
            }
            let calls = together.groups.iter().map(|group| BucketCalls {
                bucket: group.bucket,
                commands: script.commands(keys, group, &item, &shared, &own),
            });
            let sent = connections.send(calls.collect()).await.into_iter();
            let of_groups = sent.zip(&together.groups);
            of_groups
                .map(|(sent, group)| script.replies(group, sent?))
                .collect()
        };
        let waiting = join_all(together.others.iter().map(|group| alone(group)));
        let (called, waited) = join(calling, waiting).await;
        let called = called.into_iter().map(|called| called?.map(read).transpose());
        let waited = waited.into_iter().map(|waited| waited.map(Some));
        let ended = groups.iter().zip(together.merge(called, waited));
        let ended = ended.map(async |(group, ended)| match ended {
            Ok(Some(replies)) => Ok(replies),
            Ok(None) => alone(group).await,
            Err(failed) => Err(failed),
        });
        join_all(ended).await
    }

    /// Sends the commands of each group, and reads their replies.
    pub(super) async fn send<Entry, Reply>(
        &self,
        groups: &[Group<'_, Entry>],
        commands: impl Fn(&Group<'_, Entry>) -> Vec<Cmd>,
        read: impl Fn(&Group<'_, Entry>, Vec<Value>) -> Result<Reply, LiveError>,
    ) -> OfGroups<Reply> {
        let alone = async |group: &Group<'_, Entry>| {
            self.call(group.bucket, async |mut connection| {
                let replies = scripts::send(&mut connection, commands(group).into_iter()).await?;
                read(group, replies)
            })
            .await
        };
        let Some(connections) = &self.connections else {
            return join_all(groups.iter().map(alone)).await;
        };
        let together = Together::of(self, groups);
        let calls = together.groups.iter().map(|group| BucketCalls {
            bucket: group.bucket,
            commands: commands(group),
        });
        let waiting = join_all(together.others.iter().map(|group| alone(group)));
        let (sent, waited) = join(connections.send(calls.collect()), waiting).await;
        let sent = sent.into_iter().zip(&together.groups);
        let sent = sent.map(|(sent, group)| read(group, sent?));
        together.merge(sent, waited.into_iter()).collect()
    }

    /// Calls the Redis that has this bucket over this handle's connection.
    pub(super) async fn call<Reply>(
        &self,
        bucket: Bucket,
        call: impl AsyncFnOnce(AnyConnection) -> Result<Reply, LiveError>,
    ) -> Result<Reply, FailedCall> {
        let (generation, connection) = self.connection(bucket).await?;
        call(connection).await.map_err(|error| FailedCall {
            generation: Some(generation),
            error,
        })
    }

    /// This handle's connection and its generation. The connection is new if the circuit breaker
    /// opened since the last one was made.
    async fn connection(&self, bucket: Bucket) -> Result<(Generation, AnyConnection), FailedCall> {
        let part = self.state.part(bucket);
        if part.breaker.generation().is_none() {
            // If the circuit breaker is still open afterwards, the code below sees it.
            let _ = timeout(BACK_PRESSURE_LIMIT, part.back_pressure.read()).await;
        }
        if let Some(connections) = &self.connections {
            let Some(generation) = part.breaker.generation() else {
                return Err(FailedCall {
                    generation: None,
                    error: LiveError::Unavailable,
                });
            };
            return match connections.known(bucket).await {
                Ok(connection) => Ok((generation, AnyConnection::Bucket(Box::new(connection)))),
                Err(error) => Err(FailedCall {
                    generation: Some(generation),
                    error,
                }),
            };
        }
        // Held while connecting, so that others who wait for the lock use the same connection. The
        // generation is read under the lock, so that after a failure they do not try one by one
        // again.
        let mut kept = self.kept.lock().await;
        let generation = part.breaker.generation();
        let Some(current) = generation else {
            // It may lead to a Redis that is not used again.
            *kept = None;
            return Err(FailedCall {
                generation,
                error: LiveError::Unavailable,
            });
        };
        if let Some((of, connection)) = &*kept
            && *of == current
        {
            return Ok((current, AnyConnection::Own(connection.clone())));
        }
        // The old connection is closed first: Redis may accept no more (`maxclients`).
        *kept = None;
        match self.state.redis.connect_alone().await {
            Ok(connection) => {
                *kept = Some((current, connection.clone()));
                Ok((current, AnyConnection::Own(connection)))
            }
            Err(error) => Err(FailedCall { generation, error }),
        }
    }

    /// Opens the circuit breaker, and wakes the repair task.
    pub(super) fn open_breaker(
        &self,
        bucket: Bucket,
        FailedCall { generation, error }: FailedCall,
    ) -> LiveError {
        let part = self.state.part(bucket);
        if let Some(generation) = generation {
            part.breaker.open(generation, &error);
            if self.connections.is_some() && error.refusal().is_none() {
                self.open_neighbours(bucket, &error);
            }
        }
        part.wake_repair.notify_one();
        error
    }

    /// Opens the circuit breakers of all buckets that are at the same node of a Redis Cluster: it did not answer, and the
    /// votes on each of them would wait for it anew.
    fn open_neighbours(&self, bucket: Bucket, error: &LiveError) {
        for other in self.state.redis.neighbours(bucket) {
            let part = self.state.part(other);
            if let Some(generation) = part.breaker.generation() {
                part.breaker.open(generation, error);
                part.wake_repair.notify_one();
            }
        }
    }
}

/// The groups of a call in a Redis Cluster: those whose circuit breaker is closed, which are called together, and the
/// others, each alone: whoever waits for a node that fails must not hold up the others.
struct Together<'g, Entry> {
    groups: Vec<&'g Group<'g, Entry>>,
    others: Vec<&'g Group<'g, Entry>>,
    /// Of each group, in order; `None`: it is among the others.
    generations: Vec<Option<Generation>>,
}

impl<'g, Entry> Together<'g, Entry> {
    fn of(live_counts: &LiveCounts, all: &'g [Group<'g, Entry>]) -> Self {
        let generation = |group: &Group<'_, Entry>| live_counts.state.part(group.bucket).breaker.generation();
        let generations: Vec<Option<Generation>> = all.iter().map(generation).collect();
        let (mut groups, mut others) = (Vec::with_capacity(all.len()), Vec::new());
        for (group, generation) in all.iter().zip(&generations) {
            match generation {
                Some(_) => groups.push(group),
                None => others.push(group),
            }
        }
        Self {
            groups,
            others,
            generations,
        }
    }

    /// What all groups got, in order: `called` is of the groups, `waited` of the others.
    fn merge<Reply>(
        &self,
        mut called: impl Iterator<Item = Result<Reply, LiveError>>,
        mut waited: impl Iterator<Item = Result<Reply, FailedCall>>,
    ) -> impl Iterator<Item = Result<Reply, FailedCall>> {
        self.generations
            .iter()
            .filter_map(move |generation| match generation {
                None => waited.next(),
                Some(_) => Some(called.next()?.map_err(|error| FailedCall {
                    generation: *generation,
                    error,
                })),
            })
    }
}

/// Calls each node once for all groups that it should have.
async fn call_nodes<Entry>(
    connections: &Arc<NodeConnections>,
    script: &Script,
    keys: &Keys,
    groups: &[&Group<'_, Entry>],
    item: impl Fn(&Entry) -> ItemId,
    shared: impl Fn(&mut Cmd),
    own: impl Fn(&mut Cmd, &Entry),
) -> OfBuckets<Vec<Value>> {
    let buckets: Vec<Bucket> = groups.iter().map(|group| group.bucket).collect();
    let nodes = connections.nodes(&buckets).await;
    let called = nodes.into_iter().map(|(node, places)| {
        let of_node: Vec<&Group<'_, Entry>> = places.iter().map(|place| groups[*place]).collect();
        let (item, shared, own) = (&item, &shared, &own);
        async move {
            let called = match node {
                Ok(mut node) => {
                    script
                        .call_for_buckets(&mut node, keys, &of_node, item, shared, own)
                        .await
                }
                Err(error) => Err(error),
            };
            let of_buckets: OfBuckets<Vec<Value>> = match called {
                Ok(replies) => replies.into_iter().map(Ok).collect(),
                Err(error) => places.iter().map(|_| Err(error.again())).collect(),
            };
            places.into_iter().zip(of_buckets).collect::<Vec<_>>()
        }
    });
    let called: Vec<_> = called.collect();
    by_place(join_all(called).await.into_iter().flatten().collect())
}
