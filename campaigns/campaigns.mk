# Campaigns: long or destructive runs, browser tours, and tables about other programs. `make campaign` lists them;
# `make campaign NAME=kill` and `make campaign-kill` are the same. Words in capitals are variables: `KILLS=300`.

SEEDS ?= 3
KILLS ?= 100
CORRUPTIONS ?= 1500
REPLICA_SEEDS ?= 1000000
CONTROLLER_SEEDS ?= 1000000
REPLICA_ROUNDS ?= 100
REPLICA_POWER_LOSSES ?= 20
REPLICA_MESSAGES ?= 1000000
TRANSACTIONS ?= 100000
TIMERS ?= 1000000
TIMER_POWER_LOSSES ?= 20
SPARK_KILLS ?= 30
SCHEDULES ?= 1000
SCHEDULE_KILLS ?= 200
TASKS ?= 10000
ROUNDS ?= 200
EVERY ?= 1
OUTAGE_SECONDS ?= 120
MODEL_PREEMPTIONS ?= 2
MODEL_STEPS ?= 100000
MODEL_JOBS ?= 16
SQL_CASES ?= 100000
SQL_SEED ?= 92
SCALE ?= 1000
STATE ?= dead-master
MESSAGES ?= 1000000
WORKERS ?= 10000
QUEUES ?= 10000

# Campaigns use the fixtures and peers of the tests.
CAMPAIGN := PYTHONPATH=tests $(BIN)/python -u -m campaigns
CAMPAIGN_PYTEST := PYTHONPATH=tests $(BIN)/pytest -s
WITH_BROWSER := PYTHONPATH=tests:$(CURDIR)/$(VENV)/browser $(BIN)/python -m campaigns
TRANSACTION_KILLS := RMQPY_TRANSACTION_KILLS=$(KILLS) RMQPY_TRANSACTIONS=$(TRANSACTIONS)
TIMER_KILLS := RMQPY_TIMERS=$(TIMERS) RMQPY_TIMER_KILLS=$(KILLS) RMQPY_TIMER_POWER_LOSSES=$(TIMER_POWER_LOSSES)
REPLICA_LOSSES := RMQPY_REPLICA_ROUNDS=$(REPLICA_ROUNDS) RMQPY_REPLICA_POWER_LOSSES=$(REPLICA_POWER_LOSSES) \
	RMQPY_REPLICA_MESSAGES=$(REPLICA_MESSAGES) RMQPY_REPLICA_FILE_BYTES=67108864

campaign-store: ## crashes, faults, damage: SEEDS, KILLS, CORRUPTIONS
	@mkdir -p target/reports
	@{ date -u; git rev-parse HEAD; uname -srm; } > target/reports/campaign.txt
	RMQPY_CRASH_SEEDS=$(SEEDS) RMQPY_KILLS=$(KILLS) RMQPY_CORRUPTIONS=$(CORRUPTIONS) PROPTEST_CASES=20000 \
		cargo test --locked --release --no-fail-fast --test crash --test corruption --test group_commit \
		--test store -- --nocapture >> target/reports/campaign.txt 2>&1; \
		status=$$?; grep -E 'states|faults|kills|corruptions|test result|panicked' target/reports/campaign.txt; exit $$status

campaign-threads: ## interleavings of the store's threads: MODEL_PREEMPTIONS
	LOOM_MAX_PREEMPTIONS=$(MODEL_PREEMPTIONS) cargo test --locked --features loom --lib store::models

campaign-kill: build ## brokers killed under load, with each write path: KILLS
	RMQPY_KILLS=$(KILLS) $(BIN)/pytest -s tests/crash/test_killed.py

campaign-tiered: build ## brokers killed while they copy old files: KILLS
	RMQPY_KILLS=$(KILLS) $(BIN)/pytest -s tests/crash/test_killed_tiered.py

campaign-tiered-s3: build ## the same with an S3 server that pauses: KILLS
	$(BIN)/pip install --quiet --target $(VENV)/s3 "moto[server]==5.2.5"
	$(CAMPAIGN).tiered.s3 --kills $(KILLS) --library $(VENV)/s3

campaign-transactions: build ## brokers and producers killed: KILLS, TRANSACTIONS
	$(TRANSACTION_KILLS) $(BIN)/pytest -s tests/crash/test_killed_transactions.py

