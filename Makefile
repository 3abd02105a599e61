# make demo     set up, start a platform in .demo/, train a real model on it
# make test     checks and the whole test suite;  make test-fast leaves the slow tests out
# make check    ruff, mypy, documentation
# make setup    only the virtual environment and what tests need

VENV_PYTHON := .venv/bin/python
# Tests start real platforms: two at a time keep two cores busy without starving either.
WORKERS ?= 2

.PHONY: help demo demo-down setup setup-run test test-fast check format clean

help:
	@sed -n 's/^# //p' Makefile | head -4

setup:
	@scripts/setup.sh dev

setup-run:
	@scripts/setup.sh run

demo: setup-run
	@$(VENV_PYTHON) scripts/demo.py

demo-down:
	@.venv/bin/trainshed down --home .demo/home

test: check
	$(VENV_PYTHON) -m pytest --second-try --durations=25 -n $(WORKERS) --dist loadfile

test-fast: setup
	$(VENV_PYTHON) -m pytest -m 'not slow and not training' --durations=10 -n $(WORKERS) --dist loadfile

check: setup
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/mypy --strict src
	$(VENV_PYTHON) scripts/check_docs.py

format:
	.venv/bin/ruff check --fix .
	.venv/bin/ruff format .

clean:
	@test ! -d .demo/home || .venv/bin/trainshed down --home .demo/home || true
	rm -rf .demo .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
