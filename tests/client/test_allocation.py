"""Allocation strategies: Java's results, and properties of every strategy."""

from pathlib import Path

import pytest

import allocations
from rmqpy._native import Namespace
from rmqpy.client.group.allocation import STRATEGIES, averagely, on_wire, strategy
from rmqpy.message import MessageQueue

VECTORS = Path(__file__).parents[1] / "vectors" / "allocations.txt"
QUEUES = [MessageQueue("orders", broker, number) for broker in ("a", "b") for number in range(7)]


def test_every_java_vector_is_reproduced() -> None:
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
def test_non_member_gets_no_queues(name: str) -> None:
    assert STRATEGIES[name]("me", QUEUES, ["you"]) == []


@pytest.mark.parametrize("name", STRATEGIES)
def test_members_with_and_without_a_namespace_compute_equal_shares(name: str) -> None:
    shop, members = Namespace("shop"), [f"10.0.0.{number}@DEFAULT" for number in range(3)]
    allocate = on_wire(STRATEGIES[name], shop)
    whole = [queue._replace(topic=shop.wrap(queue.topic)) for queue in QUEUES]
    for me in members:
        theirs = [queue._replace(topic="orders") for queue in STRATEGIES[name](me, whole, members)]
        assert allocate(me, QUEUES, members) == theirs
    assert on_wire(STRATEGIES[name], None) is STRATEGIES[name]


def test_a_strategy_is_a_name_or_a_function() -> None:
    assert strategy("average") is averagely
    assert strategy(averagely) is averagely
    with pytest.raises(ValueError, match="use average, circle, consistent-hash"):
        strategy("fair")
