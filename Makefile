# `make demo` and `make test` need only Python 3.11 to 3.13 and make: they set up everything else themselves.
PYTHON ?= python3
VENV := .venv
ifeq ($(OS),Windows_NT)
BIN := $(VENV)/Scripts
else
BIN := $(VENV)/bin
endif
PYTEST := $(BIN)/python -m pytest -n auto
TEST_CACHE := .pytest_cache/jax

.PHONY: demo test test-all test-slow test-times mutants lint format docs bench results results-retrain lock clean run-env test-env all-env

demo: run-env
	$(BIN)/hopplus demo

# Lint, types, unit tests, laws and integration: no browser, no Ray, no notebook.
test: lint
	$(PYTEST) -m "not slow"

# The same, and what takes long or needs more packages: browser, Ray, notebook, kills, peers, documented figures.
test-all: test test-slow

# Real trainings: their programs are optimised, unlike those of the other tests.
test-slow: export XLA_FLAGS := --xla_llvm_disable_expensive_passes=true
test-slow: all-env
	$(PYTEST) -m slow

# Where the time of `make test` goes from a cold cache, by file, phase and test: also in test-times.json.
test-times: test-env
	rm -rf $(TEST_CACHE)
	$(PYTEST) -m "not slow" --times test-times.json

# Errors put into a copy of the package one at a time: the test named for each in tests/mutants.toml must fail.
mutants: test-env
	$(BIN)/python tests/mutants.py

lint: test-env
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright --pythonpath $(BIN)/python

format: test-env
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# The documentation as a site: docs/_build/index.html. A broken link or cross-reference is an error.
docs: all-env
	$(BIN)/python -m sphinx -n -W --keep-going -q docs docs/_build
	@echo "the site: docs/_build/index.html"

# Figures of docs/speed.md, docs/scale.md, docs/sweeps.md and docs/play.md: beside mctx, JaxMARL and PyTorch, each in one run.
bench: run-env
	$(BIN)/python -m pip install --quiet --constraint requirements.lock --editable ".[bench]"
	$(BIN)/hopplus bench ppo --no-peer --target 2.8 --json benchmarks/ppo-target.json
	$(BIN)/hopplus bench planning --json benchmarks/planning.json
	$(BIN)/hopplus bench scale --json benchmarks/scale.json
	$(BIN)/hopplus bench sweep --json benchmarks/sweep.json
	$(BIN)/hopplus bench play --json benchmarks/play.json
	$(BIN)/hopplus bench games --rounds 10 --json benchmarks/games.json
	$(BIN)/hopplus bench ppo --json benchmarks/ppo.json

# The tables and curves of docs/results, from the figures kept there.
results: run-env
	$(BIN)/python experiments/ppo.py page
	$(BIN)/python experiments/models.py page
	$(BIN)/python experiments/evaluation.py page
	$(BIN)/python experiments/hop_plus.py page
	$(BIN)/python experiments/benchmark.py page
	$(BIN)/python experiments/pretrained.py page
	$(BIN)/python experiments/planning.py page
	$(BIN)/python experiments/likelihood.py page
	$(BIN)/python experiments/scale.py page
	$(BIN)/python experiments/sweep.py page
	$(BIN)/python experiments/planning_speed.py page
	$(BIN)/python experiments/human_play_latency.py page
	$(BIN)/python experiments/belief_latency.py page

# The same after all cells of the sweep files have been trained; broken off, it goes on. Fits and oracles (models, moa) are made
# where nothing is kept of them. The policies that come with the package are replaced. The last measurement needs Chromium.
results-retrain: all-env
	$(BIN)/hopplus sweep experiments/ppo.toml --out runs/results/ppo
	$(BIN)/python experiments/ppo.py keep
	$(BIN)/python experiments/models.py fit
	$(BIN)/python experiments/evaluation.py oracles
	$(BIN)/python experiments/evaluation.py adapt
	$(BIN)/hopplus sweep experiments/hop_plus.toml --out runs/results/hop_plus
	$(BIN)/python experiments/hop_plus.py keep
	$(BIN)/python experiments/hop_plus.py moa
	$(BIN)/hopplus sweep experiments/benchmark.toml --out runs/results/benchmark
	$(BIN)/python experiments/benchmark.py keep
	$(BIN)/python experiments/benchmark.py cross
	$(BIN)/hopplus sweep experiments/pretrained.toml --out runs/results/pretrained
	$(BIN)/python experiments/pretrained.py keep
	$(BIN)/hopplus sweep experiments/distillation.toml --out runs/results/distillation
	$(BIN)/python experiments/planning.py keep
	$(BIN)/hopplus sweep experiments/likelihood.toml --out runs/results/likelihood
	$(BIN)/python experiments/likelihood.py measure
	$(BIN)/python experiments/belief_latency.py measure
	$(MAKE) results

# Environments: each call completes what is missing, and begins again where one was interrupted.
run-env:
	@$(PYTHON) tools/environment.py run

test-env:
	@$(PYTHON) tools/environment.py test

all-env:
	@$(PYTHON) tools/environment.py all

# Pin the newest versions that pyproject.toml allows, in a fresh environment.
lock:
	rm -rf $(VENV)
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --editable ".[dev,bench]"
	$(BIN)/python -m pip freeze --exclude-editable | grep -v "^pip==" | sed "s/+cpu$$//" > requirements.lock
	rm -rf $(VENV)

clean:
	rm -rf $(VENV) demo dist build docs/_build
