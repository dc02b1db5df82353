//! The error replies of Redis that Tally knows: one table of what each says, and of what helps.
//!
//! Tally does the same after each of them, as after a call without an answer. It never sends the
//! call again. The items of its votes become suspect, the circuit breaker opens, and the repair
//! task tries Redis in the background. So no row says what Tally does. Two are answered, since nothing
//! of the call ran: after NOSCRIPT the script is loaded, and this call is sent once more; in a Redis
//! Cluster, after MOVED or ASK the call is sent to the node that it names ([`super::cluster`]).
//!
//! docs/operating/redis-errors.md is this table for the operator. `tests/it/stores/redis_errors`
//! provokes each row.

use std::fmt;

use redis::{ErrorKind, RedisError};

/// Whether a call with this reply has run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ran {
    /// Nothing of it. Within a script, Redis refuses the first write, and there is none before.
    Nothing,
    /// A script ran up to the command that was refused. It may have changed some of its keys.
    Partly,
}

/// How long Redis answers like this.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lasts {
    /// Until something in Redis or its machine changes. `/health/ready` says `unavailable`.
    AWhile,
    /// Until someone changes the login, or what Redis allows. `/health/ready` says `refused`.
    UntilAllowed,
    /// For ever: no Tally works with this Redis. `/health/ready` says `refused`, and no program
    /// starts.
    ForEver,
}

/// A row of the table.
#[derive(Debug)]
pub struct ErrorReply {
    /// The reply's first word. `ERR` says little, so `says` tells its rows apart.
    pub code: &'static str,
    /// A part of the reply's text; empty: any text.
    pub says: &'static str,
    pub ran: Ran,
    pub lasts: Lasts,
    /// What is wrong, after "Redis".
    means: &'static str,
    /// What helps.
    remedy: &'static str,
}

const WRONG_LOGIN: ErrorReply = ErrorReply {
    code: "WRONGPASS",
    says: "",
    ran: Ran::Nothing,
    lasts: Lasts::UntilAllowed,
    means: "does not take the user and password in the URL",
    remedy: "set them right, or make the user again (scripts/redis-users), which a restart may have forgotten",
};
const NO_PROTOCOL: ErrorReply = ErrorReply {
    code: "NOPROTO",
    says: "",
    ran: Ran::Nothing,
    lasts: Lasts::UntilAllowed,
    means: "does not speak the version of the protocol that Tally asked for",
    remedy: "add ?protocol=resp3 to the URL, or take it out",
};

/// The rows whose code is a word of its own.
const BY_CODE: [ErrorReply; 19] = [
    awhile(
        "MISCONF",
        "takes no writes, since it cannot save its data to its disk",
        "free space there; or, since Tally needs no snapshots: CONFIG SET save ''",
    ),
    awhile(
        "OOM",
        "has no memory left (maxmemory)",
        "CONFIG SET maxmemory to more, and keep maxmemory-policy noeviction",
    ),
    awhile(
        "READONLY",
        "is a replica, which takes no writes",
        "give the URL of the primary, or promote this one: REPLICAOF NO ONE",
    ),
    awhile(
        "NOREPLICAS",
        "takes no writes, since it has too few replicas (min-replicas-to-write)",
        "bring a replica back, or lower min-replicas-to-write",
    ),
    awhile("LOADING", "reads its data from its disk", "wait until it has"),
    awhile(
        "MASTERDOWN",
        "is a replica without its primary (replica-serve-stale-data no)",
        "give the URL of the primary, or promote this one: REPLICAOF NO ONE",
    ),
    awhile(
        "BUSY",
        "has run one script or module command for too long, and nothing else meanwhile",
        "wait, or SCRIPT KILL; if that says UNKILLABLE, SHUTDOWN NOSAVE",
    ),
    awhile(
        "NOSCRIPT",
        "forgot a script twice in a row",
        "find who calls SCRIPT FLUSH again and again",
    ),
    ErrorReply {
        ran: Ran::Partly,
        ..awhile(
            "WRONGTYPE",
            "has a value of another type in the place of one of Tally's keys",
            "find who writes to keys with this prefix, and delete that key",
        )
    },
    ErrorReply {
        code: "NOPERM",
        says: "",
        ran: Ran::Partly,
        lasts: Lasts::UntilAllowed,
        means: "does not allow this to the user in the URL",
        remedy: "scripts/redis-users has what each program's user needs",
    },
    ErrorReply {
        code: "NOAUTH",
        says: "",
        ran: Ran::Nothing,
        lasts: Lasts::UntilAllowed,
        means: "wants a user and a password",
        remedy: "put them into the URL",
    },
    WRONG_LOGIN,
    ErrorReply {
        code: "DENIED",
        says: "",
        ran: Ran::Nothing,
        lasts: Lasts::UntilAllowed,
        means: "talks only to its own machine (protected-mode)",
        remedy: "give its users passwords (scripts/redis-users)",
    },
    NO_PROTOCOL,
    of_cluster("CROSSSLOT"),
    of_cluster("MOVED"),
    of_cluster("ASK"),
    awhile(
        "TRYAGAIN",
        "is moving these keys from one node of its Cluster to another",
        "wait until they have moved; if nobody moves them any more: redis-cli --cluster fix",
    ),
    awhile(
        "CLUSTERDOWN",
        "is a node of a Cluster in which slots are served by nobody",
        "bring its nodes back, and look with redis-cli --cluster check",
    ),
];

