# Thin calls into the project's programs. `make help` lists them.

VENV    ?= .venv
SERVERS ?= local
ARGS    ?=
SEEDS   ?= 10000
BIN     := $(VENV)/bin

.DEFAULT_GOAL := help
.PHONY: help up down test test-oracle simulate fault fuzz lint audit load load-full load-path load-chaos load-planner load-webhooks load-fairness load-api load-scrape load-history load-catchup load-alerts load-upgrade tour failover-report mutate clean

help: ## what can be made
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-15s %s\n", $$1, $$2}' Makefile
	@echo
	@echo "ARGS='...' is handed on: make up ARGS='--workers 4', make test ARGS='tests/unit -x'."

up: $(VENV)/.run ## everything on this machine: servers, API, schedulers, workers (Ctrl-C stops it)
	@exec $(BIN)/tickrail up $(ARGS)

down: ## stop what `make up` runs
	@$(BIN)/tickrail down $(ARGS)

test: $(VENV)/.dev ## the tests; SERVERS=local (default) or containers
	@TICKRAIL_TEST_SERVERS=$(SERVERS) $(BIN)/python -m pytest $(ARGS)

test-oracle: $(VENV)/.dev ## every schedule found in the wild against brute force, some ten minutes
	@$(BIN)/python -m tests.oracle.corpus $(ARGS)

simulate: $(VENV)/.dev ## histories of the whole installation with faults; SEEDS=100000 for the night
	@$(BIN)/python -m tests.simulation.run --seeds $(SEEDS) $(ARGS)

fault: $(VENV)/.dev ## real processes that die and stop at failpoints; SEEDS=20, ARGS='--keep DIR --journal FILE'
	@$(BIN)/python -m tests.fault.run --seeds $(if $(filter file,$(origin SEEDS)),20,$(SEEDS)) $(ARGS)

fuzz: $(VENV)/.dev ## requests of all kinds by the OpenAPI document, 20,000 cases; ARGS='--seconds 180 --cases 0'
	@TICKRAIL_TEST_SERVERS=$(SERVERS) $(BIN)/python -m tests.fuzz.run $(ARGS)

