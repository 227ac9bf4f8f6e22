# The first target that needs it creates .venv; nothing is installed again while the files below are unchanged.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# constraints.txt holds the versions we test with.
INSTALL := $(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt

# As many processes as cores with one thread each; what is costly to make is shared on disk (tests/conftest.py).
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --dist worksteal

.PHONY: install demo test test-all lint format clean

install: $(STAMP)

$(STAMP): pyproject.toml constraints.txt src/adaptntk/version.py
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	# torch first and alone: another package's looser requirement must find it installed.
	$(INSTALL) torch
	$(INSTALL) -e ".[test,lint]"
	touch $@

demo: install
	$(BIN)/adaptntk demo -o demo

test: install
	$(PYTEST)

# What `make test` leaves out.
test-all: install
	$(PYTEST) -m long

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: install
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) demo .pytest_cache .mypy_cache .ruff_cache .hypothesis
