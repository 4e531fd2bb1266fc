# `make test` installs what is missing and runs everything; `make demo` shows the product.

CARGO ?= cargo
NODE_DIR := tests/official
NODE := $(NODE_DIR)/node_modules/.bin/node
FUZZ_SECONDS ?= 60

.PHONY: demo test bench lint fmt fuzz schema docs audit

# One conversation with Cursor if CURSOR_API_KEY is set, else with the simulator.
demo:
	$(CARGO) build --quiet
	./.ci/demo

test: lint $(NODE)
	./.ci/rust-tests

lint:
	$(CARGO) fmt --check
	$(CARGO) clippy --quiet --all-targets -- -D warnings

fmt:
	$(CARGO) fmt

# Side by side with the official client, in one run.
bench: $(NODE)
	$(CARGO) bench --quiet --bench wire
	$(CARGO) bench --quiet --bench native

fuzz:
	@command -v cargo-fuzz >/dev/null || $(CARGO) install cargo-fuzz --locked
	@for target in envelope message; do \
	  RUSTC_BOOTSTRAP=1 $(CARGO) fuzz run $$target -- -max_total_time=$(FUZZ_SECONDS) || exit 1; \
	done

# Generated files: protobuf code, the settings page.
schema:
	UPDATE_SCHEMA=1 $(CARGO) test --quiet --test schema --lib schema

docs:
	UPDATE_DOCS=1 $(CARGO) test --quiet --lib settings

audit:
	@command -v cargo-deny >/dev/null || $(CARGO) install cargo-deny --locked
	$(CARGO) deny check

# Node 24 and the official client, from npm.
$(NODE): $(NODE_DIR)/package-lock.json
	npm ci --prefix $(NODE_DIR) --no-audit --no-fund --loglevel=error
	@touch $(NODE)
