//! What `tally dev` says when it runs: where it is, how it is open, and calls that work.

use std::net::SocketAddr;
use std::path::Path;

use crate::domain::{ApiKey, NewApiKey, Scope};
use crate::files;
use crate::ledger::{OperatorLedger, ServerLedger};
use crate::telemetry;
use crate::web::access::Open;

/// What the API key of `tally dev` is called.
const KEY_NAME: &str = "tally dev";
/// The largest file of an API key.
const KEY_LIMIT_BYTES: u64 = 1024;

/// What the greeting has.
pub(super) struct Greeting<'a> {
    pub address: SocketAddr,
    /// The servers: one at that address, or several, perhaps behind a proxy at that address.
    pub servers: &'a [SocketAddr],
    pub open: Open,
    /// A key for what is not open.
    pub key: Option<ApiKey>,
    /// A psql command for reports.
    pub psql: &'a str,
    /// A redis-cli command, and the ports of further Redises. `None`: Redis was given.
    pub redis_cli: Option<(String, Vec<u16>)>,
    /// Where the data stay. `None`: in the stores that were given.
    pub folder: Option<&'a Path>,
}

impl Greeting<'_> {
    pub fn print(&self) {
        telemetry::print(self.text());
    }

    fn text(&self) -> String {
        let base = format!("http://{}", self.address);
        let stays = self.folder.map_or(String::new(), |folder| {
            format!("; the data stays in {}", folder.display())
        });
        // A voter's vote needs no key if votes of any voter are open.
        let credential = match &self.key {
            Some(key) if !self.open.voters => format!(" -H 'authorization: Bearer {}'", key.as_str()),
            _ => String::new(),
        };
        format!(
            "
Tally is at {base}/{servers}{how}

  curl -s {base}/v1/items
  curl -s {base}/v1/items/1/votes{credential} -H 'content-type: application/json' -d '{{\"voter_id\":\"ada\"}}'
  curl -s {base}/v1/items/1

  {psql}      reports: select * from report.items;
{redis_cli}  Ctrl-C stops everything{stays}.
",
            servers = self.which_servers(),
            how = self.how_it_is_open(),
            psql = self.psql,
            redis_cli = self.redis_cli(),
        )
    }

    /// Says how to look into Redis, and which further ones there are.
    fn redis_cli(&self) -> String {
        let Some((command, others)) = &self.redis_cli else {
            return String::new();
        };
        let others: Vec<String> = others.iter().map(u16::to_string).collect();
        let others = match others.as_slice() {
            [] => String::new(),
            _ => format!("; further ports: {}", others.join(", ")),
        };
        format!("  {command}      Redis: info replication{others}\n")
    }

    /// Says which servers there are, if they are several.
    fn which_servers(&self) -> String {
        let at = |server: &SocketAddr| format!("http://{server}");
        match self.servers {
            [] | [_] => String::new(),
            [first, others @ ..] if *first == self.address => format!(
                "\nFurther servers: {}. With HAProxy installed, one address leads to all of them.",
                others.iter().map(at).collect::<Vec<_>>().join(", ")
            ),
            all => format!(
                "\nHAProxy leads from there to the servers: {}",
                all.iter().map(at).collect::<Vec<_>>().join(", ")
            ),
        }
    }

    /// Says what anyone may do, and the key for the rest.
    fn how_it_is_open(&self) -> String {
        if self.open == Open::ALL {
            return "\nAnyone who can reach it may do everything: use it only to try Tally.".to_owned();
        }
        let names = self.open.names().join(", ");
        let open = if names.is_empty() {
            "It is closed: anyone may read, and nothing else (TALLY_OPEN).".to_owned()
        } else {
            format!("Anyone may read, and what TALLY_OPEN has: {names}.")
        };
        let key = self.key.as_ref().map_or(String::new(), |key| {
            format!("\nThis API key may do everything else: {}", key.as_str())
        });
        format!("\n{open}{key}")
    }
}

/// Returns an API key with all scopes: the one in this file while it is valid, or a new one. `None` for the file:
/// always a new one.
pub(super) async fn api_key(
    operator: &OperatorLedger,
    server_url: &str,
    file: Option<&Path>,
) -> anyhow::Result<ApiKey> {
    if let Some(key) = file.and_then(read) {
        let ledger = ServerLedger::new(server_url, "tally dev")?;
        let found = ledger.use_api_key(&key.hash()).await;
        ledger.close().await;
        if found?.is_some_and(|found| found.scopes == Scope::ALL.into_iter().collect()) {
            return Ok(key);
        }
    }
    let key = ApiKey::fresh();
    let new = NewApiKey {
        name: KEY_NAME.to_owned(),
        scopes: Scope::ALL.into_iter().collect(),
        expires_at: None,
    };
    operator.create_api_key(&key.hash(), &new).await?;
    if let Some(file) = file {
        files::write_secret(file, key.as_str())?;
    }
    Ok(key)
}

/// The key in a file. `None`: there is no key in it, so a new one is made.
fn read(file: &Path) -> Option<ApiKey> {
    let bytes = files::read(file, KEY_LIMIT_BYTES).ok()?;
    ApiKey::parse(std::str::from_utf8(&bytes).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn greeting(open: Open) -> String {
        let key = ApiKey::parse(&format!("tally_{}", "0".repeat(64)));
        let greeting = Greeting {
            address: "127.0.0.1:8080".parse().expect("an address"),
            servers: &[],
            open,
            key: key.filter(|_| open != Open::ALL),
            psql: "psql",
            redis_cli: Some(("redis-cli -p 1".to_owned(), vec![2, 3])),
            folder: None,
        };
        greeting.text()
    }

    #[test]
    fn the_greeting_says_how_to_look_into_redis_and_which_further_ones_there_are() {
        let said = greeting(Open::ALL);
        assert!(
            said.contains("  redis-cli -p 1      Redis: info replication; further ports: 2, 3\n"),
            "{said}"
        );
    }

    #[test]
    fn the_greeting_says_how_tally_is_open_and_its_calls_have_a_key_where_they_need_one() {
        let of = |names: &str| greeting(names.parse().expect("names"));
        let all = greeting(Open::ALL);
        assert!(
            all.contains("may do everything") && !all.contains("tally_"),
            "{all}"
        );
        let closed = of("");
        assert!(
            closed.contains("It is closed") && closed.matches("tally_").count() == 2,
            "{closed}"
        );
        let admin = of("admin,report");
        assert!(
            admin.contains("has: admin, report.") && admin.contains("Bearer tally_"),
            "{admin}"
        );
        let voters = of("voters");
        assert!(
            voters.contains("has: voters.") && !voters.contains("Bearer"),
            "{voters}"
        );
    }

    #[test]
    fn the_greeting_names_all_servers_behind_a_proxy_or_beside_each_other() {
        let [first, second, third] =
            ["127.0.0.1:8080", "127.0.0.1:81", "127.0.0.1:82"].map(|text| text.parse().expect("an address"));
        let greeting = |servers: &[SocketAddr]| {
            let greeting = Greeting {
                address: first,
                servers,
                open: Open::ALL,
                key: None,
                psql: "psql",
                redis_cli: None,
                folder: None,
            };
            greeting.text()
        };
        assert!(greeting(&[second, third]).contains("servers: http://127.0.0.1:81, http://127.0.0.1:82\n"));
        assert!(greeting(&[first, second]).contains("Further servers: http://127.0.0.1:81. "));
        assert!(!greeting(&[first]).contains("servers"));
    }
}
