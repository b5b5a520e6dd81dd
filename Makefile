# Run `make` for the list of targets. AIRFLOW=3.2.1 works against the oldest Airflow that we support.
AIRFLOW ?= 3.3.1
VENV := $(if $(filter 3.3.1,$(AIRFLOW)),.venv,.venv-$(AIRFLOW))
LOCK := locks/airflow-$(AIRFLOW).txt
READY := $(VENV)/.ready
BENCH_VENV := .venv-bench
BENCH_READY := $(BENCH_VENV)/.ready
AWS_CLI_VENV := .venv-aws-cli
AWS_CLI_READY := $(AWS_CLI_VENV)/.ready
CHECKOV_VENV := .venv-checkov
CHECKOV_READY := $(CHECKOV_VENV)/.ready
NODE_VENV := .venv-node
VENDORED := plugins/pdf_ops/api/static/vendor/.ready
BIN := $(VENV)/bin
# In the order of testpaths, the longest files first: else one process is left with them in the end.
PYTEST_ARGS ?= -n 2 --dist loadfile --no-loadscope-reorder
CORPUS ?= ../shared/corpus
PORT ?= 8080
DOCS ?= 20000
SEED ?= 1
SEEDS ?= 1
SECONDS ?= 60
VERSION := $(shell sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml)
IMAGE ?= pdf-ops-worker
LANGUAGES ?= eng

# Airflow must never touch the user's own ~/airflow.
export AIRFLOW_HOME := $(CURDIR)/.build/airflow-$(AIRFLOW)
export AIRFLOW__CORE__LOAD_EXAMPLES := False
# setup.sh reads it; empty means "find one".
export PYTHON

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help setup demo demo-clean up vendor vendor-if-possible browser-test screenshots test lint format chaos fuzz \
	bench bench-pipeline bench-api bench-search local-aws image image-test compose-env compose-images compose-test \
	mwaa mwaa-publish mwaa-test terraform-test release lock clean

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

up: $(READY) vendor-if-possible ## Start Airflow with its UI against a local AWS (PORT=8080; DOORBELL=1 starts runs at uploads; Ctrl-C stops it)
	@$(BIN)/python -m local_airflow up --port $(PORT) $(if $(DOORBELL),--doorbell)

vendor: $(VENDORED) ## Fetch what draws documents in the browser, by version and hash (npm, or one installed in .venv-node)

# The pages work without: they then say that pictures of documents need pdf.js.
vendor-if-possible: $(READY)
	@$(MAKE) --no-print-directory vendor || echo 'pdf.js could not be fetched (above is why): the pages will show no pictures. `make vendor` tries again.'

browser-test: $(READY) $(VENDORED) ## Click through the pages in a real browser against a real Airflow (installs Chromium)
	@scripts/setup.sh apt chromium:chromium
	$(BIN)/pytest -s tests/browser $(BROWSER_TEST_ARGS)

screenshots: $(READY) $(VENDORED) ## Take the pictures of docs/images in a real browser
	@scripts/setup.sh apt chromium:chromium
	$(BIN)/python -m tests.browser.screenshots

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

chaos: DOCS = 300
chaos: $(READY) ## Put a fleet through every fault and judge what is left (SEED=7 DOCS=500 SEEDS=20)
	@$(BIN)/python -m tests.chaos --seed $(SEED) --seeds $(SEEDS) --documents $(DOCS)

bench: $(READY) $(BENCH_READY) ## Measure against peers, which live in an environment of their own
	$(BIN)/python -m benchmarks --corpus $(CORPUS) $(BENCH_ARGS)

bench-pipeline: $(READY) ## Measure the whole pipeline: documents a second, memory of every task, enqueue, listing
	$(BIN)/python -m benchmarks.pipeline --documents $(DOCS) $(BENCH_ARGS)

bench-api: $(READY) ## Measure the REST API: status reads a second, pages of a long listing
	$(BIN)/python -m benchmarks.api $(BENCH_ARGS)

bench-search: $(READY) ## Measure search over 200,000 pages: build, size, latency, against SQLite and DuckDB
	$(BIN)/python -m benchmarks.search $(BENCH_ARGS)

fuzz: $(READY) ## Try mutated messages, settings, answers and documents for a while (SECONDS=60 SEED=1)
	$(BIN)/python -m tests.hostile.fuzz --seconds $(SECONDS) --seed $(SEED) --corpus $(CORPUS)/bad

local-aws: $(READY) ## Start a local AWS: S3, SQS, DynamoDB, CloudWatch Logs, Secrets Manager, ECS (Ctrl-C stops it)
	@$(BIN)/python -m local_aws up $(LOCAL_AWS_ARGS)

