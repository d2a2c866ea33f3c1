"""POP at both brokers: the same requests, and answers compared field by field; Java's clients that pop.

Each difference has its reason in `REASONS`; `-s` prints the table.
"""

import asyncio
import base64
import itertools
import os
import time
from collections.abc import Callable, Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest

from waiting import until

from . import wire
from .clients import ProcessClient, start_java
from .messages import MessageSpec, Received
from .pop_checks import CHECKS, observe
from .pop_requests import AGAIN_MS
from .servers import BROKER_NAME, Cluster

pytestmark = pytest.mark.timeout(400, func_only=True)

_ZEROS = "a refusal of Apache's has header fields of 0"
_HINT = "ours names the command that creates the topic, Apache's a web page"
_PORT = "ours names the port of the broker, too"
_UNSET = "Apache's says that no code was set, and answers 0"
_TEXT = "ours says why"
_REVIVED = "Apache's creates a deleted group again to return its message, and ours drops what was in flight"
#: Pattern of places where answers differ → the reason.
REASONS: dict[str, str] = {
    "refusals/no time/*": "ours refuses times that cannot be stored; Apache's tries for ever to store them",
    "refusals/*/invisibleTime": _ZEROS,
    "refusals/*/restNum": _ZEROS,
    "clocks/behind/invisibleTime": _ZEROS,
    "clocks/behind/restNum": _ZEROS,
    "deletions/without the topic/0/restNum": _ZEROS,
    "deletions/without the topic/0/invisibleTime": _ZEROS,
    "*/change: */invisibleTime": _ZEROS,
    "*/an unknown topic/remark": _HINT,
    "*: an unknown topic/remark": _HINT,
    "deletions/without the topic/*/remark": _HINT,
    "refusals/33 messages/remark": _PORT,
    "refusals/a late request/remark": _PORT,
    "clocks/behind/remark": _PORT,
    "*: a queue too many/remark": "Apache's names the address of the consumer, too",
    "*/change: an offset too far/remark": _TEXT,
    "*/change: the end of the queue/remark": _TEXT,
    "*/an empty batch/remark": _TEXT,
    "*/change: */remark": _UNSET,
    "changed_times/answers/*/remark": _UNSET,
    "in_order/change/remark": _UNSET,
    "peeks/a queue too many/*": _ZEROS,
    "peeks/an unknown topic/restNum": _ZEROS,
    "peeks/an unknown topic/invisibleTime": _ZEROS,
    "polling_infos/*/remark": _UNSET,
    "polling_infos/*/pollingNum": _ZEROS,
    "notifications/*/remark": _UNSET,
    "notifications/a*/hasMsg": _ZEROS,
    "notifications/a*/pollingFull": _ZEROS,
    "deleted_groups/pop afterwards/*OffsetInfo": _REVIVED,
    "deleted_groups/messages": _REVIVED,
}


@pytest.fixture(scope="module")
def observed(cluster_of: Callable[[str], Cluster]) -> dict[str, tuple[Any, Any]]:
    """What each scenario observed at our broker, and at Apache's."""
    clusters = [cluster_of(name) for name in ("rmqpy", "apache")]

    async def both() -> list[Any]:
        return await asyncio.gather(*(observe(cluster, "compared") for cluster in clusters))

    ours, apaches = asyncio.run(both())
    return {name: (ours[name], apaches[name]) for name in CHECKS}


def differences(place: str, ours: Any, apaches: Any) -> Iterator[tuple[str, Any, Any]]:
    """The places where two observations differ, with both values."""
    if isinstance(ours, dict) and isinstance(apaches, dict):
        for name in {**ours, **apaches}:
            yield from differences(f"{place}/{name}", ours.get(name), apaches.get(name))
    elif isinstance(ours, list) and isinstance(apaches, list) and len(ours) == len(apaches):
        for index, pair in enumerate(zip(ours, apaches, strict=True)):
            yield from differences(f"{place}/{index}", *pair)
    elif ours != apaches:
        yield place, ours, apaches


def reason_of(place: str) -> str | None:
    return next((reason for pattern, reason in REASONS.items() if fnmatchcase(place, pattern)), None)


