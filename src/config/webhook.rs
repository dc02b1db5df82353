//! Settings of events and of the webhook that gets them.

use clap::Args;

use crate::domain::{SecretKeys, Thresholds};
use crate::sync::WebhookUrl;

/// Settings of events and of the webhook that gets them.
#[derive(Args, Clone, Debug)]
pub struct Webhook {
    /// The URL that gets events: https, or http within a network of yours. Without it, no events are made
    #[arg(
        id = "webhook_url",
        long = "webhook-url",
        env = "TALLY_WEBHOOK_URL",
        hide_env_values = true,
        value_name = "URL"
    )]
    pub url: Option<WebhookUrl>,

    /// Keys that sign events, of 64 hexadecimal digits each, separated by commas. Each key signs
    #[arg(
        id = "webhook_keys",
        long = "webhook-keys",
        env = "TALLY_WEBHOOK_KEYS",
        hide_env_values = true,
        value_name = "KEYS"
    )]
    pub keys: Option<SecretKeys>,

    /// The counts of an item at which an event is made, such as 100,1000
    #[arg(
        id = "webhook_thresholds",
        long = "webhook-thresholds",
        env = "TALLY_WEBHOOK_THRESHOLDS",
        default_value = "",
        hide_default_value = true,
        value_name = "COUNTS"
    )]
    pub thresholds: Thresholds,
}

impl Webhook {
    /// Checks settings that go together.
    ///
    /// # Errors
    /// When one is given without another that it needs: one line that names both.
    pub(super) fn check(&self) -> Result<(), String> {
        let (flag, needs) = match (&self.url, &self.keys) {
            (Some(_), None) => ("--webhook-url", "--webhook-keys, which sign what it gets"),
            (None, Some(_)) => ("--webhook-keys", "--webhook-url"),
            (None, None) if !self.thresholds.as_slice().is_empty() => {
                ("--webhook-thresholds", "--webhook-url")
            }
            _ => return Ok(()),
        };
        Err(format!(
            "{flag} needs {needs} (environment: TALLY_WEBHOOK_URL, TALLY_WEBHOOK_KEYS, TALLY_WEBHOOK_THRESHOLDS)"
        ))
    }
}
