"""Queue locks: a queue has one holder, as long as it renews."""

from rmqpy.clock import HandClock
from rmqpy.control.groups.queue_locks import QueueLocks
from rmqpy.protocol.requests.queues import MessageQueue


class InOrder(set[str]):
    """The groups that the data plane treats as ordered."""

    def __call__(self, group: str, is_in_order: bool) -> None:
        (self.add if is_in_order else self.discard)(group)


QUEUES = [MessageQueue(broker_name="b", queue_id=queue_id, topic="t") for queue_id in range(3)]


def test_queue_lock_goes_to_the_first_client() -> None:
    locks = QueueLocks(HandClock(), InOrder())
    assert locks.lock("g", "one", QUEUES[:2]) == QUEUES[:2]
    assert locks.lock("g", "two", QUEUES) == QUEUES[2:]
    assert locks.lock("g", "one", QUEUES) == QUEUES[:2]


def test_groups_do_not_disturb_each_other() -> None:
    locks = QueueLocks(HandClock(), InOrder())
    locks.lock("g", "one", QUEUES)
    assert locks.lock("h", "two", QUEUES) == QUEUES


def test_a_holder_that_does_not_renew_loses_the_queue_after_a_minute() -> None:
    clock = HandClock()
    locks = QueueLocks(clock, InOrder())
    locks.lock("g", "one", QUEUES)
    clock.advance(60)
    assert locks.lock("g", "two", QUEUES) == []
    clock.advance(0.1)
    assert locks.lock("g", "two", QUEUES) == QUEUES


def test_only_the_holder_can_give_a_queue_up() -> None:
    locks = QueueLocks(HandClock(), InOrder())
    locks.lock("g", "one", QUEUES)
    locks.unlock("g", "two", QUEUES)
    assert locks.lock("g", "two", QUEUES) == []
    locks.unlock("g", "one", QUEUES[:1])
    assert locks.lock("g", "two", QUEUES) == QUEUES[:1]


def test_unrenewed_locks_expire() -> None:
    clock = HandClock()
    locks = QueueLocks(clock, InOrder())
    locks.lock("g", "one", QUEUES)
    clock.advance(61)
    locks.expire()
    assert locks.lock("g", "two", QUEUES) == QUEUES


def test_group_counts_as_ordered_while_it_holds_a_lock() -> None:
    clock, in_order = HandClock(), InOrder()
    locks = QueueLocks(clock, in_order)
    locks.lock("g", "one", [])
    assert in_order == set()
    locks.lock("g", "one", QUEUES)
    locks.unlock("g", "one", QUEUES[1:])
    assert in_order == {"g"}
    locks.unlock("g", "one", QUEUES)
    assert in_order == set()
    locks.lock("g", "one", QUEUES)
    clock.advance(61)
    locks.expire()
    assert in_order == set()
