# What a person types. Each target installs what it needs on Debian and Ubuntu,
# and says what to install elsewhere.

CARGO := cargo
# rustup's own place, for a shell that has not been opened anew since it was installed.
export PATH := $(HOME)/.cargo/bin:$(PATH)

.DEFAULT_GOAL := help
.PHONY: help run test lint bench queries prepare

help: ## Say what can be made
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## /  make \1\t/' | expand -t 18

run: prepare ## Run all of Tally here, on a private Postgres and Redis; Ctrl-C stops it
	@$(CARGO) build --quiet --locked --bins
	@exec target/debug/tally dev

test: prepare ## Run all tests, each on a Postgres and a Redis of its own
	@if $(CARGO) nextest --version >/dev/null 2>&1; \
	then $(CARGO) nextest run --locked; \
	else $(CARGO) test --locked; fi

lint: prepare ## Check the format, the lints and the deployment files
	$(CARGO) fmt --check
	$(CARGO) clippy --locked --all-targets -- --deny warnings
	scripts/check-deployment

bench: prepare ## Compare Tally with other ways of counting votes; QUICK=1 in three minutes
	$(CARGO) bench --locked --bench compare

queries: prepare ## Check the queries against a database and note their types in .sqlx
	scripts/queries

prepare:
	@scripts/prepare
