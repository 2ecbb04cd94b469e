# Everything runs in a virtual environment in this checkout; nothing is installed elsewhere.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# With three at a time two cores are never idle, though tests wait now and then.
WORKERS ?= 3
# Tests start many processes, which need not compile the same again each.
PYTEST = PYTHONDONTWRITEBYTECODE= $(BIN)/pytest -q -n $(WORKERS) --dist worksteal

.DEFAULT_GOAL := help
.PHONY: help demo test test-all unit lint types e2e bench crds docs manifests wheels clean kind-demo

help: ## Show what can be made
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 12

demo: $(STAMP) ## Run pods with (simulated) GPUs on this machine and show what they get
	@$(BIN)/dra-driver demo

test: lint types unit ## Run all checks, and tests of every kind

test-all: $(STAMP) ## Run what that leaves out: all kills, cases and examples of what is exhaustive
	@$(PYTEST) -m "exhaustive or deep"

unit: $(STAMP) ## Run the tests of every kind alone
	@$(PYTEST) -m "not exhaustive"

lint: $(STAMP) ## Check style, format and who imports whom
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check -q .
	@$(BIN)/lint-imports --cache-dir .cache/importlinter >.cache/importlinter.log || { cat .cache/importlinter.log; exit 1; }

types: $(STAMP) ## Check types
	@$(BIN)/mypy

e2e: $(STAMP) ## Run the end-to-end cases on the cluster of KUBECONFIG (E2E: flags, see docs/e2e.md)
	@$(BIN)/python tests/e2e/run.py $(E2E)

bench: $(STAMP) ## Measure the plugin against the embedded cluster and in a large one, the allocator, the packing
	@$(BIN)/python tests/bench/run.py
	@$(BIN)/python tests/bench/waiting.py
	@$(BIN)/python tests/bench/mig.py
	@$(BIN)/python tests/bench/blocking.py
	@$(BIN)/python tests/bench/allocator.py
	@$(BIN)/python tests/bench/claims.py
	@$(BIN)/python tests/bench/health.py

crds: $(STAMP) ## Write the JSON schemas of the configs anew
	@$(BIN)/python crds/generate.py

docs: $(STAMP) ## Write docs/settings.md and docs/values.md anew
	@$(BIN)/python docs/generate.py

manifests: $(STAMP) ## Render deploy/manifests from the Helm chart
	@$(BIN)/python deploy/render.py

wheels: $(STAMP) ## Fetch the Python packages of the image, for deploy/Dockerfile
	@$(BIN)/python deploy/lock.py

kind-demo: ## Run all demos in a kind cluster of their own
	@sh demo/kind/create.sh
	@sh demo/kind/install.sh
	@sh demo/kind/run.sh

clean: ## Remove the virtual environment and all caches
	rm -rf $(VENV) .cache build *.egg-info

$(STAMP): pyproject.toml
	@echo "Setting up a virtual environment in $(VENV) (once)"
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed: make PYTHON=python3.12 ...")'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install -q --disable-pip-version-check -e '.[dev]'
	@mkdir -p .cache
	@touch $@
