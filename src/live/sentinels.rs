//! Sentinels: they say which Redis is the primary.

use std::cmp::Reverse;
use std::time::Duration;

use futures_util::future::join_all;
use redis::{AsyncConnectionConfig, Client, ConnectionInfo, RedisError, Value, from_redis_value};

use super::LiveError;
use super::address::{SentinelAddress, at};
use super::scripts::{field, send};

/// How long a Sentinel may take to connect, and how long to answer. All are asked at once.
const SENTINEL_LIMIT: Duration = Duration::from_millis(300);

/// The Sentinels of one primary.
pub(super) struct Sentinels {
    clients: Vec<Client>,
    name: String,
    /// How to connect to the primary, but for its host and port.
    primary: ConnectionInfo,
}

/// What a Sentinel says.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Answer {
    /// The primary is here since the failover with this number.
    Primary { host: String, port: u16, epoch: u64 },
    /// It watches nothing with this name.
    Unknown,
}

impl Sentinels {
    pub fn new(address: SentinelAddress) -> Result<Self, LiveError> {
        let clients = address.sentinels.into_iter().map(Client::open);
        Ok(Self {
            clients: clients.collect::<Result<_, _>>().map_err(LiveError::Url)?,
            name: address.name,
            primary: address.primary,
        })
    }

    /// How Tally logs in at the primary. Its host and port are those of a Sentinel.
    pub fn login(&self) -> &ConnectionInfo {
        &self.primary
    }

    /// Where the primary may be, with the number of the failover since when: the latest first. A Sentinel that is cut
    /// off from the others goes on naming the old one, so all are asked.
    ///
    /// # Errors
    /// When none of them names a primary.
    pub async fn named(&self) -> Result<Vec<(u64, ConnectionInfo)>, LiveError> {
        let answers = join_all(self.clients.iter().map(|client| self.ask(client))).await;
        let named = latest_first(answers, &self.name)?;
        Ok(named
            .into_iter()
            .map(|(epoch, host, port)| (epoch, at(&self.primary, host, port)))
            .collect())
    }

    async fn ask(&self, client: &Client) -> Result<Answer, LiveError> {
        self.answer_of(client).await.map_err(|error| match error {
            LiveError::NotASentinel(_) => error,
            error => LiveError::NoSentinel {
                at: client.get_connection_info().addr().to_string(),
                why: Box::new(error),
            },
        })
    }

    async fn answer_of(&self, client: &Client) -> Result<Answer, LiveError> {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(SENTINEL_LIMIT))
            .set_response_timeout(Some(SENTINEL_LIMIT));
        let mut connection = client
            .get_multiplexed_async_connection_with_config(&config)
            .await?;
        // Only the first names the promoted replica while the others still follow the old primary; only the second
        // has the number of the failover.
        let words = ["GET-MASTER-ADDR-BY-NAME", "MASTER"];
        let commands = words.map(|word| {
            let mut command = redis::cmd("SENTINEL");
            command.arg(word).arg(&self.name);
            command
        });
        let mut replies = send(&mut connection, commands.into_iter()).await?.into_iter();
        let (at, state) = (replies.next(), replies.next());
        answer(at.unwrap_or(Value::Nil), state.unwrap_or(Value::Nil), client)
    }
}

/// Reads the replies to `SENTINEL GET-MASTER-ADDR-BY-NAME` and `SENTINEL MASTER`.
fn answer(at: Value, state: Value, client: &Client) -> Result<Answer, LiveError> {
    if let Value::ServerError(error) = at {
        let is_redis = error
            .details()
            .is_some_and(|text| text.contains("unknown command"));
        return Err(if is_redis {
            LiveError::NotASentinel(client.get_connection_info().addr().to_string())
        } else {
            RedisError::from(error).into()
        });
    }
    let Some((host, port)) = from_redis_value::<Option<(String, u16)>>(at).map_err(RedisError::from)? else {
        return Ok(Answer::Unknown);
    };
    // Whoever may ask only where the primary is gets no number: the oldest.
    let epoch = field(state, "config-epoch").unwrap_or(0);
    Ok(Answer::Primary { host, port, epoch })
}

