# What a developer runs. Every install is pinned by constraints.txt.
PYTHON ?= python3

.PHONY: install test lint docs release soak audit viewer
install:
	$(PYTHON) -m pip install -c constraints.txt -e ".[dev]"

test:
	$(PYTHON) -m pytest

lint:
	$(PYTHON) -m ruff check src tests benchmarks docs tools
	$(PYTHON) -m ruff format --check src tests benchmarks docs tools
	$(PYTHON) -m pyright

# The site, in build/site: the chapters of the road are run, and nothing is fetched. Needs the extra `docs`.
docs:
	OMP_NUM_THREADS=1 $(PYTHON) docs/make_road.py
	NO_MKDOCS_2_WARNING=1 $(PYTHON) -m mkdocs build --strict --quiet

# The wheel and the source archive, in dist/; then what is in them, and whether the wheel works where only it is installed, on every
# Python that is here (docs/releasing.md). Needs the extra `release`, and an index of packages.
release:
	rm -rf dist build/lib build/bdist.*
	$(PYTHON) -m build --outdir dist
	$(PYTHON) tools/wheel_content.py dist
	$(PYTHON) tools/try_wheel.py dist

# Thousands of faults (kills, cuts of power, damaged files, fuzzing), where the tests take a seeded sample: half an hour on 16 cores, hours on two.
soak:
	$(PYTHON) tools/soak.py
	$(PYTHON) benchmarks/damaged_corpora.py

# What is installed, as a bill of materials, and whether any of it has a known vulnerability. The latter needs a network, or
# AUDIT="--advisories FILE"; without either it fails, and says so.
audit:
	$(PYTHON) tools/bill_of_materials.py --extra dev --out bill.json
	$(PYTHON) tools/audit.py --bill bill.json $(AUDIT)

# The viewer's page, and the tests of it in a real browser: on made-up models, then on real ones.
viewer:
	cd viewer && npm ci --silent --no-audit --no-fund && npm run check && npm test && npm run build && npm run browser
	REGARD_BROWSER=1 $(PYTHON) -m pytest -n 0 tests/browser
