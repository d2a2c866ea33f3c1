"""From ranges of queues to tasks: resolve, cut, pack.

Pure: neither PySpark nor the network. A Python task costs Spark tens of milliseconds before its first row and about
a microsecond for each row after it; below some 10,000 rows it is mostly overhead. So long ranges are cut and short
ranges of different queues share a task. The rows of one range stay together and in order.
"""

import heapq
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from pyspark_rocketmq.offsets import EARLIEST, LATEST, Bound, Queue, Range, bound_of


class Held(NamedTuple):
    """What a broker holds of one queue: offsets from `begin` up to, not including, `end`."""

    begin: int
    end: int


def resolve(held: Mapping[Queue, Held], starting: Bound, ending: Bound) -> tuple[list[Range], list[str]]:
    """What to read of each queue, and what is missing: one sentence for every loss met on the way.

    A range asked for that the broker does not hold whole is a loss; the range then covers what it does hold.
    Raises `ValueError` for a queue that does not exist and for a start behind its end.
    """
    for bound in (starting, ending):
        if isinstance(bound, Mapping) and (strangers := [queue for queue in bound if queue not in held]):
            raise ValueError(f"queue {min(strangers)} does not exist")
    ranges, losses = [], []
    for queue, (begin, end) in sorted(held.items()):
        stand_ins = {EARLIEST: begin, LATEST: end}
        first = bound_of(starting, queue, EARLIEST)
        last = bound_of(ending, queue, LATEST)
        first, last = stand_ins.get(first, first), stand_ins.get(last, last)
        if first > last:
            raise ValueError(f"queue {queue}: start {first} lies behind end {last}")
        if first < last and (first < begin or last > end):
            losses.append(f"queue {queue}: asked for {first} to {last}, the broker holds {begin} to {end}")
        first, last = max(first, begin), min(last, end)
        if first < last:
            ranges.append(Range(queue, first, last))
    return ranges, losses


def cut(ranges: Iterable[Range], rows_max: int | None, count_min: int) -> list[Range]:
    """Cut ranges longer than `rows_max`, then further until there are `count_min`, as long as there are rows."""
    ranges = list(ranges)
    rows = sum(each.rows for each in ranges)
    if len(ranges) < count_min and rows:
        fair = max(1, rows // count_min)
        rows_max = fair if rows_max is None else min(rows_max, fair)
    if rows_max is None:
        return ranges
    pieces = []
    for queue, start, end in ranges:
        count = -(-(end - start) // rows_max)
        marks = [start + (end - start) * index // count for index in range(count + 1)]
        pieces += [Range(queue, low, high) for low, high in pairwise(marks)]
    return pieces


def pack(
    ranges: Sequence[Range], pack_rows: int, count_min: int, count_max: int | None
) -> list[tuple[Range, ...]]:
    """Put ranges into tasks of up to `pack_rows` rows: not fewer than `count_min` (if there are as many ranges), not
    more than `count_max`. Longest first, each into the task that has least, so that tasks end together."""
    if not ranges:
        return []
    rows = sum(each.rows for each in ranges)
    count = max(-(-rows // pack_rows), count_min) if pack_rows else len(ranges)
    count = min(count, len(ranges), count_max or len(ranges))
    bins: list[tuple[int, int]] = [(0, index) for index in range(count)]
    tasks: list[list[Range]] = [[] for _ in range(count)]
    for each in sorted(ranges, key=lambda each: (-each.rows, each)):
        load, index = heapq.heappop(bins)
        tasks[index].append(each)
        heapq.heappush(bins, (load + each.rows, index))
    return [tuple(sorted(task)) for task in tasks]