@pytest.mark.parametrize("name", CHECKS)
def test_pops_are_answered_as_by_apaches_broker(name: str, observed: dict[str, tuple[Any, Any]]) -> None:
    unexplained = []
    for place, ours, apaches in differences(name, *observed[name]):
        reason = reason_of(place)
        print(f"| {place} | {ours} | {apaches} | {reason or 'UNEXPLAINED'} |")
        if reason is None:
            unexplained.append(f"{place}: ours {ours!r}, Apache's {apaches!r}")
    assert not unexplained, "\n".join(unexplained)


# --- Java's clients ---

#: Apache's broker takes a minute to return a popped message on a busy machine.
_CONTROL = ["apache"] * (os.environ.get("RMQPY_INTEROP_CONTROL") == "1")
BROKERS = pytest.mark.parametrize("broker_of", ["rmqpy", *_CONTROL])
#: Java's push consumers ask for their queues every 20 s otherwise.
REBALANCE_MS = 1_000
#: A message that was popped into a queue given up meanwhile comes again after the 60 s of Java's consumers, and is
#: pulled from its retry topic.
CHANGE_S = 150.0


@pytest.fixture(scope="module")
def java(originals: Callable[[str], Path], folder: Path) -> Iterator[ProcessClient]:
    client = start_java(
        originals("java-5.5.0"),
        "5.5.0",
        folder,
        "java-pop",
        f"-Drocketmq.client.rebalance.waitInterval={REBALANCE_MS}",
    )
    yield client
    client.close()


class Stream:
    """Numbered messages to a topic, and those that two push consumers of one group have handled."""

    def __init__(self, java: ProcessClient, cluster: Cluster, topic: str, group: str) -> None:
        self._java, self._cluster, self.topic = java, cluster, topic
        self.sent: list[bytes] = []
        self._numbers = itertools.count()
        self._listeners = [java.listen(cluster.namesrv, topic, group, broker_assigns=True) for _ in range(2)]

    def send(self, count: int) -> list[bytes]:
        bodies = [b"%d" % next(self._numbers) for _ in range(count)]
        self._java.send(self._cluster.namesrv, self.topic, [MessageSpec(body) for body in bodies])
        self.sent += bodies
        return bodies

    def handled(self) -> list[Received]:
        return [message for listener in self._listeners for message in self._java.consumed(listener.name)]

    def wait_for(self, bodies: list[bytes]) -> list[Received]:
        """The handled messages with these bodies, when all were handled."""
        deadline = time.monotonic() + CHANGE_S
        while True:
            found = [message for message in self.handled() if message.body in bodies]
            if len({message.body for message in found}) == len(bodies):
                return found
            assert time.monotonic() < deadline, f"{len(found)} of {len(bodies)} messages were handled"
            # The client process shows what it consumed when asked.
            time.sleep(0.1)

    def wait_for_mode(self, *, is_popped: bool) -> None:
        """Send until the messages are received in this mode by both consumers."""
        deadline = time.monotonic() + CHANGE_S
        in_a_row = 0
        while in_a_row < 4:
            found = self.wait_for(self.send(4))
            in_a_row = (
                in_a_row + 1 if all(("POP_CK" in each.properties) == is_popped for each in found) else 0
            )
            assert time.monotonic() < deadline, "the consumers did not change their mode"
            # A consumer changes its mode at its next rebalance.
            time.sleep(0.5)

    def stop(self) -> None:
        for listener in self._listeners:
            self._java.stop(listener.name)


@BROKERS
def test_push_consumers_change_between_pull_and_pop_while_they_run(
    broker_of: str, java: ProcessClient, cluster_of: Callable[[str], Cluster]
) -> None:
    cluster = cluster_of(broker_of)
    topic, group = f"modes-{broker_of}", f"modes-{broker_of}-group"
    wire.create_topic(cluster.namesrv, cluster.broker, topic, 4)
    stream = Stream(java, cluster, topic, group)
    settled = stream.send(40)
    stream.wait_for(settled)
    assert not any("POP_CK" in message.properties for message in stream.handled())
    # A pop begins at the committed offset, at Apache's broker too: what one member pulled and has not committed when
    # another one pops is handled twice. Java's consumers commit after 10 s, and every 5 s.
    until(lambda: all(wire.committed(cluster.broker, group, topic, queue) == 10 for queue in range(4)))
    for mode in ("POP", "PULL"):
        java.mqadmin(
            *("setConsumeMode", "-n", cluster.namesrv, "-b", cluster.broker),
            *("-t", topic, "-g", group, "-m", mode, "-q", "0"),
        )
        stream.wait_for_mode(is_popped=mode == "POP")
        bodies = stream.send(40)
        found = stream.wait_for(bodies)
        assert all(("POP_CK" in message.properties) == (mode == "POP") for message in found)
        settled += bodies
    stream.stop()
    bodies = [message.body for message in stream.handled()]
    repeated = {body for body in bodies if bodies.count(body) > 1}
    print(
        f"{broker_of}: {len(stream.sent)} sent, {len(repeated)} handled more than once, "
        f"{len(repeated.intersection(settled))} of them sent between the changes"
    )
    # At least once: Java's members commit every 5 s, and what a queue's next member reads begins at the last commit.
    assert set(bodies) == set(stream.sent), "each was handled"


