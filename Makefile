# `make demo` and `make test` need only Python 3.11 to 3.13 and make: they set up everything else themselves.
PYTHON ?= python3
VENV := .venv
ifeq ($(OS),Windows_NT)
BIN := $(VENV)/Scripts
else
BIN := $(VENV)/bin
endif
READY := $(VENV)/ready

.PHONY: demo test test-all test-slow lint format docs bench results results-anew lock clean

demo: $(READY)
	$(BIN)/hopplus demo

test: lint
	$(BIN)/python -m pytest -n auto -m "not slow"

test-all: lint
	$(BIN)/python -m pytest -n auto

test-slow: $(READY)
	$(BIN)/python -m pytest -n auto -m slow

# Errors put into a copy of the package one at a time: the test named for each in tests/mutants.toml must fail.
.PHONY: mutants
mutants: $(READY)
	$(BIN)/python tests/mutants.py

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright --pythonpath $(BIN)/python

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# The documentation as a site: docs/_build/index.html. A broken link or cross-reference is an error.
docs: $(READY)
	$(BIN)/python -m sphinx -n -W --keep-going -q docs docs/_build
	@echo "the site: docs/_build/index.html"

# Figures of docs/speed.md, docs/scale.md, docs/sweeps.md and docs/play.md: beside mctx, JaxMARL and PyTorch, each in one run.
bench: $(READY)
	$(BIN)/hopplus bench ppo --no-peer --target 2.8 --json benchmarks/ppo-target.json
	$(BIN)/hopplus bench search --json benchmarks/search.json
	$(BIN)/hopplus bench scale --json benchmarks/scale.json
	$(BIN)/hopplus bench sweep --json benchmarks/sweep.json
	$(BIN)/hopplus bench play --json benchmarks/play.json
	$(BIN)/python -m pip install --quiet --constraint requirements.lock --editable ".[peers,torch]"
	$(BIN)/hopplus bench games --rounds 10 --json benchmarks/games.json
	$(BIN)/hopplus bench ppo --json benchmarks/ppo.json

# The tables and curves of docs/results, from the figures kept there.
results: $(READY)
	$(BIN)/python docs/results/ppo.py page
	$(BIN)/python docs/results/models.py page
	$(BIN)/python docs/results/evaluation.py page
	$(BIN)/python docs/results/hop_plus.py page
	$(BIN)/python docs/results/contest.py page
	$(BIN)/python docs/results/shipped.py page
	$(BIN)/python docs/results/scale.py page
	$(BIN)/python docs/results/sweep.py page
	$(BIN)/python docs/results/turns.py page
	$(BIN)/python docs/results/noticed.py page

# The same after all cells of the sweep files have been trained; broken off, it goes on. Fits and oracles (models, moa) are made
# where nothing is kept of them. The policies that come with the package are replaced. The last measurement needs Chromium.
results-anew: $(READY)
	$(BIN)/hopplus sweep docs/results/ppo.toml --out runs/results/ppo
	$(BIN)/python docs/results/ppo.py keep
	$(BIN)/python docs/results/models.py fit
	$(BIN)/python docs/results/evaluation.py oracles
	$(BIN)/python docs/results/evaluation.py adapt
	$(BIN)/hopplus sweep docs/results/hop_plus.toml --out runs/results/hop_plus
	$(BIN)/python docs/results/hop_plus.py keep
	$(BIN)/python docs/results/hop_plus.py moa
	$(BIN)/hopplus sweep docs/results/contest.toml --out runs/results/contest
	$(BIN)/python docs/results/contest.py keep
	$(BIN)/python docs/results/contest.py cross
	$(BIN)/hopplus sweep docs/results/shipped.toml --out runs/results/shipped
	$(BIN)/python docs/results/shipped.py keep
	$(BIN)/python docs/results/noticed.py measure
	$(MAKE) results

$(READY): pyproject.toml requirements.lock
	$(PYTHON) -c "import sys; sys.exit(None if (3, 11) <= sys.version_info < (3, 14) else 'hopplus needs Python 3.11 to 3.13: make PYTHON=python3.12')"
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint requirements.lock --editable ".[dev]"
	$(BIN)/python -c "open('$(READY)', 'w')"

# Pin the newest versions that pyproject.toml allows, in a fresh environment.
lock:
	rm -rf $(VENV)
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --editable ".[dev,peers,torch]"
	$(BIN)/python -m pip freeze --exclude-editable | grep -v "^pip==" | sed "s/+cpu$$//" > requirements.lock
	rm -rf $(VENV)

clean:
	rm -rf $(VENV) demo dist build docs/_build
