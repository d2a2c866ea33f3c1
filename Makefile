# Every command of this project; `make help` lists them. What runs here is what runs everywhere.
#
# One environment (.venv) and one native build serve all tests. `make build PROFILE=dev` builds faster and runs slower.
# Stamps in .venv record what is done.

PYTHON  ?= python3
PROFILE ?= release
FUZZ_RUNS ?= 1000000
GB      ?= 5
# 450 MB each.
SPARK_VERSIONS ?= 4.0.5 4.1.4 4.2.1 4.3.0
SPARK_CONNECT := grpcio==1.85.3 grpcio-status==1.85.3 googleapis-common-protos==1.76.0 "pandas<3" zstandard==0.25.0
#: Processes that run Python tests: most tests wait.
WORKERS ?= 3
#: Processes that run interop tests, each with its own clients and clusters.
INTEROP_WORKERS ?= 3
# 2: Python's tests run beside those of FOREIGN. 1: one after the other.
STAGES_AT_ONCE ?= 2
FOREIGN ?= interop spark
VENV    := .venv
BIN     := $(VENV)/bin
NATIVE  := $(shell find rust/src rust/load/src -name '*.rs') rust/Cargo.toml rust/load/Cargo.toml Cargo.toml Cargo.lock
SOURCES := python spark tests campaigns benchmarks examples scripts
STAGE   := scripts/stage
# quick: what `make test` runs; rest: what it leaves out, as tests/slow.txt lists it; all.
PART    ?= all
PYTEST  := $(BIN)/pytest --part $(PART)
MATURIN_PROFILE := $(if $(filter release,$(PROFILE)),--release,)
QUIET   := $(MAKE) --no-print-directory
TOGETHER := $(QUIET) --jobs=2 --output-sync=target

export CARGO_TERM_COLOR ?= auto

.DEFAULT_GOAL := help
.PHONY: help demo test test-all test-rest test-rust test-python test-interop test-spark test-spark-versions check words build spark bench campaign count fuzz fuzz-python format docs dist clean
.PHONY: stages stage-rust stage-python stage-foreign check-rust check-python compiled

help: ## list the commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' Makefile

demo: ## set up, then send a file, consume it, read it with Spark
	@scripts/need python cc cargo java
	@$(QUIET) spark
	$(BIN)/python examples/first_message.py examples/time-zones.tsv

test: ## set up, then test every part of the project (12 to 18 min)
	@scripts/need python cc cargo
	@scripts/need --optional java mvn go
	@rm -rf target/reports
	@$(STAGE) build $(TOGETHER) PROFILE=dev spark
	@$(QUIET) stages PROFILE=dev PART=quick
	@scripts/report

# The compiler takes every core, so what waits for servers, clients and JVMs begins when it has ended.
stages:
	@failed=0; \
	$(QUIET) stage-rust || failed=1; \
	echo "== python, interop, spark; the output of each comes when it has ended"; \
	$(QUIET) --jobs=$(STAGES_AT_ONCE) --output-sync=target --keep-going stage-python stage-foreign || failed=1; \
	exit $$failed

stage-rust:
	@$(STAGE) rust$(OF) $(QUIET) test-rust

stage-python:
	@$(STAGE) python$(OF) $(QUIET) test-python

stage-foreign:
	@failed=0; \
	for stage in $(FOREIGN); do $(STAGE) $$stage$(OF) $(QUIET) test-$$stage || failed=1; done; \
	exit $$failed

test-all: ## `make test`, then what it leaves out, on a release build
	@$(QUIET) test
	@$(QUIET) test-rest

test-rest: ## the tests that `make test` leaves out, see tests/slow.txt
	@$(STAGE) release-build $(QUIET) spark
	@$(QUIET) stages PART=rest OF=-rest
	@scripts/report

test-rust: ## the Rust tests, without Python
	scripts/test-rust $(PART)

test-python: build ## the Python tests without foreign clients and Spark
	$(PYTEST) --numprocesses $(WORKERS) --dist loadfile tests --ignore tests/interop --ignore tests/spark

test-interop: build ## Apache's Java and Go clients and Apache's broker
	$(PYTEST) --numprocesses $(INTEROP_WORKERS) --dist loadfile --no-loadscope-reorder tests/interop

test-spark: spark ## the Spark connector
	$(PYTEST) tests/spark

test-spark-versions: $(SPARK_VERSIONS:%=spark-on-%) ## the connector on each of SPARK_VERSIONS, and Connect

# Connect and pipelines bring pandas, which the other tests do without.
spark-on-%: $(VENV)/.spark-% $(VENV)/.spark-connect
	PYTHONPATH=$(CURDIR)/$(VENV)/spark-$* $(PYTEST) tests/spark
	PYTHONPATH=$(CURDIR)/$(VENV)/spark-$*:$(CURDIR)/$(VENV)/spark-connect $(PYTEST) tests/spark/test_connect.py tests/spark/test_examples.py::test_sessions

