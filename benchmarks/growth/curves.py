"""Curves: the growing quantity, its values, the limit of Apache's broker, and the drawn metrics.

Add a new curve here only.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from benchmarks.growth import loads
from benchmarks.interval import RunMetrics
from benchmarks.servers import Side

Measure = Callable[[Side, int], RunMetrics]
"""Starts a side, measures it at one value, and stops it."""

#: Small, because queue files are preallocated.
_SMALL_QUEUE_FILES: Final = {"mappedFileSizeConsumeQueue": "20000"}


@dataclass(frozen=True)
class Curve:
    """One growing quantity."""

    title: str
    #: The unit of the values.
    axis: str
    values: tuple[int, ...]
    measure: Measure
    #: Metric → description with unit. The first ones are drawn; for memory the cost of one more unit is reported.
    metrics: Mapping[str, str]
    #: The expected shape of rmqpy's line, and the reason for bends.
    shape: str
    #: Largest value for Apache's broker, and the reason.
    apache_max: int | None = None
    apache_why: str = ""
    #: Settings of both brokers.
    settings: Mapping[str, str] = field(default_factory=dict)


MEMORY_METRIC: Final = "private_mib"
_MEMORY: Final = {MEMORY_METRIC: "private memory, MiB"}
_SENDS: Final = {"throughput": "messages/s", "p99_us": "p99, us", "cpu_us": "broker CPU per message, us"}

CURVES: Final[Mapping[str, Curve]] = {
    "queues": Curve(
        "Queues, sends spread over all",
        "queues",
        (10, 100, 1_000, 10_000, 50_000),
        loads.queues,
        _SENDS | _MEMORY,
        "Flat from a hundred queues on. Ten are cheaper: by profile, more queues add their upkeep, 3 % of"
        " the processor time, and the writes of the maintenance thread, some 8 %.",
        apache_max=10_000,
        apache_why="it holds a descriptor of every queue file, of which there are 20,000 on this machine",
        settings=_SMALL_QUEUE_FILES,
    ),
    "connections": Curve(
        "Idle connections with a load of 4 × 64",
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
        "A wake-up of the I/O thread serves all ready producers, so that four send six times as many "
        "messages as one. Beyond that, each message costs its two system calls. From 64 producers on the "
        "I/O thread uses a whole core, and more producers only wait longer.",
    ),
    "groups": Curve(
        "Groups that wait for the messages of one topic",
        "groups",
        (1, 10, 100, 500),
        loads.groups,
        {
            "deliveries": "deliveries/s",
            "p99_us": "p99 from send to group, us",
            "cpu_us": "broker CPU per delivery, us",
        }
        | _MEMORY,
        "A straight line: some 6,000 deliveries a second are requested, and a message wakes all groups, "
        "whose replies are sent, and read by their client, one after the other.",
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
        "The broker limits readers while memory holds the backlog, and the disk beyond that. Sends are "
        "hardly delayed: a separate thread reads from the disk.",
    ),
    "size": Curve(
        "Size of a message, 4 × 8",
        "bytes",
        (10, 100, 1_000, 10_000, 100_000, 1_000_000, 4_000_000),
        loads.sizes,
        {"mb_s": "MB/s", **_SENDS},
        "Up to 1,000 B the number of messages determines the cost, and from 10,000 B on the number of "
        "bytes: see [bulk](../README.md#bulk-sustained).",
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
        "Flat: a start reads the checkpoint and the records after it.",
        apache_max=5_000,
        apache_why="filling it takes too long",
    ),
    "timers": Curve(
        "Timed messages that wait, due in two days",
        "timed messages",
        (10_000, 100_000, 1_000_000, 10_000_000),
        loads.timers,
        {
            "throughput": "accepted/s",
            "start_s": "start after a kill, s",
            "cpu_us": "broker CPU per message, us",
        }
        | _MEMORY,
        "Flat: later messages are only on the disk. The memory shown came and went with the load.",
        apache_max=1_000_000,
        apache_why="ten millions take too long",
    ),
}
