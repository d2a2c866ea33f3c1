"""Statistics of topics, queues and groups over the last minute, hour and day.

Owns one series for each counted thing. The data plane counts; its counts are read every 10 s and with each query, so an
answer is never stale. A window reaches from its oldest sample to now: a minute is seven samples 10 s apart, an hour
seven 10 minutes apart, a day 25 an hour apart, as in Apache's broker.

Invariant: a series is dropped when nothing was counted for a day, or its topic or group is deleted.
Threads: the event loop's.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple, TypeVar

from rmqpy._native import Server, Store
from rmqpy.clock import Clock
from rmqpy.protocol.requests.brokers import BrokerStats, StatsWindow

log = logging.getLogger(__name__)

T = TypeVar("T")

SAMPLE_SECONDS: Final = 10
#: Beyond it queues are not counted separately; topics and groups always are.
SERIES_MAX: Final = 50_000


class Window(NamedTuple):
    """A time window: keep every `n`-th sample, up to a number."""

    every: int
    kept: int


_MINUTE: Final = Window(1, 7)
_HOUR: Final = Window(60, 7)
_DAY: Final = Window(360, 25)
_WINDOWS: Final = (_MINUTE, _HOUR, _DAY)


class Totals(NamedTuple):
    """Totals of events, their messages, and their bytes."""

    times: int = 0
    messages: int = 0
    bytes: int = 0

    def plus(self, times: int, messages: int, size: int) -> Totals:
        return Totals(self.times + times, self.messages + messages, self.bytes + size)


_NOTHING: Final = Totals()


class _Series:
    """Totals of one counted object, and their samples for each window, oldest first."""

    __slots__ = ("now", "samples")

    def __init__(self) -> None:
        self.now = _NOTHING
        self.samples: tuple[list[Totals], ...] = ([_NOTHING], [_NOTHING], [_NOTHING])

    def add(self, times: int, messages: int, size: int) -> None:
        self.now = self.now.plus(times, messages, size)

    @property
    def is_idle(self) -> bool:
        """True if nothing was counted within the longest window, a day."""
        day = self.samples[-1]
        return len(day) == _DAY.kept and day[0] == self.now


class _Statistic(NamedTuple):
    """A name in Apache's statistics: a kind of series, and one of its totals."""

    kind: str
    is_size: bool = False


_STATISTICS: Final[Mapping[str, _Statistic]] = {
    "TOPIC_PUT_NUMS": _Statistic("topic put"),
    "TOPIC_PUT_SIZE": _Statistic("topic put", is_size=True),
    "QUEUE_PUT_NUMS": _Statistic("queue put"),
    "QUEUE_PUT_SIZE": _Statistic("queue put", is_size=True),
    "GROUP_GET_NUMS": _Statistic("group get"),
    "GROUP_GET_SIZE": _Statistic("group get", is_size=True),
    "QUEUE_GET_NUMS": _Statistic("queue get"),
    "QUEUE_GET_SIZE": _Statistic("queue get", is_size=True),
    "SNDBCK_PUT_NUMS": _Statistic("returned"),
    "GROUP_ACK_NUMS": _Statistic("group ack"),
    "GROUP_CK_NUMS": _Statistic("group checkpoint"),
    "BROKER_ACK_NUMS": _Statistic("broker ack"),
    "BROKER_CK_NUMS": _Statistic("broker checkpoint"),
    "BROKER_PUT_NUMS": _Statistic("broker put"),
    "BROKER_GET_NUMS": _Statistic("broker get"),
    "BROKER_PUT_NUMS_WITHOUT_SYSTEM_TOPIC": _Statistic("user put"),
    "BROKER_GET_NUMS_WITHOUT_SYSTEM_TOPIC": _Statistic("user get"),
}


