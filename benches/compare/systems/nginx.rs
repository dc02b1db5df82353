//! nginx, which gives a fixed answer: how many requests a second the machine's kernel and a server written in C can do.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use testkit::programs::command;
use tokio::process::Command;

/// What it answers to a vote: a body like Tally's.
const ANSWER: &str = r#"{"vote_id":1234567,"item_id":1,"voter_id":null,"value":1,"vote_count":1234567,"up_count":1234567,"down_count":0}"#;
/// Where Debian has it, which is not in everyone's PATH.
const OTHER_FOLDER: &str = "/usr/sbin";

/// The installed nginx; `None`: there is none.
pub fn find() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain([PathBuf::from(OTHER_FOLDER)])
        .map(|folder| folder.join("nginx"))
        .find(|program| program.is_file())
}

/// A command for nginx as a single process, since workers of an nginx that is killed would go on. Its files are in
/// `folder`.
pub fn server(address: SocketAddr, folder: &Path) -> Command {
    let program = find().expect("the workload is left out where nginx is missing");
    std::fs::create_dir_all(folder).expect("a folder");
    let kept = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|kind| format!("{kind}_temp_path {}/{kind};", folder.display()))
        .join("\n    ");
    let settings = format!(
        "daemon off;
master_process off;
pid {folder}/pid;
error_log stderr error;
events {{ worker_connections 16384; }}
http {{
    access_log off;
    keepalive_requests 1000000000;
    keepalive_timeout 1h;
    default_type application/json;
    {kept}
    server {{
        listen {address};
        location / {{ return 201 '{ANSWER}'; }}
        location /health/live {{ return 200 'alive'; }}
    }}
}}
",
        folder = folder.display(),
    );
    let file = folder.join("nginx.conf");
    std::fs::write(&file, settings).expect("its settings");
    let mut command = command(program.to_str().expect("a path"));
    command.arg("-p").arg(folder).arg("-c").arg(&file);
    command
}
