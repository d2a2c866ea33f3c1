"""How a consumer does with each topic: counted as it happens, judged over the last minute.

Owns the counts of one consumer. Any thread; `sample` is called every `SAMPLE_S` by one of them.
"""

from __future__ import annotations

import dataclasses
import threading
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from rmqpy.protocol.requests.introspection import TopicRates

SAMPLE_S: Final = 10.0
#: What rates are taken over.
WINDOW_S: Final = 60.0


@dataclass(slots=True)
class Tally:
    """Messages of one topic, calls, and the seconds they took, since the consumer began."""

    consumed: int = 0
    failed: int = 0
    discarded: int = 0
    calls: int = 0
    call_s: float = 0.0
    pulls: int = 0
    pulled: int = 0
    pull_s: float = 0.0


class Meter:
    """Tallies by topic."""

    def __init__(self) -> None:
        self._tallies: dict[str, Tally] = {}
        self._lock = threading.Lock()
        self._samples: deque[tuple[float, Mapping[str, Tally]]] = deque(maxlen=int(WINDOW_S / SAMPLE_S))
        self.sample()

    def handled(self, topic: str, seconds: float, count: int, failed: int, is_discarded: bool) -> None:
        """A handler was called with so many messages, which took so long."""
        with self._lock:
            tally = self._tallies.get(topic) or self._add(topic)
            tally.calls += 1
            tally.call_s += seconds
            if is_discarded:
                tally.discarded += count
            else:
                tally.consumed += count - failed
                tally.failed += failed

    def pulled(self, topic: str, seconds: float, count: int) -> None:
        """A pull brought messages, after so long."""
        with self._lock:
            tally = self._tallies.get(topic) or self._add(topic)
            tally.pulls += 1
            tally.pulled += count
            tally.pull_s += seconds

    def total(self) -> Tally:
        """Over all topics."""
        total = Tally()
        for tally in self._copy().values():
            for field in dataclasses.fields(Tally):
                setattr(total, field.name, getattr(total, field.name) + getattr(tally, field.name))
        return total

    def sample(self) -> None:
        """Remember how things stand; the oldest sample is what rates begin at."""
        self._samples.append((time.monotonic(), self._copy()))

    def rates(self) -> dict[str, TopicRates]:
        """By topic, over the last minute, or less where there was less."""
        since, before = self._samples[0]
        seconds = max(time.monotonic() - since, 1e-3)
        return {
            topic: _rates(now, before.get(topic, Tally()), seconds) for topic, now in self._copy().items()
        }

    def _add(self, topic: str) -> Tally:
        tally = self._tallies[topic] = Tally()
        return tally

    def _copy(self) -> dict[str, Tally]:
        with self._lock:
            return {topic: dataclasses.replace(tally) for topic, tally in self._tallies.items()}


def _rates(now: Tally, before: Tally, seconds: float) -> TopicRates:
    calls, pulls = now.calls - before.calls, now.pulls - before.pulls
    return TopicRates(
        consume_rt=1000 * (now.call_s - before.call_s) / calls if calls else 0.0,
        consume_ok_tps=(now.consumed - before.consumed) / seconds,
        consume_failed_tps=(now.failed - before.failed) / seconds,
        consume_failed_msgs=now.failed,
        pull_rt=1000 * (now.pull_s - before.pull_s) / pulls if pulls else 0.0,
        pull_tps=(now.pulled - before.pulled) / seconds,
    )
