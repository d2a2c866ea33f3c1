# Every command of this project; `make help` lists them. What is run here is what is run everywhere.
#
# One environment (.venv) and one build of the native half serve all of them: the tests run what a user would get.
# `make build PROFILE=dev` builds it quicker and slower to run. Stamps in .venv say what is already done.

PYTHON  ?= python3
PROFILE ?= release
FUZZ_RUNS ?= 1000000
BENCH   ?= full
SEEDS   ?= 3
REPLICA_SEEDS ?= 1000000
REPLICA_ROUNDS ?= 100
REPLICA_POWER_LOSSES ?= 20
REPLICA_MESSAGES ?= 1000000
KILLS   ?= 100
TRANSACTIONS ?= 100000
TIMERS  ?= 1000000
TIMER_POWER_LOSSES ?= 20
CORRUPTIONS ?= 1500
SPARK_KILLS ?= 30
ROUNDS  ?= 200
EVERY   ?= 1
GB      ?= 5
OUTAGE_SECONDS ?= 120
MODEL_PREEMPTIONS ?= 2
MODEL_STEPS ?= 100000
SQL_CASES ?= 100000
SQL_SEED ?= 92
MODEL_JOBS ?= 16
VENV    := .venv
BIN     := $(VENV)/bin
NATIVE  := $(shell find rust/src -name '*.rs') rust/Cargo.toml Cargo.toml Cargo.lock
STAGE   := scripts/stage
INTEROP_SERVERS := $(patsubst %,tests/interop/test_%.py,acting allocation divergence following_apache rebalance replicas \
	revocation round_trip shrink slave_reads three_brokers transaction_folders)
PYTHON_SERVERS := tests/broker tests/crash tests/hostile tests/namesrv tests/server
# Foreign clients race with themselves and give up after seconds on a busy machine: what fails is run once more, and named.
# scripts/test-rust and scripts/test-python do the same.
ONCE_MORE := --reruns 1 --reruns-delay 2 -raR
MATURIN_PROFILE := $(if $(filter release,$(PROFILE)),--release,)

export CARGO_TERM_COLOR ?= auto

.DEFAULT_GOAL := help
.PHONY: help demo test check check-rust check-python words build compiled spark rust-tests test-rust test-python python-servers python-clients test-interop interop-servers interop-clients interop-all campaign-group campaign-model campaign-sql mqadmin-table outage handler-rate test-spark test-spark-old spark-cluster spark-planning spark-options campaign-spark count campaign campaign-hostile simulate-replicas campaign-replicas campaign-kill campaign-transactions campaign-timers campaign-power campaign-disk failed-flush unclean-start model micro bench-compare bench-sync bench-write-paths bench-bulk bench-kinds bench-features bench-catch-up bench-growth bench-peers cold-start bench-filters bench-topics bench-spark console-tasks screenshots fuzz fuzz-python format wheel clean

help: ## list the commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: ## set up; then produce a file, consume it, and read it as a Spark DataFrame
	@scripts/need python cc cargo java
	@$(MAKE) --no-print-directory spark
	$(BIN)/python examples/first_message.py examples/time-zones.tsv

test: ## set up, then all tests: Rust, Python, other clients, Spark
	@scripts/need python cc cargo
	@scripts/need --optional java mvn go
	@rm -rf target/reports
	@$(STAGE) build $(MAKE) --no-print-directory --jobs=2 --output-sync=target spark rust-tests
	@$(STAGE) rust $(MAKE) --no-print-directory test-rust
	@$(STAGE) python $(MAKE) --no-print-directory test-python
	@$(STAGE) interop $(MAKE) --no-print-directory test-interop
	@$(STAGE) spark $(MAKE) --no-print-directory test-spark
	@scripts/report

check: spark ## formatting, lints, types, the native stub against the binary, imports that point down
	@$(MAKE) --no-print-directory --jobs=2 --output-sync=target check-rust check-python

check-rust: ## those of them about Rust, most of whose time is the compiler's
	cargo fmt --all --check
	cargo clippy --locked --all-targets --features python -- -D warnings

check-python: spark ## those about Python
	$(BIN)/ruff check python spark tests examples benchmarks
	$(BIN)/ruff format --check python spark tests examples benchmarks
	$(BIN)/mypy
	$(BIN)/python -m mypy.stubtest rmqpy._native
	$(BIN)/pytest tests/test_architecture.py tests/test_words.py

