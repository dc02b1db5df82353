//! What the facts of a Redis mean.

use super::finding::{Finding, clock, is_nearly};
use crate::domain::Moment;
use crate::live::{BUCKETS, RedisFacts};

/// What these facts mean, asked at this time by this machine's clock.
pub fn findings(facts: &RedisFacts, now: Moment) -> Vec<Finding> {
    let mut found = Vec::new();
    let major = facts
        .version
        .split('.')
        .next()
        .and_then(|major| major.parse::<u32>().ok());
    if major.is_some_and(|major| major < 6) {
        found.push(Finding::wrong(
            format!("Redis is version {}", facts.version),
            "Tally needs 6 or later",
        ));
    }
    if facts.role != "master" {
        found.push(Finding::wrong(
            "REDIS_URL leads to a replica, which takes no writes",
            "give the address of the primary",
        ));
    }
    if !facts.has_link {
        found.push(Finding::look(
            "this replica does not reach its primary",
            "see why (INFO replication)",
        ));
    }
    // With one replica the promoted one has none, and would take no counts.
    if facts.is_followed && !facts.needs_replicas && facts.replicas > 1 {
        found.push(Finding::look(
            "after a failover the old primary takes counts until it hears of it (min-replicas-to-write 0)",
            "set min-replicas-to-write 1 on every Redis that Sentinels watch (docs/operating/high-availability.md)",
        ));
    }
    if facts.is_cluster && !facts.is_cluster_url {
        found.push(Finding::wrong(
            "this Redis is a node of a Redis Cluster",
            "write redis+cluster:// in REDIS_URL",
        ));
    }
    if facts.is_cluster && facts.replicas == 0 {
        found.push(Finding::look(
            "a primary of the Redis Cluster has no replica: while it is gone, its part of the items has no live counts",
            "add one (redis-cli --cluster add-node … --cluster-slave)",
        ));
    }
    if facts.leaving_buckets > 0 {
        found.push(Finding::look(
            format!(
                "{} of {BUCKETS} buckets are between two nodes of the Redis Cluster: their items have no live counts",
                facts.leaving_buckets
            ),
            "wait until they have moved; if nobody moves them: redis-cli --cluster fix … --cluster-replace",
        ));
    }
    if facts.asks_no_password {
        found.push(Finding::look(
            "Redis asks for no password: whoever reaches it may change and delete counts",
            "give it users with passwords (docs/operating/stores.md)",
        ));
    } else if facts.is_default_login {
        found.push(Finding::look(
            "the login default may do more with Redis than a program needs",
            "give each program its own user (docs/operating/stores.md)",
        ));
    }
    if facts.is_plain {
        found.push(Finding::look(
            "the password of Redis crosses the network in plain text",
            "rediss:// in REDIS_URL (docs/operating/stores.md, TLS)",
        ));
    }
    if facts.policy != "noeviction" && !facts.policy.is_empty() {
        found.push(Finding::look(
            format!(
                "maxmemory-policy is {}: counts are evicted when memory is full",
                facts.policy
            ),
            "set it to noeviction",
        ));
    }
    if facts.evicted_keys > 0 {
        found.push(Finding::look(
            format!("{} keys were evicted since Redis started", facts.evicted_keys),
            "give it more memory, and set maxmemory-policy to noeviction",
        ));
    }
    let (used, limit) = (
        i64::try_from(facts.used_bytes).unwrap_or(i64::MAX),
        i64::try_from(facts.limit_bytes).unwrap_or(i64::MAX),
    );
    if is_nearly(used, limit) {
        found.push(Finding::wrong(
            format!("Redis uses {} of {} MB", used / 1_000_000, limit / 1_000_000),
            "raise maxmemory, or lower TALLY_RETENTION",
        ));
    }
    if !facts.saves {
        found.push(Finding::look(
            "Redis cannot save its data: it may refuse writes",
            "see its log and its disk; or turn saving off: Tally rebuilds all counts",
        ));
    }
    if facts.is_loading {
        found.push(Finding::look("Redis is loading its data", "wait"));
    }
    let clients =
        [facts.clients, facts.clients_limit].map(|number| i64::try_from(number).unwrap_or(i64::MAX));
    if is_nearly(clients[0], clients[1]) {
        found.push(Finding::wrong(
            format!("{} of {} clients of Redis are connected", clients[0], clients[1]),
            "raise maxclients, or see who holds connections (CLIENT LIST)",
        ));
    }
    found.extend(clock("Redis", facts.now, now));
    found.push(Finding::well(format!(
        "Redis {}{}: {} MB of {}, {} clients, {} replicas",
        facts.version,
        facts
            .place
            .as_ref()
            .map(|place| format!(" at {place}"))
            .unwrap_or_default(),
        used / 1_000_000,
        if limit == 0 {
            "any".to_owned()
        } else {
            format!("{} MB", limit / 1_000_000)
        },
        facts.clients,
        facts.replicas
    )));
    found
}

