"""Scenarios of the official Python client of 5.x, run in a process of their own: importing it turns other loggers off.

`python grpc_scenarios.py SCENARIO ADDRESS [ARGUMENT…]` prints the observations as JSON.
"""

import json
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import rocketmq

CREDENTIALS = rocketmq.Credentials()
#: The time of a message that was received, in seconds: the shortest that servers take.
HIDDEN_S = 10


def configuration(address: str, user: str = "", secret: str = "") -> Any:
    """The user of the environment, unless one is named."""
    user, secret = user or os.environ.get("GRPC_USER", ""), secret or os.environ.get("GRPC_SECRET", "")
    return rocketmq.ClientConfiguration(address, rocketmq.Credentials(user, secret))


def message(topic: str, body: str, **fields: Any) -> Any:
    made = rocketmq.Message()
    made.topic, made.body = topic, body.encode()
    for name, value in fields.items():
        setattr(made, name, value)
    return made


def producer(address: str, *topics: str, **options: Any) -> Any:
    made = rocketmq.Producer(configuration(address), topics, **options)
    made.startup()
    return made


def consumer(address: str, group: str, topic: str, expression: Any = None, await_s: int = 5) -> Any:
    filter_of = expression or rocketmq.FilterExpression()
    made = rocketmq.SimpleConsumer(configuration(address), group, {topic: filter_of}, await_duration=await_s)
    made.startup()
    return made


def received(member: Any, count: int, *, seconds: float = 60, acks: bool = True) -> list[Any]:
    """Messages in the order of arrival, at least `count` unless the time is over.

    The client asks at a random queue each time, so that it may miss the message's broker several times in a row.
    """
    found: list[Any] = []
    end = time.monotonic() + seconds
    while len(found) < count and time.monotonic() < end:
        for one in member.receive(32, HIDDEN_S) or ():
            found.append(one)
            if acks:
                member.ack(one)
    return found


def shown(one: Any) -> dict[str, Any]:
    return {
        "id": one.message_id,
        "topic": one.topic,
        "body": one.body.decode(),
        "tag": one.tag,
        "keys": list(one.keys or ()),
        "properties": dict(one.properties or {}),
        "attempt": one.delivery_attempt,
        "corrupted": one.corrupted,
        "group": one.message_group,
    }


def round_trip(address: str, topic: str) -> Any:
    """One message, all its parts; then nothing."""
    sender, member = producer(address, topic), consumer(address, "round-trip", topic)
    try:
        sent = message(topic, "hello", tag="greeting")
        sent.keys = "key-1"
        sent.add_property("color", "blue")
        receipt = sender.send(sent)
        found = received(member, 1)
        begin = time.monotonic()
        rest = member.receive(32, HIDDEN_S) or []
        waited = time.monotonic() - begin
        return {
            "sent": receipt.message_id,
            "transaction": receipt.transaction_id,
            "offset": receipt.offset,
            "found": [shown(one) for one in found],
            "rest": len(rest),
            "waited": waited,
        }
    finally:
        member.shutdown()
        sender.shutdown()


def many(address: str, topic: str, count: str) -> Any:
    """Messages to every broker, each received once; then nothing, after the time of a message that was received."""
    sender, member = producer(address, topic), consumer(address, "many", topic)
    try:
        for number in range(int(count)):
            sender.send(message(topic, str(number)))
        found = received(member, int(count), seconds=60)
        # What was not acknowledged would be visible again.
        time.sleep(HIDDEN_S)
        rest = member.receive(32, HIDDEN_S) or []
        return {"found": [one.body.decode() for one in found], "rest": len(rest)}
    finally:
        member.shutdown()
        sender.shutdown()


def in_order(address: str, topic: str, count: str) -> Any:
    """Messages of three message groups, for a group that consumes in order."""
    sender, member = producer(address, topic), consumer(address, "in-order", topic)
    try:
        for number in range(int(count)):
            sender.send(message(topic, str(number), message_group=f"order-{number % 3}"))
        found = received(member, int(count), seconds=60)
        return [[one.message_group, one.body.decode()] for one in found]
    finally:
        member.shutdown()
        sender.shutdown()


