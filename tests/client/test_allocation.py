"""Allocation strategies: Java's results, and what every strategy must keep."""

from pathlib import Path

import pytest

import allocations
from rmqpy.client.allocation import STRATEGIES, averagely, strategy
from rmqpy.message import MessageQueue

VECTORS = Path(__file__).parents[1] / "vectors" / "allocations.txt"
QUEUES = [MessageQueue("orders", broker, number) for broker in ("a", "b") for number in range(7)]


def test_every_committed_vector_of_the_java_classes_is_met() -> None:
    lines = VECTORS.read_text().splitlines()
    assert len(lines) >= 400
    assert not [wrong for line in lines if (wrong := allocations.mismatch(line))]


@pytest.mark.parametrize("name", STRATEGIES)
@pytest.mark.parametrize("count", [1, 2, 3, 5, 14, 20])
def test_each_queue_has_exactly_one_owner(name: str, count: int) -> None:
    members = sorted(f"10.0.0.{number}@DEFAULT" for number in range(count))
    shares = [queue for me in members for queue in STRATEGIES[name](me, QUEUES, members)]
    assert sorted(shares) == QUEUES


@pytest.mark.parametrize("name", STRATEGIES)
def test_a_stranger_to_the_group_gets_nothing(name: str) -> None:
    assert STRATEGIES[name]("me", QUEUES, ["you"]) == []


def test_a_strategy_is_a_name_or_a_function() -> None:
    assert strategy("average") is averagely
    assert strategy(averagely) is averagely
    with pytest.raises(ValueError, match="use average, circle, consistent-hash"):
        strategy("fair")