check: spark ## formats, lints, types, the native stub, imports, words
	@$(TOGETHER) check-rust check-python

check-rust:
	cargo fmt --manifest-path rust/benches/Cargo.toml --all --check
	cargo clippy --locked --all-targets --features python -- -D warnings

check-python: spark
	$(BIN)/ruff check $(SOURCES)
	$(BIN)/ruff format --check $(SOURCES)
	$(BIN)/mypy
	$(BIN)/python -m mypy.stubtest rmqpy._native
	$(BIN)/pytest tests/test_architecture.py tests/test_rust_architecture.py tests/test_words.py
	scripts/subjects

words: build ## retired names and phrases: counts, ceilings, worst files
	@$(BIN)/python tests/phrases.py
	$(BIN)/pytest -q tests/test_words.py

build: compiled ## .venv with rmqpy, its Rust module and the test tools

spark: $(VENV)/.spark-jar compiled ## build, and PySpark (450 MB) with the connector

bench: ## a benchmark by NAME; without NAME, the list
	@scripts/by-name bench "$(NAME)" benchmarks/benchmarks.mk

campaign: ## a long or destructive run by NAME; without NAME, the list
	@scripts/by-name campaign "$(NAME)" campaigns/campaigns.mk

count: ## instructions of a send and a pull: SINCE=REVISION
	scripts/count $(SINCE)

fuzz: ## every decoder in Rust against mutated bytes: FUZZ_RUNS
	scripts/fuzz --runs $(FUZZ_RUNS)

fuzz-python: build ## every decoder in Python against mutated bytes
	PYTHONPATH=tests $(BIN)/python -m protocol.mutations --runs $(FUZZ_RUNS)

format: build ## format the sources
	cargo fmt --manifest-path rust/benches/Cargo.toml --all
	$(BIN)/ruff check --fix-only $(SOURCES)
	$(BIN)/ruff format $(SOURCES)

docs: build $(VENV)/.docs ## the documentation as a site, in target/docs/site
	PYTHONPATH=scripts $(BIN)/python -m docsite

dist: $(VENV)/.dist $(VENV)/.spark-jar ## wheels, symbols and sdists of both packages, in dist/
	@scripts/need cc cargo
	PYTHON=$(BIN)/python scripts/dist
	$(BIN)/auditwheel show dist/rmqpy-*.whl
	$(BIN)/abi3audit --strict dist/rmqpy-*.whl
	$(BIN)/twine check --strict dist/*.whl dist/*.tar.gz

clean: ## remove everything that these commands make
	rm -rf $(VENV) target dist python/rmqpy/_native*.so .mypy_cache .ruff_cache .pytest_cache .hypothesis

$(BIN)/python:
	@scripts/need python
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip

$(VENV)/.tools: $(BIN)/python pyproject.toml
	$(BIN)/pip install --quiet --group dev
	@touch $@

$(VENV)/.docs: $(VENV)/.tools
	$(BIN)/pip install --quiet --group docs
	@touch $@

$(VENV)/.dist: $(VENV)/.tools
	$(BIN)/pip install --quiet --group dist
	@touch $@

$(VENV)/.native-$(PROFILE): $(VENV)/.tools $(NATIVE)
	@scripts/need cc cargo
	VIRTUAL_ENV=$(CURDIR)/$(VENV) $(BIN)/maturin develop --locked $(MATURIN_PROFILE)
	@rm -f $(VENV)/.native-*
	@touch $@

# As pip does on installation: without bytecode, each start of a checkout would compile all modules.
compiled: $(VENV)/.native-$(PROFILE)
	@$(BIN)/python -m compileall -q python spark

$(VENV)/.spark: $(VENV)/.tools spark/pyproject.toml | $(VENV)/.native-$(PROFILE)
	$(BIN)/pip install --quiet --editable ./spark
	@touch $@

# Without a Java compiler this says so, and format rocketmq-jvm is missing.
$(VENV)/.spark-jar: $(VENV)/.spark spark/build_jar.py $(shell find spark/java -name '*.java')
	@$(BIN)/python spark/build_jar.py
	@[ ! -f spark/pyspark_rocketmq/rocketmq-jvm.jar ] || touch $@

# Installed next to the default PySpark, for runs that put it first on PYTHONPATH.
$(VENV)/.spark-connect: $(VENV)/.spark
	$(BIN)/pip install --quiet --upgrade --target $(VENV)/spark-connect $(SPARK_CONNECT)
	@touch $@

.PRECIOUS: $(VENV)/.spark-4.%
$(VENV)/.spark-4.%: $(VENV)/.spark
	$(BIN)/pip install --quiet --upgrade --target $(VENV)/spark-4.$* pyspark==4.$*
	@touch $@

include benchmarks/benchmarks.mk campaigns/campaigns.mk
