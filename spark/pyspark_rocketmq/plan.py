"""Planning: shares of a micro-batch, lost ranges, and the division of ranges into tasks.

Pure: imports neither PySpark nor the network. A Python task costs Spark tens of milliseconds before its first row and
about a microsecond for each row, so a task below 10,000 rows is mostly overhead. Long ranges are split, short ranges of
different queues share a task. The rows of one range stay together and in order.
"""

import heapq
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from pyspark_rocketmq.offsets import EARLIEST, LATEST, Bound, Queue, Range, bound_of


class Held(NamedTuple):
    """The offsets of a queue that its broker holds, from `begin` up to, not including, `end`."""

    begin: int
    end: int


def settle(bound: Bound, held: Mapping[Queue, Held], default: int) -> dict[Queue, int]:
    """Return an offset for each queue, with stand-ins replaced. Raises `ValueError` for a queue that does not exist."""
    if isinstance(bound, Mapping) and (unknown := [queue for queue in bound if queue not in held]):
        raise ValueError(f"queue {min(unknown)} does not exist, or is not selected by the options")
    stand_ins = {queue: {EARLIEST: begin, LATEST: end} for queue, (begin, end) in held.items()}
    asked = {queue: bound_of(bound, queue, default) for queue in held}
    return {queue: stand_ins[queue].get(offset, offset) for queue, offset in asked.items()}


def ranges_between(
    start: Mapping[Queue, int], end: Mapping[Queue, int], held: Mapping[Queue, Held]
) -> tuple[list[Range], list[str]]:
    """Return the ranges to read, and a sentence for each loss.

    A range that the broker holds only in part is a loss, and shrinks to that part. A queue without a start is new, and
    read from its beginning. The task checks a queue that is not in `held`.
    """
    ranges, losses = [], []
    for queue, last in sorted(end.items()):
        first = start.get(queue, 0)
        begin, stop = held.get(queue, (first, last))
        if first < last and (first < begin or last > stop):
            losses.append(
                f"queue {queue}: requested {first} to {last}, but the broker holds {begin} to {stop}"
            )
        first, last = max(first, begin), min(last, stop)
        if first < last:
            ranges.append(Range(queue, first, last))
    return ranges, losses


def share(backlog: Mapping[Queue, int], rows_max: int) -> dict[Queue, int]:
    """Divide a budget in proportion to the backlog of each queue, at least one row for each queue with a backlog.

    The sum exceeds `rows_max` only if more queues than that have a backlog.
    """
    waiting = sum(backlog.values())
    if waiting <= rows_max:
        return dict(backlog)
    return {queue: max(min(1, rows), rows * rows_max // waiting) for queue, rows in backlog.items()}


def cut(ranges: Iterable[Range], rows_max: int | None, count_min: int) -> list[Range]:
    """Split ranges longer than `rows_max`, and further until there are `count_min` ranges, if there are enough rows."""
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
    """Pack ranges into tasks of up to `pack_rows` rows, at least `count_min` (if there are as many ranges) and at most
    `count_max` tasks. The longest range goes first, into the task with the fewest rows, so that tasks end together."""
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
