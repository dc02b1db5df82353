//! Settings of each command that asks a server: its address, a credential, the output format.

use clap::Args;

use crate::domain::ApiKey;

/// The server's address, and the output format.
#[derive(Args, Clone, Debug)]
pub struct Remote {
    /// The URL of the server
    #[arg(
        long,
        env = "TALLY_URL",
        hide_env_values = true,
        default_value = "http://127.0.0.1:8080",
        value_name = "URL"
    )]
    pub url: reqwest::Url,

    #[command(flatten)]
    pub credential: Credential,

    /// Print the server's answers unchanged, each as a line of JSON
    #[arg(long)]
    pub json: bool,
}

/// The credential that a client sends.
#[derive(Args, Clone, Debug)]
pub struct Credential {
    /// An API key, if the server needs one
    #[arg(long, env = "TALLY_API_KEY", hide_env_values = true, value_parser = api_key, value_name = "KEY")]
    pub api_key: Option<ApiKey>,
}

/// Reads an API key. The error does not repeat the value.
pub fn api_key(text: &str) -> Result<ApiKey, String> {
    ApiKey::parse(text)
        .ok_or_else(|| "it is not an API key; a key is tally_ and 64 hexadecimal digits".to_owned())
}
