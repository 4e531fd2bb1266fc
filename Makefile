# `make test` installs what is missing and runs everything; `make demo` shows the product in pi.

CARGO ?= cargo
NODE_DIR := tests/official
NODE := $(NODE_DIR)/node_modules/.bin/node
# Real pi: the versions the tests drive, and the newest one.
PI_087 := tests/pi/node_modules/.installed
PI := $(PI_087) tests/pi/newest/node_modules/.installed
SHIM := js-shim/node_modules/.installed
INSPECTOR := tests/inspector/node_modules/.installed
# Libraries and coding agents that use the gateway.
CLIENTS := tests/clients/node_modules/.installed
AGENTS := tests/clients/agents
OPENCODE := tests/clients/opencode/node_modules/.installed
# Drives Chromium.
BROWSER := tests/browser/node_modules/.installed
# The official SDK of the Agent Client Protocol.
ACP := tests/acp/node_modules/.installed
SOAK_TURNS ?= 10000
# Six targets share it.
FUZZ_SECONDS ?= 600
BENCHES := wire pi bridge native load scale gateway
FIGURES := target/bench.jsonl
LITELLM := target/litellm/.installed
FUZZ_TARGETS := envelope message frames journal planner scenario

.PHONY: demo program test clients bench lint lint-rust lint-shim fmt faults soak fuzz record schema counts docs audit release-dry-run platforms

# Real pi: with Cursor if CURSOR_API_KEY is set, else a tour with the simulator. Packages arrive
# while the compiler works.
demo:
	@$(MAKE) --no-print-directory -j2 program $(NODE) $(PI_087)
	./.ci/demo

# For a demo, debug information and what makes the next build faster only cost time.
program:
	CARGO_INCREMENTAL=0 CARGO_PROFILE_DEV_DEBUG=none $(CARGO) build

test: lint $(NODE) $(PI) $(INSPECTOR) $(CLIENTS) $(OPENCODE) $(BROWSER) $(ACP)
	@command -v tmux >/dev/null || ./.ci/install tmux # to look at pi's screen
	@command -v chromium >/dev/null || ./.ci/install chromium # the gateway's status page
	@[ "$$(uname)" != Linux ] || command -v valgrind >/dev/null || ./.ci/install valgrind # counts instructions
	@command -v lua5.4 >/dev/null || ./.ci/install lua5.4 # examples/host.lua
	@lua5.4 -e 'require("cjson")' 2>/dev/null || ./.ci/install lua-cjson
	./.ci/rust-tests

# Python packages; those that cannot be installed here are left out.
venv = test -d $(AGENTS)/$1 || (python3 -m venv $(AGENTS)/$1 && \
  $(AGENTS)/$1/bin/pip install --quiet --requirement $(AGENTS)/$2) || echo "make clients: no $2"

# Coding agents against the gateway and the simulator: each executes its own tools, in one run.
clients: $(NODE) $(CLIENTS) $(OPENCODE) $(AGENTS)/node_modules/.installed
	$(CARGO) build --quiet
	@$(call venv,.venv,requirements.txt)
	@$(call venv,.venv-aider,requirements-aider.txt)
	$(NODE) $(AGENTS)/run.mjs

lint: lint-rust lint-shim

lint-rust:
	$(CARGO) fmt --all --check
	$(CARGO) clippy --quiet --workspace --all-targets -- -D warnings

# The extension is checked against the types of a real pi.
lint-shim: $(SHIM) $(PI)
	npm run --prefix js-shim --silent check

fmt: $(SHIM)
	$(CARGO) fmt --all
	npm run --prefix js-shim --silent format

