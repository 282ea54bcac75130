# The first minute: `make demo` and `make test` need Python 3.11 and nothing else; they set up `.venv` themselves.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
CONSTRAINTS := .ci/constraints.txt

.PHONY: demo serve test test-attacks test-cluster generated test-ivm test-large test-faults check bench score clean

$(VENV)/.installed: pyproject.toml $(CONSTRAINTS)
	$(PYTHON) -c 'import sys; assert sys.version_info >= (3, 11), "Tidewire needs Python 3.11 or newer"'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint $(CONSTRAINTS) --editable '.[dev,demo,testdrive]'
	touch $@

# A day of New York's flights, replayed into a live departures board. ONCE=1: as fast as it goes, then checked.
# DAY=2013-07-04 chooses the day, SPEED=600 how many seconds of the day pass in one.
demo: $(VENV)/.installed
	$(BIN)/python docs/demo/departures.py $(if $(ONCE),--once) $(if $(DAY),--day $(DAY)) $(if $(SPEED),--speed $(SPEED))

serve: $(VENV)/.installed
	$(BIN)/tidewire serve

test: $(VENV)/.installed
	$(BIN)/python -m pytest $(ARGS)

# The tests that compute, with Spark's executors in processes of their own, and behind a Spark Connect server.
# ARGS="-m cluster": those that CI runs so.
test-cluster: $(VENV)/.installed
	$(BIN)/python -m pytest --engine local-cluster $(ARGS)
	$(BIN)/python -m pytest --engine connect $(ARGS)

# Random SQL on PostgreSQL and Tidewire, TIDEWIRE_EXAMPLES times as much as CI does; see TIDEWIRE_SEED there.
generated: export TIDEWIRE_EXAMPLES ?= 20
generated: $(VENV)/.installed
	$(BIN)/python -m pytest tests/server/test_generated_sql.py -m generated --timeout 0 $(ARGS)

# Random queries over random histories, TPC-H and NEXMark, each answer held to PostgreSQL's after every commit.
test-ivm: export TIDEWIRE_EXAMPLES ?= 50
test-ivm: $(VENV)/.installed
	$(BIN)/python -m pytest tests/ivm tests/dataflow tests/server -m ivm --timeout 0 $(ARGS)

# A slow client of a snapshot of two gigabytes, beside writers, in a server that is watched: its memory has a bound.
test-large: $(VENV)/.installed
	$(BIN)/python -m pytest tests/server/test_large_snapshot.py -m large -s $(ARGS)

# Kills, cuts, full disks, wrong clocks and lost power, for FAULTS_SECONDS (120), and wrong servers that must be found.
# FAULTS_SEED repeats a run's choices. ARGS=-x stops at the first failure.
test-faults: $(VENV)/.installed
	$(BIN)/python -m pytest tests/faults -m faults -s -rs $(ARGS)

# Hostile clients and damaged files: expensive statements, oversized messages, idle sockets, foreign bytes on every port.
test-attacks: $(VENV)/.installed
	$(BIN)/python -m pytest tests/attacks -m attacks $(ARGS)

check: $(VENV)/.installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/mypy docs/demo/*.py tests/demo

bench: $(VENV)/.installed
	$(BIN)/python -m tests.bench $(ARGS)

# How much of each chapter of PostgreSQL's manual works and is tested; ARGS=--missing lists the rest.
score: $(VENV)/.installed
	$(BIN)/python -m tests.sql.score $(ARGS)

clean:
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
