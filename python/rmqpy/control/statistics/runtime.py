"""Runtime information of a broker: the table of code 28.

Tools parse these values, some at fixed positions, and fail on a missing key. The set is therefore Apache's, complete,
with zeros for what this broker does not have. Threads: the event loop's; one sample every 10 s.
"""

from __future__ import annotations

import asyncio
import shutil
import time
from typing import Final, NamedTuple

from rmqpy._native import DueMessages, Server, Store
from rmqpy.clock import Clock
from rmqpy.config.store import DELAY_LEVELS_MAX, StoreConfig
from rmqpy.control.statistics.put_times import PutTimes
from rmqpy.control.statistics.rates import Rates
from rmqpy.errors import StoreError
from rmqpy.protocol.codes import VERSION
from rmqpy.protocol.names import SCHEDULE_TOPIC

#: The protocol's release, as tools print it.
_VERSION_TEXT: Final = "V5_5_0"

#: The names of Apache's thread pools. This broker has none: the thread that reads a request answers it.
_POOLS: Final = ("send", "pull", "litePull", "query", "ack")

_NOTHING: Final = (
    "dispatchMaxBuffer", "getMessageEntireTimeMax", "pageCacheLockTimeMills",
    "startAcceptSendRequestTimeStamp", "remainTransientStoreBufferNumbs", "EndTransactionQueueSize",
    "EndTransactionThreadPoolQueueCapacity",
)  # fmt: skip

#: A difference beyond which the wall clock was set, rather than slewed.
_CLOCK_SET_MS: Final = 1_000


class DayTotals(NamedTuple):
    """Messages in and out since the start: totals at the last two midnights and now."""

    day: int
    yesterday: tuple[int, int] = (0, 0)
    today: tuple[int, int] = (0, 0)


