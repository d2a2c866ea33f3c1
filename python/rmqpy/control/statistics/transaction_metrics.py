"""Metrics of transactions by topic: open ones, ends, how long those took. Any thread; it asks the data plane."""

from __future__ import annotations

from collections.abc import Iterator

from rmqpy._native import TRANSACTION_BOUNDS_S, Transactions
from rmqpy.monitor.exposition import Family, Labels, Sample, histogram


def families(transactions: Transactions) -> Iterator[Family]:
    """As they are."""
    half: list[tuple[Labels, float]] = []
    committed: list[tuple[Labels, float]] = []
    rolled_back: list[tuple[Labels, float]] = []
    latencies: list[Sample] = []
    for topic, open_now, commits, rollbacks, counts, sum_s in transactions.statistics():
        labels: Labels = {"topic": topic}
        half.append((labels, open_now))
        committed.append((labels, commits))
        rolled_back.append((labels, rollbacks))
        latencies += histogram(labels, TRANSACTION_BOUNDS_S, counts, sum_s)
    yield Family("rocketmq_half_messages", "gauge", "Half messages without a decision.", half)
    yield Family("rocketmq_commit_messages_total", "counter", "Half messages committed.", committed)
    yield Family("rocketmq_rollback_messages_total", "counter", "Half messages rolled back.", rolled_back)
    text = "Seconds from the birth of messages to their commits."
    yield Family("rocketmq_finish_message_latency", "histogram", text, latencies)