mwaa: $(READY) $(VENDORED) ## Build what Amazon MWAA takes, in dist/mwaa (AIRFLOW=3.2.1; WHEELS=1 for one without a package index)
	@$(BIN)/python -m mwaa build --airflow $(AIRFLOW) $(if $(WHEELS),--wheels)

mwaa-publish: mwaa ## Bring it into the bucket of an environment (BUCKET=... ENVIRONMENT=... TFVARS=... REPLACE=1)
	@$(BIN)/python -m mwaa publish --bucket '$(BUCKET)' $(if $(ENVIRONMENT),--environment '$(ENVIRONMENT)') \
		$(if $(TFVARS),--tfvars '$(TFVARS)') $(if $(REPLACE),--replace)

mwaa-test: $(READY) $(AWS_CLI_READY) $(VENDORED) ## Install the bundle as MWAA does, on Python 3.12 and both versions of Airflow, and run the DAG
	$(BIN)/pytest tests/mwaa $(MWAA_TEST_ARGS)

terraform-test: $(READY) $(CHECKOV_READY) ## Check include/terraform: format, against the code, permissions against real runs, checkov
	@command -v terraform >/dev/null || { echo 'terraform is missing: install 1.9 or newer, https://developer.hashicorp.com/terraform/install'; exit 1; }
	$(BIN)/pytest tests/terraform tests/e2e/test_permissions.py
	$(CHECKOV_VENV)/bin/checkov --directory include/terraform --framework terraform --skip-download --compact --quiet

image: ## Build the worker's image with docker or podman (LANGUAGES="eng deu", IMAGE=...; the tag is our version)
	@scripts/engine.sh build --file include/ocr_worker/Dockerfile --tag $(IMAGE):$(VERSION) \
	  --build-arg LANGUAGES="$(LANGUAGES)" --build-arg VERSION=$(VERSION) \
	  --build-arg REVISION=$$(git rev-parse HEAD 2>/dev/null || echo unknown) .

image-test: image $(READY) ## Build the worker's image, run it, and test it; without an engine, one is set up in .build/
	@ENGINE=$$(scripts/engine.sh find) IMAGE=$(IMAGE):$(VERSION) $(BIN)/pytest -s tests/image

compose-env: ## Write .env for docker-compose.yaml, with secrets of your own
	@scripts/compose-env.sh

compose-images: image vendor-if-possible ## Build both images of docker-compose.yaml
	@scripts/engine.sh build --file include/local_airflow/Dockerfile --tag pdf-ops-local:$(VERSION) .

compose-test: compose-images $(READY) ## Bring up what docker-compose.yaml describes, and run the DAG in it
	@scripts/engine.sh alone $(BIN)/pytest -s tests/compose

release: $(READY) $(VENDORED) ## Check, set the version, build the bundles, commit and tag (VERSION=1.2.3)
	@$(BIN)/python scripts/release.py '$(if $(filter command,$(origin VERSION)),$(VERSION))'

lock: ## Refresh locks/ from pyproject.toml (UPGRADE=1 also moves every pin to the newest allowed)
	@UV="$$(scripts/setup.sh uv)" scripts/lock.sh

clean: ## Remove all that make created, the environments included
	@scripts/engine.sh clean
	rm -rf .build .uv .venv .venv-* .pytest_cache .ruff_cache .mypy_cache .hypothesis dist
	rm -rf plugins/pdf_ops/api/static/vendor
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(READY): $(LOCK) pyproject.toml scripts/setup.sh
	@scripts/setup.sh tools
	@scripts/setup.sh venv $(VENV) $(LOCK) --project
	@touch $@

$(BENCH_READY): locks/bench.txt scripts/setup.sh
	@scripts/setup.sh tools
	@scripts/setup.sh venv $(BENCH_VENV) locks/bench.txt
	@touch $@

$(AWS_CLI_READY): locks/aws-cli.txt scripts/setup.sh
	@scripts/setup.sh venv $(AWS_CLI_VENV) locks/aws-cli.txt
	@touch $@

$(CHECKOV_READY): locks/checkov.txt scripts/setup.sh
	@scripts/setup.sh venv $(CHECKOV_VENV) locks/checkov.txt
	@touch $@

$(VENDORED): scripts/vendored.json scripts/vendor.py | $(READY)
	@command -v npm >/dev/null || scripts/setup.sh venv $(NODE_VENV) locks/node.txt
	@$(BIN)/python scripts/vendor.py
	@touch $@
