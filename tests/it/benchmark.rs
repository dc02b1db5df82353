//! The tables that `make bench-tables` writes (`testkit::benchmark`).
//! All tables in the documents must be of one run.

use std::path::Path;

use testkit::benchmark::System::{self, NoOp, Recipe, Tally, Transaction};
use testkit::benchmark::{
    CpuEach, CredentialRow, DeafRow, DiskBytes, Latency, Machine, OpenLatency, Results, Row, Run, Spread,
    Stamp, StreamRow, Topology, With, WorkerRow, Workload, between, now, replace, run_page, stamp,
    targets_table, ways, write_pages,
};

const PAGES: [(&str, &str); 2] = [
    (
        "README.md",
        "Before.\n\n<!-- bench:ways begin -->\nold\n<!-- bench:ways end -->\n\nAfter.\n",
    ),
    (
        "docs/benchmarks.md",
        "Before.\n\n<!-- bench:now begin -->\n<!-- bench:now end -->\nBetween.\n<!-- bench:targets begin -->\n<!-- bench:targets end -->\n",
    ),
];

/// A run of three rounds of commit abc1234.
fn run() -> Run {
    let workload = |(name, about): (&str, &str)| Workload {
        name: name.to_owned(),
        about: about.to_owned(),
    };
    Run {
        date: "2026-01-02".to_owned(),
        commit: Some("abc1234".to_owned()),
        has_changes: false,
        machine: Machine {
            cores: 2,
            memory_gib: 24.0,
            sync_ms: 0.07,
            stores: "PostgreSQL 15.18, Redis 7.0.15".to_owned(),
        },
        quick: false,
        rounds: 3,
        run_seconds: 2.0,
        warm_up_seconds: 1.0,
        long_seconds: 60.0,
        workloads: [
            ("hot", "one hot item"),
            ("uniform", "10,000 items, all alike"),
            ("zipf", "10,000 items by Zipf's law"),
        ]
        .map(workload)
        .into(),
    }
}

fn row(workload: &str, system: System, round: usize, rate: f64) -> Row {
    let latency = Latency {
        p50: 1.0,
        p99: 7.5,
        p99_9: 9.0,
    };
    let cpu = CpuEach {
        server: 13.0,
        worker: 1.0,
        postgres: 5.0,
        redis: 1.0,
        generator: 6.0,
    };
    Row {
        workload: workload.to_owned(),
        system,
        topology: Topology::Single,
        round,
        connections: 256,
        servers: 1,
        ledger_rows: 0,
        in_ranges: false,
        votes_per_request: 1,
        sync_delay_ms: 0.0,
        votes: 1000,
        votes_per_second: rate,
        requests_per_second: rate,
        closed_loop_ms: latency,
        open_loop_ms: Some(OpenLatency {
            requests_per_second: rate / 2.0,
            latency,
        }),
        unchanged_part: 0.0,
        cpu_us_per_vote: Some(cpu),
        cpu_us_per_request: cpu,
        generator_busy: 0.3,
        wal_bytes_per_vote: Some(243.0),
        verified: true,
        fault: None,
    }
}

/// Tally and one transaction a vote, on one item and on many.
fn results() -> Results {
    let mut results = Results::new(run());
    // The ratios of the rounds on one item are 40, 20 and 30. The ratio of the medians would be 25.
    let rates = [
        ("hot", Transaction, [1000.0, 2000.0, 3000.0]),
        ("hot", Tally, [40_000.0, 40_000.0, 90_000.0]),
        ("uniform", Transaction, [4000.0, 4000.0, 4000.0]),
        ("uniform", Tally, [24_000.0, 26_000.0, 28_000.0]),
        ("uniform", NoOp, [52_000.0, 52_000.0, 52_000.0]),
    ];
    for (workload, system, rates) in rates {
        for (round, rate) in rates.into_iter().enumerate() {
            results.voting.push(row(workload, system, round, rate));
        }
    }
    results
}

/// The line of a table with this first cell.
fn line<'a>(table: &'a str, first: &str) -> &'a str {
    table
        .lines()
        .find(|line| line.starts_with(&format!("| {first} |")))
        .unwrap_or_else(|| panic!("no line of {first} in:\n{table}"))
}

