//! Deployment: what Dockerfile and docker-compose.yml name exists and works.

use std::path::{Path, PathBuf};

use crate::helpers::eventually;
use crate::helpers::programs::{SYNC_WORKER, TALLY, command, run, start_server, text};
use crate::helpers::stores::Stores;
use tally::ledger::Role;

fn file(name: &str) -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(name)).expect("the file")
}

#[tokio::test(flavor = "multi_thread")]
async fn every_setting_that_the_deployment_files_name_is_one() {
    let mut help = String::new();
    for (program, arguments) in [
        (TALLY, vec!["serve", "--help"]),
        (TALLY, vec!["item", "make", "--help"]),
        (SYNC_WORKER, vec!["--help"]),
    ] {
        let mut command = command(program, None);
        command.args(arguments);
        help += &text(&run(command).await.stdout);
    }
    let both = file("docker-compose.yml") + &file("Dockerfile");
    let named: Vec<&str> = both
        .split(|one: char| !(one.is_ascii_uppercase() || one == '_'))
        .filter(|word| word.starts_with("TALLY_") || word.ends_with("_URL"))
        // Of the build.
        .filter(|word| *word != "TALLY_COMMIT")
        .collect();
    assert!(named.len() > 5);
    for name in named {
        assert!(help.contains(name), "{name} is no setting");
    }
}

/// All Rust files in this folder and below.
fn sources(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).expect("a folder");
    let paths = entries.map(|entry| entry.expect("an entry").path());
    paths
        .flat_map(|path| if path.is_dir() { sources(&path) } else { vec![path] })
        .filter(|path| path.extension().is_some_and(|extension| extension == "rs"))
        .collect()
}

/// What the build of the image copies.
fn copied(dockerfile: &str) -> Vec<&str> {
    dockerfile
        .lines()
        .filter_map(|line| line.strip_prefix("COPY "))
        .filter_map(|line| line.split_whitespace().next())
        .collect()
}

#[test]
fn the_image_is_built_with_the_compiler_that_cargos_configuration_names() {
    let (dockerfile, configuration) = (file("Dockerfile"), file(".cargo/config.toml"));
    let copied = copied(&dockerfile);
    let wrappers = configuration
        .lines()
        .filter_map(|line| line.strip_prefix("rustc-workspace-wrapper = "));
    let wrappers: Vec<&str> = wrappers.map(|path| path.trim_matches('"')).collect();
    assert_eq!(wrappers.len(), 1);
    assert!(
        copied.contains(&".cargo") && copied.contains(&wrappers[0]),
        "{copied:?}"
    );
}

#[test]
fn the_image_is_built_with_every_file_that_the_programs_embed() {
    let dockerfile = file("Dockerfile");
    let copied = copied(&dockerfile);
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut embedded = 0;
    for source in sources(&root.join("src")) {
        let text = std::fs::read_to_string(&source).expect("text");
        for call in text.split("include_str!(").skip(1) {
            let mut path = source.parent().expect("a folder").to_owned();
            for part in call.split('"').nth(1).expect("a path").split('/') {
                match part {
                    ".." => assert!(path.pop()),
                    part => path.push(part),
                }
            }
            let path = path.strip_prefix(root).expect("a file of the project");
            // Only tests read the manifest of the fuzz targets.
            if !path.starts_with("fuzz") {
                assert!(copied.iter().any(|one| path.starts_with(one)), "{path:?}");
                embedded += 1;
            }
        }
    }
    assert!(embedded > 5, "{embedded}");
}

#[test]
fn the_first_layer_of_the_image_has_a_stand_in_for_every_target_and_member() {
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
    let members = manifest.split("members = [").nth(1).expect("a workspace");
    for member in members
        .split(']')
        .next()
        .expect("members")
        .split('"')
        .skip(1)
        .step_by(2)
    {
        let has_stand_in = dockerfile.contains(&format!("COPY {member}/Cargo.toml {member}/"))
            && dockerfile.contains(&format!("{member}/src/lib.rs"));
        assert!(has_stand_in, "{member}: Cargo would refuse the workspace");
    }
}

