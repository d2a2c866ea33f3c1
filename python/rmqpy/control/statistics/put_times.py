"""Put times: the latency of sends as their senders see it, from request to reply, with all promised waits.

Owns the last minute's samples of the data plane's histograms, which count since the start. The event loop's.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from rmqpy._native import LATENCY_BOUNDS_US, Server
from rmqpy.protocol.codes import RequestCode, ResponseCode

#: Upper bounds in microseconds and names of the buckets that tools read. The first bucket is below one millisecond.
_DISTRIBUTION: Final = (
    (1_000, "[<=0ms]"), (10_000, "[0~10ms]"), (50_000, "[10~50ms]"), (100_000, "[50~100ms]"),
    (200_000, "[100~200ms]"), (500_000, "[200~500ms]"), (1_000_000, "[500ms~1s]"), (2_000_000, "[1~2s]"),
    (3_000_000, "[2~3s]"), (4_000_000, "[3~4s]"), (5_000_000, "[4~5s]"), (10_000_000, "[5~10s]"),
)  # fmt: skip
_LONGER: Final = "[10s~]"

_PUTS: Final = frozenset(
    {RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE}
)
_STORED: Final = frozenset(
    {
        ResponseCode.SUCCESS,
        ResponseCode.FLUSH_DISK_TIMEOUT,
        ResponseCode.SLAVE_NOT_AVAILABLE,
        ResponseCode.FLUSH_SLAVE_TIMEOUT,
    }
)
#: The last minute: samples are 10 s apart.
_SAMPLES_MAX: Final = 6


class _Puts(NamedTuple):
    #: By the buckets of the data plane.
    counts: tuple[int, ...]
    max_us: int


class PutTimes:
    """The put times of one broker."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._samples: deque[tuple[int, ...]] = deque(maxlen=_SAMPLES_MAX)
        self.sample()

    def sample(self) -> None:
        """Take a sample; called every 10 s."""
        self._samples.append(self._read().counts)

    def counts(self) -> tuple[int, ...]:
        """Return the puts since the start, by the buckets of the data plane."""
        return self._read().counts

    def table(self) -> dict[str, str]:
        """Return the keys of runtime information."""
        puts = self._read()
        recent = [now - before for now, before in zip(puts.counts, self._samples[0], strict=True)]
        return {
            "putMessageEntireTimeMax": str(puts.max_us // 1_000),
            "putMessageDistributeTime": " ".join(
                f"{word}:{count}" for word, count in _distribution(puts.counts)
            ),
            "putLatency99": f"{percentile_us(recent, 0.99) / 1_000:.3f}",
            "putLatency999": f"{percentile_us(recent, 0.999) / 1_000:.3f}",
        }

    def _read(self) -> _Puts:
        counts = [0] * (len(LATENCY_BOUNDS_US) + 1)
        longest = 0
        for kind in self._server.latencies():
            if kind.code in _PUTS and kind.answer in _STORED:
                counts = [one + more for one, more in zip(counts, kind.counts, strict=True)]
                longest = max(longest, kind.max_us)
        return _Puts(tuple(counts), longest)


def _distribution(counts: Sequence[int]) -> Iterable[tuple[str, int]]:
    ends = [0, *(LATENCY_BOUNDS_US.index(bound) + 1 for bound, _ in _DISTRIBUTION), len(counts)]
    words = [*(word for _, word in _DISTRIBUTION), _LONGER]
    return zip(words, (sum(counts[begin:end]) for begin, end in pairwise(ends)), strict=True)


def percentile_us(counts: Sequence[int], share: float) -> float:
    """Return an estimate of the time that a fraction `share` of the samples did not exceed, assuming evenly filled
    buckets.

    Samples beyond the last bound count as that bound.

    >>> percentile_us([0, 0, 0, 90, 10, *[0] * 24], 0.95)
    15.0
    """
    wanted = share * sum(counts)
    below = 0.0
    begin = 0
    for bound, count in zip(LATENCY_BOUNDS_US, counts, strict=False):
        if count and below + count >= wanted:
            return begin + (bound - begin) * (wanted - below) / count
        below += count
        begin = bound
    return float(begin) if wanted else 0.0
