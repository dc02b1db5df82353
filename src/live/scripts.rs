//! The Lua scripts, and how they are called. One call takes many keys; if there are very many, a
//! pipeline has several calls. A call names its script by the hash. A script that Redis has lost is
//! loaded again.

use std::collections::HashMap;
use std::sync::LazyLock;

use redis::aio::ConnectionLike;
use redis::{Cmd, FromRedisValue, Pipeline, RedisError, ToRedisArgs, Value, from_redis_value};

use super::buckets::Bucket;
use super::groups::Group;
use super::{Keys, LiveError};
use crate::domain::{ItemId, Revision};

/// A script of `lua/`. The header of its file is its contract.
pub struct Script {
    pub name: &'static str,
    code: &'static str,
    hash: LazyLock<String>,
    /// The key behind those of the counters.
    last_key: Option<fn(&Keys, Bucket) -> String>,
    /// Whether one call takes several buckets.
    pub takes_buckets: bool,
}

macro_rules! scripts {
    ($($constant:ident = $($name:literal)+ $(, last key $last_key:path)? $(, takes $buckets:ident)?);* $(;)?) => {
        $(pub static $constant: Script = {
            const CODE: &str = concat!($(include_str!(concat!("../../lua/", $name, ".lua"))),+);
            Script {
                name: last(&[$($name),+]),
                code: CODE,
                hash: LazyLock::new(|| redis::Script::new(CODE).get_hash().to_owned()),
                last_key: last_key!($($last_key)?),
                takes_buckets: is_given!($($buckets)?),
            }
        };)*

        static ALL: &[&Script] = &[$(&$constant),*];
    };
}

macro_rules! last_key {
    () => {
        None
    };
    ($key:path) => {
        Some($key)
    };
}

macro_rules! is_given {
    () => {
        false
    };
    ($word:ident) => {
        true
    };
}

