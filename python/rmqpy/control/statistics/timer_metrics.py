"""Metrics of timed messages: delivery, and pending ones by topic and time. Any thread; reads the data plane."""

from __future__ import annotations

from collections.abc import Iterator

from rmqpy._native import TIMER_BOUNDS_S, DueMessages
from rmqpy.errors import StoreError
from rmqpy.monitor.exposition import Family, Labels, Sample, histogram, plain
from rmqpy.protocol.requests.timers import DUE_WITHIN_S


def families(due: DueMessages) -> Iterator[Family]:
    """Return the current metrics; none if they cannot be read."""
    try:
        statistics = due.statistics()
    except StoreError:
        # The other metrics remain available.
        return
    if statistics is None:
        return
    for name, text, value in (
        ("rocketmq_timer_enqueue_lag", "Timed messages that delivery has not read yet.", statistics.unread),
        (
            "rocketmq_timer_enqueue_latency",
            "Age of the newest message that delivery has read, in ms.",
            statistics.unread_ms,
        ),
        ("rocketmq_timer_dequeue_lag", "Timed messages that are due.", statistics.late),
        ("rocketmq_timer_dequeue_latency", "Lateness of the first due message, in ms.", statistics.late_ms),
    ):
        yield plain(name, "gauge", text, value)
    waiting: list[tuple[Labels, float]] = []
    noted: list[tuple[Labels, float]] = []
    delivered: list[tuple[Labels, float]] = []
    delays: list[Sample] = []
    for each in statistics.topics:
        labels: Labels = {"topic": each.topic}
        delays += histogram(labels, TIMER_BOUNDS_S, each.delays, each.delay_s)
        waiting.append((labels, each.pending))
        noted.append((labels, each.read))
        delivered.append((labels, each.delivered))
    yield Family("rocketmq_timing_messages", "gauge", "Pending timed messages.", waiting)
    yield Family("rocketmq_timer_enqueue_total", "counter", "Timed messages read.", noted)
    yield Family("rocketmq_timer_dequeue_total", "counter", "Timed messages delivered.", delivered)
    text = "Seconds between storing and due time of timed messages."
    yield Family("rocketmq_delay_message_latency", "histogram", text, delays)
    within = due.slots_within(DUE_WITHIN_S)
    yield Family(
        "rocketmq_timer_message_snapshot",
        "gauge",
        "Timed messages that are due within this many seconds, but not within the next smaller bound.",
        [({"timer_bound_s": str(bound)}, count) for bound, count in zip(DUE_WITHIN_S, within, strict=False)],
    )