/// The rows of `ERR`, in the words of Redis 6 and 7 and of Valkey 9.
const BY_TEXT: [ErrorReply; 6] = [
    ErrorReply {
        says: "max number of clients",
        ..awhile(
            "ERR",
            "takes no more connections (maxclients)",
            "raise maxclients: a server takes 13 of them, a worker 4",
        )
    },
    unknown("unknown command"),
    unknown("unknown subcommand"),
    // Redis says "Unknown Redis command", Valkey "Unknown command".
    unknown("command called from"),
    ErrorReply {
        code: "ERR",
        says: "DB index is out of range",
        ran: Ran::Nothing,
        lasts: Lasts::UntilAllowed,
        means: "has no database with the number in the URL",
        remedy: "give a number below its setting databases",
    },
    ErrorReply {
        says: "in cluster mode",
        ..of_cluster("ERR")
    },
];

/// How Redis 7.0 says NOPERM of a command within a script; 6 and later versions name it by its code, too.
const NOT_ALLOWED_IN_SCRIPT: [&str; 3] = [
    "ACL failure in script",
    "can't run this command",
    "can't access at least one of the keys",
];

const UNKNOWN_COMMAND: &str = "does not know a command that Tally needs (rename-command)";

const fn awhile(code: &'static str, means: &'static str, remedy: &'static str) -> ErrorReply {
    ErrorReply {
        code,
        says: "",
        ran: Ran::Nothing,
        lasts: Lasts::AWhile,
        means,
        remedy,
    }
}

const fn of_cluster(code: &'static str) -> ErrorReply {
    ErrorReply {
        code,
        says: "",
        ran: Ran::Nothing,
        lasts: Lasts::ForEver,
        means: "is a node of a Redis Cluster",
        remedy: "write redis+cluster:// in REDIS_URL",
    }
}

/// A script may have run some of its commands before the one that is unknown.
const fn unknown(says: &'static str) -> ErrorReply {
    ErrorReply {
        code: "ERR",
        says,
        ran: Ran::Partly,
        lasts: Lasts::ForEver,
        means: UNKNOWN_COMMAND,
        remedy: "let it keep its commands' names, or use another Redis",
    }
}

impl ErrorReply {
    /// Every row.
    pub fn all() -> impl Iterator<Item = &'static Self> {
        BY_CODE.iter().chain(&BY_TEXT)
    }

    /// The row of this code; `None`: there is none, or only its text would tell.
    fn of_code(code: &str) -> Option<&'static Self> {
        BY_CODE.iter().find(|row| row.code == code)
    }

    fn of_text(text: &str) -> Option<&'static Self> {
        BY_TEXT.iter().find(|row| text.contains(row.says))
    }
}

/// An error reply that Tally knows.
///
/// Shows none of Redis' own text, beside the name of a command: Redis repeats arguments in it, and
/// those of AUTH are passwords.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    row: Row,
    /// The command that is refused, where Redis names it.
    command: Option<String>,
    /// NOPERM of keys, not of a command.
    is_of_keys: bool,
}

