//! Settings of the server: who may connect, who may vote, how often, and from where.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};

use super::values::{cells, claim, duration, hsts, login_url, path, served};
use crate::domain::{AddressKeys, Throttles};
use crate::store_url::StoreUrl;
use crate::web::access::{
    CreateItems, FrameOrigins, HOPS_LIMIT, JwtSecrets, Networks, Open, Origins, ProxyHeader, VoterCookies,
};
use crate::web::limits::{CONNECTIONS_LIMIT, STREAMS_LIMIT, STREAMS_LIMIT_BY_ADDRESS};

/// Which votes make a live count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Seed {
    /// On items that were voted on or read a second or two ago.
    Warm,
    /// These, and as long as few are made also on any other.
    Few,
    /// On every item.
    All,
}

/// Settings of the server.
#[derive(Args, Clone, Debug)]
pub struct Server {
    /// The address and port to listen on; port 0 takes a free one
    #[arg(
        long,
        env = "TALLY_LISTEN",
        default_value = "127.0.0.1:8080",
        value_name = "ADDRESS:PORT"
    )]
    pub listen: SocketAddr,

    /// How long a shutdown waits for requests under way (in whole seconds), then again for batches of votes,
    /// then again for the repair of suspect counts
    #[arg(long, env = "TALLY_SHUTDOWN_LIMIT", default_value = "10s", value_parser = duration, value_name = "DURATION")]
    pub shutdown_limit: Duration,

    /// How long the server still serves after a SIGTERM, such as 5s: it says that it is not ready, and
    /// ends each connection with its next answer, so that load balancers turn to other servers
    #[arg(long, env = "TALLY_DRAIN", value_parser = duration, value_name = "DURATION")]
    pub drain: Option<Duration>,

    /// The most connections at once; the server answers others with 503
    #[arg(long, env = "TALLY_CONNECTIONS_LIMIT", default_value_t = CONNECTIONS_LIMIT, value_parser = served, value_name = "CONNECTIONS")]
    pub connections_limit: usize,

    /// The most live streams at once, up to three quarters of all connections; the server answers others with
    /// 503
    #[arg(long, env = "TALLY_STREAMS_LIMIT", default_value_t = STREAMS_LIMIT, value_parser = served, value_name = "STREAMS")]
    pub streams_limit: usize,

    /// The most live streams of one client address; the server answers others with 429
    #[arg(long, env = "TALLY_STREAMS_LIMIT_BY_ADDRESS", default_value_t = STREAMS_LIMIT_BY_ADDRESS, value_parser = served, value_name = "STREAMS")]
    pub streams_limit_by_address: usize,

    /// Create the item of an unknown key with its first vote: true or false; likes creates items without
    /// down-votes
    #[arg(
        long,
        env = "TALLY_CREATE_ITEMS",
        default_value_t = CreateItems::Nothing,
        default_missing_value = "true",
        num_args = 0..=1,
        require_equals = true,
        value_name = "WHAT"
    )]
    pub create_items: CreateItems,

    /// How many cells there are, this one among them. The last page of a list names the next cell
    #[arg(long, env = "TALLY_CELLS", default_value_t = 1, value_parser = cells, value_name = "CELLS")]
    pub cells: u16,

    /// In how many cells, from cell 0 on, items and polls with own keys lie. It never changes: a key's cell depends on it
    #[arg(long, env = "TALLY_KEY_CELLS", default_value_t = 1, value_parser = cells, value_name = "CELLS")]
    pub key_cells: u16,

    /// Which votes make a live count
    #[arg(
        long,
        env = "TALLY_SEED",
        value_enum,
        default_value = "few",
        value_name = "VOTES"
    )]
    pub seed: Seed,

    /// What anyone may do without a credential: anonymous (vote without a voter), voters (vote as any voter,
    /// and see what a voter holds), visitors (become a new voter, with a cookie), admin (create and edit
    /// items and polls, create ballots, list and revoke API keys), report (read metrics); separated by commas
    #[arg(long, env = "TALLY_OPEN", value_name = "WHAT")]
    pub open: Option<Open>,

    /// Origins whose pages may write, besides the server's own, such as https://example.org; separated by
    /// commas
    #[arg(
        long,
        env = "TALLY_ORIGINS",
        default_value = "",
        hide_default_value = true,
        value_name = "ORIGINS"
    )]
    pub origins: Origins,

    /// Origins whose pages may frame the pages of single polls and items, such as https://cms.example.org;
    /// separated by commas
    #[arg(
        long,
        env = "TALLY_FRAME_ORIGINS",
        default_value = "",
        hide_default_value = true,
        value_name = "ORIGINS"
    )]
    pub frame_origins: FrameOrigins,

    /// How long browsers use the server's host only over https (Strict-Transport-Security), such as 1y; for
    /// servers behind a proxy that ends TLS
    #[arg(long, env = "TALLY_HSTS", value_parser = hsts, value_name = "DURATION")]
    pub hsts: Option<Duration>,

    /// Throttles by voter, client address or item, such as voter:10/1m,address:100/1m; separated by commas
    #[arg(
        long,
        env = "TALLY_THROTTLE",
        default_value = "",
        hide_default_value = true,
        value_name = "THROTTLES"
    )]
    pub throttle: Throttles,

    /// Networks of the proxies that are trusted to name their client's address, such as 10.0.0.0/8; separated
    /// by commas
    #[arg(
        long,
        env = "TALLY_PROXIES",
        default_value = "",
        hide_default_value = true,
        value_name = "NETWORKS"
    )]
    pub proxies: Networks,

    /// The header in which these proxies name it: x-forwarded-for or forwarded
    #[arg(
        long,
        env = "TALLY_PROXY_HEADER",
        default_value = "x-forwarded-for",
        value_name = "HEADER"
    )]
    pub proxy_header: ProxyHeader,

    /// How many addresses these proxies add to it for each request. The client is the first of them. Without
    /// this setting, it is the last address that is not of these proxies
    #[arg(
        long,
        env = "TALLY_PROXY_HOPS",
        value_parser = clap::value_parser!(u8).range(1..=HOPS_LIMIT as i64),
        value_name = "ADDRESSES"
    )]
    pub proxy_hops: Option<u8>,

    #[command(flatten)]
    pub address: AddressSettings,

    /// Keys that sign voters' cookies, of 64 hexadecimal digits each, separated by commas. The first key
    /// signs; cookies signed by any of the keys are valid. Without keys, voters have no cookies
    #[arg(long, env = "TALLY_COOKIE_KEYS", hide_env_values = true, value_name = "KEYS")]
    pub cookie_keys: Option<VoterCookies>,

    #[command(flatten)]
    pub jwt: Jwt,

    /// Postgres with a login in the role tally_operator, in the form of DATABASE_URL. Then callers with the
    /// scope admin can void votes, create API keys and read the trail over HTTP too
    #[arg(
        long,
        env = "TALLY_OPERATOR_DATABASE_URL",
        hide_env_values = true,
        value_parser = login_url,
        value_name = "URL"
    )]
    pub operator_database_url: Option<StoreUrl>,
}