campaign-timers: build ## kills and power losses with timers: KILLS, TIMERS (root)
	$(TIMER_KILLS) $(BIN)/pytest -s tests/crash/test_killed_timers.py

campaign-schedules: build ## schedules over a year, and kills: SCHEDULE_KILLS
	RMQPY_SCHEDULES=$(SCHEDULES) RMQPY_SCHEDULE_KILLS=$(SCHEDULE_KILLS) RMQPY_SCHEDULE_DAYS=365 \
		$(CAMPAIGN_PYTEST) tests/crash/test_killed_schedules.py

campaign-pop-kills: build ## brokers and workers of POP killed: KILLS
	RMQPY_KILLS=$(KILLS) $(BIN)/pytest -s tests/crash/test_killed_pop.py tests/crash/test_killed_pop_pair.py

campaign-pop-in-flight: build ## a million messages in flight: MESSAGES (6 min)
	$(CAMPAIGN).pop.in_flight --messages $(MESSAGES)

campaign-pop-parked: build ## workers that wait for messages: WORKERS (3 min)
	$(CAMPAIGN).pop.parked --workers $(WORKERS)

campaign-pop-busy: build ## 16 workers on one queue, 100 ms a message (1 min)
	$(CAMPAIGN).pop.busy

campaign-pop-folders: build ## 100,000 open messages, ours, Apache's, ours (30 min)
	RMQPY_POP_MESSAGES=200000 $(BIN)/pytest -s tests/interop/test_pop_folders.py

campaign-power: build ## power losses on an ext4 image under load: ROUNDS (root)
	RMQPY_POWER_LOSSES=$(ROUNDS) $(BIN)/pytest -s tests/crash/test_power_loss.py

campaign-reboots: build ## as after a restart of the machine: ROUNDS (root)
	RMQPY_REBOOTS=$(ROUNDS) $(BIN)/pytest -s tests/crash/test_reboots.py

campaign-disk: build ## a program that fills a broker's disk: ROUNDS (root)
	RMQPY_DISK_ROUNDS=$(ROUNDS) $(BIN)/pytest -s tests/crash/test_disk_story.py

campaign-failed-flush: build ## sends acknowledged while every flush fails (strace)
	$(CAMPAIGN_PYTEST) campaigns/interop/failed_flush.py

campaign-unclean-start: build ## a start after a kill on GB (5): WRITE_PATH
	UNCLEAN_START_GB=$(GB) RMQPY_WRITE_PATH=$(or $(WRITE_PATH),ring) $(CAMPAIGN_PYTEST) campaigns/interop/unclean_start.py

campaign-simulated-controllers: ## simulated elections, leases and faults: CONTROLLER_SEEDS
	RMQPY_SEEDS=$(CONTROLLER_SEEDS) cargo test --locked --release --test controller -- --nocapture

campaign-simulated-replicas: ## simulated lives of replicas: REPLICA_SEEDS
	RMQPY_REPLICA_SEEDS=$(REPLICA_SEEDS) cargo test --locked --release --test replication -- --nocapture

campaign-replicas: build ## masters and slaves killed and cut off (root, java)
	$(REPLICA_LOSSES) $(BIN)/pytest -s tests/crash/test_replica_loss.py tests/crash/test_replica_power.py \
		tests/crash/test_replica_processes.py tests/interop/test_replicas.py

campaign-controller-kills: build ## masters and controllers killed: ROUNDS
	$(CAMPAIGN).election.controller_kills --rounds $(ROUNDS)

campaign-controller-cuts: build ## masters cut off or without power: ROUNDS (root)
	$(CAMPAIGN).election.cuts --rounds $(ROUNDS)

campaign-controller-clients: build ## clients through changes of the master: ROUNDS
	$(CAMPAIGN).election.clients --rounds $(ROUNDS)

campaign-group: build ## a group of 8 under attack: CAMPAIGN_SECONDS
	$(CAMPAIGN_PYTEST) campaigns/interop/group.py

campaign-model: build ## random steps of a group of pull consumers: MODEL_STEPS
	seq $(MODEL_JOBS) | MODEL_STEPS=$$(($(MODEL_STEPS) / $(MODEL_JOBS) + 1)) \
		xargs -P $(MODEL_JOBS) -I RUN $(BIN)/pytest -q -s tests/client/test_group_model.py