words: build ## names that are not used, of tests/words.txt, among what is declared; headers that ask
	$(BIN)/pytest tests/test_words.py

build: compiled ## .venv with rmqpy, its native half and the test tools

spark: $(VENV)/.spark compiled ## the same, with PySpark and the connector (PySpark is a download of 450 MB)

rust-tests: ## the Rust tests, compiled: beside the wheel, the end of whose build takes one processor
	cargo test --locked --no-run

test-rust: ## the Rust core alone: cargo test, without Python
	scripts/test-rust

test-python: build ## the Python tests, without Spark and foreign clients
	@$(MAKE) --no-print-directory --jobs=2 --output-sync=target python-servers python-clients

python-servers: build ## those of them about servers, which mostly wait; both halves may run side by side
	scripts/test-python $(BIN)/pytest -o cache_dir=target/pytest-brokers $(wildcard tests/broker/test_[a-o]*.py)
	scripts/test-python $(BIN)/pytest -o cache_dir=target/pytest-servers $(wildcard tests/broker/test_[p-z]*.py) \
		$(filter-out tests/broker,$(PYTHON_SERVERS))

python-clients: build ## those about clients and tools
	scripts/test-python $(BIN)/pytest -o cache_dir=target/pytest-clients tests $(PYTHON_SERVERS:%=--ignore=%) --ignore tests/interop --ignore tests/spark

test-interop: build ## Apache's Java and Go clients at rmqpy, rmqpy at Apache's broker (skipped where java, mvn or go is missing)
	@$(MAKE) --no-print-directory --jobs=2 --output-sync=target interop-servers interop-clients

interop-servers: build ## those of them that wait for servers to start and stop
	$(BIN)/pytest $(ONCE_MORE) $(INTEROP_SERVERS)

interop-clients: build ## those that wait for clients; both halves may run side by side
	$(BIN)/pytest $(ONCE_MORE) tests/interop $(INTEROP_SERVERS:%=--ignore=%)

interop-all: build ## the same with each foreign client at either broker in every scenario, and the originals among themselves
	RMQPY_INTEROP_ALL=1 RMQPY_INTEROP_CONTROL=1 $(BIN)/pytest tests/interop

campaign-group: build ## a group of 8 on two brokers with joins, leaves, kills and paused members, one broker silent for a minute, both modes, CAMPAIGN_SECONDS (600) each at CAMPAIGN_RATE (5000) a second
	$(BIN)/pytest tests/interop/campaign_group.py -s

campaign-model: build ## a group of pull consumers on two brokers, one of which is silent at times: MODEL_JOBS (16) runs side by side, which mostly wait, MODEL_STEPS (100,000) steps of chance in all
	seq $(MODEL_JOBS) | MODEL_STEPS=$$(($(MODEL_STEPS) / $(MODEL_JOBS) + 1)) xargs -P $(MODEL_JOBS) -I RUN $(BIN)/pytest -q tests/client/test_group_model.py -s

campaign-sql: build ## SQL92 filters beside Apache's own evaluator: SQL_CASES (100000) random expressions and messages, SQL_SEED (92) for others
	SQL_CASES=$(SQL_CASES) SQL_SEED=$(SQL_SEED) $(BIN)/pytest tests/interop/test_sql.py -s

mqadmin-table: build ## every command of Apache's mqadmin at rmqpy and at Apache's broker (2 min); writes docs/mqadmin.md
	$(BIN)/pytest tests/interop/mqadmin_table.py -s

outage: build ## producers and consumers while every name server is gone for OUTAGE_SECONDS (120)
	OUTAGE_SECONDS=$(OUTAGE_SECONDS) $(BIN)/pytest tests/client/test_outage.py -s

handler-rate: build ## messages a second into handlers that do nothing: rmqpy's push and poll beside Java's push
	$(BIN)/pytest tests/interop/handler_rate.py -s

test-spark: spark ## the Spark connector
	$(BIN)/pytest $(ONCE_MORE) tests/spark

test-spark-old: $(VENV)/.spark-4.2 ## the same with the oldest PySpark that is served, 4.2.0 (another download)
	PYTHONPATH=$(CURDIR)/$(VENV)/spark-4.2 $(BIN)/pytest tests/spark