#[derive(Clone, Copy, Debug)]
struct Row(&'static ErrorReply);

impl PartialEq for Row {
    fn eq(&self, other: &Self) -> bool {
        (self.0.code, self.0.says) == (other.0.code, other.0.says)
    }
}

impl Eq for Row {}

impl Refusal {
    /// The refusal that this error is; `None`: it is no reply, or an unknown one.
    pub(super) fn of(error: &RedisError) -> Option<Self> {
        let detail = error.detail().unwrap_or_default();
        let row = match (error.kind(), error.code()) {
            (ErrorKind::AuthenticationFailed, _) => Some(&WRONG_LOGIN),
            (ErrorKind::RESP3NotSupported, _) => Some(&NO_PROTOCOL),
            (_, Some("ERR")) if NOT_ALLOWED_IN_SCRIPT.iter().any(|says| detail.contains(says)) => {
                ErrorReply::of_code("NOPERM")
            }
            (_, Some("ERR")) => ErrorReply::of_text(detail).or_else(|| {
                // Redis 6 wraps the reply to a script's command in one of its own.
                detail
                    .split_ascii_whitespace()
                    .find_map(|word| ErrorReply::of_code(word.trim_start_matches('-')))
            }),
            (_, Some(code)) => ErrorReply::of_code(code),
            (_, None) => None,
        };
        let refusal = row.map(|row| Self::new(row, detail))?;
        Some(if refusal.command.as_deref() == Some("HELLO") {
            Self::new(&NO_PROTOCOL, detail)
        } else {
            refusal
        })
    }

    /// The refusal in a line that Redis sent, such as `-ERR max number of clients reached`.
    pub(super) fn of_line(line: &str) -> Option<Self> {
        let (code, detail) = line.strip_prefix('-')?.split_once(' ')?;
        let row = ErrorReply::of_code(code).or_else(|| ErrorReply::of_text(detail))?;
        Some(Self::new(row, detail))
    }

    fn new(row: &'static ErrorReply, detail: &str) -> Self {
        Self {
            row: Row(row),
            command: command(row, detail),
            // Redis' words differ by version. All of them say which of the two it is.
            is_of_keys: row.code == "NOPERM" && detail.contains("key"),
        }
    }

    /// Whether the login may not use keys with this name.
    pub(super) fn is_of_keys(&self) -> bool {
        self.is_of_keys
    }

    /// Whether Redis has no memory for a write.
    pub fn is_out_of_memory(&self) -> bool {
        self.reply().code == "OOM"
    }

    /// Whether Redis does not know the command.
    pub(super) fn is_unknown_command(&self) -> bool {
        self.reply().means == UNKNOWN_COMMAND
    }

    /// The row of the table.
    pub fn reply(&self) -> &'static ErrorReply {
        self.row.0
    }
}

/// The command in Redis' text: the first word in quotes.
fn command(row: &ErrorReply, detail: &str) -> Option<String> {
    if row.code != "NOPERM" && !row.says.starts_with("unknown command") {
        return None;
    }
    let word = detail.split(['\'', '`']).nth(1)?;
    let is_name = word
        .bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || b"|_-.".contains(&byte));
    (is_name && (1..=32).contains(&word.len())).then(|| word.to_uppercase())
}

impl fmt::Display for Refusal {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ErrorReply {
            code, means, remedy, ..
        } = self.reply();
        match &self.command {
            Some(command) => write!(out, "{means} ({code} {command}): {remedy}"),
            None => write!(out, "{means} ({code}): {remedy}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use redis::ServerErrorKind;

    use super::*;

    fn of(kind: ServerErrorKind, detail: &str) -> Option<Refusal> {
        Refusal::of(&RedisError::from((kind.into(), "x", detail.to_owned())))
    }

    #[test]
    fn no_argument_of_a_command_is_shown() {
        for text in [
            "unknown command 'AUTH', with args beginning with: 'server' 'secret' ",
            "unknown command `AUTH`, with args beginning with: `server`, `secret`, ",
        ] {
            let shown = of(ServerErrorKind::ResponseError, text)
                .expect("known")
                .to_string();
            assert!(
                shown.contains("(ERR AUTH)") && !shown.contains("secret"),
                "{shown}"
            );
        }
        let text = "unknown command 'a secret', with args beginning with: ";
        let shown = of(ServerErrorKind::ResponseError, text)
            .expect("known")
            .to_string();
        assert!(!shown.contains("secret"), "{shown}");
    }

    #[test]
    fn a_reply_that_redis_6_wraps_is_the_reply_within() {
        let text = "Error running script (call to f_0): @user_script:12: @user_script: 12: -MISCONF Redis is configured";
        let known = of(ServerErrorKind::ResponseError, text).expect("known");
        assert_eq!(known.reply().code, "MISCONF");
        let other = "Error running script (call to f_0): @user_script:1: user_script:1: attempt to call";
        assert_eq!(of(ServerErrorKind::ResponseError, other), None);
    }

    #[test]
    fn a_command_that_is_not_allowed_within_a_script_is_named_as_outside_of_it() {
        for (text, is_of_keys) in [
            (
                "The user executing the script can't run this command or subcommand script: ab05, on @user_script:67.",
                false,
            ),
            (
                "The user executing the script can't access at least one of the keys mentioned in the command arguments script: ab05, on @user_script:67.",
                true,
            ),
        ] {
            let known = of(ServerErrorKind::ResponseError, text).expect("known");
            assert_eq!(
                (known.reply().code, known.is_of_keys()),
                ("NOPERM", is_of_keys),
                "{text}"
            );
            assert!(!known.to_string().contains("ab05"), "{known}");
        }
    }

    #[test]
    fn a_line_is_read_as_a_reply_is() {
        for (line, code) in [
            ("-ERR max number of clients reached", Some("ERR")),
            ("-DENIED Redis is running in protected mode", Some("DENIED")),
            ("-ERR wrong number of arguments for 'auth' command", None),
            ("+PONG", None),
            ("-", None),
        ] {
            let known = Refusal::of_line(line).map(|known| known.reply().code);
            assert_eq!(known, code, "{line}");
        }
    }
}