/// The places that they name, the latest failover first.
fn latest_first(
    answers: Vec<Result<Answer, LiveError>>,
    name: &str,
) -> Result<Vec<(u64, String, u16)>, LiveError> {
    let mut named = Vec::new();
    let mut is_unknown = false;
    let mut failure: Option<LiveError> = None;
    for answer in answers {
        match answer {
            Ok(Answer::Primary { host, port, epoch }) => named.push((epoch, host, port)),
            Ok(Answer::Unknown) => is_unknown = true,
            // That one of them can never say it stops nobody, as long as another one may.
            Err(error) if failure.as_ref().is_none_or(LiveError::is_unfit) => failure = Some(error),
            Err(_) => {}
        }
    }
    named.sort_by_key(|(epoch, ..)| Reverse(*epoch));
    // Most often all name one.
    named.dedup_by(|one, other| (&one.1, one.2) == (&other.1, other.2));
    match failure {
        _ if !named.is_empty() => Ok(named),
        Some(error) if !(is_unknown && error.is_unfit()) => Err(error),
        _ => Err(LiveError::UnknownPrimary(name.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Asked = Result<Answer, LiveError>;

    fn primary(port: u16, epoch: u64) -> Asked {
        let host = "h".to_owned();
        Ok(Answer::Primary { host, port, epoch })
    }

    fn gone() -> Asked {
        Err(LiveError::NoSentinel {
            at: "h:1".to_owned(),
            why: Box::new(LiveError::Unavailable),
        })
    }

    fn redis() -> Asked {
        Err(LiveError::NotASentinel("h:6379".to_owned()))
    }

    #[test]
    fn what_the_sentinel_with_the_latest_failover_names_comes_first() {
        for (answers, ports) in [
            (vec![primary(1, 4), primary(2, 5), primary(1, 4)], vec![2, 1]),
            (vec![gone(), primary(2, 5), primary(1, 4)], vec![2, 1]),
            (vec![Ok(Answer::Unknown), primary(2, 0)], vec![2]),
            (vec![redis(), primary(2, 0), primary(2, 0)], vec![2]),
        ] {
            let shown = format!("{answers:?}");
            let named = latest_first(answers, "main").expect("one is named");
            let named: Vec<u16> = named.into_iter().map(|(.., port)| port).collect();
            assert_eq!(named, ports, "{shown}");
        }
    }

    #[test]
    fn without_an_answer_the_error_says_where_and_why_and_whether_waiting_helps() {
        let unknown = || Ok(Answer::Unknown);
        for (answers, words, is_unfit) in [
            (vec![gone(), gone()], "the one at h:1", false),
            (vec![gone(), unknown()], "the one at h:1", false),
            (vec![unknown(), gone(), redis()], "the one at h:1", false),
            (vec![redis(), gone()], "the one at h:1", false),
            (vec![unknown(), unknown()], "no primary with the name main", true),
            (vec![unknown(), redis()], "no primary with the name main", true),
            (vec![redis(), redis()], "h:6379 is no Sentinel", true),
        ] {
            let shown = format!("{answers:?}");
            let error = latest_first(answers, "main").expect_err("nobody names one");
            assert!(error.to_string().contains(words), "{shown}: {error}");
            assert_eq!(error.is_unfit(), is_unfit, "{shown}: {error}");
        }
    }

    #[test]
    fn replies_are_read_in_both_versions_of_the_protocol() {
        let client = Client::open("redis://h:1").expect("a URL");
        let bulk = |text: &str| Value::BulkString(text.as_bytes().to_vec());
        let at = || Value::Array(vec![bulk("10.0.0.1"), bulk("6380")]);
        let fields = [("name", "main"), ("config-epoch", "7"), ("flags", "master")];
        let array = fields.iter().flat_map(|(name, value)| [bulk(name), bulk(value)]);
        let map = fields.iter().map(|(name, value)| (bulk(name), bulk(value)));
        let expected = |epoch| Answer::Primary {
            host: "10.0.0.1".to_owned(),
            port: 6380,
            epoch,
        };
        for (state, epoch) in [
            (Value::Array(array.collect()), 7),
            (Value::Map(map.collect()), 7),
            (Value::Nil, 0),
        ] {
            assert_eq!(answer(at(), state, &client).ok(), Some(expected(epoch)));
        }
        let nobody = answer(Value::Nil, Value::Nil, &client);
        assert_eq!(nobody.ok(), Some(Answer::Unknown));
    }
}