#[test]
fn readmes_table_has_medians_and_the_median_of_the_rounds_ratios() {
    let table = ways(&results()).expect("all that it needs");
    assert_eq!(
        line(&table, "one transaction per vote"),
        "| one transaction per vote | 2,000 | 4,000 | | | yes |"
    );
    assert_eq!(
        line(&table, "**Tally**"),
        "| **Tally** | **40,000** | **26,000** | | | yes |"
    );
    assert!(table.contains("Tally takes 30.0 times the votes of one transaction per vote on one hot item, and 6.50 times over 10,000 items"), "{table}");
    assert!(
        table.contains("Run of 2026-01-02, commit abc1234: medians of 3 rounds of 2 s"),
        "{table}"
    );
}

#[test]
fn what_a_run_did_not_measure_is_an_empty_cell() {
    let mut results = results();
    assert_eq!(
        line(
            &ways(&results).expect("a table"),
            "one INSERT, and a counter in Redis"
        ),
        "| one INSERT, and a counter in Redis | | | | | no |"
    );
    let table = now(&results).expect("a table");
    assert_eq!(
        line(&table, "`zipf`: 10,000 items by Zipf's law"),
        "| `zipf`: 10,000 items by Zipf's law | | | | | | | | | |"
    );
    assert_eq!(
        line(&table, "`uniform`: 10,000 items, all alike"),
        "| `uniform`: 10,000 items, all alike | 52,000 | 4,000 | | | | 26,000 | 20.0 | 7.5 | 7.5 |"
    );
    results.voting.push(row("zipf", Recipe, 0, 7092.0));
    assert_eq!(
        line(
            &now(&results).expect("a table"),
            "`zipf`: 10,000 items by Zipf's law"
        ),
        "| `zipf`: 10,000 items by Zipf's law | | | | | 7,092 | | | | |"
    );
}

#[test]
fn a_ledger_with_rows_has_a_line_of_its_own() {
    let mut results = results();
    let mut full = row("zipf", Tally, 0, 30_000.0);
    full.ledger_rows = 10_000_000;
    results.voting.push(full);
    results.voting.push(row("zipf", Tally, 0, 31_000.0));
    let table = now(&results).expect("a table");
    assert!(
        line(&table, "`zipf`: 10,000 items by Zipf's law; 10 million rows").contains(" 30,000 "),
        "{table}"
    );
    assert!(
        line(&table, "`zipf`: 10,000 items by Zipf's law").contains(" 31,000 "),
        "{table}"
    );
}

#[test]
fn results_without_what_readmes_table_needs_say_what_to_run() {
    let mut results = results();
    results
        .voting
        .retain(|row| (row.workload.as_str(), row.system) != ("uniform", Transaction));
    let error = ways(&results)
        .expect_err("uniform of the transaction is missing")
        .to_string();
    assert!(
        error.contains("no uniform of transaction; run: make bench WORKLOADS=hot,uniform"),
        "{error}"
    );
}

#[test]
fn a_target_is_met_missed_by_a_part_of_it_or_not_measured() {
    let mut results = results();
    let table = targets_table(&results).expect("a table");
    assert_eq!(
        line(&table, "hot item: rate against transaction"),
        "| hot item: rate against transaction | ≥ 30.0 | 30.0 | met |"
    );
    assert_eq!(
        line(&table, "10,000 items: rate against transaction"),
        "| 10,000 items: rate against transaction | ≥ 9.00 | 6.50 | missed by 28% |"
    );
    assert_eq!(
        line(&table, "hot item: rate against recipe"),
        "| hot item: rate against recipe | ≥ 8.00 | | |"
    );

    let what = "Redis wiped under full load: seconds to 90% of the rate, exact";
    results
        .worker
        .push(WorkerRow::new("reseed", 0, 10_000, 1.51, None));
    let table = targets_table(&results).expect("a table");
    assert_eq!(
        line(&table, what),
        format!("| {what} | ≤ 1.50 | 1.51 | missed by less than 1% |")
    );
    // A count that was not exact afterwards meets no target, however soon the rate was back.
    results.worker[0].verified = false;
    let table = targets_table(&results).expect("a table");
    assert_eq!(line(&table, what), format!("| {what} | ≤ 1.50 | | missed |"));
}

