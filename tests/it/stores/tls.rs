//! TLS to the stores: votes are counted and saved over it.
//! A program refuses a store that cannot prove its identity. No part of a vote goes over the wire
//! in the clear.

use nix::sys::signal::Signal;
use serde_json::{Value, json};
use tally::dev::Process;
use tally::ledger::Role;
use testkit::programs::until_ready;

use crate::helpers::eventually;
use crate::helpers::programs::{Program, SYNC_WORKER, TALLY, command, run, start, stop, text};
use crate::helpers::stores::Stores;
use crate::helpers::tls::{Authority, Certificate, Wire, protect_postgres, protect_redis};

const VOTER: &str = "a-voter-whom-nobody-may-read";

/// A store's URL that leads over this wire, with the host `localhost`.
fn over(url: &str, wire: &Wire, parameters: &str) -> String {
    let (login, rest) = url.split_once('@').expect("a login");
    let (_, database) = rest.split_once('/').expect("a database");
    format!("{login}@localhost:{}/{database}{parameters}", wire.port())
}

/// Both stores, each over a wire.
struct Way {
    postgres: Wire,
    redis: Wire,
    /// What follows the URL's own part: `?sslmode=…`.
    to_postgres: String,
    /// `redis`, `rediss` or `rediss+sentinel`: then `redis` leads to the Sentinel.
    scheme: &'static str,
    /// The path and what follows it: `/0?sslrootcert=…`.
    to_redis: String,
}

impl Way {
    fn database_url(&self, stores: &Stores, role: Role) -> String {
        over(&stores.login_url(role), &self.postgres, &self.to_postgres)
    }

    fn redis_url(&self, stores: &Stores, role: Role) -> String {
        let url = stores.redis_login_url(role);
        let (_, login) = url.split_once("://").expect("a scheme");
        let (login, _) = login.split_once('@').expect("a login");
        format!(
            "{}://{login}@localhost:{}{}",
            self.scheme,
            self.redis.port(),
            self.to_redis
        )
    }

    fn start(&self, stores: &Stores, program: &str, arguments: &[&str], role: Role) -> Program {
        let mut command = command(program, None);
        command
            .args(arguments)
            .env("DATABASE_URL", self.database_url(stores, role))
            .env("REDIS_URL", self.redis_url(stores, role))
            .env("TALLY_LISTEN", "127.0.0.1:0")
            .env("TALLY_FLUSH_EVERY", "50ms");
        start(command, stores, &format!("{}-{}", role.name(), self.scheme))
    }
}

/// Stores, and an item with the id 1.
async fn stores_with_an_item() -> Stores {
    let stores = Stores::start().await;
    sqlx::query("insert into item (name) values ('x')")
        .execute(&stores.pool())
        .await
        .expect("an item");
    stores
}

/// Votes on an item until all votes are counted and saved.
async fn vote_until_counted(base: &str, votes: i64) {
    let http = reqwest::Client::builder().no_proxy().build().expect("a client");
    eventually("a vote is stored", async || {
        let vote = http
            .post(format!("{base}/v1/items/1/votes"))
            .json(&json!({ "voter_id": format!("{VOTER}-{votes}") }));
        let answer = vote.send().await.expect("an answer");
        answer.status().is_success().then_some(())
    })
    .await;
    eventually("it is counted and saved", async || {
        let answer = http.get(format!("{base}/v1/items/1")).send().await.ok()?;
        let item: Value = answer.json().await.ok()?;
        let is_so =
            item["current"] == true && item["vote_count"] == votes && item["saved"]["vote_count"] == votes;
        is_so.then_some(())
    })
    .await;
}