lint: $(VENV)/.dev ## ruff, mypy, the import contracts
	@$(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/mypy && $(BIN)/lint-imports

audit: $(VENV)/.audit ## known vulnerabilities of the locked packages, by an advisory service on the network
	@$(VENV)/audit/bin/python requirements/audit.py requirements/dev.lock requirements/mutate.lock requirements/audit.lock

load: $(VENV)/.dev ## Locust, a day of schedules and a herd, half a minute of traffic; ARGS=api, herd or day for one of the long ones
	@$(BIN)/python -m loadtest.load $(ARGS)

load-full: $(VENV)/.dev ## the long ones: users of the API, 100,000 jobs at one second, a day in an hour; ARGS='--page docs'
	@$(BIN)/python -m loadtest.load full $(ARGS)

load-path: $(VENV)/.dev ## the load test of the whole path; ARGS='steady --rate 578.7 --seconds 60'
	@$(BIN)/python loadtest/pipeline.py $(if $(ARGS),$(ARGS),drain)

load-chaos: $(VENV)/.dev ## 50,000 launches that fail at random, workers killed each 10 s, Kafka restarted; ARGS='--launches 5000'
	@$(BIN)/python -m loadtest.chaos $(ARGS)

load-planner: $(VENV)/.dev ## what planning costs, beside croniter and among many jobs
	@$(BIN)/python loadtest/planner.py $(ARGS)

load-fairness: $(VENV)/.dev ## one tenant's crowd of 100,000 launches and another's ten a second
	@$(BIN)/python loadtest/fairness.py $(ARGS)

load-api: $(VENV)/.dev ## the API with 100,000 jobs of 200 tenants: pages, creates, batches; ARGS='lists --pages 50'
	@$(BIN)/python loadtest/api.py $(ARGS)

load-webhooks: $(VENV)/.dev ## webhooks: calls open at once; ARGS=short and ARGS=executor: calls a second
	@$(BIN)/python loadtest/webhooks.py $(if $(ARGS),$(ARGS),open)

load-upgrade: $(VENV)/.dev ## an upgrade from the version before the newest schema, in the chart's order, under load
	@$(BIN)/python loadtest/upgrade.py $(ARGS)

tour: $(VENV)/.dev ## the image and docker-compose.yml, tried; ARGS='--stand-ins' where no image can be pulled
	@$(BIN)/python -m tests.images.tour $(ARGS)

load-scrape: $(VENV)/.dev ## what a scrape costs with 64 partitions and 1,000 tenants
	@$(BIN)/python loadtest/scrape.py $(ARGS)

load-history: $(VENV)/.dev ## what a long history costs, days made and dropped, vacuum; ARGS='--launches 10000000'
	@$(BIN)/python loadtest/history.py $(ARGS)

load-catchup: $(VENV)/.dev ## the catch-up after an outage, by each misfire policy; ARGS='--policy fire_once --real'
	@$(BIN)/python loadtest/catchup.py $(ARGS)

load-alerts: $(VENV)/.dev ## each alert tried with a real fault, half an hour; ARGS='--only no-kafka clock'
	@$(BIN)/python -m loadtest.alerts $(ARGS)

failover-report: $(VENV)/.dev ## faults under load, 50 of each kind, 80 minutes: docs/failover.md; goes on where it was ended
	@$(BIN)/python -m loadtest.failover --page docs $(ARGS)

mutate: $(VENV)/.mutate ## mutation testing of what decides about time; ARGS='cron --show', schedule, plan
	@$(BIN)/python -m tests.oracle.mutate $(if $(ARGS),$(ARGS),plan)

clean: ## remove the environment and caches; data in .tickrail/ stays
	rm -rf .venv .mutation .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis build dist
	find libs services tests loadtest -name __pycache__ -type d -prune -exec rm -rf {} +

# The environment. uv is the quickest installer; its own pinned hash is in the lock of the
# developers' tools, and pip checks it. What is there already is not asked for again.
UV_INSTALL = $(BIN)/uv pip install --quiet --no-config --python $(BIN)/python --no-deps

$(BIN)/uv: requirements/dev.lock
	@python=; for p in $(PYTHON) python3 python3.14 python3.13 python3.12 python3.11; do \
	  if $$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
	    python=$$p; break; fi; done; \
	if [ -z "$$python" ]; then \
	  echo "Tickrail needs Python 3.11 or newer; here $$(python3 -V 2>&1 || true)." \
	    "Install one, or name it: make up PYTHON=/path/to/python3.11" >&2; exit 1; fi; \
	echo "Python environment in $(VENV) ($$($$python -V))"; \
	[ -x $(BIN)/pip ] || $$python -m venv $(VENV) || { \
	  echo "The environment could not be made: on Debian and Ubuntu, install python3-venv." >&2; \
	  exit 1; }
	@awk '/^uv==/ {p = 1} p {print} p && !/\\$$/ {exit}' requirements/dev.lock > $(VENV)/uv.lock
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes --no-deps \
	  -r $(VENV)/uv.lock
	@touch $@

$(VENV)/.run: requirements/run.lock pyproject.toml | $(BIN)/uv
	@echo "Installing the locked dependencies"
	@$(UV_INSTALL) --require-hashes -r requirements/run.lock
	@$(UV_INSTALL) --no-build-isolation -e .
	@touch $@

$(VENV)/.dev: requirements/dev.lock pyproject.toml | $(BIN)/uv
	@echo "Installing the locked dependencies and the developers' tools"
	@$(UV_INSTALL) --require-hashes -r requirements/dev.lock
	@$(UV_INSTALL) --no-build-isolation -e .
	@touch $@

$(VENV)/.mutate: requirements/mutate.lock | $(VENV)/.dev
	@echo "Installing the tools of mutation testing"
	@$(UV_INSTALL) --require-hashes -r requirements/mutate.lock
	@touch $@

$(VENV)/.audit: requirements/audit.lock | $(BIN)/uv # an environment of its own: what is in the other one is counted
	@echo "Installing pip-audit"
	@$(BIN)/uv venv --quiet --no-config --clear --python $(BIN)/python $(VENV)/audit
	@$(BIN)/uv pip install --quiet --no-config --python $(VENV)/audit/bin/python --no-deps \
	  --require-hashes -r requirements/audit.lock
	@touch $@
