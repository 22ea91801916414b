# What a developer runs. Every install is pinned by constraints.txt.
PYTHON ?= python3

.PHONY: install test lint soak viewer
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

# The viewer's page, and the tests of it in a real browser: on made-up models, then on real ones.
viewer:
	cd viewer && npm ci --silent --no-audit --no-fund && npm run check && npm test && npm run build && npm run browser
	REGARD_BROWSER=1 $(PYTHON) -m pytest -n 0 tests/browser
