"""The curves: what grows, through which values, how far Apache's broker follows, and what is drawn.

One place to touch for a new curve.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from benchmarks.growth import loads
from benchmarks.interval import RunMetrics
from benchmarks.servers import Side

Measure = Callable[[Side, int], RunMetrics]
"""Starts a side, measures it at one value, and stops it."""

#: Small, for files of queues are allocated whole.
_SMALL_QUEUE_FILES: Final = {"mappedFileSizeConsumeQueue": "20000"}


@dataclass(frozen=True)
class Curve:
    """One thing that grows."""

    title: str
    #: What the values count.
    axis: str
    values: tuple[int, ...]
    measure: Measure
    #: Metric → what it is, with its unit. The first ones are drawn; of memory it is told what one more takes.
    metrics: Mapping[str, str]
    #: What the line of ours is like: that it is straight, or why it bends.
    shape: str
    #: Largest value at which Apache's broker is measured, and why no further.
    apache_max: int | None = None
    apache_why: str = ""
    #: Of both brokers.
    settings: Mapping[str, str] = field(default_factory=dict)


MEMORY_METRIC: Final = "private_mib"
_MEMORY: Final = {MEMORY_METRIC: "private memory, MiB"}
_SENDS: Final = {"throughput": "messages/s", "p99_us": "p99, us", "cpu_us": "broker CPU a message, us"}

CURVES: Final[Mapping[str, Curve]] = {
    "queues": Curve(
        "Queues, sends spread over all",
        "queues",
        (10, 100, 1_000, 10_000, 50_000),
        loads.queues,
        _SENDS | _MEMORY,
        "Flat from a hundred queues on. Ten are cheaper: by profile, what more queues add is their upkeep, 3 % of "
        "the processor time, and the maintenance thread that writes them, some 8 %.",
        apache_max=10_000,
        apache_why="it holds a descriptor of every queue file, of which there are 20,000 on this machine",
        settings=_SMALL_QUEUE_FILES,
    ),
    "connections": Curve(
        "Idle connections beside a load of 4 × 64",
        "idle connections",
        (10, 100, 1_000, 9_900),
        loads.idle_connections,
        _SENDS | _MEMORY,
        "Flat: an idle connection costs its memory.",
    ),
    "producers": Curve(
        "Producers, each of which waits for its answer",
        "producers",
        (1, 4, 16, 64, 256, 1_000),
        loads.producers,
        _SENDS,
        "A wake-up of the I/O thread serves all producers that are ready, so that four take six times as many"
        " messages as one; from then on each message costs its two system calls. Behind 64 the broker's "
        "I/O thread has a core, which is full, and more producers wait longer for the same.",
    ),
    "groups": Curve(
        "Groups that wait for the messages of one topic",
        "groups",
        (1, 10, 100, 500),
        loads.groups,
        {
            "deliveries": "deliveries/s",
            "p99_us": "p99 from send to group, us",
            "cpu_us": "broker CPU a delivery, us",
        }
        | _MEMORY,
        "A straight line: deliveries are what is asked for, some 6,000 a second, and a message wakes all "
        "groups, which are answered, and read by their client, one after the other.",
    ),
    "backlog": Curve(
        "Backlog, read from its begin while producers go on",
        "GB of backlog",
        (1, 8, 30),
        loads.backlog,
        {
            "before_p99_us": "p99 of sends before, us",
            "during_p99_us": "p99 of sends while it is read, us",
            "read_mb_s": "read, MB/s",
        },
        "Up to what memory holds, readers get what the broker can send; beyond, what the disk reads. Sends "
        "wait for it little: what is not in memory is read on a thread of its own.",
    ),
    "size": Curve(
        "Size of a message, 4 × 8",
        "bytes",
        (10, 100, 1_000, 10_000, 100_000, 1_000_000, 4_000_000),
        loads.sizes,
        {"mb_s": "MB/s", **_SENDS},
        "Up to 1,000 B it is the message that costs, and its bytes little. From 10,000 B on it is the bytes, 0.4 "
        "GB/s: by profile 67 % of the processor time is the kernel's, clearing new pages of the log on the "
        "thread that makes them ready. `commitLogWritePath=spool` does without new pages: see "
        "[bulk](../README.md#bulk-sustained).",
    ),
    "log": Curve(
        "Start over the size of the log, messages of 1,000 B",
        "MB of log",
        (100, 1_000, 5_000, 20_000),
        loads.starts,
        {
            "stopped_s": "start after a stop to first accepted send, s",
            "killed_s": "start after a kill to first accepted send, s",
        },
        "Flat: a start reads the checkpoint, and what is behind it.",
        apache_max=5_000,
        apache_why="for the time that filling it takes",
    ),
    "timers": Curve(
        "Timed messages that wait, due in two days",
        "timed messages",
        (10_000, 100_000, 1_000_000, 10_000_000),
        loads.timers,
        {"throughput": "accepted/s", "start_s": "start after a kill, s", "cpu_us": "broker CPU a message, us"}
        | _MEMORY,
        "Flat: what is due later is on the disk, and memory has none of it; what is shown is how much memory "
        "came and went with the load.",
        apache_max=1_000_000,
        apache_why="for the time that ten millions take",
    ),
}
