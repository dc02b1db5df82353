//! The Lua scripts, and how they are called: many in one pipeline, by their hash,
//! loaded again when Redis has lost them.

use std::sync::LazyLock;

use redis::aio::ConnectionLike;
use redis::{Pipeline, Value};

use super::LiveError;

/// A script of `lua/`; each file's header is its contract.
pub struct Script {
    pub name: &'static str,
    code: &'static str,
    hash: LazyLock<String>,
}

macro_rules! scripts {
    ($($constant:ident = $name:literal),* $(,)?) => {
        $(pub static $constant: Script = Script {
            name: $name,
            code: include_str!(concat!("../../lua/", $name, ".lua")),
            hash: LazyLock::new(|| {
                redis::Script::new(include_str!(concat!("../../lua/", $name, ".lua")))
                    .get_hash()
                    .to_owned()
            }),
        };)*
    };
}

scripts! {
    COUNT = "count",
    SEED = "seed",
    PEEK = "peek",
    MARK_SAVED = "mark_saved",
    EXPIRE = "expire",
    INVALIDATE = "invalidate",
    RECOUNTED = "recounted",
    ADVANCE = "advance",
}

/// One call of a script: its key and its arguments.
#[derive(Clone, Debug)]
pub struct Call<const ARGUMENTS: usize> {
    pub key: String,
    pub arguments: [String; ARGUMENTS],
}

impl Script {
    /// Calls this script once for each of `calls`, in one pipeline, and returns
    /// their replies in order. A call that Redis turned away for not knowing the
    /// script, and only such a call, is sent again after loading it.
    ///
    /// # Errors
    /// When the pipeline fails as a whole, or any call answers with an error: any
    /// of them may have been applied then.
    pub async fn call<const ARGUMENTS: usize>(
        &self,
        connection: &mut impl ConnectionLike,
        calls: &[Call<ARGUMENTS>],
    ) -> Result<Vec<Value>, LiveError> {
        if calls.is_empty() {
            return Ok(Vec::new());
        }
        let mut replies = self.send(connection, calls.iter()).await?;
        let lost: Vec<usize> = (0..replies.len())
            .filter(|at| is_unknown_script(&replies[*at]))
            .collect();
        if !lost.is_empty() {
            redis::cmd("SCRIPT")
                .arg("LOAD")
                .arg(self.code)
                .exec_async(connection)
                .await?;
            let again = self.send(connection, lost.iter().map(|at| &calls[*at])).await?;
            for (at, reply) in lost.into_iter().zip(again) {
                replies[at] = reply;
            }
        }
        replies
            .into_iter()
            .map(|reply| reply.extract_error().map_err(LiveError::Redis))
            .collect()
    }

    async fn send<'a, const ARGUMENTS: usize>(
        &self,
        connection: &mut impl ConnectionLike,
        calls: impl ExactSizeIterator<Item = &'a Call<ARGUMENTS>>,
    ) -> Result<Vec<Value>, LiveError> {
        let count = calls.len();
        let mut pipeline = Pipeline::with_capacity(count);
        for call in calls {
            let command = pipeline
                .cmd("EVALSHA")
                .arg(self.hash.as_str())
                .arg(1)
                .arg(&call.key);
            for argument in &call.arguments {
                command.arg(argument);
            }
        }
        // The connection's own method: `query_async` would turn the first error
        // into the whole answer, and which calls were turned away would be lost.
        Ok(connection.req_packed_commands(&pipeline, 0, count).await?)
    }

    /// The error for a reply that this script's header does not name.
    pub(super) fn unexpected(&self, reply: Value) -> LiveError {
        LiveError::Reply {
            script: self.name,
            reply,
        }
    }
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
