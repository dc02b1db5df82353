# The commands for people. Each target installs what it needs on Debian and Ubuntu, and
# says what to install elsewhere.

CARGO := cargo
# rustup's own folder, for a shell that was opened before rustup was installed.
export PATH := $(HOME)/.cargo/bin:$(PATH)

.DEFAULT_GOAL := help
SECONDS ?= 10
RUNS ?= 10
EXAMPLES ?= 30
.PHONY: help run site test test-in-ranges sizing repeat nightly test-browser prepare-browser test-proxies prepare-proxies test-dashboards prepare-dashboards drills on-call prepare-drills test-generators test-kubernetes test-stores test-install lint fuzz bench growth bench-tables soak chaos mutants schemathesis client client-types reports queries schema image prepare prepare-tests prepare-client

help: ## Say what can be made
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  make \1\t/' | expand -t 20

run: prepare ## Run all of Tally here, on a private Postgres and Redis; Ctrl-C stops it: TOPOLOGY=sentinel or cluster
	@echo "Building Tally. The first build compiles all it needs, which takes about five minutes on two cores."
	@$(CARGO) build --locked --bins
	@exec "$${CARGO_TARGET_DIR:-target}/debug/tally" dev $${TOPOLOGY:+--topology "$$TOPOLOGY"}

site: prepare ## Run an example site (examples/site): likes, polls, reactions, ballots, React; Ctrl-C stops it
	@scripts/prepare client
	@echo "Building Tally. The first build compiles all it needs, which takes about five minutes on two cores."
	@$(CARGO) build --locked --bin tally
	@SITE_PROGRAM="$${CARGO_TARGET_DIR:-target}/debug/tally" exec node examples/site/start.mjs

test: prepare-tests ## Run all tests, each on a Postgres and a Redis of its own
	@if $(CARGO) nextest --version >/dev/null 2>&1; \
	then scripts/in-memory $(CARGO) nextest run --locked; \
	else scripts/in-memory $(CARGO) test --locked; fi

lint: prepare ## Check the format, the lints, the deployment files and the dependencies
	$(CARGO) fmt --check
	$(CARGO) clippy --locked --all-targets -- --deny warnings
	scripts/words
	scripts/check-deployment
	scripts/dependencies

fuzz: prepare ## Look for input that breaks a parser, for SECONDS=10 per target
	scripts/fuzz $(SECONDS)

bench: prepare ## Compare Tally with other ways of counting votes; QUICK=1 in four minutes
	$(CARGO) bench --locked --bench compare

growth: prepare ## Measure how the cost of a vote grows with items, votes, cold items and connections
	$(CARGO) bench --locked --bench compare -- growth

bench-tables: prepare ## Write the tables of the last `make bench` into README, docs/benchmarks.md and docs/runs
	$(CARGO) bench --quiet --locked --bench compare -- tables

readers: prepare ## Vote while 64 readers search and list a million items: READ_SECONDS=20, READERS=64
	$(CARGO) bench --locked --bench readers

soak: prepare ## Vote for half an hour and see that nothing grows: MINUTES=30, or SECONDS=180
	$(CARGO) bench --locked --bench soak

chaos: prepare ## Break everything at random and check every vote: ROUNDS=100, SEED=7, FAULT='Redis killed', WATCHERS=0; TOPOLOGY=sentinel or cluster; SCENARIO=overload or redis-gone
	@$(CARGO) test --quiet --locked --test chaos -- rounds

mutants: prepare-tests ## Change the scripts, the SQL and the Rust code in small ways and see that a test fails each time; hours
	@scripts/in-memory tools/mutants/texts; texts=$$?; scripts/in-memory tools/mutants/rust && exit $$texts

schemathesis: prepare-tests ## Send every operation good and bad requests, and compare the answers with /openapi.json: EXAMPLES=30
	scripts/schemathesis $(EXAMPLES)

