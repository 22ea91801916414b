# What a developer runs. Every install is pinned by constraints.txt.
PYTHON ?= python3

.PHONY: install test lint soak
install:
	$(PYTHON) -m pip install -c constraints.txt -e ".[dev]"

test:
	$(PYTHON) -m pytest

lint:
	$(PYTHON) -m ruff check src tests benchmarks docs
	$(PYTHON) -m ruff format --check src tests benchmarks docs
	$(PYTHON) -m pyright

# Hundreds of kills, where the tests take a seeded sample of a few.
soak:
	REGARD_SOAK=500 $(PYTHON) -m pytest -n 0 -s tests/system/test_kill.py