#[test]
fn only_what_stands_between_the_markers_is_replaced() {
    let page = "a\n<!-- bench:now begin -->\nold\n<!-- bench:now end -->\nb\n";
    assert_eq!(
        replace(page, "now", "new\n").expect("both markers"),
        "a\n<!-- bench:now begin -->\nnew\n<!-- bench:now end -->\nb\n"
    );
    for (page, error) in [
        ("a", "<!-- bench:now begin --> is missing"),
        ("<!-- bench:now begin -->", "<!-- bench:now end --> is missing"),
        (
            "<!-- bench:now end --><!-- bench:now begin -->",
            "<!-- bench:now end --> comes before its begin",
        ),
        (
            "<!-- bench:now begin --><!-- bench:now begin --><!-- bench:now end -->",
            "<!-- bench:now begin --> is there more than once",
        ),
    ] {
        let found = replace(page, "now", "new").expect_err(page).to_string();
        assert!(found.contains(error), "{page}: {found}");
    }
}

/// A folder with pages whose tables are empty.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::create_dir(folder.path().join("docs")).expect("a folder");
    for (path, text) in PAGES {
        std::fs::write(folder.path().join(path), text).expect("a page");
    }
    folder
}

fn read(root: &Path, path: &str) -> String {
    std::fs::read_to_string(root.join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

#[test]
fn all_pages_are_written_from_one_run_and_words_about_it_stay() {
    let folder = folder();
    let root = folder.path();
    // The form that results.json has.
    let text = serde_json::to_string(&results()).expect("JSON");
    let results: Results = serde_json::from_str(&text).expect("its own JSON");
    let page = "docs/runs/2026-01-02-abc1234.md";
    let written = write_pages(root, &results).expect("all that the pages need");
    assert_eq!(written, ["README.md", "docs/benchmarks.md", page]);

    let readme = read(root, "README.md");
    assert!(readme.starts_with("Before.\n\n<!-- bench:ways begin -->\n| votes per second |"));
    assert!(readme.ends_with("<!-- bench:ways end -->\n\nAfter.\n") && !readme.contains("old"));
    let benchmarks = read(root, "docs/benchmarks.md");
    let of = |text: &str, name| stamp(between(text, name).expect("markers")).expect("a stamp");
    let stamps = [
        of(&readme, "ways"),
        of(&benchmarks, "now"),
        of(&benchmarks, "targets"),
    ];
    let one = Stamp {
        date: "2026-01-02".to_owned(),
        commit: "abc1234".to_owned(),
    };
    assert_eq!(stamps, [one.clone(), one.clone(), one]);

    let first = read(root, page);
    assert!(
        first.contains(run_page(&results).expect("tables").trim()),
        "{first}"
    );
    assert!(
        first.contains("| transaction | 2,000 | 1,000 · 2,000 · 3,000 |"),
        "{first}"
    );
    std::fs::write(root.join(page), first.clone() + "\nThe machine was slow.\n").expect("a page");
    write_pages(root, &results).expect("all that the pages need");
    assert_eq!(read(root, page), first + "\nThe machine was slow.\n");
}

#[test]
fn a_runs_page_has_what_only_some_workloads_measure() {
    let mut results = results();
    for (round, seconds) in [(0, 8.0), (1, 10.0)] {
        results.worker.push(WorkerRow {
            redis_bytes_per_counter: Some(152.4),
            ..WorkerRow::new("flush", round, 1_000_000, seconds, None)
        });
    }
    for vote_once in [0.0, 62.5] {
        results.worker.push(WorkerRow {
            disk_bytes_per_vote: Some(DiskBytes {
                table: 60.0,
                primary_key: 22.5,
                vote_once,
            }),
            ..WorkerRow::new("bytes_per_vote", 0, 1_000_000, 4.0, None)
        });
    }
    results.streams.push(StreamRow {
        workload: "streams_one_item".to_owned(),
        round: 0,
        watchers: 5000,
        items: 1,
        votes_per_second_without: [20_000.0, 22_000.0],
        votes_per_second_with: 18_900.0,
        speed_ratio: 0.9,
        cpu_us_per_vote: [40.0, 50.0],
        watchers_cores: 0.1,
        events_per_second_at_full_speed: 12_000.0,
        events_per_second: 6000.0,
        cpu_us_per_event_of_server: 13.6,
        cpu_us_per_event_of_redis: 0.2,
        delay_ms_p50: 248.0,
        delay_ms_p99: 707.0,
        delays: 1000,
        bytes_per_stream: 10.5 * 1024.0,
        fault: None,
    });
    results.deaf.push(DeafRow {
        workload: "streams_deaf".to_owned(),
        round: 0,
        streams: 1024,
        votes_per_second_without: 10_000.0,
        votes_per_second_with: 9700.0,
        speed_ratio: 0.97,
        open_in_the_end: 1024,
        memory_bytes: [40 << 20, 72 << 20, 50 << 20],
        socket_bytes: [0, 0],
        cut_off_seconds: 0.3,
        ended_seconds: 23.0,
        fault: None,
    });
    results.credentials.push(CredentialRow {
        workload: "credentials".to_owned(),
        round: 0,
        with: With::Cookie,
        turns: 24,
        requests_per_second: 20_000.0,
        cpu_us_per_request: 72.1,
        server_us_per_request: 41.0,
        more_us: None,
        server_more_us: Some(Spread {
            quarter: -2.9,
            median: 0.7,
            three_quarters: 4.1,
        }),
        fault: None,
    });
    let page = run_page(&results).expect("tables");
    for line in [
        "| `flush` | 8.00 · 10.0 | 125,000 · 100,000 |  | bytes of Redis a counter 152.4 · 152.4 |",
        "| `bytes_per_vote` | 4.00 | 250,000 |  | bytes a vote 82.5; table 60.0; primary key 22.5; `vote_once` 0.00 |",
        "| `bytes_per_vote`, with voters | 4.00 | 250,000 |  | bytes a vote 145; table 60.0; primary key 22.5; `vote_once` 62.5 |",
        "| `streams_one_item`, 1 | 5000 | 20,000 · 22,000 | 18,900 | 0.90 | 12,000 | 13.6 · 0.2 | 248 · 707 | 10.5 |",
        "| 1 | 1024 | 10,000 | 9,700 | 0.97 | 40.0 · 72.0 · 50.0 | 32.0 | 0.3 | 23.0 |",
        "| a cookie, 1 | 72.1 | 41.0 |  | 0.70 (-2.90 to 4.10) |",
    ] {
        assert!(
            page.lines().any(|found| found == line),
            "{line} is not in:\n{page}"
        );
    }
    // A workload without rows has no line of its own.
    assert!(page.contains("| `hot`: "), "{page}");
    assert!(!page.contains("`zipf`: "), "{page}");
}

/// Checks that these results are refused with these words and change nothing.
#[track_caller]
fn refused(root: &Path, results: &Results, words: &str) {
    let before = PAGES.map(|(path, _)| read(root, path));
    let error = format!("{:#}", write_pages(root, results).expect_err(words));
    assert!(error.contains(words), "{error}");
    assert_eq!(PAGES.map(|(path, _)| read(root, path)), before);
    assert!(!root.join("docs/runs").exists());
}

#[test]
fn results_of_no_commit_of_a_quick_run_or_with_wrong_counts_are_not_written() {
    let folder = folder();
    let mut changed = results();
    changed.run.has_changes = true;
    refused(
        folder.path(),
        &changed,
        "abc1234 with changes that are in no commit",
    );
    let mut quick = results();
    quick.run.quick = true;
    refused(folder.path(), &quick, "the results are of QUICK=1");
    let mut nameless = results();
    nameless.run.commit = None;
    refused(folder.path(), &nameless, "the results name no commit");
    let mut wrong = results();
    wrong.voting[3].fault = Some("3 items have a wrong count".to_owned());
    refused(
        folder.path(),
        &wrong,
        "not verified (hot tally: 3 items have a wrong count)",
    );
}

#[test]
fn a_page_without_its_marker_leaves_all_pages_as_they_are() {
    let folder = folder();
    let path = folder.path().join("docs/benchmarks.md");
    std::fs::write(path, "<!-- bench:now begin -->\n<!-- bench:now end -->\n").expect("a page");
    refused(
        folder.path(),
        &results(),
        "docs/benchmarks.md: the marker <!-- bench:targets begin --> is missing",
    );
}

#[test]
fn the_documents_of_today_are_of_one_run_which_has_a_page() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let stamps = [
        ("README.md", "ways"),
        ("docs/benchmarks.md", "now"),
        ("docs/benchmarks.md", "targets"),
    ]
    .map(|(path, name)| {
        let text = read(root, path);
        let table = between(&text, name).unwrap_or_else(|error| panic!("{path}: {error}"));
        stamp(table).unwrap_or_else(|| panic!("{path}: the table of {name} does not say of which run it is"))
    });
    assert!(stamps.iter().all(|one| *one == stamps[0]), "{stamps:?}");
    let page = root.join("docs/runs").join(stamps[0].file());
    assert!(page.exists(), "{} is missing", page.display());
}