spark-cluster: spark ## a standalone Spark cluster of two workers: the example, connections, a silent broker, ids of two writes (1 min)
	$(BIN)/pytest tests/spark/standalone.py

spark-planning: spark ## how long Spark's driver plans 10,000 queues, with all brokers and with a silent one (1 min)
	PYTHONPATH=tests $(BIN)/python tests/spark/planning.py

spark-options: spark ## each option of the connector is ignored in turn, and the test that fails for it is named (4 min)
	$(BIN)/python tests/spark/ignore_options.py $(OPTIONS)

campaign-spark: spark ## topic to topic and windows, SPARK_KILLS (30) SIGKILLs of driver or executors, half of them while they send (20 min)
	$(BIN)/python -u tests/spark/campaign_kill.py --kills $(SPARK_KILLS) --report target/reports/campaign-spark.txt

count: ## instructions and allocations of one send and one pulled message, beside the commit before; SINCE=REVISION, or SINCE=guarded for what signatures and TLS add (valgrind)
	scripts/count $(SINCE)

campaign: ## the store against crashes, faults, damage and kills for long; SEEDS (3), KILLS (100), CORRUPTIONS (1500, of 8 stores each); report in target/reports/campaign.txt
	@mkdir -p target/reports
	@{ date -u; git rev-parse HEAD; uname -srm; } > target/reports/campaign.txt
	RMQPY_CRASH_SEEDS=$(SEEDS) RMQPY_KILLS=$(KILLS) RMQPY_CORRUPTIONS=$(CORRUPTIONS) PROPTEST_CASES=20000 cargo test --locked --release --no-fail-fast \
		--test crash --test corruption --test group_commit --test recovery --test retention --test store_formats -- --nocapture >> target/reports/campaign.txt 2>&1; \
		status=$$?; grep -E 'states|faults|kills|corruptions|test result|panicked' target/reports/campaign.txt; exit $$status

simulate-replicas: ## REPLICA_SEEDS (1000000) lives of replicas over a simulated disk, network and operator; no promise may be broken
	RMQPY_REPLICA_SEEDS=$(REPLICA_SEEDS) cargo test --locked --release --test replication -- --nocapture

campaign-replicas: build ## masters killed and their folders deleted under 64 senders, slaves that stand still, die, or are cut off in namespaces, REPLICA_ROUNDS (100) each, machines of a pair without power, REPLICA_POWER_LOSSES (20) in either flush mode, and pairs with REPLICA_MESSAGES (1000000), two with Apache's, compared byte for byte (root, loop devices, java)
	RMQPY_REPLICA_ROUNDS=$(REPLICA_ROUNDS) RMQPY_REPLICA_POWER_LOSSES=$(REPLICA_POWER_LOSSES) RMQPY_REPLICA_MESSAGES=$(REPLICA_MESSAGES) RMQPY_REPLICA_FILE_BYTES=67108864 $(BIN)/pytest tests/crash/test_replica_loss.py tests/crash/test_replica_power.py tests/crash/test_replica_processes.py tests/interop/test_replicas.py -s

campaign-kill: build ## brokers killed under load, KILLS (100) in all, with each write path, and while log files are deleted; acknowledged messages are read back
	RMQPY_KILLS=$(KILLS) $(BIN)/pytest tests/crash/test_killed.py -s

campaign-transactions: build ## brokers and producers killed in turn, KILLS (100) in all, while TRANSACTIONS (100000) and more run: none may be lost, seen after a rollback, or seen twice
	RMQPY_TRANSACTION_KILLS=$(KILLS) RMQPY_TRANSACTIONS=$(TRANSACTIONS) $(BIN)/pytest tests/crash/test_killed_transactions.py -s

campaign-timers: build ## brokers killed, KILLS (100) times, and power losses, TIMER_POWER_LOSSES (20), while TIMERS (1000000) messages wait for their times: none may be lost or early; how late they come is printed (root, loop devices)
	RMQPY_TIMERS=$(TIMERS) RMQPY_TIMER_KILLS=$(KILLS) RMQPY_TIMER_POWER_LOSSES=$(TIMER_POWER_LOSSES) $(BIN)/pytest tests/crash/test_killed_timers.py -s

campaign-power: build ## ROUNDS (200) power losses by each write path, on an ext4 image that is shut down under load (root, loop devices)
	RMQPY_POWER_LOSSES=$(ROUNDS) $(BIN)/pytest tests/crash/test_power_loss.py -s