@BROKERS
def test_a_push_consumer_that_fails_gets_a_popped_message_again(
    broker_of: str, java: ProcessClient, cluster_of: Callable[[str], Cluster]
) -> None:
    cluster = cluster_of(broker_of)
    topic, group = f"failing-{broker_of}", f"failing-{broker_of}-group"
    wire.create_topic(cluster.namesrv, cluster.broker, topic, 1)
    # The group has to exist before its mode is set.
    java.mqadmin("updateSubGroup", "-n", cluster.namesrv, "-b", cluster.broker, "-g", group)
    java.mqadmin(
        *("setConsumeMode", "-n", cluster.namesrv, "-b", cluster.broker),
        *("-t", topic, "-g", group, "-m", "POP", "-q", "0"),
    )
    java.send(cluster.namesrv, topic, [MessageSpec(b"poison")])
    listener = java.listen_and_fail(cluster.namesrv, topic, group, retries=3, broker_assigns=True)
    # It changes the invisible time to 10 s after the first failure.
    first, again = java.wait_for(listener.name, 2, 100.0)
    java.stop(listener.name)
    assert (first.reconsume_times, again.reconsume_times) == (0, 1)
    assert first.id == again.id
    assert "POP_CK" in again.properties


@BROKERS
def test_javas_own_pop_calls_work(
    broker_of: str, java: ProcessClient, cluster_of: Callable[[str], Cluster]
) -> None:
    cluster = cluster_of(broker_of)
    topic, group = f"calls-{broker_of}", f"calls-{broker_of}-group"
    wire.create_topic(cluster.namesrv, cluster.broker, topic, 1)
    place = {"broker": cluster.broker, "broker_name": BROKER_NAME, "topic": topic, "group": group}
    bodies = [b"%d" % number for number in range(8)]
    java.send(cluster.namesrv, topic, [MessageSpec(body) for body in bodies])

    def pop(invisible_ms: int = 60_000, poll_ms: int = AGAIN_MS) -> list[str]:
        answer = java.pops("pop", **place, queue=-1, count=32, invisible_ms=invisible_ms, poll_ms=poll_ms)
        return [message["properties"]["POP_CK"] for message in answer["messages"]]

    handles: list[str] = []
    while len(handles) < len(bodies):
        handles += pop(2_000)
    assert java.pops("ack", **place, handle=handles[0])["status"] == "OK"
    assert java.pops("batch-ack", **place, handles=handles[1:6])["status"] == "OK"
    changed = java.pops("change", **place, handle=handles[6], invisible_ms=60_000)
    assert (changed["status"], changed["handle"].split(" ")[2]) == ("OK", "60000")
    again = pop()
    assert len(again) == 1, "of eight, six are acknowledged, and one is hidden"
    assert java.pops("ack", **place, handle=again[0])["status"] == "OK"
    assert java.pops("ack", **place, handle=changed["handle"])["status"] == "OK"
    assert pop(poll_ms=1_000) == []