def without_broker(address: str, topic: str) -> Any:
    """Sends before and after the other side says that a broker is gone."""
    sender = producer(address, topic)
    try:
        for number in range(4):
            sender.send(message(topic, str(number)))
        print(json.dumps({"sent": 4}), flush=True)
        sys.stdin.readline()
        for number in range(4, 20):
            sender.send(message(topic, str(number)))
        return {"sent": 20}
    finally:
        sender.shutdown()


def from_remoting(address: str, topic: str, count: str) -> Any:
    """Messages that another client has sent."""
    member = consumer(address, "foreign", topic)
    try:
        return [shown(one) for one in received(member, int(count))]
    finally:
        member.shutdown()


def push(address: str, topic: str, count: str) -> Any:
    """Messages to a listener that fails on the first delivery of one of them."""
    found: list[dict[str, Any]] = []
    is_done = threading.Event()

    class Listener(rocketmq.MessageListener):  # type: ignore[misc]
        def consume(self, one: Any) -> Any:
            found.append(shown(one))
            bodies = [each["body"] for each in found]
            if one.body == b"0" and one.delivery_attempt == 1:
                return rocketmq.ConsumeResult.FAILURE
            if len(set(bodies)) == int(count) and bodies.count("0") == 2:
                is_done.set()
            return rocketmq.ConsumeResult.SUCCESS

    sender = producer(address, topic)
    member = rocketmq.PushConsumer(
        configuration(address), "pushed", Listener(), {topic: rocketmq.FilterExpression()}
    )
    member.startup()
    try:
        for number in range(int(count)):
            sender.send(message(topic, str(number)))
        is_done.wait(30)
        return found
    finally:
        member.shutdown()
        sender.shutdown()


def again(address: str, topic: str) -> Any:
    """A message whose time the client sets, twice, and acknowledges with the newest handle."""
    sender, member = producer(address, topic), consumer(address, "again", topic)
    try:
        sender.send(message(topic, "once more"))
        (first,) = received(member, 1, acks=False)
        member.change_invisible_duration(first, 1)
        (second,) = received(member, 1, acks=False)
        handle = second.receipt_handle
        member.change_invisible_duration(second, 30)
        is_new = second.receipt_handle != handle
        member.ack(second)
        return {"attempts": [first.delivery_attempt, second.delivery_attempt], "is_new": is_new}
    finally:
        member.shutdown()
        sender.shutdown()


def filters(address: str, topic: str, kind: str, expression: str) -> Any:
    from rocketmq.grpc_protocol import FilterType

    wanted = rocketmq.FilterExpression(expression, FilterType.Value(kind))
    sender, member = producer(address, topic), consumer(address, f"filter-{kind}", topic, wanted)
    try:
        for number in range(4):
            sent = message(topic, str(number), tag="even" if number % 2 == 0 else "odd")
            sent.add_property("number", str(number))
            sender.send(sent)
        return sorted(one.body.decode() for one in received(member, 2))
    finally:
        member.shutdown()
        sender.shutdown()


def typed(address: str, topic: str, kind: str) -> Any:
    """A message of a type to a topic, or the reason why not."""
    fields = {
        "FIFO": {"message_group": "order-1"},
        "DELAY": {"delivery_timestamp": int(time.time()) + 2},
        "PRIORITY": {"priority": 1},
    }.get(kind, {})
    sender, member = producer(address, topic), consumer(address, f"typed-{kind}", topic)
    try:
        begin = time.time()
        receipt = sender.send(message(topic, kind, **fields))
        found = received(member, 1)
        return {
            "found": [shown(one) for one in found],
            "after": time.time() - begin,
            "recall": bool(receipt.recall_handle),
        }
    except Exception as error:
        return {"refused": str(error)}
    finally:
        member.shutdown()
        sender.shutdown()


def priorities(address: str, topic: str) -> Any:
    """Messages with priorities, received one by one."""
    sender, member = producer(address, topic), consumer(address, "by-priority", topic)
    try:
        for priority in (0, 5, 99):
            sender.send(message(topic, str(priority), priority=priority))
        found: list[Any] = []
        end = time.monotonic() + 60
        while len(found) < 3 and time.monotonic() < end:
            found += member.receive(1, HIDDEN_S) or ()
        for one in found:
            member.ack(one)
        return [shown(one) | {"priority": one.priority} for one in found]
    finally:
        member.shutdown()
        sender.shutdown()


