# Needs Python 3.11 or newer and make. Everything is installed into .venv/, nothing outside it.
#
#   make run        install, then train SmolLM2-135M on arithmetic; ARGS="--seed 1" adds flags
#   make test       install, then the test suite; ARGS="-k name" adds arguments of pytest
#   make install    only install; instant when nothing has changed
#   make check      lint, formatting, types, import contracts
#   make bench      measurements, each with the bound that it must keep
#   make soak       hours of random faults
#   make test-harnesses   install agent harnesses (3 GB, in Molt's cache folder; needs npm), run the tests with them
#   make lock       resolve requirements/cpu.in again; ARGS=--upgrade takes the newest versions

PYTHON ?= $(shell for each in python3.11 python3.12 python3.13 python3; do \
	$$each -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo $$each; break; }; done)
BIN := .venv/bin

.PHONY: install run test test-harnesses check bench soak lock

install:
	@test -n "$(PYTHON)" || { echo "make: Molt needs Python 3.11 or newer, and none was found on PATH." \
		"Install it, or name it: make $(MAKECMDGOALS) PYTHON=/path/to/python3.11" >&2; exit 1; }
	@$(PYTHON) scripts/install.py

run: install
	@$(BIN)/molt run examples/quickstart.toml $(ARGS)

test: install
	@$(BIN)/python tests/harnesses/install.py smolagents openai-agents
	@$(BIN)/python -m pytest -q -m "not soak and not harness" $(ARGS)

test-harnesses: install
	@$(BIN)/python tests/harnesses/install.py
	@$(BIN)/python -m pytest -q tests/harnesses $(ARGS)

check: install
	@$(BIN)/ruff check --quiet
	@$(BIN)/ruff format --check --quiet || { echo "make check: run $(BIN)/ruff format" >&2; exit 1; }
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-logo

bench: install
	@for each in bench/bench_*.py; do $(BIN)/python $$each $(ARGS) || exit 1; done

soak: install
	@$(BIN)/python -m pytest -q -m soak $(ARGS)

lock: install
	@$(BIN)/python scripts/lock.py $(ARGS)
