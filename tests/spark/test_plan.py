"""Queue ranges that a batch reads, and their tasks."""

from collections.abc import Mapping
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_rocketmq.offsets import EARLIEST, LATEST, Bound, Queue, Range
from pyspark_rocketmq.plan import Held, cut, pack, ranges_between, settle, share

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
    ("bound", "default", "expected"),
    [
        (EARLIEST, LATEST, {A0: 10, A1: 0, B0: 5}),
        (LATEST, EARLIEST, {A0: 100, A1: 0, B0: 6}),
        ({A0: 50}, EARLIEST, {A0: 50, A1: 0, B0: 5}),
        ({A0: 50}, LATEST, {A0: 50, A1: 0, B0: 6}),
        ({A0: LATEST, B0: EARLIEST}, LATEST, {A0: 100, A1: 0, B0: 5}),
    ],
)
def test_a_bound_becomes_an_offset_for_each_queue(
    bound: Bound, default: int, expected: Mapping[Queue, int]
) -> None:
    assert settle(bound, HELD, default) == expected


@pytest.mark.parametrize("stranger", [Queue("t", "c", 0), Queue("u", "a", 0)])
def test_bound_with_an_unknown_queue_is_refused(stranger: Queue) -> None:
    with pytest.raises(ValueError, match=f"queue {stranger} does not exist"):
        settle({stranger: 1}, HELD, EARLIEST)


@pytest.mark.parametrize(
    ("start", "end", "expected", "losses"),
    [
        ({A0: 10, B0: 5}, {A0: 100, B0: 6}, [Range(A0, 10, 100), Range(B0, 5, 6)], []),
        ({A0: 50}, {A0: 50}, [], []),
        # Retention has overtaken, in part and altogether.
        ({A0: 0}, {A0: 50}, [Range(A0, 10, 50)], ["requested 0 to 50, but the broker holds 10 to 100"]),
        ({A0: 0}, {A0: 5}, [], ["requested 0 to 5, but the broker holds 10 to 100"]),
        # The topic was recreated.
        ({A0: 10}, {A0: 120}, [Range(A0, 10, 100)], ["requested 10 to 120, but the broker holds 10 to 100"]),
        # A queue has appeared, and has already lost something.
        ({}, {B0: 6}, [Range(B0, 5, 6)], ["requested 0 to 6, but the broker holds 5 to 6"]),
        ({}, {A1: 0}, [], []),
    ],
)
def test_expired_offsets_are_reported(
    start: Mapping[Queue, int], end: Mapping[Queue, int], expected: list[Range], losses: list[str]
) -> None:
    ranges, told = ranges_between(start, end, HELD)
    assert ranges == expected
    assert [each.split(": ")[1] for each in told] == losses


def test_queue_of_an_unresponsive_broker_is_left_to_its_task() -> None:
    assert ranges_between({A0: 3}, {A0: 9}, {}) == ([Range(A0, 3, 9)], [])


@given(st.dictionaries(queues, st.integers(0, 10**6)), st.integers(1, 10**5))
def test_budget_is_respected_or_gives_one_row_to_each_queue(backlog: dict[Queue, int], rows_max: int) -> None:
    taken = share(backlog, rows_max)
    busy = sum(1 for rows in backlog.values() if rows)
    assert taken.keys() == backlog.keys()
    assert sum(taken.values()) <= rows_max + busy
    assert all(min(1, backlog[queue]) <= rows <= backlog[queue] for queue, rows in taken.items())


def test_budget_is_shared_in_proportion_to_pending_rows() -> None:
    assert share({A0: 900, A1: 100, B0: 0}, 100) == {A0: 90, A1: 10, B0: 0}
    assert share({A0: 9000, A1: 1, B0: 0}, 100) == {A0: 99, A1: 1, B0: 0}
    assert share({A0: 30, A1: 10, B0: 0}, 100) == {A0: 30, A1: 10, B0: 0}
