# Run `make` for the list of targets. AIRFLOW=3.2.1 works against the oldest Airflow that we support.
AIRFLOW ?= 3.3.1
VENV := $(if $(filter 3.3.1,$(AIRFLOW)),.venv,.venv-$(AIRFLOW))
LOCK := locks/airflow-$(AIRFLOW).txt
READY := $(VENV)/.ready
BENCH_VENV := .venv-bench
BENCH_READY := $(BENCH_VENV)/.ready
BIN := $(VENV)/bin
PYTEST_ARGS ?= -n 2 --dist loadfile
CORPUS ?= ../shared/corpus
PORT ?= 8080
DOCS ?= 20000

# Airflow must never touch the user's own ~/airflow.
export AIRFLOW_HOME := $(CURDIR)/.build/airflow-$(AIRFLOW)
export AIRFLOW__CORE__LOAD_EXAMPLES := False
# setup.sh reads it; empty means "find one".
export PYTHON

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help setup demo demo-clean up test lint format bench bench-pipeline bench-api local-aws lock clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## Install everything that the other targets need (they do it themselves when it is missing)
	@rm -f $(READY)
	@$(MAKE) --no-print-directory $(READY)
	@echo "ready: $(VENV) with Airflow $(AIRFLOW)"

demo: $(READY) ## Run the real DAG on sample documents and a local AWS, and show what came out
	@$(BIN)/python -m local_airflow demo

demo-clean: $(READY) ## Stop the demo's local AWS and remove all that the demo made
	@$(BIN)/python -m local_airflow clean

up: $(READY) ## Start Airflow with its UI against a local AWS (PORT=8080; Ctrl-C stops all of it)
	@$(BIN)/python -m local_airflow up --port $(PORT)

test: lint ## Lint, check types, and run the tests (PYTEST_ARGS=... replaces pytest's arguments)
	$(BIN)/pytest $(PYTEST_ARGS)

lint: $(READY) ## Check style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	@if command -v shellcheck >/dev/null; then echo shellcheck; shellcheck scripts/*.sh .ci/run; fi

format: $(READY) ## Fix what can be fixed by itself, and format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(READY) $(BENCH_READY) ## Measure against peers, which live in an environment of their own
	$(BIN)/python -m benchmarks --corpus $(CORPUS) $(BENCH_ARGS)

bench-pipeline: $(READY) ## Measure the whole pipeline: documents a second, memory of every task, enqueue, listing
	$(BIN)/python -m benchmarks.pipeline --documents $(DOCS) $(BENCH_ARGS)

bench-api: $(READY) ## Measure the REST API: status reads a second, pages of a long listing
	$(BIN)/python -m benchmarks.api $(BENCH_ARGS)

local-aws: $(READY) ## Start a local AWS: S3, SQS, DynamoDB, CloudWatch Logs, Secrets Manager, ECS (Ctrl-C stops it)
	@$(BIN)/python -m local_aws up $(LOCAL_AWS_ARGS)

lock: ## Refresh locks/ from pyproject.toml (UPGRADE=1 also moves every pin to the newest allowed)
	@UV="$$(scripts/setup.sh uv)" scripts/lock.sh

clean: ## Remove all that make created, the environments included
	rm -rf .build .uv .venv .venv-* .pytest_cache .ruff_cache .mypy_cache .hypothesis dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(READY): $(LOCK) pyproject.toml scripts/setup.sh
	@scripts/setup.sh tools
	@scripts/setup.sh venv $(VENV) $(LOCK) --project
	@touch $@

$(BENCH_READY): locks/bench.txt scripts/setup.sh
	@scripts/setup.sh tools
	@scripts/setup.sh venv $(BENCH_VENV) locks/bench.txt
	@touch $@
