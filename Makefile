# Every target makes what it needs (.venv first) and says in one line what it does.
# Needs Python 3.11 or newer and make; CONTRIBUTING.md says where the tests' servers come from. PYTHON=python3.12 chooses
# another interpreter.

PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready
SOURCES := $(wildcard src contract tests examples bench tools)
# Tests wait for servers, and those of chaos for leases, more than they compute: more of them at a time than two cores.
PARALLEL ?= 3
CHAOS ?= 4
PYTEST := -q -n $(PARALLEL) --dist worksteal --durations 10
QUICK := tests/arch tests/core tests/client tests/ops tests/runtime tests/stores tests/contract tests/engines/sqlite tests/types
# One engine for the matrix (core, sqlite, redis or postgres) or for prove; all of them when it is empty.
E ?=
# ONCE is accepted by demo and changes nothing: the demo always ends by itself.
ONCE ?=

.DEFAULT_GOAL := help
.NOTPARALLEL: # check before tests, one message at a time
.PHONY: shots help demo quick test check check-web tests matrix prove bench bench-peers web format constraints clean

help: ## say what there is
	@echo "make TARGET, where TARGET is one of:"
	@sed -n 's/^\([a-z-]*\):[^#]*## \(.*\)/  \1 \2/p' $(MAKEFILE_LIST) | awk '{ name = $$1; $$1 = ""; printf "  %-12s%s\n", name, $$0 }'

$(READY): pyproject.toml contract/pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "limpet needs Python 3.11 or newer: make PYTHON=python3.12 ..." >&2; exit 2; }
	@echo "venv: installing the pinned tools into .venv (about a minute, once)"
	@$(PYTHON) -m venv .venv
	@$(BIN)/python -m pip install -qq --disable-pip-version-check --constraint constraints.txt --upgrade pip
	@$(BIN)/python -m pip install -qq --disable-pip-version-check --constraint constraints.txt --editable '.[agents,mcp,fast,redis,postgres,server]' --editable ./contract --group dev
	@touch $@

# The servers of the Redis tests: the others come as wheels with the dev group, Redis 7 is Debian's or your own.
.venv/redis-7/.ready: $(READY) tools/redis_7.py tools/debian.py
	@$(BIN)/python tools/redis_7.py
	@mkdir -p $(@D) && touch $@

# What reads our metrics as users' does: Debian's or your own.
.venv/prometheus/.ready: $(READY) tools/prometheus.py tools/debian.py
	@$(BIN)/python tools/prometheus.py
	@mkdir -p $(@D) && touch $@

# PostgreSQL's: 15 is Debian's or your own, 16 and 18 come as a wheel with the dev group; the pool before them.
.venv/postgres-15/.ready: $(READY) tools/postgres_15.py tools/debian.py
	@$(BIN)/python tools/postgres_15.py
	@mkdir -p $(@D) && touch $@

.venv/pgbouncer/.ready: $(READY) tools/pgbouncer.py tools/debian.py
	@$(BIN)/python tools/pgbouncer.py
	@mkdir -p $(@D) && touch $@

# The oldest driver that pyproject.toml declares, or the first after it with a wheel for this Python: the tests use it
# beside the newest, which is in .venv.
.venv/hiredis-oldest/.ready: $(READY)
	@rm -rf $(@D)
	@for version in $$(sed -n 's/.*"hiredis>=\([0-9.]*\).*/\1/p' pyproject.toml | head -1) 3.1.0 3.3.0; do \
		$(BIN)/python -m pip install -qqq --disable-pip-version-check --only-binary :all: --no-deps --target $(@D) \
			"hiredis==$$version" && break; \
	done
	@touch $@

demo: $(READY) ## the whole story in a minute: emails, exports, a greedy tenant, killed workers; fails if a job is lost
	@echo "demo: running the story on SQLite in .demo/"
	@$(BIN)/limpet demo

quick: check $(READY) ## the inner loop: check, then all rooms on SQLite, without a server (two minutes)
	@echo "quick: core, client, ops, runtime, and the contract on SQLite; $(PARALLEL) at a time"
	@$(BIN)/python -m pytest $(PYTEST) -m "not redis and not postgres" $(QUICK)

test: check tests ## everything that guards a promise: check, then the tests on one version of each server (what CI runs)
	@echo "test: all green"

check: $(READY) check-web ## format, lint, types and who may import whom, of Python and of the page; changes nothing
	@echo "check: ruff format, ruff, mypy --strict, import-linter"
	@$(BIN)/ruff format --check --quiet . || { echo "check: run 'make format'" >&2; exit 1; }
	@$(BIN)/ruff check --quiet .
	@$(BIN)/mypy --strict --no-error-summary $(SOURCES)
	@$(BIN)/lint-imports --no-logo --no-cache > .venv/lint-imports.log 2>&1 || { cat .venv/lint-imports.log; exit 1; }

