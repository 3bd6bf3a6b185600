# Everything runs inside .venv, which is made on first use. Needs Python 3.11+ and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
CONSTRAINTS := -c constraints.txt

.PHONY: demo test coverage lint browser torch docs validate matrix origin bench clean

$(VENV)/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install -q --disable-pip-version-check $(CONSTRAINTS) -e ".[paper,report]"
	touch $@

$(VENV)/dev: $(VENV)/installed
	$(BIN)/pip install -q --disable-pip-version-check $(CONSTRAINTS) -e ".[dev]"
	touch $@

demo: $(VENV)/installed  ## data, fits, the equation that was found, a page: about two minutes after the install
	$(BIN)/python -m sgno demo --out demo

test: $(VENV)/dev lint browser  ## the whole suite: about ten minutes on two cores, fifteen at most
	$(BIN)/python -m pytest -n 2 --dist worksteal $(shell command -v chromedriver >/dev/null || test -w /usr/bin || echo '-m "not browser"')

browser:  # the report is tested in a real Chromium; installed only where apt and the rights are there
	@command -v chromedriver >/dev/null || { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null \
	  && apt-get update -qq && apt-get install -y -qq chromium chromium-driver >/dev/null; } \
	  || echo "No Chromium: the tests of the report's page are left out. Install chromium and chromium-driver."

coverage: $(VENV)/dev browser  ## the suite again, much slower: lines and branches that it runs, into results/coverage.txt
	$(BIN)/coverage erase
	$(BIN)/coverage run -m pytest -n 2 --dist worksteal
	$(BIN)/coverage combine -q
	$(BIN)/coverage report --fail-under=90 > results/coverage.txt; status=$$?; tail -n 1 results/coverage.txt; exit $$status

torch: $(VENV)/dev  # agreement with the PyTorch reference implementation is tested where torch is installed
	$(BIN)/pip install -q --disable-pip-version-check $(CONSTRAINTS) -e ".[bench]"

lint: $(VENV)/dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright --pythonpath $(BIN)/python

docs: $(VENV)/dev  ## the documentation site, into site/
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

validate: $(VENV)/dev  ## slow science: hours
	$(BIN)/python -m pytest validation -q

matrix: $(VENV)/dev  ## the core on Python 3.11 to 3.14 and the oldest and newest packages, into results/matrix.json
	$(BIN)/python validation/matrix.py

origin: $(VENV)/dev  ## hashes, licences and a bill of materials of the dependencies
	$(BIN)/python validation/origin.py

bench: torch
	$(BIN)/python -m benchmarks.speed --out results/bench

clean:
	rm -rf $(VENV) demo runs site .pytest_cache .ruff_cache .hypothesis
