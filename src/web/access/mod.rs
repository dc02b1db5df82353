//! Who may do what over HTTP.
//!
//! - `caller`: who sent a request, according to its credential.
//! - `address`: the client's address, also behind proxies.
//! - `api_keys`: what API keys allow, remembered for a while.
//! - `create_items`: which items a first vote creates.
//! - `cookies`: voters' cookies, signed.
//! - `frames`: pages that may frame those of single polls and items.
//! - `jwt`: voters' tokens.
//! - `open_items`: to whom single items and polls are open, remembered for a while.
//! - `operator`: the operator's Postgres login.
//! - `origins`: pages of other origins.
//! - `trail`: administrative acts that are refused.
//! - `may_vote`: who may vote on what.

mod address;
mod api_keys;
mod caller;
mod cookies;
mod create_items;
mod frames;
mod jwt;
mod may_vote;
mod open_items;
mod operator;
mod origins;
mod trail;

use std::str::FromStr;

use actix_web::http::header::HeaderValue;

pub(in crate::web) use address::client_address;
pub use address::{HOPS_LIMIT, Networks, Proxies, ProxyHeader};
pub use api_keys::{ApiKeys, ValidApiKey};
#[cfg(any(test, fuzzing))]
pub(in crate::web) use caller::bearer;
pub use caller::{Admin, Caller, IsAdmin, Reporter, Sender, Visitor};
#[cfg(any(test, fuzzing))]
pub(in crate::web) use cookies::FoundCookie;
pub(in crate::web) use cookies::VOTER_COOKIE;
pub use cookies::{VoterCookies, new_visitor};
pub use create_items::CreateItems;
pub use frames::{FRAME_ORIGINS_LIMIT_BYTES, FrameOrigins};
pub use jwt::{JwtOptions, JwtSecrets, KeysError, Tokens};
pub use may_vote::{Voting, VotingOptions};
pub use open_items::{OPEN_LIMIT_AGE, OpenItems};
pub use operator::OperatorLogin;
pub(in crate::web) use origins::is_host_of;
pub use origins::{Origins, guard, hsts};
pub use trail::{Act, RefusedActs, note_refusals};

/// The options of who may do what.
#[derive(Clone, Debug, Default)]
pub struct AccessOptions {
    /// What anyone may do without a credential.
    pub open: Open,
    /// The origins whose pages may write, besides the server's own.
    pub origins: Origins,
    /// The origins whose pages may frame the pages of single polls and items.
    pub frames: FrameOrigins,
    /// The Strict-Transport-Security header ([`hsts`]), if the server sends one.
    pub hsts: Option<HeaderValue>,
    /// The proxies that are trusted to name their client.
    pub proxies: Proxies,
    /// The keys of voters' cookies. `None`: voters have no cookies.
    pub cookies: Option<VoterCookies>,
    /// The issuer of voters' tokens. `None`: voters have no tokens.
    pub jwt: Option<JwtOptions>,
}

/// What a server needs to decide who may do what. It is app data of each thread.
#[derive(Clone)]
pub struct Access {
    pub options: AccessOptions,
    pub api_keys: ApiKeys,
    pub refused_acts: RefusedActs,
    pub open_items: OpenItems,
    /// Made from the option `jwt`. `None`: voters have no tokens.
    pub tokens: Option<Tokens>,
}

/// What anyone may do without a credential.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Open {
    /// Vote without a voter.
    pub anonymous: bool,
    /// Vote as any voter, and read what a voter holds.
    pub voters: bool,
    /// Become a new voter, with a cookie.
    pub visitors: bool,
    /// What the scope `admin` allows.
    pub admin: bool,
    /// What the scope `report` allows.
    pub report: bool,
}

impl Open {
    /// Everything.
    pub const ALL: Self = Self {
        anonymous: true,
        voters: true,
        visitors: true,
        admin: true,
        report: true,
    };

    /// The names of what is open, as the setting has them.
    pub fn names(self) -> Vec<&'static str> {
        let all = [
            (self.anonymous, "anonymous"),
            (self.voters, "voters"),
            (self.visitors, "visitors"),
            (self.admin, "admin"),
            (self.report, "report"),
        ];
        all.into_iter()
            .filter_map(|(is_open, name)| is_open.then_some(name))
            .collect()
    }
}

/// Reads names, separated by commas. An empty text means nothing.
impl FromStr for Open {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut open = Self::default();
        for name in text.split(',').map(str::trim).filter(|_| !text.trim().is_empty()) {
            let what = match name {
                "anonymous" => &mut open.anonymous,
                "voters" => &mut open.voters,
                "visitors" => &mut open.visitors,
                "admin" => &mut open.admin,
                "report" => &mut open.report,
                _ => {
                    return Err(
                        "it takes anonymous, voters, visitors, admin and report, separated by commas"
                            .to_owned(),
                    );
                }
            };
            *what = true;
        }
        Ok(open)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_open_is_a_list_of_names() {
        assert_eq!("".parse(), Ok(Open::default()));
        assert_eq!("anonymous, voters,visitors,admin,report".parse(), Ok(Open::ALL));
        let one = Open {
            voters: true,
            ..Open::default()
        };
        assert_eq!("voters".parse(), Ok(one));
        assert_eq!(Open::ALL.names().join(",").parse(), Ok(Open::ALL));
        assert_eq!((one.names(), Open::default().names()), (vec!["voters"], vec![]));
        for wrong in ["all", "voters,", ",", "Voters", "voters admin"] {
            assert!(wrong.parse::<Open>().is_err(), "{wrong}");
        }
    }
}
