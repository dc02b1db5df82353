//! What Dockerfile and docker-compose.yml name is there and works.

use std::path::Path;

use crate::helpers::programs::{Program, SYNC_WORKER, TALLY, command, run, text};
use crate::helpers::stores::Stores;

fn file(name: &str) -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(name)).expect("the file")
}

#[tokio::test(flavor = "multi_thread")]
async fn every_setting_that_the_deployment_files_name_is_one() {
    let mut help = String::new();
    for (program, arguments) in [(TALLY, vec!["serve", "--help"]), (SYNC_WORKER, vec!["--help"])] {
        let mut command = command(program, None);
        command.args(arguments);
        help += &text(&run(command).await.stdout);
    }
    let both = file("docker-compose.yml") + &file("Dockerfile");
    let named: Vec<&str> = both
        .split(|one: char| !(one.is_ascii_uppercase() || one == '_'))
        .filter(|word| word.starts_with("TALLY_") || word.ends_with("_URL"))
        .collect();
    assert!(named.len() > 5);
    for name in named {
        assert!(help.contains(name), "{name} is no setting");
    }
}

#[test]
fn the_first_layer_of_the_image_has_a_stand_in_for_every_target() {
    let (dockerfile, manifest) = (file("Dockerfile"), file("Cargo.toml"));
    let stand_ins = dockerfile
        .lines()
        .find(|line| line.contains("tee "))
        .expect("the stand-ins");
    for bench in manifest.split("[[bench]]").skip(1) {
        let name = bench.split('"').nth(1).expect("a name");
        // A file, or a folder with a main.rs: Cargo finds both.
        let has_stand_in = [format!("benches/{name}.rs"), format!("benches/{name}/main.rs")]
            .iter()
            .any(|path| stand_ins.split_whitespace().any(|word| word == path));
        assert!(has_stand_in, "{name}: Cargo would refuse the manifest");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_health_checks_tell_a_server_that_is_well_from_one_that_is_not() {
    let mut stores = Stores::start().await;
    let (_server, base) = Program::server(&stores, "server.log").await;
    let health = || {
        let mut command = command(TALLY, None);
        command.args(["health", "--url", &format!("{base}/health/ready")]);
        run(command)
    };
    assert!(health().await.status.success());
    stores.postgres.stop().await;
    let sick = health().await;
    assert!(
        !sick.status.success() && text(&sick.stdout).contains("away"),
        "{}",
        text(&sick.stdout)
    );
    let mut nowhere = command(TALLY, None);
    nowhere.args(["health", "--url", "http://127.0.0.1:1/"]);
    assert_eq!(run(nowhere).await.status.code(), Some(1));
}
