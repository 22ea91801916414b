# What a developer runs. Every install is pinned by constraints.txt.
PYTHON ?= python3

.PHONY: install test lint soak
install:
	$(PYTHON) -m pip install -c constraints.txt -e ".[dev]"

test:
	$(PYTHON) -m pytest

lint:
	$(PYTHON) -m ruff check src tests benchmarks
	$(PYTHON) -m ruff format --check src tests benchmarks
	$(PYTHON) -m pyright

# Hundreds of kills and corruptions, where the tests take a seeded sample of a few.
soak:
	REGARD_SOAK=300 $(PYTHON) -m pytest -n 2 tests/system/test_resume.py tests/unit/core/test_files.py
