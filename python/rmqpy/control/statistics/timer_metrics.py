"""Metrics of timed messages: delivery, what waits by topic and by time. Any thread; it asks the data plane."""

from __future__ import annotations

from collections.abc import Iterator

from rmqpy._native import TIMER_BOUNDS_S, DueMessages
from rmqpy.errors import StoreError
from rmqpy.monitor.exposition import Family, Labels, Sample, histogram, plain
from rmqpy.protocol.requests.timers import DUE_WITHIN_S


def families(due: DueMessages) -> Iterator[Family]:
    """As they are; none where they cannot be read."""
    try:
        statistics = due.statistics()
    except StoreError:
        # The others are wanted all the more.
        return
    if statistics is None:
        return
    _pending, (unread, unread_ms), (late, late_ms), topics = statistics
    for name, text, value in (
        ("rocketmq_timer_enqueue_lag", "Timed messages that delivery has not read.", unread),
        ("rocketmq_timer_enqueue_latency", "Age of the newest that it has, in ms.", unread_ms),
        ("rocketmq_timer_dequeue_lag", "Timed messages that are due.", late),
        ("rocketmq_timer_dequeue_latency", "How long the first of them has been, in ms.", late_ms),
    ):
        yield plain(name, "gauge", text, value)
    waiting: list[tuple[Labels, float]] = []
    noted: list[tuple[Labels, float]] = []
    delivered: list[tuple[Labels, float]] = []
    delays: list[Sample] = []
    for topic, waits, enqueued, dequeued, counts, delay_s in topics:
        delays += histogram({"topic": topic}, TIMER_BOUNDS_S, counts, delay_s)
        labels: Labels = {"topic": topic}
        waiting.append((labels, waits))
        noted.append((labels, enqueued))
        delivered.append((labels, dequeued))
    yield Family("rocketmq_timing_messages", "gauge", "Timed messages that wait.", waiting)
    yield Family("rocketmq_timer_enqueue_total", "counter", "Timed messages read.", noted)
    yield Family("rocketmq_timer_dequeue_total", "counter", "Timed messages delivered.", delivered)
    text = "Seconds that timed messages had to wait, by their storing and their time."
    yield Family("rocketmq_delay_message_latency", "histogram", text, delays)
    within = due.slots_within(DUE_WITHIN_S)
    yield Family(
        "rocketmq_timer_message_snapshot",
        "gauge",
        "Timed messages that are due within so many seconds, and not within the next smaller number.",
        [({"timer_bound_s": str(bound)}, count) for bound, count in zip(DUE_WITHIN_S, within, strict=False)],
    )