@BROKERS
def test_javas_pops_in_order_and_notifications_work(
    broker_of: str, java: ProcessClient, cluster_of: Callable[[str], Cluster]
) -> None:
    cluster = cluster_of(broker_of)
    topic, group = f"ordered-{broker_of}", f"ordered-{broker_of}-group"
    wire.create_topic(cluster.namesrv, cluster.broker, topic, 1)
    place = {
        "broker": cluster.broker,
        "broker_name": BROKER_NAME,
        "topic": topic,
        "group": group,
        "queue": -1,
    }

    def has_messages(poll_ms: int = 0) -> bool:
        return bool(java.pops("notify", **place, ordered=True, poll_ms=poll_ms)["has_messages"])

    def pop(attempt: str, count: int, poll_ms: int = 0) -> list[dict[str, Any]]:
        answer = java.pops(
            "pop", **place, count=count, invisible_ms=60_000, poll_ms=poll_ms, ordered=True, attempt=attempt
        )
        found: list[dict[str, Any]] = answer["messages"]
        return found

    def ack(message: dict[str, Any]) -> None:
        handle = message["properties"]["POP_CK"]
        assert java.pops("ack", **place, handle=handle)["status"] == "OK"

    assert not has_messages()
    java.send(cluster.namesrv, topic, [MessageSpec(b"%d" % number) for number in range(5)])
    assert has_messages(poll_ms=5_000)
    first = pop("one", 3, poll_ms=5_000)
    assert pop("two", 3) == [], "the queue is blocked"
    assert not has_messages()
    again = pop("one", 3)
    assert [each["body"] for each in again] == [each["body"] for each in first]
    for message in reversed(again):
        ack(message)
    assert has_messages(poll_ms=5_000)
    rest = pop("three", 3, poll_ms=5_000)
    for message in rest:
        ack(message)
    taken = [base64.b64decode(each["body"]) for each in again + rest]
    assert taken == [b"%d" % number for number in range(5)]
    assert pop("four", 3, poll_ms=1_000) == []


@BROKERS
def test_javas_messages_with_priorities_are_popped_by_urgency(
    broker_of: str, java: ProcessClient, cluster_of: Callable[[str], Cluster]
) -> None:
    cluster = cluster_of(broker_of)
    topic, group = f"urgent-{broker_of}", f"urgent-{broker_of}-group"
    wire.create_topic(cluster.namesrv, cluster.broker, topic, 8, "+message.type=PRIORITY")
    place = {"broker": cluster.broker, "broker_name": BROKER_NAME, "topic": topic, "group": group}
    priorities = {b"0": 0, b"5": 5, b"99": 7}
    specs = [
        MessageSpec(body, properties={"_SYS_MSG_PRIORITY_": body.decode()}) for body in sorted(priorities)
    ]
    sent = java.send(cluster.namesrv, topic, specs)
    assert [outcome.queue_id for outcome in sent] == [priorities[spec.body] for spec in specs]
    for queue in priorities.values():
        wire.await_readable(cluster.broker, topic, queue, 0)
    taken = []
    for _ in specs:
        answer = java.pops("pop", **place, queue=-1, count=1, invisible_ms=60_000, poll_ms=5_000)
        [message] = answer["messages"]
        taken.append(base64.b64decode(message["body"]))
        assert java.pops("ack", **place, handle=message["properties"]["POP_CK"])["status"] == "OK"
    assert taken == [b"99", b"5", b"0"]


@BROKERS
def test_reset_while_java_has_popped_messages_delivers_them_again(
    broker_of: str, java: ProcessClient, cluster_of: Callable[[str], Cluster]
) -> None:
    cluster = cluster_of(broker_of)
    topic, group = f"reset-{broker_of}", f"reset-{broker_of}-group"
    wire.create_topic(cluster.namesrv, cluster.broker, topic, 1)
    place = {"broker": cluster.broker, "broker_name": BROKER_NAME, "topic": topic, "group": group}
    java.send(cluster.namesrv, topic, [MessageSpec(b"%d" % number) for number in range(4)])

    def pop(poll_ms: int = 5_000) -> list[dict[str, Any]]:
        answer = java.pops("pop", **place, queue=-1, count=32, invisible_ms=600_000, poll_ms=poll_ms)
        found: list[dict[str, Any]] = answer["messages"]
        return found

    found: list[dict[str, Any]] = []
    while len(found) < 4:
        found += pop()
    assert pop(poll_ms=500) == [], "all are in flight"
    # The tool resets to no offset 0.
    java.mqadmin(
        *("resetOffsetByTime", "-n", cluster.namesrv, "-t", topic, "-g", group, "-s", "now"),
        *("-b", cluster.broker, "-q", "0", "-o", "1"),
    )
    again = pop()
    assert [each["body"] for each in again] == [each["body"] for each in found[1:]]
    # A handle of before the reset still acknowledges its own delivery.
    for message in found + again:
        assert java.pops("ack", **place, handle=message["properties"]["POP_CK"])["status"] == "OK"
    assert pop(poll_ms=500) == []