# Side by side with the official client, pi and LiteLLM, in one run. Prints one table, and makes
# docs/benchmarks.md and its chart of it. A bench that fails is named; the others are reported.
# BENCH_QUICK=1 measures the debug build, and so little that it only shows that every row is measured;
# its page is in target/bench. CI_MINUTES is what a clean clone took before: the one figure from elsewhere.
bench: $(NODE) $(PI_087) $(LITELLM)
	@rm -f $(FIGURES)
	@for bench in $(BENCHES); do \
	  echo "== $$bench"; \
	  BENCH_REPORT=$(CURDIR)/$(FIGURES) $(CARGO) bench --quiet $(if $(BENCH_QUICK),--profile dev) --bench $$bench || \
	    echo "make bench: $$bench failed"; \
	done
	$(CARGO) xtask report-benches $(FIGURES) $(if $(BENCH_QUICK),--out target/bench) \
	  $(if $(CI_MINUTES),--ci-minutes $(CI_MINUTES)) \
	  --machine "$$(uname -sm), $$(getconf _NPROCESSORS_ONLN) processors, $$(date +%F)"

# Beside the gateway. Left out where it cannot be installed.
$(LITELLM):
	@python3 -m venv target/litellm && target/litellm/bin/pip install --quiet --requirement $(AGENTS)/requirements.txt || \
	  echo "make bench: LiteLLM cannot be installed here; its rows are left out"
	@mkdir -p $(@D) && touch $@

# Every fault at every place of two conversations; draws docs/fault-matrix*.svg.
faults:
	FAULT_MATRIX=all $(CARGO) test --test e2e wherever_it_breaks -- --nocapture

# Many sessions, random faults, killed sidecars; prints the resources they use.
soak:
	SOAK_TURNS=$(SOAK_TURNS) $(CARGO) test --test e2e soak -- --nocapture

# Ten minutes by default: random input for every parser of foreign data.
fuzz:
	@command -v cargo-fuzz >/dev/null || $(CARGO) install cargo-fuzz --locked
	@for target in $(FUZZ_TARGETS); do \
	  echo "make fuzz: $$target"; \
	  mkdir -p fuzz/corpus/$$target; \
	  seeds=$$(ls -d fuzz/seeds/$$target 2>/dev/null); \
	  test $$target = scenario && seeds=tests/scenarios; \
	  RUSTC_BOOTSTRAP=1 $(CARGO) fuzz run $$target fuzz/corpus/$$target $$seeds -- \
	    -max_total_time=$$(( $(FUZZ_SECONDS) / $(words $(FUZZ_TARGETS)) )) \
	    -timeout=10 -malloc_limit_mb=128 || exit 1; \
	done

# What the official client answers, for the tests that compare ours with it.
record: $(NODE)
	RECORD_OFFICIAL_CLIENT=1 $(CARGO) test --quiet --test e2e compare_

# Generated files: protobuf code, the protocol's schema and TypeScript, the settings page.
schema:
	$(CARGO) xtask generate-protobuf
	UPDATE_SCHEMA=1 $(CARGO) test --quiet --lib schema

# How many instructions the hot paths take, for the tests that compare with them.
counts:
	@command -v valgrind >/dev/null || ./.ci/install valgrind
	UPDATE_COUNTS=1 $(CARGO) test --quiet --lib --test checks take_no_more_instructions

docs:
	UPDATE_DOCS=1 $(CARGO) test --quiet --lib config::settings

# Builds the packages of the platforms that can be built here, and checks their sums.
release-dry-run:
	$(CARGO) xtask package
	cd target/packages && sha256sum --check SHA256SUMS

# Windows under Wine, static Linux, arm64 under qemu; macOS is type-checked.
platforms:
	@./.ci/platforms

audit:
	@command -v cargo-deny >/dev/null || $(CARGO) install cargo-deny --locked
	./.ci/audit

# Node 24 and the official client, from npm.
$(NODE): $(NODE_DIR)/package-lock.json
	npm ci --prefix $(NODE_DIR) --no-audit --no-fund --loglevel=error
	@touch $(NODE)

# Their scripts fetch or link the programs.
$(AGENTS)/node_modules/.installed: $(AGENTS)/package-lock.json
	npm ci --prefix $(AGENTS) --no-audit --no-fund --loglevel=error
	@touch $@

%/node_modules/.installed: %/package-lock.json
	npm ci --prefix $* --ignore-scripts --legacy-peer-deps --no-audit --no-fund --loglevel=error
	@touch $@
