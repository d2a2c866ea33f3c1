"""The Spark connector beside Spark's Kafka connector: `make bench-spark`."""