/// The issuer of the JSON Web Tokens that name a voter, by the claim `sub`.
#[derive(Args, Clone, Debug)]
pub struct Jwt {
    /// The secret of voters' tokens signed with HS256: at least 32 bytes. Tokens of several secrets,
    /// separated by commas, are valid
    #[arg(
        long = "jwt-secret",
        env = "TALLY_JWT_SECRET",
        hide_env_values = true,
        requires_all = ["audience", "issuer"],
        value_name = "SECRETS"
    )]
    pub secrets: Option<JwtSecrets>,

    /// A file with the public keys of voters' tokens signed with RS256 or ES256: a JSON Web Key Set, read
    /// again when it changes
    #[arg(
        long = "jwt-keys",
        env = "TALLY_JWT_KEYS",
        value_parser = path,
        requires_all = ["audience", "issuer"],
        value_name = "FILE"
    )]
    pub keys_file: Option<PathBuf>,

    /// What the claim aud of voters' tokens must contain
    #[arg(
        long = "jwt-audience",
        env = "TALLY_JWT_AUDIENCE",
        value_parser = claim,
        value_name = "AUDIENCE"
    )]
    pub audience: Option<String>,

    /// What the claim iss of voters' tokens must be
    #[arg(
        long = "jwt-issuer",
        env = "TALLY_JWT_ISSUER",
        value_parser = claim,
        value_name = "ISSUER"
    )]
    pub issuer: Option<String>,
}

/// Settings for the addresses of votes.
#[derive(Args, Clone, Debug)]
pub struct AddressSettings {
    /// Keys that hash the address of each vote's client, for `tally void --address`, of 64 hexadecimal digits
    /// each, separated by commas. The first key hashes; a search uses all keys. Without keys, nothing is kept
    /// of addresses
    #[arg(
        id = "address_keys",
        long = "address-keys",
        env = "TALLY_ADDRESS_KEYS",
        hide_env_values = true,
        value_name = "KEYS"
    )]
    pub keys: Option<AddressKeys>,
}
