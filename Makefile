# The first target that needs it creates .venv; nothing is installed again while the files below are unchanged.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# constraints.txt holds the versions we test with.
INSTALL := $(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt

# As many processes as cores with one thread each; what is costly to make is shared on disk (tests/conftest.py).
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --dist worksteal

LOWEST := .venv-lowest
LOWEST_INSTALL := $(LOWEST)/bin/pip install --quiet --disable-pip-version-check -c $(LOWEST)/constraints.txt

.PHONY: install demo test test-all test-lowest lint format clean

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

# What `make test` leaves out: the long tests, and the lowest versions that pyproject.toml allows.
test-all: install
	$(PYTEST) -m long
	$(MAKE) test-lowest

test-lowest: $(LOWEST)/.installed
	# Without the packages that ours are compared with. Old releases of ASE leave /dev/null open.
	OMP_NUM_THREADS=1 $(LOWEST)/bin/python -m pytest -n auto --dist worksteal -W ignore::ResourceWarning -k "not bmdal and not netcal" \
		tests/cli tests/core tests/data tests/features tests/models tests/uncertainty

$(LOWEST)/.installed: $(STAMP) tests/lowest.py
	$(PYTHON) -m venv --clear $(LOWEST)
	$(BIN)/python tests/lowest.py > $(LOWEST)/constraints.txt
	$(LOWEST_INSTALL) torch
	$(LOWEST_INSTALL) -e . pytest pytest-xdist hypothesis packaging
	touch $@

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: install
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) $(LOWEST) demo .pytest_cache .mypy_cache .ruff_cache .hypothesis