campaign-hostile: build ## every attack on a broker and a name server: answer, growth of memory, and the 99th percentile of a good client beside it (45 min); ONLY=words of a name, EVERY (1)th case; report in target/reports/campaign-hostile.txt
	PYTHONPATH=tests $(BIN)/python -u -m hostile.campaign --only "$(ONLY)" --every $(EVERY)

campaign-disk: build ## ROUNDS (200) in all of a program that eats the disk of a broker, on ext4 and tmpfs: fill, expire, refuse, recover, stop (12 min, root)
	RMQPY_DISK_ROUNDS=$(ROUNDS) $(BIN)/pytest tests/crash/test_disk_story.py -s

failed-flush: build ## sends that rmqpy and Apache's broker acknowledge with SYNC_FLUSH while every flush fails (strace)
	$(BIN)/pytest tests/interop/failed_flush.py -s

unclean-start: build ## seconds to start after a kill on GB (5) of messages, beside Apache's broker; takes GB + 3 gigabytes of disk; WRITE_PATH (mapping), or spool
	UNCLEAN_START_GB=$(GB) RMQPY_WRITE_PATH=$(or $(WRITE_PATH),mapping) $(BIN)/pytest tests/interop/unclean_start.py -s

model: ## every interleaving of the store's threads (loom), with MODEL_PREEMPTIONS (2) preemptions at most
	LOOM_MAX_PREEMPTIONS=$(MODEL_PREEMPTIONS) cargo test --locked --features loom --lib store::models

micro: ## micro-benchmarks of the hot path: frame, header, append, pull, group commit, filters by tag and SQL92 beside none, checksum (3 min); no gate
	cargo bench --locked --bench codec --bench store

bench-compare: build ## rmqpy beside Apache's broker, the same load in turn (25 min); BENCH=quick: 5 min; CELLS=a,b: only these
	$(BIN)/python -m benchmarks $(if $(filter quick,$(BENCH)),--quick,) $(if $(CELLS),--cells $(CELLS),) $(if $(RESUME),--resume,)

bench-sync: build ## sync flush with 1, 64 and 256 outstanding sends: both write paths beside Apache's broker, in turn (7 min); BENCH=quick: 2 min
	$(BIN)/python -m benchmarks.write_paths sync $(if $(filter quick,$(BENCH)),--quick,)

bench-write-paths: build ## asynchronous flush: mapping and spool beside Apache's broker and the floor, on MEMORY (warm, cold) memory (14 min); BENCH=quick: 3 min; CELLS=a,b
	$(BIN)/python -m benchmarks.write_paths async --memory $(or $(MEMORY),warm) $(if $(CELLS),--cells $(CELLS),) $(if $(filter quick,$(BENCH)),--quick,)

bench-bulk: build ## batches of 1 MB for a minute beside Apache's broker, the floor and a plain writer (9 min, 60 GB of disk); BENCH=quick: 1 min
	$(BIN)/python -m benchmarks.bulk $(if $(filter quick,$(BENCH)),--quick,)

bench-kinds: build ## transactions, and a burst of 500,000 timed messages, beside Apache's broker, in turn (10 min); BENCH=quick: 3 min
	$(BIN)/python -m benchmarks.kinds $(if $(filter quick,$(BENCH)),--quick --timers 50000,)

bench-features: build ## what signed requests, TLS and a slave cost, beside Apache's broker with the same, in turn (15 min); BENCH=quick: 5 min; FEATURES="acl tls async-master sync-master": only these
	$(BIN)/python -m benchmarks.features $(if $(filter quick,$(BENCH)),--quick,) $(FEATURES)

bench-catch-up: build ## how long a slave that begins with nothing takes for GB (5) of messages, beside Apache's pair (5 min; 3 x GB of disk)
	$(BIN)/python -m benchmarks.catch_up --gigabytes $(GB)

bench-growth: build ## curves over queues, idle connections, producers, groups, backlog, size, log and timers, beside Apache's broker (1 h; 60 GB of disk); CURVES="queues size": only these; BENCH=quick: 8 min
	$(BIN)/python -m benchmarks.growth $(if $(filter quick,$(BENCH)),--quick,) $(CURVES)