campaign-outage: build ## clients without any name server for OUTAGE_SECONDS (120)
	OUTAGE_SECONDS=$(OUTAGE_SECONDS) $(BIN)/pytest -s tests/client/test_outage.py

campaign-sql: build ## SQL92 filters at Apache's evaluator: SQL_CASES, SQL_SEED
	SQL_CASES=$(SQL_CASES) SQL_SEED=$(SQL_SEED) $(BIN)/pytest -s tests/interop/test_sql.py

campaign-hostile: build ## every attack: ONLY, EVERY (45 min)
	$(CAMPAIGN).hostile.campaign --only "$(ONLY)" --every $(EVERY)

campaign-grpc-idle: build ## memory of 1,000 and 5,000 idle 5.x clients (2 min)
	ulimit -n 16384 && $(CAMPAIGN).grpc.idle

campaign-grpc-kills: build ## broker and proxy killed under 5.x clients: KILLS (12 min)
	$(CAMPAIGN).grpc.kills --kills $(KILLS)

campaign-grpc-h2spec: build ## the gRPC port under h2spec: H2SPEC (1 min)
	$(CAMPAIGN).grpc.h2spec --h2spec $(or $(H2SPEC),h2spec)

campaign-interop: build ## every foreign client at either broker
	RMQPY_INTEROP_ALL=1 RMQPY_INTEROP_CONTROL=1 $(BIN)/pytest tests/interop

campaign-mqadmin-table: build ## writes docs/mqadmin.md (2 min)
	$(CAMPAIGN_PYTEST) campaigns/interop/mqadmin_table.py

campaign-handler-rate: build ## messages a second into empty handlers, ours and Java's
	$(CAMPAIGN_PYTEST) campaigns/interop/handler_rate.py

campaign-archive: build ## archives killed while they write, and audited: KILLS
	RMQPY_KILLS=$(KILLS) $(BIN)/pytest -s --timeout 3600 tests/tables/test_archive.py -k kills

campaign-celery: build ## Celery's workers and broker killed: TASKS, KILLS
	$(CAMPAIGN).contrib.celery_kills --tasks $(TASKS) --kills $(KILLS)

campaign-celery-peers: build ## Celery on Redis and RabbitMQ, too: TASKS
	$(BIN)/pip install --quiet --target $(VENV)/peers "redis>=5"
	PYTHONPATH=tests:$(VENV)/peers $(BIN)/python -u -m campaigns.contrib.celery_peers --tasks $(TASKS) \
		--report target/reports/celery-peers.json

campaign-spark: spark ## a Spark pipeline killed SPARK_KILLS (30) times (20 min)
	$(CAMPAIGN).spark.kill --kills $(SPARK_KILLS) --report target/reports/campaign-spark.txt

# Spark's transformWithState needs pandas.
campaign-spark-state: spark $(VENV)/.spark-connect ## state, Delta and Iceberg: SPARK_KILLS (20 min)
	PYTHONPATH=tests:$(CURDIR)/$(VENV)/spark-connect $(BIN)/python -u -m campaigns.spark.state --kills $(SPARK_KILLS) --report target/reports/campaign-spark-state.txt

campaign-spark-cluster: spark ## a Spark cluster of two workers (1 min)
	$(CAMPAIGN_PYTEST) campaigns/spark/standalone.py

campaign-spark-planning: spark ## planning times of QUEUES (10000) (1 min)
	$(CAMPAIGN).spark.planning --queues $(QUEUES)

campaign-spark-options: spark ## ignored options: OPTIONS (4 min)
	$(CAMPAIGN).spark.ignore_options $(OPTIONS)

campaign-console-tasks: build $(VENV)/.browser ## an operator's tasks in Chromium (1 min)
	$(WITH_BROWSER).console.tasks

campaign-console-troubles: build $(VENV)/.browser ## a cluster in trouble, and its console: STATE, CHECK=1
	$(WITH_BROWSER).console.troubles $(STATE) $(if $(CHECK),--check)

campaign-screenshots: build $(VENV)/.browser ## every page of the console: SCALE (4 min)
	$(WITH_BROWSER).console.browse --scale $(SCALE)
	cp target/screenshots/light/busy/overview.svg docs/console.svg

$(VENV)/.browser: $(VENV)/.native-$(PROFILE)
	$(BIN)/pip install --quiet --upgrade --target $(VENV)/browser playwright==1.65.2 axe-playwright-python==0.1.8
	@touch $@
