"""A topic shrunk from 16 to 8 queues during sends and consumption in both languages.

Goal: no message is lost with the steps of Apache's operators and Apache's tool: first the upper
queues become read-only, then, when every producer knows and their messages are consumed, they are removed. Method:
two producers and two members of one group throughout; every stored message was consumed.
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial

import pytest

import rmqpy
import waiting

from . import wire
from .clients import InteropClient, Listener, ProcessClient
from .messages import numbered
from .servers import Cluster

WAIT_S = 120.0
until = partial(waiting.until, seconds=WAIT_S)
pytestmark = pytest.mark.timeout(3 * WAIT_S, func_only=True)

TOPIC = GROUP = "shrinks"
BEFORE, AFTER = 16, 8
#: Clients look routes up this often: Java's client as well.
REFRESH_S = 2.0


class Queues:
    """Offsets that the broker holds, and those that are consumed."""

    def __init__(self, cluster: Cluster) -> None:
        self._broker = cluster.broker

    def ends(self, *which: int) -> list[int]:
        return [wire.max_offset(self._broker, TOPIC, queue) for queue in which or range(BEFORE)]

    def upper(self) -> list[int]:
        return self.ends(*range(AFTER, BEFORE))

    def is_drained(self) -> bool:
        """Whether the group has committed everything in the upper queues."""
        committed = [wire.committed(self._broker, GROUP, TOPIC, queue) for queue in range(AFTER, BEFORE)]
        return [max(0, offset) for offset in committed] == self.upper()


@contextmanager
def at_work(*sends: Callable[[], object]) -> Iterator[list[BaseException]]:
    """Each of these again and again, in a thread of its own, until the block is left."""
    has_ended, failures = threading.Event(), list[BaseException]()

    def repeat(send: Callable[[], object]) -> None:
        try:
            while not has_ended.wait(0.01):
                send()
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=repeat, args=(send,)) for send in sends]
    for thread in threads:
        thread.start()
    try:
        yield failures
    finally:
        has_ended.set()
        for thread in threads:
            thread.join()


def test_a_topic_is_shrunk_as_operators_do_it_and_no_message_is_lost(
    cluster_of: Callable[[str], Cluster], client_of: Callable[[str], InteropClient]
) -> None:
    # One client sends and consumes, the other is the operator's tool: a process of theirs does one thing at a time.
    cluster, java, tool = cluster_of("rmqpy"), client_of("java-5.5.0"), client_of("java-4.9.8")
    assert isinstance(java, ProcessClient)
    assert isinstance(tool, ProcessClient)
    wire.create_topic(cluster.namesrv, cluster.broker, TOPIC, BEFORE)
    queues = Queues(cluster)

    def operate(*, read: int, write: int) -> None:
        command = f"updateTopic -n {cluster.namesrv} -b {cluster.broker} -t {TOPIC} -r {read} -w {write}"
        assert "success" in tool.mqadmin(*command.split())

    config = rmqpy.ClientConfig(namesrv=cluster.namesrv, route_refresh=REFRESH_S)
    ours: set[tuple[int, int]] = set()
    consumer = rmqpy.PushConsumer(GROUP, config, start_from="earliest")
    consumer.on(TOPIC, "*", lambda message: ours.add((message.queue.queue_id, message.queue_offset)))

    def share() -> set[int]:
        return {queue.queue_id for queue in consumer.queues() if queue.topic == TOPIC}

    with ExitStack() as stack:
        producer = stack.enter_context(rmqpy.Producer(config))
        stack.enter_context(consumer)
        theirs: Listener = java.listen(cluster.namesrv, TOPIC, GROUP)
        stack.callback(theirs.stop)
        until(lambda: len(share()) == BEFORE // 2)
        with at_work(
            lambda: producer.send(TOPIC, "ours"),
            lambda: java.send(cluster.namesrv, TOPIC, numbered(20), mode="async"),
        ) as failures:
            until(lambda: all(queues.ends()))
            operate(read=BEFORE, write=AFTER)
            # A producer that has not heard of it may still write there: two refresh times without growth.
            _until_quiet(queues.upper, 2 * REFRESH_S)
            until(queues.is_drained)
            operate(read=AFTER, write=AFTER)
            until(lambda: len(share()) == AFTER // 2)
            lower = queues.ends(*range(AFTER))
            until(
                lambda: all(
                    now > then + 20 for now, then in zip(queues.ends(*range(AFTER)), lower, strict=True)
                )
            )
            assert not failures
        ends = queues.ends()
        stored = {(queue, offset) for queue, end in enumerate(ends) for offset in range(end)}
        until(lambda: stored <= ours | {message.position for message in theirs.consumed()})
        assert any(ends[AFTER:])
        assert queues.is_drained()


def _until_quiet(sample: Callable[[], list[int]], seconds: float) -> None:
    """Until it has stayed the same for so long."""
    deadline = time.monotonic() + WAIT_S
    known, since = sample(), time.monotonic()
    while time.monotonic() < since + seconds:
        assert time.monotonic() < deadline, "it never came to rest"
        # Producers refresh their routes by Apache's clock; no event shows it.
        time.sleep(0.1)
        if (now := sample()) != known:
            known, since = now, time.monotonic()
