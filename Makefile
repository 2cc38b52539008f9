# What people and CI call. `make` alone lists the targets.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.PHONY: help libs build demo test lint tools stack stack-stop bench torture simulate fuzz property planted conformance

CACHE := $(or $(LANDFALL_CACHE),$(HOME)/.cache/landfall)
STACK := tests/stack/stack
CHDB_HTTP := --manifest-path tests/stack/clickhouse/Cargo.toml --target-dir "$${CARGO_TARGET_DIR:-target}/chdb-http"

# By their place in the cache and not in the checkout, so that another clone does not compile the crates that bind to them again.
export ROCKSDB_LIB_DIR ?= $(CACHE)/lib
export DUCKDB_LIB_DIR ?= $(CACHE)/lib
export LD_LIBRARY_PATH := $(CACHE)/lib$(if $(LD_LIBRARY_PATH),:$(LD_LIBRARY_PATH))

# Its bound is a time, so nothing else may run beside it.
TIMED := processes::postgres_outage

KILLS ?= 60
SEEDS ?= 200000
# `SECONDS` is bash's own; as a variable of make it is only what is given on the command line.
FUZZ_SECONDS := $(if $(findstring command,$(origin SECONDS)),$(SECONDS),60)
COUNT ?= 100000
TEST_BINARY := cargo test -p landfall-tests --test landfall -- --nocapture --exact

help: ## lists the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/\1\t\2/' | expand -t 14

libs: ## installs what a build needs: system packages, prebuilt RocksDB and DuckDB
	@$(STACK) setup build
	@mkdir -p .native && ln -sfn "$(CACHE)/lib" .native/lib

build: libs ## the release binary, target/release/landfall (ROCKSDB_COMPILE=1 builds RocksDB from source)
	cargo build --release -p landfall

# Not `cargo run -p landfall`: alone it gives some dependencies fewer features than the workspace has, and `make test` would compile
# a third of them again.
demo: libs ## builds and runs the demo; needs no services
	cargo build --workspace --bin landfall --locked
	"$${CARGO_TARGET_DIR:-target}/debug/landfall" demo

# A stack of its own, fresh each time: one that `make stack` has started is left alone.
test: export LANDFALL_STACK_RUN := $(CACHE)/run-test
test: export LANDFALL_STACK_PORT_BASE := 20090
test: libs lint ## everything that CI checks, against real services that it starts and stops
	@$(STACK) setup
	cargo test $(CHDB_HTTP) --locked
	cargo test --workspace --no-run
	@$(STACK) wipe
	$(STACK) run bash -c 'cargo test --workspace -- --skip $(TIMED) --skip planted:: && cargo test --workspace --test landfall -- --exact $(TIMED)'

lint: tools libs ## format, clippy and docs, with warnings denied; cargo deny where it is installed
	cargo fmt --all --check
	cargo fmt --manifest-path tests/stack/clickhouse/Cargo.toml --check
	cargo clippy --workspace --all-targets --locked -- -D warnings
	cargo clippy $(CHDB_HTTP) --all-targets --locked -- -D warnings
	RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --locked
	@if cargo deny --version > /dev/null 2>&1; then cargo deny check bans licenses sources; fi

tools:
	@cargo fmt --version > /dev/null 2>&1 || { echo "rustfmt is missing: rustup component add rustfmt" >&2; exit 1; }
	@cargo clippy --version > /dev/null 2>&1 || { echo "clippy is missing: rustup component add clippy" >&2; exit 1; }

stack: libs ## starts real Kafka, Connect, registry, Postgres and ClickHouse and prints their addresses
	@$(STACK) setup
	@$(STACK) start
	@$(STACK) env

stack-stop: ## stops them; `tests/stack/stack wipe` deletes their data too
	@$(STACK) stop

bench: libs ## measures; prints lines `name value unit`
	@$(STACK) setup
	cargo bench -p landfall-benches --no-run
	LANDFALL_STACK_SERVICES="kafka postgres clickhouse" $(STACK) run cargo bench -p landfall-benches

torture: libs ## kills landfall KILLS=n times at random and at named points and compares the replicas
	@$(STACK) setup
	LANDFALL_KILLS=$(KILLS) $(STACK) run $(TEST_BINARY) torture::torture

simulate: libs ## runs the core through SEEDS=n simulated histories with faults; needs no services
	LANDFALL_SEEDS=$(SEEDS) $(TEST_BINARY) simulate::simulate

fuzz: libs ## damages inputs of every decoder for SECONDS=n each; sums of all runs are in fuzz.log in the cache
	LANDFALL_FUZZ_SECONDS=$(FUZZ_SECONDS) cargo test -p landfall-tests --test landfall -- --nocapture fuzz::

property: libs ## sends COUNT=n values of every type through every store, and changes and keys through their encodings
	@$(STACK) setup
	LANDFALL_STACK_SERVICES="kafka postgres clickhouse" LANDFALL_COUNT=$(COUNT) $(STACK) run $(TEST_BINARY) \
		$(foreach store,postgres clickhouse duckdb kafka,sink_$(store)::conformance::any_value_is_kept_or_refused) \
		round_trips::any_change_goes_in_and_comes_out round_trips::any_key_stands_where_its_value_does

planted: libs ## shows that the kill test catches each planted bug
	@$(STACK) setup
	$(STACK) run $(TEST_BINARY) planted::planted

conformance: libs ## lands the 81 hard cases in every store and says what came of each
	@$(STACK) setup
	LANDFALL_STACK_SERVICES="kafka postgres clickhouse" $(STACK) run $(TEST_BINARY) cases::every_case_and_store