tests: $(READY) .venv/postgres-15/.ready .venv/pgbouncer/.ready .venv/hiredis-oldest/.ready .venv/chromium/.ready src/limpet/server/assets/index.html ## the tests alone, then chaos: real processes, real kills
	@echo "tests: everything but chaos, $(PARALLEL) at a time"
	@$(BIN)/python -m pytest $(PYTEST) --ignore tests/chaos
	@echo "tests: chaos, $(CHAOS) at a time"
	@$(BIN)/python -m pytest $(PYTEST) -n $(CHAOS) --timeout 900 tests/chaos

matrix: $(READY) .venv/chromium/.ready src/limpet/server/assets/index.html .venv/redis-7/.ready .venv/postgres-15/.ready .venv/pgbouncer/.ready .venv/hiredis-oldest/.ready .venv/prometheus/.ready ## every server version and harness, full sizes, many seeds; E=redis for one engine; goes on where it stopped
	@$(BIN)/python tools/matrix.py --engine "$(E)" --parallel $(PARALLEL)

prove: $(READY) ## list, count, causes and job beside a million ready and a million dead jobs, timed; a dated page in docs/evidence; E=redis for one engine
	@echo "prove: filling a store of each engine, then asking it over HTTP (minutes; the data go to .bench/ and are removed)"
	@$(BIN)/python -m bench.prove --engine "$(E)"

bench: $(READY) ## measure this machine beside its floor: drain, enqueue, latency, on SQLite, Redis and PostgreSQL (three minutes)
	@echo "bench: measuring the SQLite engine"
	@$(BIN)/python -m bench
	@echo "bench: measuring the Redis engine"
	@$(BIN)/python -m bench --engine redis
	@echo "bench: measuring the PostgreSQL engine"
	@$(BIN)/python -m bench --engine postgres

# The versions are part of the names, so that a new one is installed when it is written here.
PEERS := .bench/huey/.ready-3.5.4 .bench/taskiq/.ready-0.13.0-1.2.4 .bench/bullmq/.ready-6.7.0 \
	.bench/pgqueuer/.ready-1.6.0 .bench/procrastinate/.ready-3.10.0 .bench/celery/.ready-5.7.0 .bench/dramatiq/.ready-2.2.1 \
	.bench/rq/.ready-2.12.0 .bench/arq/.ready-0.28.0 .bench/sidekiq/.ready-bookworm

.bench/huey/.ready-%:
	@echo "bench-peers: installing huey $* into an environment of its own, .bench/huey"
	@$(PYTHON) -m venv --clear .bench/huey
	@.bench/huey/bin/python -m pip install -qq --disable-pip-version-check huey==$* redis==8.1.0 hiredis==3.5.0
	@touch $@

.bench/taskiq/.ready-0.13.0-%:
	@echo "bench-peers: installing taskiq into an environment of its own, .bench/taskiq"
	@$(PYTHON) -m venv --clear .bench/taskiq
	@.bench/taskiq/bin/python -m pip install -qq --disable-pip-version-check taskiq==0.13.0 taskiq-redis==$* redis==8.1.0 hiredis==3.5.0 uvloop==0.23.0
	@touch $@

.bench/pgqueuer/.ready-%:
	@echo "bench-peers: installing PgQueuer $* into an environment of its own, .bench/pgqueuer"
	@$(PYTHON) -m venv --clear .bench/pgqueuer
	@.bench/pgqueuer/bin/python -m pip install -qq --disable-pip-version-check pgqueuer==$* asyncpg==0.32.0 uvloop==0.23.0
	@touch $@

.bench/procrastinate/.ready-%:
	@echo "bench-peers: installing Procrastinate $* into an environment of its own, .bench/procrastinate"
	@$(PYTHON) -m venv --clear .bench/procrastinate
	@.bench/procrastinate/bin/python -m pip install -qq --disable-pip-version-check procrastinate==$* 'psycopg[binary,pool]==3.3.8' uvloop==0.23.0
	@touch $@

.bench/celery/.ready-%:
	@echo "bench-peers: installing Celery $* into an environment of its own, .bench/celery"
	@$(PYTHON) -m venv --clear .bench/celery
	@.bench/celery/bin/python -m pip install -qq --disable-pip-version-check 'celery[redis]==$*' kombu==5.7.0 redis==8.1.0 hiredis==3.5.0
	@touch $@

.bench/dramatiq/.ready-%:
	@echo "bench-peers: installing Dramatiq $* into an environment of its own, .bench/dramatiq"
	@$(PYTHON) -m venv --clear .bench/dramatiq
	@.bench/dramatiq/bin/python -m pip install -qq --disable-pip-version-check dramatiq==$* redis==8.1.0 hiredis==3.5.0
	@touch $@