bench-peers: build ## rmqpy beside Kafka (Maven), NATS JetStream (nats-server) and Redis streams (redis-server), the same load in turn (14 min); BENCH=quick: 5 min
	$(BIN)/python -m benchmarks.peer_cells $(if $(filter quick,$(BENCH)),--quick,) $(if $(CELLS),--cells $(CELLS),)

cold-start: build ## start-up time of a command beside a bare interpreter: medians of 20
	$(BIN)/python -m benchmarks.cold_start

bench-filters: build ## what filters by tag and by SQL92 cost a broker a message, beside none (2 min)
	$(BIN)/python -m benchmarks.filters

bench-topics: build ## many topics, rmqpy beside Apache's broker: start, registration, memory, listing; TOPICS (10000)
	$(BIN)/python -m benchmarks.topics --topics $(or $(TOPICS),10000)

bench-spark: $(VENV)/.spark-4.2 ## the Spark connector beside Spark's Kafka connector: reads, writes, latency (10 min, 15 GB of disk)
	PYTHONPATH=$(CURDIR)/$(VENV)/spark-4.2 $(BIN)/python -m benchmarks.spark --report target/reports/bench-spark.md

console-tasks: build $(VENV)/.browser ## twelve tasks of an operator done in Chromium, by a script: clicks, fields and seconds of each; one more by keys alone (1 min)
	PYTHONPATH=tests:$(CURDIR)/$(VENV)/browser $(BIN)/python -m console.tasks

screenshots: build $(VENV)/.browser ## every page of the console in Chromium, light and dark, empty, busy, with much wrong, without servers, and large (SCALE (1000) topics), whose first views are timed: errors, other hosts, axe; pictures in target/screenshots, and README's (4 min)
	PYTHONPATH=tests:$(CURDIR)/$(VENV)/browser $(BIN)/python -m console.browse --scale $(or $(SCALE),1000)
	cp target/screenshots/light/busy/overview.svg docs/console.svg

fuzz: ## every decoder against mutated bytes, FUZZ_RUNS (1000000) in all; needs cargo install cargo-fuzz; report in target/reports/fuzz.txt
	scripts/fuzz --runs $(FUZZ_RUNS)

fuzz-python: build ## the decoders in Python against mutated golden bytes, FUZZ_RUNS (1000000) in all
	PYTHONPATH=tests $(BIN)/python -m protocol.mutations --runs $(FUZZ_RUNS)

format: build ## format the sources
	cargo fmt --all
	$(BIN)/ruff check --fix-only python spark tests examples benchmarks
	$(BIN)/ruff format python spark tests examples benchmarks

wheel: $(VENV)/.tools ## the wheels of both distributions, in dist/
	$(BIN)/maturin build --locked --release --out dist
	$(BIN)/pip wheel --quiet --no-deps --wheel-dir dist ./spark

clean: ## remove everything the commands above have made
	rm -rf $(VENV) target dist python/rmqpy/_native*.so .mypy_cache .ruff_cache .pytest_cache .hypothesis

$(BIN)/python:
	@scripts/need python
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip

$(VENV)/.tools: $(BIN)/python pyproject.toml
	$(BIN)/pip install --quiet --group dev
	@touch $@

$(VENV)/.native-$(PROFILE): $(VENV)/.tools $(NATIVE)
	@scripts/need cc cargo
	VIRTUAL_ENV=$(CURDIR)/$(VENV) $(BIN)/maturin develop --locked $(MATURIN_PROFILE)
	@rm -f $(VENV)/.native-*
	@touch $@

# As pip does with what it installs. Where the environment keeps Python from writing bytecode, each start of a checkout would
# compile all of its modules.
compiled: $(VENV)/.native-$(PROFILE) ## the bytecode of all modules; build and spark make it, too
	@$(BIN)/python -m compileall -q python spark

# Beside the other PySpark, for those who put it first on PYTHONPATH.
$(VENV)/.browser: $(VENV)/.native-$(PROFILE)
	$(BIN)/pip install --quiet --upgrade --target $(VENV)/browser playwright==1.65.2 axe-playwright-python==0.1.8
	@touch $@

$(VENV)/.spark-4.2: $(VENV)/.spark
	$(BIN)/pip install --quiet --no-deps --upgrade --target $(VENV)/spark-4.2 pyspark==4.2.0
	@touch $@

$(VENV)/.spark: $(VENV)/.native-$(PROFILE) spark/pyproject.toml
	$(BIN)/pip install --quiet --editable ./spark
	@touch $@