#[test]
fn server_and_workers_of_the_compose_file_share_one_redis_and_one_key_prefix() {
    let compose = file("docker-compose.yml");
    assert_eq!(
        compose.matches("\n  TALLY_KEY_PREFIX:").count(),
        1,
        "it stands in one place"
    );
    assert_eq!(
        compose.matches("<<: *keys").count(),
        4,
        "Redis' users, server, operator, and the workers' anchor"
    );
    assert_eq!(compose.matches("@redis:6379/0").count(), 3, "one Redis");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_health_check_succeeds_only_while_the_server_is_ready() {
    let mut stores = Stores::start().await;
    let (_server, base) = start_server(&stores, "server").await;
    let health = || {
        let mut command = command(TALLY, None);
        command.args(["health", "--url", &format!("{base}/health/ready")]);
        run(command)
    };
    assert!(health().await.status.success());
    stores.postgres.stop().await;
    eventually("the health check fails", async || {
        let sick = health().await;
        let says = text(&sick.stdout);
        (!sick.status.success() && says.contains("unavailable")).then_some(())
    })
    .await;
    let mut nowhere = command(TALLY, None);
    nowhere.args(["health", "--url", "http://127.0.0.1:1/"]);
    assert_eq!(run(nowhere).await.status.code(), Some(1));
}

/// As in docker-compose.yml, each program uses its own login.
/// The owner migrates, and psql makes the logins.
#[tokio::test(flavor = "multi_thread")]
async fn the_script_that_makes_the_logins_may_be_run_again_and_changes_their_passwords() {
    let stores = Stores::start().await;
    let owner = stores.database_url.clone();
    let address = owner.rsplit_once('@').expect("a host").1.to_owned();
    // The roles that the test kit made.
    sqlx::raw_sql("drop role server; drop role worker; drop role report; drop role operator")
        .execute(&stores.pool())
        .await
        .expect("they exist");
    for round in ["first'", "second"] {
        let mut script = command("psql", None);
        script
            .arg(&owner)
            .arg("--file")
            .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/logins.sql"));
        for part in ["SERVER", "WORKER", "REPORT", "OPERATOR"] {
            script.env(format!("{part}_PASSWORD"), format!("{round}{part}"));
        }
        let output = run(script).await;
        assert!(output.status.success(), "{}", text(&output.stderr));
        let password = round.replace('\'', "%27");
        for (login, part, role) in [
            ("server", "SERVER", Role::Server),
            ("worker", "WORKER", Role::Worker),
            ("report", "REPORT", Role::Report),
            ("operator", "OPERATOR", Role::Operator),
        ] {
            let url = format!("postgres://{login}:{password}{part}@{address}");
            let mut connection: sqlx::PgConnection =
                sqlx::Connection::connect(&url).await.expect("it logs in");
            let is_member: bool = sqlx::query_scalar("select pg_has_role($1, 'usage')")
                .bind(role.name())
                .fetch_one(&mut connection)
                .await
                .expect("Postgres answers");
            assert!(is_member, "{login}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_script_that_makes_the_logins_stops_at_a_missing_password() {
    let stores = Stores::start().await;
    let mut script = command("psql", None);
    script
        .arg(&stores.database_url)
        .arg("--file")
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/logins.sql"))
        .envs([("SERVER_PASSWORD", "one"), ("REPORT_PASSWORD", "another")])
        .env_remove("WORKER_PASSWORD");
    let output = run(script).await;
    let said = text(&output.stderr);
    assert!(
        !output.status.success() && said.contains("WORKER_PASSWORD"),
        "{said}"
    );
    assert!(!said.contains("another"), "{said}");
}

#[test]
fn each_program_of_the_compose_file_has_a_login_of_its_own() {
    let compose = file("docker-compose.yml");
    let login_of = |service: &str, scheme: &str| {
        let part = compose.split(&format!("\n  {service}:")).nth(1).expect(service);
        let url = part.split(scheme).nth(1).expect("a URL");
        url.split(':').next().expect("a login").to_owned()
    };
    assert_eq!(login_of("migrate", "postgres://"), "tally");
    for scheme in ["postgres://", "redis://"] {
        assert_eq!(login_of("server", scheme), "server");
        assert_eq!(login_of("sync-worker-1", scheme), "worker");
        assert_eq!(login_of("operator", scheme), "operator");
    }
}
