//! The TypeScript client, against real servers and against the description.
//!
//! An ordinary run leaves out the tests that need Node and npm. `make client` builds the client and
//! runs them.

use std::path::Path;

use sha2::{Digest, Sha256};
use tally::ledger::Role;

use crate::helpers::programs::{Program, TALLY, command, command_as, run, text};
use crate::helpers::stores::{LOCK_VOTES, Stores, blocker};
use crate::helpers::tally::Tally;

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/clients/typescript");

/// A file of the client that `make client` builds.
fn built(file: &str) -> String {
    let path = Path::new(FOLDER).join("build").join(file);
    assert!(path.exists(), "{} is not built; run make client", path.display());
    path.display().to_string()
}

/// The generated file names its description, so this test needs no npm.
#[test]
fn the_clients_types_are_those_of_the_description() {
    let types = std::fs::read_to_string(Path::new(FOLDER).join("src/schema.d.ts")).expect("the types");
    let digest = Sha256::digest(tally::web::description());
    let digest: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    let first = types.lines().next().expect("a line");
    assert!(
        first.contains(&digest),
        "clients/typescript/src/schema.d.ts is of another description; run make client-types"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_program_prints_the_description() {
    let mut printing = command(TALLY, None);
    printing.arg("openapi");
    let output = run(printing).await;
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(text(&output.stdout).trim_end(), tally::web::description());
}

/// Runs these files of tests, which start servers of their own.
async fn passes<const N: usize>(files: [&str; N]) {
    let stores = Stores::start().await;
    let mut node = command_as("node", Some((&stores, Role::Server)));
    node.args(["--test", "--test-reporter=tap"])
        .args(files.map(built))
        .env("CLIENT_TEST_PROGRAM", TALLY)
        .env("CLIENT_TEST_OPERATOR_URL", stores.login_url(Role::Operator));
    let output = run(node).await;
    let said = format!("{}{}", text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{said}");
    assert!(
        said.contains("# fail 0") && said.contains("# skipped 0"),
        "{said}"
    );
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "it needs Node and npm: make client"]
async fn the_client_does_what_it_says_on_real_servers() {
    passes(["units.test.js", "server.test.js", "operations.test.js"]).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "it needs Node and npm: make client"]
async fn the_clients_package_is_installed_and_called_elsewhere() {
    passes(["package.test.js"]).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "it needs Node and npm: make client"]
async fn the_client_sends_a_vote_that_tally_refuses_again_and_it_counts_once() {
    let tally = Tally::start().await;
    let item = tally.item("x").await;
    let blocker = blocker(&tally.pool, LOCK_VOTES).await;
    let mut node = command("node", None);
    node.args(["--test", "--test-reporter=tap", &built("refused.test.js")])
        .env("TALLY_BASE", &tally.base)
        .env("TALLY_ITEM", item.to_string());
    let mut node = Program::start(node, tally.stores.folder(), "client").expect("node runs");
    node.wait_for_line("answered=503").await;
    blocker.rollback().await.expect("the lock is let go");
    assert_eq!(node.wait().await, Some(0), "{}", node.output());
    assert!(node.output().contains("answered=20"), "{}", node.output());
    assert_eq!(tally.ledger_sum(item).await, 1);
    tally.assert_exact_when_quiescent(item).await;
}
