"""Which queue ranges a batch reads, and how they become tasks."""

from collections.abc import Mapping
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_rocketmq.offsets import EARLIEST, LATEST, Bound, Queue, Range
from pyspark_rocketmq.plan import Held, cut, pack, resolve

A0, A1, B0 = Queue("t", "a", 0), Queue("t", "a", 1), Queue("t", "b", 0)

queues = st.builds(Queue, st.sampled_from(["t", "u"]), st.sampled_from(["a", "b"]), st.integers(0, 7))
many_ranges = st.dictionaries(
    queues, st.tuples(st.integers(0, 10**6), st.integers(1, 5_000)), max_size=20
).map(lambda table: [Range(queue, start, start + rows) for queue, (start, rows) in sorted(table.items())])


@given(many_ranges, st.none() | st.integers(1, 5_000), st.integers(1, 40))
def test_cutting_neither_loses_nor_repeats_a_row(
    ranges: list[Range], rows_max: int | None, count_min: int
) -> None:
    pieces = cut(ranges, rows_max, count_min)
    for whole in ranges:
        own = sorted(piece for piece in pieces if piece.queue == whole.queue)
        assert own[0].start == whole.start
        assert own[-1].end == whole.end
        assert all(left.end == right.start for left, right in pairwise(own))
    assert all(piece.rows > 0 for piece in pieces)
    if rows_max is not None:
        assert all(piece.rows <= rows_max for piece in pieces)
    assert len(pieces) >= min(count_min, sum(each.rows for each in ranges))


@given(many_ranges, st.integers(0, 20_000), st.integers(1, 30), st.none() | st.integers(1, 30))
def test_every_range_is_packed_into_exactly_one_task(
    ranges: list[Range], pack_rows: int, count_min: int, count_max: int | None
) -> None:
    tasks = pack(ranges, pack_rows, count_min, count_max)
    assert sorted(each for task in tasks for each in task) == sorted(ranges)
    assert all(tasks)
    assert count_max is None or len(tasks) <= count_max
    if pack_rows:
        assert len(tasks) >= min(count_min, len(ranges), count_max or len(ranges))


@given(many_ranges, st.integers(1, 20_000))
def test_tasks_differ_by_no_more_than_their_longest_range(ranges: list[Range], pack_rows: int) -> None:
    loads = [sum(each.rows for each in task) for task in pack(ranges, pack_rows, 1, None)]
    if loads:
        assert max(loads) - min(loads) <= max(each.rows for each in ranges)


@pytest.mark.parametrize(
    ("pack_rows", "count_min", "count_max", "expected"),
    [
        (0, 1, None, 3),  # one task per range
        (10_000, 1, None, 1),  # 300 rows are not worth more
        (100, 1, None, 3),
        (10_000, 2, None, 2),
        (0, 1, 2, 2),
        (10_000, 9, None, 3),  # there are no more than three ranges
    ],
)
def test_the_number_of_tasks(pack_rows: int, count_min: int, count_max: int | None, expected: int) -> None:
    ranges = [Range(queue, 0, 100) for queue in (A0, A1, B0)]
    assert len(pack(ranges, pack_rows, count_min, count_max)) == expected


HELD = {A0: Held(10, 100), A1: Held(0, 0), B0: Held(5, 6)}


@pytest.mark.parametrize(
    ("starting", "ending", "expected"),
    [
        (EARLIEST, LATEST, [Range(A0, 10, 100), Range(B0, 5, 6)]),
        ({A0: 50}, LATEST, [Range(A0, 50, 100), Range(B0, 5, 6)]),
        (EARLIEST, {A0: 50, B0: LATEST}, [Range(A0, 10, 50), Range(B0, 5, 6)]),
        ({A0: LATEST, B0: EARLIEST}, LATEST, [Range(B0, 5, 6)]),
        ({A0: 100, B0: 6}, LATEST, []),
    ],
)
def test_what_is_read_of_each_queue(starting: Bound, ending: Bound, expected: list[Range]) -> None:
    assert resolve(HELD, starting, ending) == (expected, [])


@pytest.mark.parametrize(
    ("starting", "ending", "expected", "told"),
    [
        ({A0: 0}, {A0: 50}, Range(A0, 10, 50), "asked for 0 to 50, the broker holds 10 to 100"),
        (EARLIEST, {A0: 120}, Range(A0, 10, 100), "asked for 10 to 120, the broker holds 10 to 100"),
    ],
)
def test_offsets_the_broker_no_longer_holds_are_told(
    starting: Bound, ending: Bound, expected: Range, told: str
) -> None:
    ranges, losses = resolve(HELD, starting, ending)
    assert ranges[0] == expected
    assert losses == [f"queue t/a/0: {told}"]


@pytest.mark.parametrize(
    ("starting", "ending", "complaint"),
    [
        ({A0: 60}, {A0: 50}, "start 60 lies behind end 50"),
        ({Queue("t", "c", 0): 1}, LATEST, "queue t/c/0 does not exist"),
        (EARLIEST, {Queue("u", "a", 0): 1}, "queue u/a/0 does not exist"),
    ],
)
def test_bounds_that_make_no_sense_are_refused(starting: Bound, ending: Bound, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        resolve(HELD, starting, ending)


def test_a_queue_that_left_no_trace_is_not_a_loss() -> None:
    held: Mapping[Queue, Held] = {A1: Held(0, 0)}
    assert resolve(held, EARLIEST, LATEST) == ([], [])
