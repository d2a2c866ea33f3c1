"""rmqpy's push consumers in groups with Java's, and at Apache's broker.

Goal: members of both languages compute the same shares, keep the order of a queue while it changes hands, and each
get what is broadcast; failed messages come back and end as dead letters. Method: what every member was called with,
by queue and offset, against what was sent.
"""

import itertools
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import rmqpy
from rmqpy import errors

from . import wire
from .messages import Outgoing, numbered
from .peers import Listener, Peer, ProcessPeer
from .servers import Cluster

pytestmark = pytest.mark.timeout(150, func_only=True)

#: Messages that came again when queues changed hands: a few of a member's batches.
UNCOMMITTED_MAX = 64
WAIT_S = 60.0
QUEUES = 8
KEYS = 16

Position = tuple[int, int]
"""Queue id and queue offset."""


def until(condition: Callable[[], Any]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError("it did not come true")
        time.sleep(0.02)


class Member:
    """One of ours: what it was called with, in order."""

    def __init__(self, cluster: Cluster, group: str, topic: str, **options: Any) -> None:
        self.seen: list[Position] = []
        self.bodies: list[bytes] = []
        self._topic = topic
        self._lock = threading.Lock()
        self.consumer = rmqpy.PushConsumer(group, cluster.namesrv, start_from="earliest", workers=4, **options)
        self.consumer.on(topic, "*", self._take)

    def _take(self, message: rmqpy.ReceivedMessage) -> None:
        with self._lock:
            self.seen.append((message.queue.queue_id, message.queue_offset))
            self.bodies.append(message.body)

    @property
    def share(self) -> set[int]:
        return {queue.queue_id for queue in self.consumer.queues() if queue.topic == self._topic}


_numbers = itertools.count()


@pytest.fixture(params=["rmqpy", "apache"])
def cluster(request: pytest.FixtureRequest, cluster_of: Callable[[str], Cluster]) -> Cluster:
    return cluster_of(request.param)


@pytest.fixture
def topic(cluster: Cluster) -> str:
    name = f"push-{next(_numbers)}"
    wire.create_topic(cluster.namesrv, cluster.broker, name, QUEUES)
    return name


@pytest.fixture
def afterwards() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def java(peer_of: Callable[[str], Peer]) -> ProcessPeer:
    peer = peer_of("java-5.5.0")
    assert isinstance(peer, ProcessPeer)
    return peer


def positions(listener: Listener) -> list[Position]:
    return [message.position for message in listener.consumed()]


def keyed(begin: int, count: int) -> list[Outgoing]:
    """Messages that say which of their key they are."""
    return [
        replace(message, keys=(f"key{number % KEYS}",))
        for number, message in enumerate(numbered(begin + count))
        if number >= begin
    ]


def test_members_of_both_languages_share_the_queues_and_take_over(
    cluster: Cluster, topic: str, java: ProcessPeer, afterwards: ExitStack
) -> None:
    first = Member(cluster, topic, topic)
    with first.consumer:
        until(lambda: len(first.share) == QUEUES)
        theirs = java.listen(cluster.namesrv, topic, topic)
        afterwards.callback(theirs.stop)
        until(lambda: len(first.share) == QUEUES // 2)
        second = Member(cluster, topic, topic)
        with second.consumer:
            until(lambda: sorted((len(first.share), len(second.share))) in ([2, 3], [3, 3]))
            until(lambda: len(first.share | second.share) == len(first.share) + len(second.share))

            def is_shared() -> bool:
                """Whether what is sent now goes to one member each; Java's may hear of the change later than ours."""
                before = len(positions(theirs))
                sent = java.send(cluster.namesrv, topic, numbered(80), mode="async")
                everywhere = {(s.queue_id, s.queue_offset) for s in sent}
                until(lambda: everywhere <= {*first.seen, *second.seen, *positions(theirs)})
                ours = first.share | second.share
                return {queue for queue, _ in positions(theirs)[before:]} == set(range(QUEUES)) - ours

            until(is_shared)
        until(lambda: len(first.share) == QUEUES // 2)
        theirs.stop()
        afterwards.pop_all()
        until(lambda: len(first.share) == QUEUES)
        more = java.send(cluster.namesrv, topic, numbered(80), mode="async")
        until(lambda: {(s.queue_id, s.queue_offset) for s in more} <= set(first.seen))


def test_order_by_key_is_kept_while_queues_change_hands_between_languages(
    cluster: Cluster, topic: str, java: ProcessPeer, afterwards: ExitStack
) -> None:
    count = 600
    first = Member(cluster, topic, topic, ordered=True)

    def send(phase: int) -> None:
        java.send(cluster.namesrv, topic, keyed(phase * count, count), mode="keyed")

    with first.consumer:
        send(0)
        until(lambda: len(first.seen) >= count)
        theirs = java.listen(cluster.namesrv, topic, topic, ordered=True)
        afterwards.callback(theirs.stop)
        until(lambda: len(first.share) == QUEUES // 2)
        send(1)
        until(lambda: len({*first.seen, *positions(theirs)}) == 2 * count)
        second = Member(cluster, topic, topic, ordered=True)
        with second.consumer:
            until(lambda: second.share)
            send(2)
            until(lambda: len({*first.seen, *second.seen, *positions(theirs)}) == 3 * count)
        assert theirs.consumed()
        assert second.seen
        _each_in_order(first.seen, second.seen, positions(theirs))


def _each_in_order(*members: Sequence[Position]) -> None:
    """Every member got the messages of a queue in order, each once.

    Of two members both may have got the end of what one had not committed yet when it gave the queue away.
    """
    for seen in members:
        by_queue: dict[int, list[int]] = defaultdict(list)
        for queue, offset in seen:
            by_queue[queue].append(offset)
        for offsets in by_queue.values():
            assert offsets == sorted(set(offsets))
    everything = [position for seen in members for position in seen]
    assert len(everything) - len(set(everything)) <= UNCOMMITTED_MAX


def test_three_broadcast_members_get_every_message(
    cluster: Cluster, topic: str, java: ProcessPeer, afterwards: ExitStack, tmp_path: Path
) -> None:
    ours = [
        Member(cluster, topic, topic, broadcast=True, instance=name, offset_folder=tmp_path)
        for name in ("one", "two")
    ]
    for member in ours:
        afterwards.enter_context(member.consumer)
    theirs = java.listen(cluster.namesrv, topic, topic, broadcast=True)
    afterwards.callback(theirs.stop)
    sent = java.send(cluster.namesrv, topic, numbered(200), mode="async")
    everywhere = sorted((s.queue_id, s.queue_offset) for s in sent)
    until(lambda: all(sorted(seen) == everywhere for seen in (ours[0].seen, ours[1].seen, positions(theirs))))


def test_a_message_that_fails_comes_back_later_each_time_and_ends_as_a_dead_letter(
    cluster: Cluster, topic: str, java: ProcessPeer
) -> None:
    seen: list[tuple[str, bytes, int, float]] = []

    def handle(message: rmqpy.ReceivedMessage) -> rmqpy.Retry:
        seen.append((message.topic, message.body, message.delivery_attempt, time.monotonic()))
        return rmqpy.Retry(after=(1, 5)[min(len(seen), 2) - 1])

    consumer = rmqpy.PushConsumer(topic, cluster.namesrv, start_from="earliest", max_attempts=3)
    consumer.on(topic, "*", handle)
    with consumer:
        java.send(cluster.namesrv, topic, [Outgoing(b"bad")])
        until(lambda: len(seen) == 3)
        letters = _poll(cluster, f"%DLQ%{topic}", f"{topic}-undertaker")
    assert [entry[:3] for entry in seen] == [(topic, b"bad", attempt) for attempt in (1, 2, 3)]
    first, second, third = (entry[3] for entry in seen)
    assert second - first >= 0.9
    assert third - second >= 4.9
    assert [letter.body for letter in letters] == [b"bad"]


def _poll(cluster: Cluster, topic: str, group: str) -> list[rmqpy.ReceivedMessage]:
    with rmqpy.PullConsumer(group, cluster.namesrv, start_from="earliest") as reader:
        deadline = time.monotonic() + WAIT_S
        while True:
            try:
                reader.assign(reader.queues(topic))
                return reader.poll(WAIT_S)
            except errors.TopicNotFound:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.1)
