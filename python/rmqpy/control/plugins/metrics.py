"""Metrics of plug-ins. Pure; any thread."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from rmqpy.control.plugins.guard import Counts
from rmqpy.control.plugins.running import Watched
from rmqpy.monitor.exposition import Family

_COUNTERS: Final[tuple[tuple[str, str, Callable[[Counts], int]], ...]] = (
    ("calls", "Calls of plug-ins.", lambda counts: counts.calls),
    ("failures", "Calls that failed or timed out.", lambda counts: counts.failures),
    ("messages", "Messages passed to plug-ins.", lambda counts: counts.messages),
    ("skipped_messages", "Messages that observers missed.", lambda counts: counts.skipped),
    (
        "missed_bytes",
        "Bytes of the log deleted before followers read them.",
        lambda counts: counts.missed_bytes,
    ),
    ("damaged_bytes", "Bytes of the log that followers could not read.", lambda counts: counts.damaged_bytes),
    ("refusals", "Topics and groups that policies refused.", lambda counts: counts.refusals),
    ("timeouts", "Questions that policies did not answer in time.", lambda counts: counts.timeouts),
)
_STATES: Final = {"closed": 0, "half-open": 1, "open": 2}


def families(plugins: Iterable[Watched]) -> Iterator[Family]:
    """The metrics of these plug-ins; none without plug-ins."""
    watched = list(plugins)
    if not watched:
        return
    labels = [{"plugin": each.guard.name, "kind": each.guard.kind} for each in watched]
    counts = [each.guard.counts for each in watched]
    for name, text, value in _COUNTERS:
        samples = [(label, value(count)) for label, count in zip(labels, counts, strict=True)]
        yield Family(f"rmqpy_plugin_{name}_total", "counter", text, samples)
    yield Family(
        "rmqpy_plugin_behind_bytes",
        "gauge",
        "Bytes of the log that a plug-in has to read.",
        [
            (label, each.behind())
            for label, each in zip(labels, watched, strict=True)
            if each.behind is not None
        ],
    )
    yield Family(
        "rmqpy_plugin_breaker",
        "gauge",
        "0: calls are made, 2: they pause after failures, 1: the next one is a trial.",
        [(label, _STATES[each.guard.breaker.state]) for label, each in zip(labels, watched, strict=True)],
    )
    yield Family(
        "rmqpy_plugin_busy_seconds",
        "gauge",
        "How long the running call of a plug-in has taken.",
        [(label, each.guard.busy_seconds) for label, each in zip(labels, watched, strict=True)],
    )
