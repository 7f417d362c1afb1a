# A fresh machine needs Python 3.11 or newer, git and make; the rest is installed into .venv on first use.
# One environment serves every target, the demo included: torch is most of the download either way, and what a
# newcomer sees then runs on the very versions that the tests ran on.

PYTHON ?= python3
JOBS ?= 2
BIN := .venv/bin
READY := .venv/.installed
DEPLOY := .venv-deploy
DEPLOY_READY := $(DEPLOY)/.installed
SOUND := import sys; sys.exit(sys.version_info < (3, 11))

export PIP_DISABLE_PIP_VERSION_CHECK := 1

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-slow test-deploy check-deploy bench-deploy check-long check-trust lint types docs docs-check site site-serve bench bench-size bench-peers wheel dist clean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-13s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

setup: $(READY) ## Install fedloom and the developer's tools into .venv, once

demo: $(READY) ## Train a small federation and show what comes out
	$(BIN)/fedloom demo

# Each worker computes with one thread: two threads a worker would fight for the cores and change the bits.
test test-slow test-deploy check-deploy bench-deploy check-long check-trust: export OMP_NUM_THREADS := 1
# Tests start many processes, and each would compile the package again if no compiled files were kept.
test test-slow test-deploy check-deploy bench-deploy check-long check-trust: export PYTHONDONTWRITEBYTECODE :=

test: $(READY) ## Run the tests, without the slow and long ones (JOBS=2 workers)
	$(BIN)/python -m pytest -m "not long and not deploy and not slow" -n $(JOBS) --dist loadgroup

test-slow: $(READY) ## Run the code on all pages, the notebooks, and other tests of several seconds (JOBS=2 workers)
	$(BIN)/python -m pytest -m "slow and not long and not deploy" -n $(JOBS) --dist loadgroup

# Flower listens only where it is told to; the namespace proves that nothing leaves the machine.
test-deploy: $(DEPLOY_READY) ## Run the tests that start real sites on Flower, in an environment of its own
	scripts/loopback.sh $(DEPLOY)/bin/python -m pytest -m "deploy and not long" --timeout 600 tests/deploy tests/engines

check-deploy: $(DEPLOY_READY) ## Run the long tests on Flower, and twelve methods against the same runs in-process
	scripts/loopback.sh $(DEPLOY)/bin/python -m pytest -m "deploy and long" --timeout 900 tests/deploy tests/engines
	scripts/loopback.sh $(DEPLOY)/bin/python -m benchmarks.deploy_methods

bench-deploy: $(DEPLOY_READY) ## Measure a round over Flower, in-process, and of a plain Flower app
	scripts/loopback.sh $(DEPLOY)/bin/python -m benchmarks.deploy

check-long: $(READY) ## Run the tests that take minutes
	$(BIN)/python -m pytest -m "long and not deploy"

check-trust: $(READY) ## Attack runs, files, settings and clients in thousands of ways, and count what happens (an hour)
	PYTHONPATH=tests $(BIN)/python -m trust.report
	PYTHONPATH=tests scripts/loopback.sh $(BIN)/python -m trust.faults
	$(BIN)/python -m benchmarks.soak

lint: $(READY) ## Check the style: ruff, rules and layout
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(READY) ## Check the types: mypy
	$(BIN)/mypy

docs: $(READY) ## Write the pages that are generated from the code
	$(BIN)/python scripts/docs.py

docs-check: $(READY) ## Check that the generated pages are up to date
	$(BIN)/python scripts/docs.py --check

# The variable turns off an announcement of the theme's authors, which looks like a warning.
site site-serve: export NO_MKDOCS_2_WARNING := 1

site: $(READY) ## Build the documentation site into site/, offline; a warning is an error
	$(BIN)/python -m mkdocs build --strict

site-serve: $(READY) ## Show the site at http://127.0.0.1:8000 and rebuild it when a page changes
	$(BIN)/python -m mkdocs serve --dev-addr 127.0.0.1:8000

bench: $(READY) ## Measure what steps, rounds and runs cost, in time and memory, and how it grows
	$(BIN)/python -m benchmarks.overhead
	$(BIN)/python -m benchmarks.engines
	$(BIN)/python -m benchmarks.fixed
	$(BIN)/python -m benchmarks.growth
	$(BIN)/python -m benchmarks.crowd
	$(BIN)/python -m benchmarks.steps

bench-size: $(READY) ## Measure memory and bytes of large cohorts, models and memories, and of a million clients
	$(BIN)/python -m benchmarks.size

bench-peers: $(READY) ## Measure Flower, pfl, fluke and BlazeFL in the same way, each in an environment of its own under .peers
	$(BIN)/python -m benchmarks.peers

wheel: $(READY) ## Build the wheel into dist/
	$(BIN)/python -m build --wheel --outdir dist

dist: $(READY) ## Build the wheel and the source archive into dist/
	$(BIN)/python -m build --outdir dist

clean: ## Remove caches and built files; .venv and runs/ stay
	rm -rf build dist site .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -path ./.venv -prune -o -name __pycache__ -type d -prune -exec rm -rf {} +

define check_python
	@$(PYTHON) -c '$(SOUND)' 2>/dev/null || { \
	  echo "fedloom needs Python 3.11 or newer, and '$(PYTHON)' is $$($(PYTHON) --version 2>/dev/null || echo missing)." \
	    "Name another one: make PYTHON=python3.11 $(MAKECMDGOALS)" >&2; exit 1; }
endef

# Flower does not resolve together with the developer's tools, so it has an environment and constraints of its own.
$(DEPLOY_READY): pyproject.toml constraints-deploy.txt
	$(check_python)
	@echo "installing into $(DEPLOY); torch is large, so the first time takes minutes"
	$(PYTHON) -m venv $(DEPLOY)
	$(DEPLOY)/bin/python -m pip install --quiet --editable '.[flower,tables,images]' pytest pytest-timeout hypothesis \
	  --constraint constraints-deploy.txt
	@touch $@

$(READY): pyproject.toml constraints.txt
	$(check_python)
	@echo "installing into .venv; torch is large, so the first time takes minutes"
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --editable '.[dev]' --constraint constraints.txt
	@touch $@
