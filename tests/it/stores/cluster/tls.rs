//! A Redis Cluster whose nodes speak TLS, and announce the names that are in their certificates.

use nix::sys::signal::Signal;
use tally::dev::PrivateCluster;
use tally::ledger::Role;
use testkit::stores::start_cluster;

use super::{Clustered, ITEMS, SLOT};
use crate::helpers::programs::{TALLY, command_as, start, stop};
use crate::helpers::stores::Stores;
use crate::helpers::tls::{Authority, Certificate};

#[tokio::test(flavor = "multi_thread")]
async fn nodes_that_announce_names_are_found_by_them_and_speak_tls_with_programs_and_with_each_other() {
    let stores = Stores::start().await;
    let authority = Authority::new(&stores, "own");
    // It has the name, and no address.
    let certificate = authority.sign("localhost");
    let mut cluster = start_cluster(stores.folder()).await.expect("it starts");
    let mut ports = Vec::new();
    for node in &mut cluster.nodes {
        node.stop().await;
        let port = tally::dev::free_port().expect("a port");
        ports.push(port);
        node.add_settings(&[
            &format!("tls-port {port}"),
            &format!("tls-cert-file {}", certificate.file.display()),
            &format!("tls-key-file {}", certificate.key.display()),
            &format!("tls-ca-cert-file {}", authority.file()),
            "tls-auth-clients optional",
            "tls-cluster yes",
            "tls-replication yes",
            "cluster-announce-hostname localhost",
            "cluster-preferred-endpoint-type hostname",
        ]);
    }
    for node in &mut cluster.nodes {
        node.start().await.expect("it starts");
    }
    let hosts: Vec<String> = ports.iter().map(|port| format!("localhost:{port}")).collect();
    let (hosts, trusted) = (hosts.join(","), authority.file());
    let by_name = |cluster: &PrivateCluster, role| {
        let url = cluster.nodes[0].login_url(role);
        let login = url
            .strip_prefix("redis://")
            .and_then(|rest| rest.rsplit_once('@'));
        let (login, _) = login.expect("a login");
        format!("rediss+cluster://{login}@{hosts}/?sslrootcert={trusted}")
    };
    let mut clustered = Clustered::start_at(stores, cluster, by_name).await;
    clustered.enter_epoch().await;
    clustered.add_to_all().await;
    clustered.assert_exact().await;
    // The others tell the names of those that they promote.
    let owner = clustered.owner(SLOT, 0).await.expect("an owner").port;
    clustered.node(owner).crash().await;
    clustered.until_counted().await;
    clustered.node(owner).start().await.expect("it starts");
    clustered.assert_exact().await;

    // One node shows the certificate of another host: the others' counts go on, and programs start.
    let elsewhere = authority.sign("example.org");
    let owner = clustered.owner(SLOT, 0).await.expect("an owner").port;
    show(&clustered, owner, &elsewhere).await;
    let uncounted = clustered.add_to_all().await;
    assert!(
        uncounted > 0 && uncounted < ITEMS / 2,
        "{uncounted} of {ITEMS} votes have no count"
    );
    let stores = &clustered.tally.stores;
    let url = by_name(&clustered.cluster, Role::Server);
    let mut starting = command_as(TALLY, Some((stores, Role::Server)));
    starting
        .arg("serve")
        .env("TALLY_LISTEN", "127.0.0.1:0")
        .env("REDIS_URL", &url);
    let server = start(starting, stores, "server");
    server.wait_for_line("address=").await;
    stop(server, Signal::SIGTERM).await;
    let worker = clustered.tally.worker();
    worker.enter_epoch().await.expect_err("a node cannot be used");
    worker.flush_shared().await.ok();
    let mut saved = 0;
    for item in clustered.items.clone() {
        saved += usize::from(clustered.tally.saved_count(item).await == clustered.votes[&item]);
    }
    assert!(saved >= ITEMS / 2, "{saved} counts are saved");
    show(&clustered, owner, &certificate).await;
    clustered.until_counted().await;
    clustered.assert_exact().await;
}

/// Gives a node another certificate, and has all connect to it anew.
async fn show(clustered: &Clustered, port: u16, certificate: &Certificate) {
    let (file, key) = (certificate.file.display(), certificate.key.display());
    for line in [
        format!("CONFIG SET tls-cert-file {file} tls-key-file {key}"),
        "CLIENT KILL TYPE normal".to_owned(),
    ] {
        clustered.send(port, &line).await.expect("the owner may");
    }
}