const fn last(names: &[&'static str]) -> &'static str {
    names[names.len() - 1]
}

// Those that read or write counters begin with `counter`.
scripts! {
    COUNT = "counter" "count", last key Keys::cold, takes buckets;
    SEED = "counter" "seed";
    MARK_SAVED = "counter" "mark_saved";
    EXPIRE = "counter" "expire";
    INVALIDATE = "counter" "invalidate";
    CLAIM_REBUILD = "counter" "claim_rebuild";
    CLEAR_REBUILD = "counter" "clear_rebuild";
    REMOVE_SAVED = "counter" "remove_saved";
    ADVANCE = "advance";
    CLEAR_COLD = "clear_cold";
    ENTER_EPOCH = "enter_epoch";
    PROBE = "probe";
    THROTTLE = "throttle";
    PERMISSIONS = "permissions";
}

/// The most keys in one call. Redis serves nobody else meanwhile: for about a millisecond, at the
/// 4.5 µs a key that `count.lua` takes.
pub const CALL_LIMIT_KEYS: usize = 256;

impl Script {
    /// Calls this script for the counters of all entries of this group. The first key is the index of
    /// unsaved counters, followed by those of the entries' items, and by the script's last key, if it has one. The
    /// arguments come in the order of the script's header: those that are `shared`, then the `own` of each entry. Returns a reply for
    /// each entry, in order. If Redis refused a call because it did not know the script, the script
    /// is loaded and this call is sent again, and no other.
    ///
    /// # Errors
    /// When the pipeline or any call in it fails. Each call may then have been applied, maybe to
    /// only some of its keys.
    pub async fn call<Entry>(
        &self,
        connection: &mut impl ConnectionLike,
        keys: &Keys,
        group: &Group<'_, Entry>,
        item: impl Fn(&Entry) -> ItemId,
        shared: impl Fn(&mut Cmd),
        own: impl Fn(&mut Cmd, &Entry),
    ) -> Result<Vec<Value>, LiveError> {
        let calls: Vec<&[&Entry]> = group.entries.chunks(CALL_LIMIT_KEYS).collect();
        let command = |at: usize| self.command_for(keys, group.bucket, calls[at], &item, &shared, &own);
        let replies = self.invoke(connection, calls.len(), command).await?;
        self.of_entries(group, replies)
    }

    /// Calls this script once for the counters of several buckets that a node of a Redis Cluster should have, as the
    /// header of `count` says: a call costs more than what is in it. Returns for each of these groups a reply for each
    /// entry; `None`: the node does not have all of its keys, and did nothing of it.
    ///
    /// # Errors
    /// When any call fails. Each of them may have been applied.
    pub async fn call_for_buckets<Entry>(
        &self,
        connection: &mut impl ConnectionLike,
        keys: &Keys,
        groups: &[&Group<'_, Entry>],
        item: impl Fn(&Entry) -> ItemId,
        shared: impl Fn(&mut Cmd),
        own: impl Fn(&mut Cmd, &Entry),
    ) -> Result<Vec<Option<Vec<Value>>>, LiveError> {
        let mut calls: Vec<&[&Group<'_, Entry>]> = Vec::new();
        let (mut from, mut entries) = (0, 0);
        for (at, group) in groups.iter().enumerate() {
            // A batch has at most four times as many items, all of one bucket at worst.
            if entries > 0 && entries + group.entries.len() > CALL_LIMIT_KEYS {
                calls.push(&groups[from..at]);
                (from, entries) = (at, 0);
            }
            entries += group.entries.len();
        }
        calls.push(&groups[from..]);
        let command = |at: usize| {
            let mut command = self.command(0);
            shared(&mut command);
            for group in calls[at] {
                command.arg(group.entries.len());
                for entry in &group.entries {
                    command.arg(keys.counter(item(entry)));
                }
                command.arg(keys.unsaved(group.bucket));
                if let Some(last_key) = self.last_key {
                    command.arg(last_key(keys, group.bucket));
                }
                for entry in &group.entries {
                    own(&mut command, entry);
                }
            }
            command
        };
        let mut of_groups = Vec::with_capacity(groups.len());
        let replies = self.invoke(connection, calls.len(), command).await?;
        for (call, reply) in calls.into_iter().zip(replies) {
            let of_call = match reply {
                Value::Array(of_call) if of_call.len() == call.len() => of_call,
                other => return Err(self.unexpected(other)),
            };
            for (group, reply) in call.iter().zip(of_call) {
                of_groups.push(match reply {
                    Value::Array(of_entries) if of_entries.len() == group.entries.len() => Some(of_entries),
                    // The node's error.
                    Value::BulkString(_) => None,
                    other => return Err(self.unexpected(other)),
                });
            }
        }
        Ok(of_groups)
    }

    /// The calls that [`Script::call`] makes, to be sent with others. Their replies are for
    /// [`Script::replies`].
    pub fn commands<Entry>(
        &self,
        keys: &Keys,
        group: &Group<'_, Entry>,
        item: impl Fn(&Entry) -> ItemId,
        shared: impl Fn(&mut Cmd),
        own: impl Fn(&mut Cmd, &Entry),
    ) -> Vec<Cmd> {
        let calls = group.entries.chunks(CALL_LIMIT_KEYS);
        calls
            .map(|entries| self.command_for(keys, group.bucket, entries, &item, &shared, &own))
            .collect()
    }

    /// A reply for each entry of the group, in order. `None`: no call ran, because Redis did not know the script.
    ///
    /// # Errors
    /// When any call failed. Others may have been applied.
    pub fn replies<Entry>(
        &self,
        group: &Group<'_, Entry>,
        replies: Vec<Value>,
    ) -> Result<Option<Vec<Value>>, LiveError> {
        if replies.iter().all(is_unknown_script) {
            return Ok(None);
        }
        let replies: Result<Vec<Value>, _> = replies.into_iter().map(Value::extract_error).collect();
        self.of_entries(group, replies?).map(Some)
    }

    fn command_for<Entry>(
        &self,
        keys: &Keys,
        bucket: Bucket,
        entries: &[&Entry],
        item: impl Fn(&Entry) -> ItemId,
        shared: impl Fn(&mut Cmd),
        own: impl Fn(&mut Cmd, &Entry),
    ) -> Cmd {
        let mut command = self.command(1 + entries.len() + usize::from(self.last_key.is_some()));
        command.arg(keys.unsaved(bucket));
        for entry in entries {
            command.arg(keys.counter(item(entry)));
        }
        if let Some(last_key) = self.last_key {
            command.arg(last_key(keys, bucket));
        }
        shared(&mut command);
        for entry in entries {
            own(&mut command, entry);
        }
        command
    }

    fn of_entries<Entry>(
        &self,
        group: &Group<'_, Entry>,
        replies: Vec<Value>,
    ) -> Result<Vec<Value>, LiveError> {
        let mut of_entries = Vec::with_capacity(group.entries.len());
        for (entries, reply) in group.entries.chunks(CALL_LIMIT_KEYS).zip(replies) {
            match reply {
                Value::Array(of_call) if of_call.len() == entries.len() => of_entries.extend(of_call),
                other => return Err(self.unexpected(other)),
            }
        }
        Ok(of_entries)
    }

    /// Calls this script once for these keys, with one reply for all of them.
    ///
    /// # Errors
    /// When the call fails. It may have been applied.
    pub async fn call_once(
        &self,
        connection: &mut impl ConnectionLike,
        keys: &[&str],
        arguments: impl ToRedisArgs,
    ) -> Result<Value, LiveError> {
        let command = |_| {
            let mut command = self.command(keys.len());
            command.arg(keys).arg(&arguments);
            command
        };
        let reply = self.invoke(connection, 1, command).await?.pop();
        reply.ok_or_else(|| self.unexpected(Value::Nil))
    }

    /// The script's text.
    pub(super) fn code(&self) -> &'static str {
        self.code
    }

    /// A call for this many keys, still without its keys and arguments.
    pub(super) fn command(&self, keys: usize) -> Cmd {
        let mut command = redis::cmd("EVALSHA");
        command.arg(self.hash.as_str()).arg(keys);
        command
    }

    /// Sends the calls from 0 to below `calls`. Those that met a Redis without the script are sent
    /// once more.
    ///
    /// # Errors
    /// When the pipeline or any call in it fails.
    pub(super) async fn invoke(
        &self,
        connection: &mut impl ConnectionLike,
        calls: usize,
        command: impl Fn(usize) -> Cmd,
    ) -> Result<Vec<Value>, LiveError> {
        if calls == 0 {
            return Ok(Vec::new());
        }
        let mut replies = send(connection, (0..calls).map(&command)).await?;
        let lost: Vec<usize> = (0..replies.len())
            .filter(|at| is_unknown_script(&replies[*at]))
            .collect();
        if !lost.is_empty() {
            redis::cmd("SCRIPT")
                .arg("LOAD")
                .arg(self.code)
                .exec_async(connection)
                .await?;
            let again = send(connection, lost.iter().map(|at| command(*at))).await?;
            for (at, reply) in lost.into_iter().zip(again) {
                replies[at] = reply;
            }
        }
        replies
            .into_iter()
            .map(|reply| reply.extract_error().map_err(LiveError::from))
            .collect()
    }

    /// The error for a reply that this script's header does not name.
    pub(super) fn unexpected(&self, reply: Value) -> LiveError {
        LiveError::Reply {
            name: self.name,
            reply,
        }
    }
}

/// Sends all commands at once. Returns their replies, which may be errors.
pub(super) async fn send(
    connection: &mut impl ConnectionLike,
    commands: impl ExactSizeIterator<Item = Cmd>,
) -> Result<Vec<Value>, LiveError> {
    let count = commands.len();
    let mut pipeline = Pipeline::with_capacity(count);
    for command in commands {
        pipeline.add_command(command);
    }
    // The connection's own method: `query_async` would return only the first error, and not which
    // calls Redis refused.
    let replies = connection.req_packed_commands(&pipeline, 0, count).await?;
    if replies.len() == count {
        Ok(replies)
    } else {
        // Each caller pairs its commands with their replies.
        Err(LiveError::Reply {
            name: "the pipeline",
            reply: Value::Array(replies),
        })
    }
}

/// A reply of [`send`], unless it is an error.
pub(super) fn typed<Reply: FromRedisValue>(reply: Value) -> Result<Reply, LiveError> {
    let reply = reply.extract_error()?;
    Ok(from_redis_value(reply).map_err(RedisError::from)?)
}

/// The text of the script that this command calls, if Redis answered that it does not know it: nothing ran.
pub(super) fn unknown(command: &Cmd, reply: &Value) -> Option<&'static str> {
    if !is_unknown_script(reply) {
        return None;
    }
    let redis::Arg::Simple(hash) = command.args_iter().nth(1)? else {
        return None;
    };
    let script = ALL.iter().find(|script| script.hash.as_bytes() == hash)?;
    Some(script.code)
}

fn is_unknown_script(reply: &Value) -> bool {
    matches!(reply, Value::ServerError(error) if error.code() == "NOSCRIPT")
}

/// The text of a status or bulk reply.
pub(super) fn text(reply: &Value) -> Option<&str> {
    match reply {
        Value::SimpleString(text) => Some(text),
        Value::BulkString(bytes) => std::str::from_utf8(bytes).ok(),
        _ => None,
    }
}

/// A field of a reply that has names and values, as HELLO and SENTINEL MASTER answer.
pub(super) fn field<T: FromRedisValue>(reply: Value, name: &str) -> Option<T> {
    let mut fields: HashMap<String, Value> = from_redis_value(reply).ok()?;
    from_redis_value(fields.remove(name)?).ok()
}

/// Invalidates items of one bucket, over the worker's or the server's connection. An item that is given with a
/// revision is left alone if its count has another one. Returns for each item, in order, whether it
/// was invalidated.
///
/// # Errors
/// When Redis is unavailable. Each of the items may have been invalidated.
pub(super) async fn invalidate(
    connection: &mut impl ConnectionLike,
    keys: &Keys,
    bucket: Bucket,
    items: Vec<&(ItemId, Option<Revision>)>,
) -> Result<Vec<bool>, LiveError> {
    let replies = INVALIDATE
        .call(
            connection,
            keys,
            &Group::of(bucket, items),
            |(item, _)| *item,
            |_| {},
            |command, (_, revision)| {
                command.arg(fresh_token());
                match revision {
                    Some(revision) => command.arg(revision.micros()),
                    None => command.arg(""),
                };
            },
        )
        .await?;
    replies
        .into_iter()
        .map(|reply| match text(&reply) {
            Some("INVALIDATED") => Ok(true),
            Some("CHANGED") => Ok(false),
            _ => Err(INVALIDATE.unexpected(reply)),
        })
        .collect()
}

/// A token that no other caller draws: 64 random bits in hexadecimal.
pub(crate) fn fresh_token() -> String {
    format!("{:016x}", rand::random::<u64>())
}
