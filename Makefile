# Everything runs inside .venv, which is made on first use. Needs Python 3.10+ and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
CONSTRAINTS := -c constraints.txt

.PHONY: demo test lint validate bench docs clean

$(VENV)/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install -q --disable-pip-version-check $(CONSTRAINTS) -e .
	touch $@

$(VENV)/dev: $(VENV)/installed
	$(BIN)/pip install -q --disable-pip-version-check $(CONSTRAINTS) -e ".[dev,cluster,data]"
	touch $@

demo: $(VENV)/installed  ## train SGNO and FNO on one task with a reduced budget and draw the comparison
	$(BIN)/python -m sgno demo --out demo

test: $(VENV)/dev lint  ## the whole suite, under fifteen minutes on two cores
	$(BIN)/python -m pytest -n 2 --dist worksteal

lint: $(VENV)/dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright

validate: $(VENV)/dev  ## slow science: hours
	$(BIN)/python -m pytest validation -q

bench: $(VENV)/dev
	$(BIN)/pip install -q --disable-pip-version-check $(CONSTRAINTS) -e ".[bench]"
	$(BIN)/python -m sgno bench --out results/bench

clean:
	rm -rf $(VENV) demo runs .pytest_cache .ruff_cache .hypothesis
