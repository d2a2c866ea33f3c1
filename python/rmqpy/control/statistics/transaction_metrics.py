"""Metrics of transactions by topic: open ones, ends, and durations. Any thread; reads the data plane."""

from __future__ import annotations

from collections.abc import Iterator

from rmqpy._native import TRANSACTION_BOUNDS_S, Transactions
from rmqpy.monitor.exposition import Family, Labels, Sample, histogram


def families(transactions: Transactions) -> Iterator[Family]:
    """Return the current metrics."""
    half: list[tuple[Labels, float]] = []
    committed: list[tuple[Labels, float]] = []
    rolled_back: list[tuple[Labels, float]] = []
    latencies: list[Sample] = []
    for each in transactions.statistics():
        labels: Labels = {"topic": each.topic}
        half.append((labels, each.open))
        committed.append((labels, each.committed))
        rolled_back.append((labels, each.rolled_back))
        latencies += histogram(labels, TRANSACTION_BOUNDS_S, each.ages, each.age_s)
    yield Family("rocketmq_half_messages", "gauge", "Half messages without a decision.", half)
    yield Family("rocketmq_commit_messages_total", "counter", "Half messages committed.", committed)
    yield Family("rocketmq_rollback_messages_total", "counter", "Half messages rolled back.", rolled_back)
    text = "Seconds from the creation of messages to their commits."
    yield Family("rocketmq_finish_message_latency", "histogram", text, latencies)
