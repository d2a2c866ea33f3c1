"""Benchmarks: compares rmqpy with Apache RocketMQ, on one machine, in one run: `make bench-compare`. README.md has
the method."""
