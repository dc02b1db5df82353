//! Settings of the server: who may reach it, who may vote, how often, from where.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use clap::builder::NonEmptyStringValueParser;

use super::values::{SecretUrl, duration, hsts, served};
use crate::domain::{AddressKeys, Throttles};
use crate::web::access::{JwtSecrets, Networks, Open, Origins, ProxyHeader, VoterCookies};
use crate::web::limits::{CONNECTIONS_LIMIT, STREAMS_LIMIT, STREAMS_LIMIT_BY_ADDRESS};

/// Settings of the server.
#[derive(Args, Clone, Debug)]
pub struct Server {
    /// Address and port to listen on; port 0 takes a free one
    #[arg(
        long,
        env = "TALLY_LISTEN",
        default_value = "127.0.0.1:8080",
        value_name = "ADDRESS:PORT"
    )]
    pub listen: SocketAddr,

    /// How long a shutdown waits for requests under way (in whole seconds), then for batches of
    /// votes, then for the repair of suspect counts
    #[arg(long, env = "TALLY_SHUTDOWN_LIMIT", default_value = "10s", value_parser = duration, value_name = "DURATION")]
    pub shutdown_limit: Duration,

    /// How many connections are served at once; a further one gets 503
    #[arg(long, env = "TALLY_CONNECTIONS_LIMIT", default_value_t = CONNECTIONS_LIMIT, value_parser = served, value_name = "CONNECTIONS")]
    pub connections_limit: usize,

    /// How many live streams are open at once, of three quarters of all connections at the most; a
    /// further one gets 503
    #[arg(long, env = "TALLY_STREAMS_LIMIT", default_value_t = STREAMS_LIMIT, value_parser = served, value_name = "STREAMS")]
    pub streams_limit: usize,

    /// How many of them are one client address'; a further one gets 429
    #[arg(long, env = "TALLY_STREAMS_LIMIT_BY_ADDRESS", default_value_t = STREAMS_LIMIT_BY_ADDRESS, value_parser = served, value_name = "STREAMS")]
    pub streams_limit_by_address: usize,

    /// Make the item of an unknown key with its first vote
    #[arg(long, env = "TALLY_CREATE_ITEMS", value_parser = clap::builder::BoolishValueParser::new())]
    pub create_items: bool,

    /// What anyone may do without a credential: anonymous (vote without a voter), voters (vote as
    /// any voter, and see what a voter holds), visitors (become a new voter, with a cookie), admin (make and edit items and polls, make ballots,
    /// list and revoke API keys), report (read metrics); several, separated by commas
    #[arg(long, env = "TALLY_OPEN", value_name = "WHAT")]
    pub open: Option<Open>,

    /// Origins whose pages may write, beside the server's own, like https://example.org; several,
    /// separated by commas
    #[arg(
        long,
        env = "TALLY_ORIGINS",
        default_value = "",
        hide_default_value = true,
        value_name = "ORIGINS"
    )]
    pub origins: Origins,

    /// Where TLS ends in front of the server: for how long browsers then use its host over https
    /// alone (Strict-Transport-Security), like 1y
    #[arg(long, env = "TALLY_HSTS", value_parser = hsts, value_name = "DURATION")]
    pub hsts: Option<Duration>,

    /// How often may be voted, by voter, client address or item, like voter:10/1m,address:100/1m;
    /// several, separated by commas
    #[arg(
        long,
        env = "TALLY_THROTTLE",
        default_value = "",
        hide_default_value = true,
        value_name = "THROTTLES"
    )]
    pub throttle: Throttles,

    /// Networks of the proxies whose word is taken for their client's address, like 10.0.0.0/8;
    /// several, separated by commas
    #[arg(
        long,
        env = "TALLY_PROXIES",
        default_value = "",
        hide_default_value = true,
        value_name = "NETWORKS"
    )]
    pub proxies: Networks,

    /// The header in which these proxies write it: x-forwarded-for or forwarded
    #[arg(
        long,
        env = "TALLY_PROXY_HEADER",
        default_value = "x-forwarded-for",
        value_name = "HEADER"
    )]
    pub proxy_header: ProxyHeader,

    #[command(flatten)]
    pub address: AddressSettings,

    /// Keys that sign voters' cookies: 64 hexadecimal digits each, separated by commas; the first
    /// signs, all are believed. Without them voters have no cookies
    #[arg(long, env = "TALLY_COOKIE_KEYS", hide_env_values = true, value_name = "KEYS")]
    pub cookie_keys: Option<VoterCookies>,

    #[command(flatten)]
    pub jwt: Jwt,

    /// Postgres with a login in the role tally_operator, like DATABASE_URL: then whoever may
    /// administrate can void votes, make API keys and read the trail over HTTP, too
    #[arg(
        long,
        env = "TALLY_OPERATOR_DATABASE_URL",
        hide_env_values = true,
        value_name = "URL"
    )]
    pub operator_database_url: Option<SecretUrl>,
}

/// Whose JSON Web Tokens name a voter, by the claim `sub`.
#[derive(Args, Clone, Debug)]
pub struct Jwt {
    /// The secret of voters' tokens that are signed with HS256: 32 bytes or more; several, separated
    /// by commas, are all believed
    #[arg(
        long = "jwt-secret",
        env = "TALLY_JWT_SECRET",
        hide_env_values = true,
        requires_all = ["audience", "issuer"],
        value_name = "SECRETS"
    )]
    pub secrets: Option<JwtSecrets>,

    /// A file with the public keys of voters' tokens that are signed with RS256 or ES256: a JSON Web
    /// Key Set, read anew when it changes
    #[arg(
        long = "jwt-keys",
        env = "TALLY_JWT_KEYS",
        requires_all = ["audience", "issuer"],
        value_name = "FILE"
    )]
    pub keys_file: Option<PathBuf>,

    /// What the claim aud of voters' tokens must hold
    #[arg(
        long = "jwt-audience",
        env = "TALLY_JWT_AUDIENCE",
        value_parser = NonEmptyStringValueParser::new(),
        value_name = "AUDIENCE"
    )]
    pub audience: Option<String>,

    /// What the claim iss of voters' tokens must be
    #[arg(
        long = "jwt-issuer",
        env = "TALLY_JWT_ISSUER",
        value_parser = NonEmptyStringValueParser::new(),
        value_name = "ISSUER"
    )]
    pub issuer: Option<String>,
}

/// Where votes came from.
#[derive(Args, Clone, Debug)]
pub struct AddressSettings {
    /// Keys that hash the address of each vote's client, for `tally void --address`: 64 hexadecimal
    /// digits each, separated by commas; the first hashes, votes are looked for by all. Without them
    /// nothing is kept of addresses
    #[arg(
        id = "address_keys",
        long = "address-keys",
        env = "TALLY_ADDRESS_KEYS",
        hide_env_values = true,
        value_name = "KEYS"
    )]
    pub keys: Option<AddressKeys>,
}
