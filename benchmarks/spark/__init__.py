"""Spark benchmark: compares the Spark connector with Spark's Kafka connector: `make bench-spark`."""