class Statistics:
    """All series of this broker."""

    def __init__(
        self,
        cluster: str,
        store: Store,
        server: Server,
        is_system: Callable[[str], bool],
        clock: Clock,
    ) -> None:
        self._cluster = cluster
        self._store = store
        self._server = server
        self._is_system = is_system
        self._clock = clock
        self._series: dict[tuple[str, str], _Series] = {}
        #: Messages into each topic since the start, by type of message.
        self._arrived: dict[str, dict[str, Totals]] = {}
        self._samples = 0
        #: Sample times of each window, oldest first.
        self._times: tuple[list[float], ...] = tuple([clock.elapsed()] for _ in _WINDOWS)
        self._is_full = False
        # Messages found by recovery are older than this process.
        store.take_arrivals()

    def sample(self) -> None:
        """Sample the totals; called every `SAMPLE_SECONDS`."""
        self._collect()
        self._samples += 1
        for index, window in enumerate(_WINDOWS):
            if self._samples % window.every == 0:
                _keep(self._times[index], self._clock.elapsed(), window)
                for series in self._series.values():
                    _keep(series.samples[index], series.now, window)
        if self._samples % _HOUR.every == 0:
            self._forget(key for key, series in self._series.items() if series.is_idle)

    def view(self, name: str, key: str) -> BrokerStats | None:
        """Return the windows of one statistic by Apache's names; `None` if nothing was counted."""
        statistic = _STATISTICS.get(name)
        if statistic is None:
            return None
        self._collect()
        series = self._series.get((statistic.kind, key))
        if series is None:
            return None
        minute, hour, day = (
            self._window(statistic, series, index, samples) for index, samples in enumerate(series.samples)
        )
        return BrokerStats(stats_minute=minute, stats_hour=hour, stats_day=day)

    def _per_second(self, name: str, key: str) -> float:
        """Return the rate of one statistic over the last minute, or 0."""
        found = self.view(name, key)
        return found.stats_minute.tps if found else 0.0

    def topic_put_tps(self, topic: str) -> float:
        """Return the messages per second into a topic over the last minute."""
        return self._per_second("TOPIC_PUT_NUMS", topic)

    def group_get_tps(self, group: str, topic: str) -> float:
        """Return the messages per second of a topic that a group received over the last minute."""
        return self._per_second("GROUP_GET_NUMS", f"{topic}@{group}")

    def group_get_rates(self) -> dict[tuple[str, str], float]:
        """Return the messages per second of all groups over the last minute, by group and topic."""
        self._collect()
        statistic = _STATISTICS["GROUP_GET_NUMS"]
        rates = {}
        for (kind, key), series in self._series.items():
            if kind == statistic.kind:
                topic, _, group = key.partition("@")
                rates[group, topic] = self._window(statistic, series, 0, series.samples[0]).tps
        return rates

    def total(self, name: str) -> int:
        """Return a statistic of the whole broker since the start."""
        self._collect()
        series = self._series.get((_STATISTICS[name].kind, self._cluster))
        return series.now.messages if series else 0

    def totals(self, kind: str) -> dict[str, Totals]:
        """Return all totals of one kind since the start, by key."""
        self._collect()
        return {key: series.now for (known, key), series in self._series.items() if known == kind}

    def arrived(self) -> dict[str, dict[str, Totals]]:
        """Return the messages into each topic since the start, by type, for topics with a series."""
        self._collect()
        return {topic: dict(by_type) for topic, by_type in self._arrived.items()}

    def forget_topic(self, topic: str) -> None:
        """Drop the series of a deleted topic."""
        self._collect()
        self._forget(key for key in self._series if key[1].partition("@")[0] == topic)

    def forget_group(self, group: str) -> None:
        """Drop the series of a deleted group."""
        self._collect()
        self._forget(key for key in self._series if "@" in key[1] and key[1].rpartition("@")[2] == group)

    def _collect(self) -> None:
        for arrived in self._store.take_arrivals():
            # Each message counts as one put, because Apache's average of these statistics is the message size.
            put = (arrived.messages, arrived.messages, arrived.bytes)
            self._add("topic put", arrived.topic, *put)
            by_type = self._arrived.setdefault(arrived.topic, {})
            by_type[arrived.message_type] = by_type.get(arrived.message_type, _NOTHING).plus(*put)
            self._add("queue put", f"{arrived.topic}@{arrived.queue_id}", *put)
            self._add("broker put", self._cluster, *put)
            if not self._is_system(arrived.topic):
                self._add("user put", self._cluster, *put)
        for one in self._server.take_deliveries():
            key = f"{one.topic}@{one.group}"
            if one.checkpoints:
                self._add("group checkpoint", key, one.checkpoints, one.checkpoints, 0)
                self._add("broker checkpoint", self._cluster, one.checkpoints, one.checkpoints, 0)
            if one.acks:
                self._add("group ack", key, one.acks, one.acks, 0)
                self._add("broker ack", self._cluster, one.acks, one.acks, 0)
            if one.returned:
                self._add("returned", key, one.returned, one.returned, 0)
            if one.pulls:
                got = (one.pulls, one.messages, one.bytes)
                self._add("group get", key, *got)
                self._add("queue get", f"{one.topic}@{one.queue_id}@{one.group}", *got)
                self._add("broker get", self._cluster, *got)
                if not self._is_system(one.topic):
                    self._add("user get", self._cluster, *got)

    def _add(self, kind: str, key: str, times: int, messages: int, size: int) -> None:
        series = self._series.get((kind, key))
        if series is None:
            if len(self._series) >= SERIES_MAX and kind.startswith("queue"):
                if not self._is_full:
                    log.warning("more than %d statistics: no longer counting by queue", SERIES_MAX)
                self._is_full = True
                return
            series = self._series[(kind, key)] = _Series()
        series.add(times, messages, size)

    def _window(
        self, statistic: _Statistic, series: _Series, index: int, samples: list[Totals]
    ) -> StatsWindow:
        first, now = samples[0], series.now
        # A series younger than the window started at zero, at the sample before its first one.
        began = self._times[index][-len(samples)]
        grown = now.bytes - first.bytes if statistic.is_size else now.messages - first.messages
        times = now.times - first.times
        seconds = max(self._clock.elapsed() - began, SAMPLE_SECONDS)
        return StatsWindow(sum=grown, tps=grown / seconds, avgpt=grown / times if times else 0.0)

    def _forget(self, keys: Iterable[tuple[str, str]]) -> None:
        for kind, name in list(keys):
            del self._series[kind, name]
            if kind == "topic put":
                del self._arrived[name]


def _keep(samples: list[T], newest: T, window: Window) -> None:
    samples.append(newest)
    if len(samples) > window.kept:
        del samples[0]
