# Every target does its own set-up; the two that a newcomer needs are `demo` and `test`.
SHELL := /bin/bash
VENV := .venv
BIN := $(VENV)/bin
PYTHON ?= python3
PEERS := $(VENV)/peers
STAMP := $(VENV)/.installed
QUICK := tests/unit tests/property tests/pages tests/integration
# Each of these processes has a Postgres of its own.
TOGETHER := -n auto --maxprocesses 4 --dist loadfile
pip = $(1) -m pip install --quiet --disable-pip-version-check --no-deps $(2)
# Exactly what is named, into the environment of a Python: by uv, of the machine or of the lock, else by pip.
install = if uv="$$(command -v uv || ls $(BIN)/uv 2>/dev/null)"; \
  then "$$uv" pip install --quiet --python $(1) --no-deps $(2); else $(call pip,$(1),$(2)); fi

# Set, it would make every process compile every module again.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup demo test real bench check check-all fix dev lock

help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  \1\t\2/' | expand -t 14

setup: $(STAMP) ## the virtual environment with the locked versions

$(STAMP): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' \
	  || { echo "$(PYTHON) is no Python 3.11, 3.12 or 3.13; name one: make PYTHON=python3.12 ..." >&2; exit 2; }
	@$(PYTHON) -m venv $(VENV)
	@command -v uv >/dev/null || { \
	  awk '/^[^ #]/ { ours = /^uv==/ } ours' requirements.lock > $(VENV)/uv.lock && \
	  $(call pip,$(BIN)/python,--require-hashes -r $(VENV)/uv.lock) || echo "no uv for this machine; pip installs, which takes longer" >&2; }
	@$(call install,$(BIN)/python,--require-hashes -r requirements.lock)
	@$(call install,$(BIN)/python,--no-build-isolation -e .)
	@touch $@

demo: setup ## collect a small shop, kill the worker on the way, resume, publish
	@$(BIN)/scrape-assets demo

test: setup ## the tests (minutes; no service needed)
	@$(BIN)/python -m pytest -m "not slow" $(TOGETHER) $(QUICK)

real: setup ## collect real pages (those where REAL_PAGES says) and compare with what is known of them
	@$(BIN)/python -m tests.helpers.real

bench: setup $(PEERS)/.installed ## our speed and memory beside Scrapy's, on one site, in one run
	@$(BIN)/python bench/run.py $(PEERS)/bin/python

$(PEERS)/.installed: bench/peers.lock
	@$(PYTHON) -m venv $(PEERS)
	@$(call install,$(PEERS)/bin/python,--require-hashes -r $<)
	@touch $@

check: setup ## format, lint, types, layers, migrations, definitions, tests
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/squawk --config .squawk.toml sql/migrations/*.sql
	@mkdir -p $(VENV)/dagster_home && touch $(VENV)/dagster_home/dagster.yaml
	@$(BIN)/scrape-assets init $(VENV)/checked --json >/dev/null  # a folder without datasets would define nothing
	VIRTUAL_ENV="$(CURDIR)/$(VENV)" DAGSTER_HOME="$(CURDIR)/$(VENV)/dagster_home" PATH="$(CURDIR)/$(BIN):$$PATH" \
	  SCRAPE_ASSETS_PROJECT="$(CURDIR)/$(VENV)/checked" $(BIN)/dg check defs
	$(BIN)/python -m pytest -m "not slow" $(TOGETHER) $(QUICK)

check-all: check ## check, and the slow suites: kills, Dagster, wheel, drills in full size, breaks that tests must notice
	$(BIN)/python -m pytest -m "slow or ui"
	$(BIN)/scrape-assets drill --times 20 --seed 1
	$(BIN)/scrape-assets drill --random 200 --seed 1
	$(BIN)/scrape-assets drill --suite discovery
	$(BIN)/scrape-assets drill --suite politeness
	$(BIN)/scrape-assets drill --suite hostile
	$(BIN)/python tests/mutations.py

fix: setup ## format and apply the safe lint fixes
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

dev: setup ## Postgres, the Dagster UI and its daemon
	@$(BIN)/scrape-assets dev

lock: setup ## resolve the locked versions (UPGRADE=1 takes newer ones)
	PATH="$(BIN):$$PATH" uv pip compile pyproject.toml --group dev --universal --python-version 3.11 --generate-hashes \
	  --no-strip-extras --no-header $(if $(UPGRADE),--upgrade) --quiet -o requirements.lock
