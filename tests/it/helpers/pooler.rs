//! A real pgbouncer between a test and its Postgres.

use std::os::unix::fs::PermissionsExt;

use testkit::programs::Program;
use tokio::net::TcpStream;
use tokio::process::Command;

use super::stores::Stores;

/// What two servers of one login need together. pgbouncer's default of 20 is too few: connections stay.
const POOL_LIMIT_CONNECTIONS: usize = 90;

/// A pgbouncer. It stops when dropped.
pub struct Pooler {
    port: u16,
    _program: Program,
}

impl Pooler {
    /// Starts a pgbouncer in this `pool_mode`.
    /// It drops the parameter `options`, with which Tally sets its limits at connect.
    pub async fn start(stores: &Stores, pool_mode: &str) -> Self {
        let port = tally::dev::free_port().expect("a port");
        let folder = stores.folder().join(format!("pgbouncer-{port}"));
        std::fs::create_dir(&folder).expect("a folder");
        std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o755)).expect("rights");
        let users: Vec<String> = [&stores.database_url]
            .into_iter()
            .cloned()
            .chain(
                [tally::ledger::Role::Server, tally::ledger::Role::Worker].map(|role| stores.login_url(role)),
            )
            .map(|url| {
                let (user, password) = login(&url);
                format!("\"{user}\" \"{password}\"\n")
            })
            .collect();
        let users_file = folder.join("users");
        std::fs::write(&users_file, users.concat()).expect("a file");
        let settings = folder.join("pgbouncer.ini");
        std::fs::write(
            &settings,
            format!(
                "[databases]\n* = host=127.0.0.1 port={}\n[pgbouncer]\nlisten_addr = 127.0.0.1\n\
                 listen_port = {port}\nunix_socket_dir =\nauth_type = plain\nauth_file = {}\n\
                 pool_mode = {pool_mode}\ndefault_pool_size = {POOL_LIMIT_CONNECTIONS}\n\
                 ignore_startup_parameters = extra_float_digits, options\n",
                stores.postgres.port(),
                users_file.display(),
            ),
        )
        .expect("a file");
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL"]).kill_on_drop(true);
        // pgbouncer does not run as root.
        if nix::unistd::Uid::effective().is_root() {
            command.args(["--reuid=postgres", "--regid=postgres", "--clear-groups"]);
        }
        // Debian's folder for servers is not in every user's PATH.
        command.args(["--", "/usr/sbin/pgbouncer"]).arg(&settings);
        let program = Program::start(command, &folder, "pgbouncer").expect("it starts");
        super::eventually("the pooler listens", async || {
            TcpStream::connect(("127.0.0.1", port)).await.ok()
        })
        .await;
        Self {
            port,
            _program: program,
        }
    }

    /// The same login over the pooler.
    pub fn url(&self, stores: &Stores, url: &str) -> String {
        let port = stores.postgres.port();
        url.replace(&format!("127.0.0.1:{port}"), &format!("127.0.0.1:{}", self.port))
    }
}

/// The user and the password of a URL.
fn login(url: &str) -> (&str, &str) {
    let login = url
        .strip_prefix("postgres://")
        .and_then(|rest| rest.split('@').next());
    login.and_then(|login| login.split_once(':')).expect("a login")
}