/// Votes over these wires, cuts them, and votes again.
/// Checks what the wires have seen.
async fn votes_go_over(stores: &Stores, way: &Way, first: i64) {
    let server = way.start(stores, TALLY, &["serve"], Role::Server);
    let worker = way.start(stores, SYNC_WORKER, &[], Role::Worker);
    let line = server.wait_for_line("address=").await;
    let base = format!(
        "http://{}",
        line.split("address=").nth(1).expect("an address").trim()
    );
    until_ready(&base).await.expect("ready");
    for vote in 0..3 {
        vote_until_counted(&base, first + vote).await;
        way.postgres.cut();
        way.redis.cut();
    }
    until_ready(&base).await.expect("ready again");
    stop(server, Signal::SIGTERM).await;
    stop(worker, Signal::SIGTERM).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn votes_are_counted_and_saved_over_tls_and_again_over_tls_after_every_connection_was_cut() {
    let stores = stores_with_an_item().await;
    // Without TLS, whoever listens reads everything.
    let plain = Way {
        postgres: Wire::start(stores.postgres.port()).await,
        redis: Wire::start(stores.redis.port()).await,
        to_postgres: "?sslmode=disable".to_owned(),
        scheme: "redis",
        to_redis: "/0".to_owned(),
    };
    votes_go_over(&stores, &plain, 1).await;
    assert!(plain.postgres.has_seen(VOTER) && plain.redis.has_seen("EVALSHA"));

    let authority = Authority::new(&stores, "own");
    let certificate = authority.sign("localhost");
    protect_postgres(&stores, &certificate).await;
    // Redis' own default: clients need a certificate, too.
    let tls_port = protect_redis(&stores, &certificate, Some(&authority)).await;
    let own = authority.sign("server");
    let protected = Way {
        postgres: Wire::start(stores.postgres.port()).await,
        redis: Wire::start(tls_port).await,
        to_postgres: format!("?sslmode=verify-full&sslrootcert={}", authority.file()),
        scheme: "rediss",
        to_redis: format!(
            "/0?sslrootcert={}&sslcert={}&sslkey={}",
            authority.file(),
            own.file.display(),
            own.key.display()
        ),
    };
    votes_go_over(&stores, &protected, 4).await;
    for wire in [&protected.postgres, &protected.redis] {
        assert!(wire.seen_bytes() > 10_000, "it was used");
        for text in [
            VOTER,
            "EVALSHA",
            "\r\nAUTH\r\n",
            "insert into",
            "tally:",
            "client_encoding",
            "a-test-has-no-secrets",
        ] {
            assert!(!wire.has_seen(text), "{text}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sentinel_and_the_redis_that_it_names_are_spoken_to_over_tls_alone() {
    let stores = stores_with_an_item().await;
    let authority = Authority::new(&stores, "own");
    let certificate = authority.sign("localhost");
    let primary = Wire::start(protect_redis(&stores, &certificate, None).await).await;
    let redis_url = stores.redis_url();
    let login = redis_url.trim_start_matches("redis://").split('@').next();
    let (_, secret) = login.and_then(|login| login.split_once(':')).expect("a login");
    let port = tally::dev::free_port().expect("a port");
    let configuration = stores.folder().join("sentinel.conf");
    // It names the primary by its host, which is what the certificate says.
    let settings = [
        "bind 127.0.0.1".to_owned(),
        "port 0".to_owned(),
        format!("tls-port {port}"),
        format!("tls-cert-file {}", certificate.file.display()),
        format!("tls-key-file {}", certificate.key.display()),
        format!("tls-ca-cert-file {}", authority.file()),
        "tls-auth-clients no".to_owned(),
        "tls-replication yes".to_owned(),
        format!("requirepass {secret}"),
        "sentinel resolve-hostnames yes".to_owned(),
        "sentinel announce-hostnames yes".to_owned(),
        format!("sentinel monitor watched localhost {} 1", primary.port()),
        format!("sentinel auth-pass watched {secret}"),
    ];
    std::fs::write(&configuration, settings.join("\n")).expect("a file");
    let log = stores.folder().join("sentinel.log");
    let arguments = [configuration.into_os_string(), "--sentinel".into()];
    let _sentinel =
        Process::start("Sentinel", "redis-server", arguments, &[], &log, false).expect("it starts");
    let way = Way {
        postgres: Wire::start(stores.postgres.port()).await,
        redis: Wire::start(port).await,
        to_postgres: "?sslmode=disable".to_owned(),
        scheme: "rediss+sentinel",
        to_redis: format!(
            "/watched/0?sentinel_password={secret}&sslrootcert={}",
            authority.file()
        ),
    };
    votes_go_over(&stores, &way, 1).await;
    primary.cut();
    votes_go_over(&stores, &way, 4).await;
    for wire in [&way.redis, &primary] {
        assert!(wire.seen_bytes() > 1000, "it was used");
        for text in ["EVALSHA", "AUTH", "SENTINEL", "tally:", secret] {
            assert!(!wire.has_seen(text), "{text}");
        }
    }
}

/// Checks that each program with these URLs ends with one line with these words.
async fn each_program_refuses(
    stores: &Stores,
    [server, worker, owner]: [String; 3],
    redis_url: &str,
    words: &[&str],
) {
    let is_about_redis = words.contains(&"REDIS_URL");
    for (program, arguments, database_url) in [
        (TALLY, &["serve"][..], &server),
        (SYNC_WORKER, &[], &worker),
        (SYNC_WORKER, &["--once"], &worker),
        (TALLY, &["audit"], &worker),
        (TALLY, &["migrate"], &owner),
    ] {
        if is_about_redis && arguments == ["migrate"] {
            continue;
        }
        let mut command = command(program, None);
        command
            .args(arguments)
            .env("DATABASE_URL", database_url)
            .env("REDIS_URL", redis_url)
            .env("TALLY_LISTEN", "127.0.0.1:0")
            .current_dir(stores.folder());
        let output = run(command).await;
        let said = text(&output.stderr);
        let said = said.trim();
        assert!(
            !output.status.success(),
            "{program} {arguments:?} starts with {words:?}"
        );
        assert_eq!(said.lines().count(), 1, "{program} {arguments:?}: {said}");
        for word in words {
            assert!(
                said.contains(word),
                "{program} {arguments:?}: {said} should have {word}"
            );
        }
    }
}

/// A store's certificate, whom the programs trust, and what the programs say.
struct Case<'a> {
    certificate: Option<&'a Certificate>,
    trusted: String,
    words: &'a str,
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_cannot_show_that_it_is_the_right_one_is_refused_at_the_start_and_is_sent_nothing() {
    let stores = Stores::start().await;
    let (own, other) = (Authority::new(&stores, "own"), Authority::new(&stores, "other"));
    let (right, elsewhere) = (own.sign("localhost"), own.sign("example.org"));
    let expired = own.sign_expired("localhost");
    let cases = [
        // This must be the first case: Postgres does not stop speaking TLS later.
        Case {
            certificate: None,
            trusted: own.file(),
            words: "does not speak TLS",
        },
        Case {
            certificate: Some(&right),
            trusted: other.file(),
            words: "no authority that is trusted here",
        },
        Case {
            certificate: Some(&elsewhere),
            trusted: own.file(),
            words: "another name than the host",
        },
        Case {
            certificate: Some(&expired),
            trusted: own.file(),
            words: "has expired",
        },
    ];
    let plain = [Role::Server, Role::Worker].map(|role| stores.login_url(role));
    let [server, worker] = plain;
    let plain = [server, worker, stores.database_url.clone()];
    for Case {
        certificate,
        trusted,
        words,
    } in cases
    {
        let redis_port = match certificate {
            Some(certificate) => protect_redis(&stores, certificate, None).await,
            None => stores.redis.port(),
        };
        let redis = Wire::start(redis_port).await;
        let redis_url = over(&stores.redis_url(), &redis, &format!("?sslrootcert={trusted}")).replacen(
            "redis://",
            "rediss://",
            1,
        );
        each_program_refuses(&stores, plain.clone(), &redis_url, &["REDIS_URL", words]).await;

        if let Some(certificate) = certificate {
            protect_postgres(&stores, certificate).await;
        }
        let postgres = Wire::start(stores.postgres.port()).await;
        let urls = plain.each_ref().map(|url| {
            over(
                url,
                &postgres,
                &format!("?sslmode=verify-full&sslrootcert={trusted}"),
            )
        });
        each_program_refuses(&stores, urls, &stores.redis_url(), &["DATABASE_URL", words]).await;
        for wire in [&redis, &postgres] {
            assert!(wire.seen_bytes() > 0, "it was asked");
            for text in [
                "\r\nAUTH\r\n",
                "client_encoding",
                "a-test-has-no-secrets",
                "tally",
            ] {
                assert!(!wire.has_seen(text), "{text} with {words}");
            }
        }
        if certificate.is_some() {
            // The logins without TLS again, for the next case of Redis.
            let logins = "host all all 127.0.0.1/32 scram-sha-256\n";
            std::fs::write(stores.folder().join("postgres/data/pg_hba.conf"), logins).expect("a file");
            sqlx::query("select pg_reload_conf()")
                .execute(&stores.pool())
                .await
                .expect("the owner may");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_authority_may_be_named_for_all_by_ssl_cert_file_and_a_wrong_file_is_one_line() {
    let stores = Stores::start().await;
    let authority = Authority::new(&stores, "own");
    let certificate = authority.sign("localhost");
    protect_postgres(&stores, &certificate).await;
    let tls_port = protect_redis(&stores, &certificate, None).await;
    let (postgres, redis) = (
        Wire::start(stores.postgres.port()).await,
        Wire::start(tls_port).await,
    );
    let redis_url =
        |parameters: &str| over(&stores.redis_url(), &redis, parameters).replacen("redis://", "rediss://", 1);
    let database_url = |parameters: &str| over(&stores.login_url(Role::Worker), &postgres, parameters);
    let once = async |database_url: &str, redis_url: &str, authority: Option<String>| {
        let mut once = command(SYNC_WORKER, None);
        once.arg("--once")
            .env("DATABASE_URL", database_url)
            .env("REDIS_URL", redis_url);
        once.envs(authority.map(|file| ("SSL_CERT_FILE", file)));
        let output = run(once).await;
        (output.status.success(), text(&output.stderr))
    };
    let verified = database_url("?sslmode=verify-full");
    let (done, said) = once(&verified, &redis_url(""), Some(authority.file())).await;
    assert!(done, "{said}");
    let (done, said) = once(&verified, &redis_url(""), None).await;
    assert!(
        !done && said.contains("no authority that is trusted here"),
        "{said}"
    );
    for (database_url, redis_url, words) in [
        (
            database_url("?sslmode=verify-full&sslrootcert=/no/such"),
            redis_url(""),
            "DATABASE_URL: sslrootcert: cannot read /no/such",
        ),
        (
            stores.login_url(Role::Worker),
            redis_url("?sslrootcert=/no/such"),
            "REDIS_URL: sslrootcert: cannot read /no/such",
        ),
        (
            stores.login_url(Role::Worker),
            redis_url("#insecure"),
            "REDIS_URL: #insecure is not taken",
        ),
    ] {
        let (done, said) = once(&database_url, &redis_url, None).await;
        assert!(!done && said.contains(words), "{said}");
        assert_eq!(said.trim().lines().count(), 1, "{said}");
    }
}