.bench/rq/.ready-%:
	@echo "bench-peers: installing RQ $* into an environment of its own, .bench/rq"
	@$(PYTHON) -m venv --clear .bench/rq
	@.bench/rq/bin/python -m pip install -qq --disable-pip-version-check rq==$* redis==8.1.0 hiredis==3.5.0
	@touch $@

# It takes no newer redis-py than 5.
.bench/arq/.ready-%:
	@echo "bench-peers: installing arq $* into an environment of its own, .bench/arq"
	@$(PYTHON) -m venv --clear .bench/arq
	@.bench/arq/bin/python -m pip install -qq --disable-pip-version-check arq==$* redis==5.3.1 hiredis==3.5.0 uvloop==0.23.0
	@touch $@

# The release of Debian decides which Sidekiq it is. What cannot be unpacked is tried again next time.
.bench/sidekiq/.ready-%: tools/sidekiq.py tools/debian.py
	@echo "bench-peers: unpacking Debian's Sidekiq into .bench/sidekiq"
	@rm -rf .bench/sidekiq
	@if $(PYTHON) tools/sidekiq.py; then touch $@; fi

.bench/bullmq/.ready-%: bench/peers/bullmq/package.json
	@command -v npm > /dev/null || { echo "bench-peers: no npm found, so BullMQ is left out"; exit 0; }; \
	echo "bench-peers: installing bullmq $* into .bench/bullmq"; \
	mkdir -p .bench/bullmq && cp bench/peers/bullmq/package.json bench/peers/bullmq/.npmrc .bench/bullmq/ && \
	npm install --prefix .bench/bullmq --silent --no-package-lock --no-audit --no-fund --ignore-scripts && touch $@

bench-peers: $(READY) $(PEERS) ## the same beside peers (Sidekiq, BullMQ, Celery, Dramatiq, RQ, arq, taskiq, huey, PgQueuer, Procrastinate), in turns
	@echo "bench-peers: measuring the SQLite engine and huey"
	@$(BIN)/python -m bench --peers
	@echo "bench-peers: measuring the Redis engine, Sidekiq, BullMQ, Celery, Dramatiq, RQ, arq, taskiq and huey"
	@$(BIN)/python -m bench --engine redis --peers
	@echo "bench-peers: measuring the PostgreSQL engine, PgQueuer and Procrastinate"
	@$(BIN)/python -m bench --engine postgres --peers

web: $(READY) ## build the page that `limpet serve` shows: fetch its libraries with npm (Node 20), copy all into the package
	@$(BIN)/python tools/web.py

# What the page is made of, for the tests and for `limpet demo`.
src/limpet/server/assets/index.html: $(READY) tools/web.py web/package-lock.json $(shell find web/src -name '*.js' -o -name '*.css' -o -name '*.html')
	@$(BIN)/python tools/web.py

# The browser of the page's tests.
.venv/chromium/.ready: $(READY) tools/chromium.py tools/debian.py
	@$(BIN)/python tools/chromium.py
	@mkdir -p $(@D) && touch $@

shots: $(READY) .venv/chromium/.ready src/limpet/server/assets/index.html ## a picture of every page in both themes, in docs/pictures
	@$(BIN)/python tools/shots.py

# Node, where the machine has none: the page's checks and its libraries need it.
.venv/node/.ready: $(READY) pyproject.toml
	@command -v npm > /dev/null || $(BIN)/python -m pip install -qq --disable-pip-version-check --constraint constraints.txt --group node
	@mkdir -p $(@D) && touch $@

web/node_modules/.ready: .venv/node/.ready web/package-lock.json
	@$(BIN)/python tools/web.py --libraries

check-web: web/node_modules/.ready # prettier, eslint and the types of the page's modules
	@echo "check: prettier, eslint, tsc"
	@$(BIN)/python tools/page_types.py
	@$(BIN)/python tools/web.py --check

format: $(READY) ## format the code and apply the safe lint fixes
	@$(BIN)/ruff check --fix --quiet . ; $(BIN)/ruff format .
	@if [ -x web/node_modules/.bin/prettier ]; then $(BIN)/python tools/web.py --format; fi

constraints: $(READY) ## write the installed versions down in constraints.txt
	@$(BIN)/python tools/constraints.py > .venv/constraints.txt && cp .venv/constraints.txt constraints.txt
	@touch $(READY)

clean: ## remove what the targets made: .venv, caches, .demo, .bench, .matrix
	@rm -rf web/node_modules src/limpet/server/assets .venv .demo .bench .mypy_cache .ruff_cache .import_linter_cache .hypothesis .matrix build dist