#[cfg(test)]
mod tests {
    use super::super::finding::Level;
    use super::super::finding::tests::{now, only};
    use super::*;

    fn facts() -> RedisFacts {
        RedisFacts {
            place: None,
            version: "7.0.15".to_owned(),
            role: "master".to_owned(),
            has_link: true,
            replicas: 1,
            is_followed: true,
            needs_replicas: true,
            is_cluster: false,
            is_cluster_url: false,
            leaving_buckets: 0,
            used_bytes: 10,
            limit_bytes: 100,
            policy: "noeviction".to_owned(),
            evicted_keys: 0,
            saves: true,
            is_loading: false,
            is_default_login: false,
            asks_no_password: false,
            is_plain: false,
            clients: 20,
            clients_limit: 10_000,
            now: now(),
        }
    }

    #[test]
    fn nothing_is_found_where_all_is_well() {
        let found = findings(&facts(), now());
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0].level, Level::Well);
    }

    #[test]
    fn each_broken_thing_of_redis_is_found_and_nothing_else() {
        type Break = fn(&mut RedisFacts);
        let broken: [(Level, &str, Break); 16] = [
            (Level::Wrong, "version 5", |facts| {
                facts.version = "5.0.7".to_owned()
            }),
            (Level::Wrong, "replica", |facts| facts.role = "slave".to_owned()),
            (Level::Look, "does not reach its primary", |facts| {
                facts.has_link = false
            }),
            (Level::Look, "min-replicas-to-write 0", |facts| {
                (facts.needs_replicas, facts.replicas) = (false, 2);
            }),
            (Level::Wrong, "node of a Redis Cluster", |facts| {
                facts.is_cluster = true;
            }),
            (Level::Look, "has no replica", |facts| {
                (facts.is_cluster, facts.is_cluster_url, facts.replicas) = (true, true, 0);
            }),
            (Level::Look, "1 of 12 buckets", |facts| {
                (facts.is_cluster, facts.is_cluster_url, facts.leaving_buckets) = (true, true, 1);
            }),
            (Level::Look, "login default", |facts| {
                facts.is_default_login = true
            }),
            (Level::Look, "asks for no password", |facts| {
                (facts.is_default_login, facts.asks_no_password) = (true, true);
            }),
            (Level::Look, "plain text", |facts| facts.is_plain = true),
            (Level::Look, "allkeys-lru", |facts| {
                facts.policy = "allkeys-lru".to_owned()
            }),
            (Level::Look, "evicted", |facts| facts.evicted_keys = 1),
            (Level::Wrong, "uses", |facts| facts.used_bytes = 85),
            (Level::Look, "save", |facts| facts.saves = false),
            (Level::Look, "loading", |facts| facts.is_loading = true),
            (Level::Wrong, "clients", |facts| facts.clients = 8500),
        ];
        for (level, says, breaks) in broken {
            let mut facts = facts();
            breaks(&mut facts);
            let (found, what) = only(findings(&facts, now()));
            assert!(found == level && what.contains(says), "{says}: {found:?} {what}");
        }
        let mut boundless = facts();
        (boundless.used_bytes, boundless.limit_bytes) = (u64::MAX, 0);
        assert_eq!(
            findings(&boundless, now()).len(),
            1,
            "without a limit nothing is nearly used up"
        );
    }
}
