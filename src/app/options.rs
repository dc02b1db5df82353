//! Makes each module's options from the settings.

use super::wiring::StoreUrls;
use crate::config::{self, Seed};
use crate::domain::Cells;
use crate::live::Seeding;
use crate::replay::{Columns, PollOptions, ReplayOptions, Values};
use crate::sync::{Schedule, SyncOptions, WebhookOptions};
use crate::web::access::{self, AccessOptions, JwtOptions, Proxies, VotingOptions};
use crate::web::{ClientLimits, ServerOptions};

impl From<&config::Stores> for StoreUrls {
    fn from(settings: &config::Stores) -> Self {
        Self {
            database_url: settings.database_url.clone(),
            redis_url: settings.redis_url.clone(),
            key_prefix: settings.keys.key_prefix.clone(),
        }
    }
}

impl From<&config::Server> for ServerOptions {
    fn from(settings: &config::Server) -> Self {
        Self {
            listen: settings.listen,
            shutdown_limit: settings.shutdown_limit,
            drain_for: settings.drain,
            clients: settings.into(),
            access: settings.into(),
            voting: settings.into(),
            seeding: match settings.seed {
                Seed::Warm => Seeding::Warm,
                Seed::Few => Seeding::WarmOrFew,
                Seed::All => Seeding::All,
            },
            // It takes a connection, which the caller describes.
            operator: None,
            cells: Cells {
                count: settings.cells,
                of_keys: settings.key_cells,
            },
        }
    }
}

impl From<&config::Server> for ClientLimits {
    fn from(settings: &config::Server) -> Self {
        Self {
            streams: settings.streams_limit,
            streams_by_address: settings.streams_limit_by_address,
            ..Self::with_connections(settings.connections_limit)
        }
    }
}

impl From<&config::Server> for AccessOptions {
    fn from(settings: &config::Server) -> Self {
        Self {
            open: settings.open.unwrap_or_default(),
            origins: settings.origins.clone(),
            frames: settings.frame_origins.clone(),
            hsts: settings.hsts.map(access::hsts),
            proxies: Proxies {
                networks: settings.proxies.clone(),
                header: settings.proxy_header,
                hops: settings.proxy_hops,
            },
            cookies: settings.cookie_keys.clone(),
            jwt: settings.jwt.options(),
        }
    }
}

impl From<&config::Server> for VotingOptions {
    fn from(settings: &config::Server) -> Self {
        Self {
            creates: settings.create_items,
            throttles: settings.throttle.clone(),
            address_keys: settings.address.keys.clone(),
        }
    }
}

impl config::Jwt {
    /// Returns the options of tokens. `None`: voters have no tokens.
    fn options(&self) -> Option<JwtOptions> {
        if self.secrets.is_none() && self.keys_file.is_none() {
            return None;
        }
        Some(JwtOptions {
            secrets: self.secrets.clone(),
            keys_file: self.keys_file.clone(),
            audience: self.audience.clone()?,
            issuer: self.issuer.clone()?,
        })
    }
}

impl From<&config::Worker> for SyncOptions {
    fn from(settings: &config::Worker) -> Self {
        Self {
            flush_page: settings.flush_page,
            retention: Some(settings.retention),
            max_age: Some(settings.max_age),
            writer_stall_limit: settings.audit.writer_stall_limit,
            audit_page: settings.audit.audit_page,
        }
    }
}

/// For a caller that audits without a schedule. It expires nothing, and evicts nothing by age.
impl From<&config::Audit> for SyncOptions {
    fn from(settings: &config::Audit) -> Self {
        Self {
            flush_page: config::FLUSH_PAGE_DEFAULT_COUNTERS,
            retention: None,
            max_age: None,
            writer_stall_limit: settings.writer_stall_limit,
            audit_page: settings.audit_page,
        }
    }
}

impl From<&config::Worker> for Schedule {
    fn from(settings: &config::Worker) -> Self {
        Self {
            flush_every: settings.flush_every,
            scan_every: settings.scan_every,
            audit_cron: settings.audit_cron.to_string(),
            address_retention: settings.address_retention,
            last_flush_limit: settings.last_flush_limit,
            webhook: settings.webhook.options(),
        }
    }
}

impl config::Webhook {
    /// Returns the options of the webhook. `None`: there is none.
    fn options(&self) -> Option<WebhookOptions> {
        Some(WebhookOptions {
            url: self.url.clone()?,
            keys: self.keys.clone()?,
            thresholds: self.thresholds.clone(),
        })
    }
}

impl From<config::Replay> for ReplayOptions {
    fn from(settings: config::Replay) -> Self {
        let values = match (settings.rating, settings.value) {
            (Some(column), _) => Values::Rating {
                column,
                neutral: settings.neutral,
            },
            (None, 0) => Values::Up,
            (None, column) => Values::Column(column),
        };
        Self {
            file: settings.file,
            urls: settings.url,
            columns: Columns {
                voter: settings.voter,
                item: settings.item,
                values,
            },
            poll: settings.poll.map(|title| PollOptions {
                title,
                max_choices: settings.max_choices,
            }),
            connections: settings.connections,
            rate: settings.rate,
            api_key: settings.credential.api_key,
        }
    }
}
