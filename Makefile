# Everything sets itself up: `make demo`, `make test` and `make check` need Python 3.11 and make.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready

.PHONY: demo test test-all test-faults check format bench clean java

demo: $(READY) java
	@$(BIN)/everview demo

# two processes, each with its own Spark: much of the time tests wait for others to be killed
test: $(READY) java
	$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder

# everything of `make test`, the long runs at full length
test-all: $(READY) java
	$(BIN)/python -m pytest --long

# faults and the history checker at full length, hours of it; ends with a table of what was shown
test-faults: $(READY) java
	$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder --long tests/faults tests/check

check: $(READY)
	$(BIN)/ruff check src tests bench
	$(BIN)/ruff format --check src tests bench
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(READY)
	$(BIN)/ruff check --fix src tests bench
	$(BIN)/ruff format src tests bench

bench: $(READY)
	$(BIN)/python bench/store.py --json bench/results/store.json

$(READY): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Everview needs Python 3.11 or newer; name it with: make PYTHON=python3.11"; exit 1; }
	@echo "setting up .venv (a minute or two, once)"
	@$(PYTHON) -m venv .venv
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade pip
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

# Spark needs Java 17 or newer: found, or installed where apt can, or asked for.
java:
	@sh tools/ensure-java

clean:
	rm -rf .venv build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
