//! Certificates for a test's stores, and the wire from programs to stores.

use std::fs::Permissions;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex};

use testkit::clock::Clock;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use super::stores::Stores;

const DAY_SECONDS: i64 = 24 * 3600;

/// An authority that signs certificates, with all its files in one folder.
pub struct Authority {
    folder: PathBuf,
    name: String,
}

/// A certificate and its key, as files.
pub struct Certificate {
    pub file: PathBuf,
    pub key: PathBuf,
}

fn openssl(folder: &Path, variables: Vec<(String, String)>, arguments: &str) {
    let output = Command::new("openssl")
        .args(arguments.split(' '))
        .current_dir(folder)
        .envs(variables)
        .output()
        .expect("openssl is installed: scripts/prepare tests");
    assert!(
        output.status.success(),
        "openssl {arguments}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
}

const NEW_KEY: &str = "-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes";

impl Authority {
    pub fn new(stores: &Stores, name: &str) -> Self {
        let folder = stores.folder().join(format!("authority-{name}"));
        std::fs::create_dir(&folder).expect("a folder");
        std::fs::set_permissions(&folder, Permissions::from_mode(0o755)).expect("rights");
        let request = format!("req -x509 {NEW_KEY} -keyout ca.key -out ca.pem -subj /CN={name} -days 2");
        openssl(&folder, Vec::new(), &request);
        Self {
            folder,
            name: name.to_owned(),
        }
    }

    /// Its own certificate, which programs trust.
    pub fn file(&self) -> String {
        self.folder.join("ca.pem").display().to_string()
    }

    /// A certificate for this host, valid from now on.
    pub fn sign(&self, host: &str) -> Certificate {
        self.sign_with(host, Vec::new())
    }

    /// A certificate that was valid for a day, until nine days ago.
    pub fn sign_expired(&self, host: &str) -> Certificate {
        let clock = Clock::new(&self.folder).expect("a clock");
        clock.step(-10 * DAY_SECONDS).expect("a file");
        self.sign_with(host, clock.variables())
    }

    fn sign_with(&self, host: &str, variables: Vec<(String, String)>) -> Certificate {
        let name = format!("{host}-{:08x}", rand::random::<u32>());
        let asked = format!(
            "req -new {NEW_KEY} -keyout {name}.key -out {name}.csr -subj /CN={} -addext subjectAltName=DNS:{host}",
            self.name
        );
        openssl(&self.folder, Vec::new(), &asked);
        let signed = format!(
            "x509 -req -in {name}.csr -CA ca.pem -CAkey ca.key -copy_extensions copy -days 1 -out {name}.pem"
        );
        openssl(&self.folder, variables, &signed);
        Certificate {
            file: self.folder.join(format!("{name}.pem")),
            key: self.folder.join(format!("{name}.key")),
        }
    }
}

/// Makes Postgres speak TLS with this certificate, and refuse logins without TLS.
pub async fn protect_postgres(stores: &Stores, certificate: &Certificate) {
    let data = stores.folder().join("postgres/data");
    let owner = std::fs::metadata(&data).expect("a folder");
    let key = data.join(certificate.key.file_name().expect("a name"));
    std::fs::copy(&certificate.key, &key).expect("a file");
    std::fs::set_permissions(&key, Permissions::from_mode(0o600)).expect("rights");
    chown(&key, Some(owner.uid()), Some(owner.gid())).expect("rights");
    let logins = "hostssl all all 127.0.0.1/32 scram-sha-256\nhostssl all all ::1/128 scram-sha-256\n";
    // The test's own login may do without TLS.
    let logins = format!("host all tally 127.0.0.1/32 scram-sha-256\n{logins}");
    std::fs::write(data.join("pg_hba.conf"), logins).expect("a file");
    for statement in [
        "alter system set ssl = on".to_owned(),
        format!(
            "alter system set ssl_cert_file = '{}'",
            certificate.file.display()
        ),
        format!("alter system set ssl_key_file = '{}'", key.display()),
        "select pg_reload_conf()".to_owned(),
    ] {
        let pool = stores.pool();
        sqlx::query(&statement)
            .execute(&pool)
            .await
            .expect("the owner may");
    }
    let port = stores.postgres.port();
    super::eventually("Postgres shows its new certificate", async || {
        is_shown_by_postgres(port, certificate).await.then_some(())
    })
    .await;
}

/// Whether Postgres shows this certificate: it reads its settings a moment later.
async fn is_shown_by_postgres(port: u16, certificate: &Certificate) -> bool {
    let mut command = tokio::process::Command::new("openssl");
    let address = format!("127.0.0.1:{port}");
    command.args([
        "s_client",
        "-starttls",
        "postgres",
        "-showcerts",
        "-connect",
        &address,
    ]);
    command.stdin(std::process::Stdio::null());
    let shown = command.output().await.expect("openssl runs");
    let wanted = std::fs::read_to_string(&certificate.file).expect("a file");
    String::from_utf8_lossy(&shown.stdout).contains(wanted.trim())
}

/// Makes Redis listen on another port, with TLS and this certificate.
/// Returns the port.
pub async fn protect_redis(
    stores: &Stores,
    certificate: &Certificate,
    ask_clients: Option<&Authority>,
) -> u16 {
    let port = tally::dev::free_port().expect("a port");
    let mut redis = stores.redis_connection().await;
    let authority = ask_clients.map_or_else(|| certificate.file.display().to_string(), Authority::file);
    redis::cmd("CONFIG")
        .arg("SET")
        .arg(&["tls-cert-file", &certificate.file.display().to_string()])
        .arg(&["tls-key-file", &certificate.key.display().to_string()])
        .arg(&["tls-ca-cert-file", &authority])
        .arg(&[
            "tls-auth-clients",
            if ask_clients.is_some() { "yes" } else { "no" },
        ])
        .arg("tls-port")
        .arg(port)
        .exec_async(&mut redis)
        .await
        .expect("Redis speaks TLS");
    port
}

/// The wire to a store: forwards connections, and records all bytes.
pub struct Wire {
    port: u16,
    seen: Arc<Mutex<Vec<u8>>>,
    cuts: watch::Sender<u64>,
}

impl Wire {
    pub async fn start(store: u16) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", tally::dev::free_port().expect("a port")))
            .await
            .expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let seen = Arc::<Mutex<Vec<u8>>>::default();
        let cuts = watch::Sender::new(0);
        let (noted, cut) = (Arc::clone(&seen), cuts.subscribe());
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let (noted, mut cut) = (Arc::clone(&noted), cut.clone());
                cut.mark_unchanged();
                tokio::spawn(async move {
                    let Ok(store) = TcpStream::connect(("127.0.0.1", store)).await else {
                        return;
                    };
                    let ((from_client, to_client), (from_store, to_store)) =
                        (client.into_split(), store.into_split());
                    tokio::select! {
                        () = pass(from_client, to_store, &noted) => {}
                        () = pass(from_store, to_client, &noted) => {}
                        _ = cut.changed() => {}
                    }
                });
            }
        });
        Self { port, seen, cuts }
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// Ends all connections; new ones may be made at once.
    pub fn cut(&self) {
        self.cuts.send_modify(|cuts| *cuts += 1);
    }

    /// Whether this text went over the wire, in either direction.
    pub fn has_seen(&self, text: &str) -> bool {
        let seen = self.seen.lock().expect("nobody panics with the lock");
        seen.windows(text.len()).any(|part| part == text.as_bytes())
    }

    /// The bytes that went over the wire.
    pub fn seen_bytes(&self) -> usize {
        self.seen.lock().expect("nobody panics with the lock").len()
    }
}

async fn pass(mut from: impl AsyncRead + Unpin, mut to: impl AsyncWrite + Unpin, noted: &Mutex<Vec<u8>>) {
    let mut bytes = vec![0; 64 * 1024];
    while let Ok(length @ 1..) = from.read(&mut bytes).await {
        noted
            .lock()
            .expect("nobody panics with the lock")
            .extend(&bytes[..length]);
        if to.write_all(&bytes[..length]).await.is_err() {
            return;
        }
    }
}