def recall(address: str, topic: str) -> Any:
    sender = producer(address, topic)
    try:
        receipt = sender.send(message(topic, "never", delivery_timestamp=int(time.time()) + 60))
        recalled = sender.recall_message(topic, receipt.recall_handle)
        return {"sent": receipt.message_id, "recalled": recalled}
    finally:
        sender.shutdown()


class Committing(rocketmq.TransactionChecker):  # type: ignore[misc]
    """Commits what it is asked about, and notes it."""

    def __init__(self, asked: list[str]) -> None:
        self._asked = asked

    def check(self, one: Any) -> Any:
        self._asked.append(one.body.decode())
        return rocketmq.TransactionResolution.COMMIT


def transactions(address: str, topic: str) -> Any:
    """A commit, a rollback, and one that is left to the check."""
    asked: list[str] = []
    sender = producer(address, topic, checker=Committing(asked))
    member = consumer(address, "transactions", topic)
    try:
        for body in ("commit", "rollback", "check"):
            transaction = sender.begin_transaction()
            sender.send(message(topic, body), transaction)
            if body == "commit":
                transaction.commit()
            elif body == "rollback":
                transaction.rollback()
        found = received(member, 2, seconds=60)
        return {"found": [shown(one) for one in found], "asked": asked}
    finally:
        member.shutdown()
        sender.shutdown()


def ended_elsewhere(address: str, topic: str, elsewhere: str) -> Any:
    """Half messages sent through one server and ended through another."""
    from rocketmq.grpc_protocol import TransactionSource

    sender = producer(address, topic, checker=Committing([]))
    other = producer(elsewhere, topic, checker=Committing([]))
    member = consumer(elsewhere, f"ended-{topic}", topic)
    again = []
    try:
        for body in ("commit", "rollback"):
            half, transaction = message(topic, body), sender.begin_transaction()
            receipt = sender.send(half, transaction)
            resolution = getattr(rocketmq.TransactionResolution, body.upper())
            for one in (other, sender):
                reply = one.end_transaction(
                    one.client_configuration.rpc_endpoints,
                    half,
                    receipt.transaction_id,
                    resolution,
                    TransactionSource.SOURCE_CLIENT,
                )
                again.append(reply.status.code)
        # The other one must not follow.
        found = received(member, 1) + received(member, 1, seconds=8)
        return {"codes": again, "found": [one.body.decode() for one in found]}
    finally:
        member.shutdown()
        other.shutdown()
        sender.shutdown()


def checked_elsewhere(address: str, topic: str, elsewhere: str) -> Any:
    """A half message of a producer that leaves; another one at another server is asked about it."""
    asked: list[str] = []
    other = producer(elsewhere, topic, checker=Committing(asked))
    member = consumer(elsewhere, f"checked-{topic}", topic)
    try:
        sender = producer(address, topic, checker=Committing(asked))
        sender.send(message(topic, "left behind"), sender.begin_transaction())
        sender.shutdown()
        return {"found": [one.body.decode() for one in received(member, 1, seconds=60)], "asked": asked}
    finally:
        member.shutdown()
        other.shutdown()


def signed(address: str, topic: str, user: str, secret: str) -> Any:
    """The result of a send by a user."""
    sender = rocketmq.Producer(configuration(address, user, secret), (topic,))
    sender.startup()
    try:
        sender.send(message(topic, "signed"))
        return {"sent": True}
    except Exception as error:
        return {"refused": str(error)}
    finally:
        sender.shutdown()


def encrypted(address: str, topic: str) -> Any:
    sender = producer(address, topic, tls_enable=True)
    try:
        return {"sent": sender.send(message(topic, "secret")).message_id}
    finally:
        sender.shutdown()


SCENARIOS: dict[str, Callable[..., Any]] = {
    scenario.__name__: scenario
    for scenario in (
        round_trip,
        many,
        in_order,
        without_broker,
        from_remoting,
        push,
        again,
        filters,
        typed,
        priorities,
        recall,
        transactions,
        ended_elsewhere,
        checked_elsewhere,
        signed,
        encrypted,
    )
}

if __name__ == "__main__":
    print(json.dumps(SCENARIOS[sys.argv[1]](*sys.argv[2:])))
