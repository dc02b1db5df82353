//! `scripts/prepare`: what is installed when, with an apt-get that only notes what it is asked for.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

use tempfile::TempDir;
use testkit::stores::temporary_folder;

/// What the script itself uses.
const TOOLS: [&str; 8] = ["bash", "cat", "env", "id", "mktemp", "rm", "sh", "dirname"];
/// What it looks for and finds.
const FOUND: [&str; 8] = [
    "postgres",
    "redis-server",
    "cc",
    "cargo",
    "openssl",
    "curl",
    "npm",
    "apt-cache",
];

/// A machine with these programs alone, beside those of Debian's folder for servers.
struct Machine {
    folder: TempDir,
}

impl Machine {
    fn new() -> Self {
        let machine = Self {
            folder: temporary_folder("prepare-").expect("a folder"),
        };
        for tool in TOOLS {
            let path = ["/usr/bin", "/bin"].map(|at| Path::new(at).join(tool));
            let path = path.iter().find(|path| path.exists()).expect(tool);
            std::os::unix::fs::symlink(path, machine.folder.path().join(tool)).expect(tool);
        }
        for program in FOUND {
            machine.program(program, "exit 0");
        }
        machine.program("sudo", "exec \"$@\"");
        machine.program("node", "exit 0");
        machine
    }

    fn program(&self, name: &str, text: &str) {
        let path = self.folder.path().join(name);
        std::fs::write(&path, format!("#!/bin/sh\n{text}\n")).expect("a program");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).expect("a program");
    }

    /// apt-get notes what it is to install. It fails if this is among it.
    fn apt_get_without(&self, missing: &str) {
        let text = format!(
            "case \"$*\" in update*) exit 0;; *{missing}*) echo no {missing}; exit 100;; esac\necho \"$*\" >>{}",
            self.noted().display()
        );
        self.program("apt-get", &text);
    }

    fn noted(&self) -> std::path::PathBuf {
        self.folder.path().join("noted")
    }

    fn prepare(&self, wanted: &[&str]) -> Output {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/prepare");
        Command::new(self.folder.path().join("bash"))
            .arg(script)
            .args(wanted)
            .env_clear()
            .env("PATH", self.folder.path())
            .output()
            .expect("bash runs")
    }
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn a_proxy_that_cannot_be_installed_is_said_and_keeps_no_other_from_being_installed() {
    let machine = Machine::new();
    // Found in Debian's folder, or installed: only this one is in neither.
    machine.apt_get_without("caddy");
    let output = machine.prepare(&["tests", "client", "proxies"]);
    assert!(output.status.success(), "{}", said(&output));
    assert!(
        said(&output).contains("caddy could not be installed: Tally is not checked behind it"),
        "{}",
        said(&output)
    );
    let noted = std::fs::read_to_string(machine.noted()).unwrap_or_default();
    for proxy in ["nginx", "apache2", "haproxy", "varnishd"] {
        let is_there = Path::new("/usr/sbin").join(proxy).exists();
        let package = proxy.trim_end_matches('d').replace("apache2", "apache2-bin");
        assert_eq!(noted.contains(&package), !is_there, "{proxy}: {noted}");
    }
}

#[test]
fn what_the_tests_need_and_cannot_have_is_a_failure() {
    let machine = Machine::new();
    std::fs::remove_file(machine.folder.path().join("npm")).expect("it was there");
    machine.apt_get_without("npm");
    let output = machine.prepare(&["client"]);
    assert!(
        !output.status.success() && said(&output).contains("no npm"),
        "{}",
        said(&output)
    );
}

#[test]
fn a_node_that_is_too_old_is_a_failure_also_where_no_proxy_can_be_installed() {
    for apt_get in [true, false] {
        let machine = Machine::new();
        machine.program(
            "node",
            "case \"$1\" in --version) echo v12.0.0;; *) exit 1;; esac",
        );
        // Of all proxies this one is in no folder that the script looks into.
        if apt_get {
            machine.apt_get_without("caddy");
        }
        let output = machine.prepare(&["client", "proxies"]);
        assert!(
            !output.status.success() && said(&output).contains("this is v12.0.0"),
            "{}",
            said(&output)
        );
    }
}