class Runtime:
    """Runtime information of one broker."""

    def __init__(
        self, config: StoreConfig, store: Store, server: Server, due: DueMessages, clock: Clock
    ) -> None:
        self._clock = clock
        self._log_folder, self._queue_folder, _ = config.folders
        self._store = store
        self._server = server
        self._due = due
        self._began = clock.elapsed()
        self._booted_ms = clock.wall_ms()
        self._totals = DayTotals(self._day())
        self._put_times = PutTimes(server)
        self.rates = Rates(self._counters, clock)

    def sample(self) -> None:
        """Take a sample of the counters; called every 10 s."""
        self.rates.sample()
        self._put_times.sample()
        if self._day() != self._totals.day:
            self._totals = DayTotals(self._day(), self._totals.today, self._passed())

    async def table(self) -> dict[str, str]:
        """Return all keys with their values as text."""
        # May read from the disk.
        oldest_ms = await asyncio.to_thread(self._store.log_begin_time)
        timers = await asyncio.to_thread(self._timers)
        up_ms = self._up_ms()
        return {
            "brokerVersionDesc": _VERSION_TEXT,
            "brokerVersion": str(VERSION),
            "brokerActive": "true",
            "bootTimestamp": str(self._booted_ms),
            "runtime": _duration(up_ms // 1_000),
            **self._messages(),
            "earliestMessageTimeStamp": str(oldest_ms),
            **self._log(),
            **self._delays(),
            **timers,
            **self._disk(),
            **_pools(),
            **dict.fromkeys(_NOTHING, "0"),
            "timerEnqueueTps": "0.0",
            "timerDequeueTps": "0.0",
        }

    def _up_ms(self) -> int:
        """Return the uptime, independent of the wall clock.

        Tools add it to the start time to get the broker's clock, so a set clock moves the start time.
        """
        up_ms = round((self._clock.elapsed() - self._began) * 1_000)
        booted_ms = self._clock.wall_ms() - up_ms
        if abs(booted_ms - self._booted_ms) >= _CLOCK_SET_MS:
            self._booted_ms = booted_ms
        return up_ms

    def _day(self) -> int:
        """Return the number of the local day."""
        return time.localtime(self._clock.wall_ms() / 1_000).tm_yday

    def _counters(self) -> dict[str, int]:
        return {**self._server.statistics(), **self._store.statistics()}

    def _passed(self) -> tuple[int, int]:
        counters = self._counters()
        return counters.get("puts", 0), counters.get("got_messages", 0)

    def _messages(self) -> dict[str, str]:
        counters = self._counters()
        puts, got = self._passed()
        put_bytes = counters.get("put_bytes", 0)
        transferred = self.rates.per_second("got_messages")
        yesterday, today = self._totals.yesterday, self._totals.today
        return {
            "putMessageTimesTotal": str(puts),
            "putMessageFailedTimes": str(counters.get("put_failures", 0)),
            "putMessageSizeTotal": str(put_bytes),
            "putMessageAverageSize": str(put_bytes / puts if puts else 0.0),
            **self._put_times.table(),
            "putTps": self.rates.per_second("puts"),
            "getFoundTps": self.rates.per_second("got_messages"),
            "getMissTps": self.rates.per_second("gets_missed"),
            "getTotalTps": self.rates.per_second("gets"),
            "getTransferredTps": transferred,
            # The spelling of 4.x and its tools.
            "getTransferedTps": transferred,
            "msgPutTotalYesterdayMorning": str(yesterday[0]),
            "msgPutTotalTodayMorning": str(today[0]),
            "msgPutTotalTodayNow": str(puts),
            "msgGetTotalYesterdayMorning": str(yesterday[1]),
            "msgGetTotalTodayMorning": str(today[1]),
            "msgGetTotalTodayNow": str(got),
        }

    def _log(self) -> dict[str, str]:
        store = self._store.statistics()
        end = store.get("max_physical", 0)
        return {
            "commitLogMinOffset": str(store.get("min_physical", 0)),
            "commitLogMaxOffset": str(end),
            "dispatchBehindBytes": str(max(0, end - store.get("visible", end))),
            "remainHowManyDataToCommit": "0 B",
            "remainHowManyDataToFlush": f"{max(0, end - store.get('durable', end))} B",
        }

    def _delays(self) -> dict[str, str]:
        """Return the delivery position and the end of each delay level with messages."""
        delivered = self._due.delivered()
        levels = range(1, DELAY_LEVELS_MAX + 1)
        ends = {level: self._store.max_offset(SCHEDULE_TOPIC, level - 1) for level in levels}
        return {
            f"scheduleMessageOffset_{level}": f"{delivered.get(level, 0)},{end}"
            for level, end in ends.items()
            if end > 0
        }

    def _timers(self) -> dict[str, str]:
        """Return the lateness of timed messages in seconds, the number not read yet, and the pending number."""
        try:
            found = self._due.statistics()
        except StoreError:
            found = None
        return {
            "timerReadBehind": str(found.late_ms // 1_000 if found else 0),
            "timerOffsetBehind": str(found.unread if found else 0),
            "timerCongestNum": str(found.pending if found else 0),
        }

    def _disk(self) -> dict[str, str]:
        usage, queues = shutil.disk_usage(self._log_folder), shutil.disk_usage(self._queue_folder)
        ratio = f"{usage.used / usage.total:.4f}"
        return {
            "commitLogDirCapacity": f"Total : {_size(usage.total)}, Free : {_size(usage.free)}.",
            "commitLogDiskRatio": ratio,
            f"commitLogDiskRatio_{self._log_folder}": ratio,
            "consumeQueueDiskRatio": f"{queues.used / queues.total:.4f}",
        }


def _pools() -> dict[str, str]:
    return {
        f"{pool}ThreadPoolQueue{what}": "0"
        for pool in _POOLS
        for what in ("Size", "Capacity", "HeadWaitTimeMills")
    }


def _duration(seconds: int) -> str:
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    return f"[ {days} days, {hours} hours, {minutes} minutes, {seconds} seconds ]"


def _size(size: float) -> str:
    """Return bytes in the form that tools split: number, space, unit."""
    units = ("B", "KiB", "MiB", "GiB", "TiB")
    for unit in units[:-1]:
        if size < 1_024:
            return f"{size:.1f} {unit}"
        size /= 1_024
    return f"{size:.1f} {units[-1]}"