client: prepare-client ## Build the TypeScript client, compare its types with the description, and test it on real servers
	scripts/client

test-proxies: prepare-proxies ## Make the documented calls through nginx, Apache, HAProxy, Varnish and Caddy: ONLY=varnish
	scripts/proxies

test-dashboards: prepare-dashboards ## Ask a real Prometheus what the dashboard and the alerts ask, and see alerts fire: PROGRAMS=target/release
	PROGRAMS=$(PROGRAMS) scripts/check-dashboards

drills: prepare-drills ## Break a real installation, wait for each alert, do what the runbook says: ONLY='redis hung', LONG=1; an hour
	scripts/drills

sizing: ## How long workers take for a ledger of a million items and five million votes: ITEMS=…, VOTES=…
	$(CARGO) build --locked --release --bins
	scripts/sizing $(or $(ITEMS),1000000) $(or $(VOTES),5000000) $(or $(PROGRAMS),target/release)

cells: ## What a vote costs in two cells behind HAProxy, against one: RATE=1000 votes/s in each, SECONDS=30, ROUNDS=3
	$(CARGO) build --locked --release --bins
	scripts/cells $(or $(RATE),1000) $(or $(SECONDS),30) $(or $(ROUNDS),3) $(or $(PROGRAMS),target/release)

on-call: prepare-drills ## Be on call: something breaks, and you mend it with the manual alone: SEED=7, NUMBER=2, ONLY='redis'
	@scripts/drills on-call

test-generators: prepare-client ## Make clients with four public generators, and have each make ten calls to a real server
	scripts/generators

test-kubernetes: prepare-client ## Check deploy/kubernetes, and run the programs as it says; needs kubectl: PROGRAMS=folder with built programs
	scripts/check-kubernetes

test-stores: prepare-proxies ## Run Tally through pgbouncer, and fail both stores over behind HAProxy: PROGRAMS=folder with built programs
	scripts/check-stores

test-install: prepare-tests ## Do what docs/operating/install.md and upgrade.md say, on two copies of this machine; as root: PROGRAMS=folder with built programs
	scripts/check-install

test-in-ranges: prepare-tests ## Run the tests that look at votes in a ledger that is split into ranges
	TALLY_TEST_IN_RANGES=1 scripts/in-memory $(CARGO) nextest run --locked -E 'not test(/ledger::(ranges|schema|roles|plans)|proofs::|programs::cells|whatever_breaks/)'

repeat: prepare-tests ## Run all tests again and again, with both runners, and list what failed how often: RUNS=100
	tools/repeat-tests $(RUNS)

nightly: ## What takes too long before each change: both runners, long searches, chaos, fuzz, soak, mutants; some hours
	.ci/nightly

test-browser: prepare-browser ## Test the pages in Chromium on real servers: PICTURES=1 also takes the pictures in docs/pictures
	scripts/browser

client-types: prepare-client ## Generate the TypeScript client's types from the description
	scripts/client types

reports: ## Time the queries of docs/reports.md on 10 million votes and compare them with naive ones: VOTES=…, ITEMS=…; 15 minutes
	scripts/reports $(VOTES) $(ITEMS)

queries: prepare ## Check the queries against a database and note their types in .sqlx
	scripts/queries

schema: prepare-tests ## Write the picture of the schema, migrations/schema.sql, anew
	TALLY_TEST_WRITE_SCHEMA=1 $(CARGO) test --quiet --locked --test it -- ledger::schema::picture::a_new_database

image: ## Build the image with docker, podman or buildah
	scripts/image

prepare:
	@scripts/prepare

prepare-tests:
	@scripts/prepare tests

prepare-browser:
	@scripts/prepare tests client browser

prepare-proxies:
	@scripts/prepare tests client proxies

prepare-dashboards:
	@scripts/prepare tests client dashboards

prepare-drills:
	@scripts/prepare tests client drills

prepare-client:
	@scripts/prepare tests client
