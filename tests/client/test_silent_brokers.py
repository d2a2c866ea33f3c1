"""Brokers that accept requests without answering: members of a group get all messages of the other brokers, and the
silent one's when it answers again.
"""

import asyncio
import time

import pytest

import rmqpy
from rmqpy import errors
from rmqpy.protocol.codes import RequestCode
from waiting import until
from wire import Frame

from .fakes import SILENCE, Answer, Broker, Brokers, Handler, NameServer, record

#: Of each request; several of them follow each other before a group has its first share.
TIMEOUT_S = 2.0
COUNT = 50


class Silenced:
    """Broker B, which answers nothing until it is enabled."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self._handlers = dict(broker.handlers)
        for code in self._handlers:
            broker.handlers[code] = lambda ask: SILENCE

    def end(self) -> None:
        self.broker.handlers.update(self._handlers)


@pytest.fixture
def silenced(brokers: Brokers) -> Silenced:
    for broker in brokers:
        broker.serve_groups()
        for queue_id in range(2):
            broker.log[queue_id] = [
                record(broker.name.encode(), queue_id=queue_id, offset=offset) for offset in range(COUNT)
            ]
    return Silenced(brokers[1])


@pytest.fixture
def config(name_server: NameServer) -> rmqpy.ClientConfig:
    return rmqpy.ClientConfig(namesrv=name_server.address, request_timeout=TIMEOUT_S)


def drain(consumer: rmqpy.PullConsumer, count: int) -> set[str]:
    """Return the origins of this number of messages."""
    found: list[str] = []
    until(lambda: (found.extend(m.text() for m in consumer.poll(0.1)), len(found) >= count)[1])
    assert len(found) == count
    return set(found)


def test_silent_broker_delays_only_its_own_queues(config: rmqpy.ClientConfig, silenced: Silenced) -> None:
    changes: list[rmqpy.Rebalance] = []
    with rmqpy.PullConsumer("billing", config, start_from="earliest", auto_commit=False) as consumer:
        consumer.subscribe("orders", on_rebalance=changes.append)
        assert drain(consumer, 2 * COUNT) == {"broker-a"}
        assert {queue.broker for queue in consumer.assignment()} == {"broker-a"}
        # It is queried again in the background of the poll.
        asked = silenced.broker.count(RequestCode.QUERY_CONSUMER_OFFSET)
        waits_s: list[float] = []
        again_at = time.monotonic() + 5 * TIMEOUT_S
        while time.monotonic() < again_at:
            began_at = time.monotonic()
            consumer.poll(0.01)
            waits_s.append(time.monotonic() - began_at)
        assert silenced.broker.count(RequestCode.QUERY_CONSUMER_OFFSET) > asked
        # One may be late on a busy machine; repeated waits for the broker would be.
        assert sorted(waits_s)[-2] < TIMEOUT_S
        silenced.end()
        assert drain(consumer, 2 * COUNT) == {"broker-b"}
    assert {queue.broker for queue in changes[0].assigned} == {"broker-a"}
    assert {queue.broker for change in changes[1:] for queue in change.assigned} == {"broker-b"}


def test_silent_broker_costs_commit_and_close_one_timeout(
    config: rmqpy.ClientConfig, silenced: Silenced, brokers: Brokers
) -> None:
    silenced.end()
    with rmqpy.PullConsumer("billing", config, start_from="earliest", auto_commit=False) as consumer:
        consumer.subscribe("orders")
        drain(consumer, 4 * COUNT)
        silent = Silenced(brokers[1])
        began_at = time.monotonic()
        with pytest.raises(errors.RequestTimeout):
            consumer.commit()
        assert time.monotonic() - began_at < 1.8 * TIMEOUT_S
        assert brokers[0].committed == {0: COUNT, 1: COUNT}
        silent.end()
        consumer.commit()
        assert brokers[1].committed == {0: COUNT, 1: COUNT}


async def test_silent_broker_delays_only_its_own_queues_in_a_loop(
    config: rmqpy.ClientConfig, silenced: Silenced
) -> None:
    async with rmqpy.AsyncPullConsumer(
        "billing", config, start_from="earliest", auto_commit=False
    ) as consumer:
        await consumer.subscribe("orders")
        found: list[str] = []
        async with asyncio.timeout(60):
            while len(found) < 2 * COUNT:
                found += [message.text() for message in await consumer.poll(0.1)]
            assert set(found) == {"broker-a"}
            silenced.end()
            while len(found) < 4 * COUNT:
                found += [message.text() for message in await consumer.poll(0.1)]
    assert found.count("broker-b") == 2 * COUNT


def test_assignment_with_a_silent_broker_raises_after_one_timeout(
    config: rmqpy.ClientConfig, silenced: Silenced
) -> None:
    with rmqpy.PullConsumer("billing", config, start_from="earliest", auto_commit=False) as consumer:
        began_at = time.monotonic()
        with pytest.raises(errors.RequestTimeout):
            consumer.assign(consumer.queues("orders"))
        assert time.monotonic() - began_at < 1.8 * TIMEOUT_S
        assert consumer.assignment() == frozenset()


def test_permanent_failure_is_raised_despite_a_silent_broker(
    config: rmqpy.ClientConfig, brokers: Brokers
) -> None:
    def refuse(ask: Frame) -> Answer:
        return Frame(16, remark="not for you")

    for broker in brokers:
        broker.serve_groups()
    refusing: Handler = refuse
    brokers[1].handlers[RequestCode.QUERY_CONSUMER_OFFSET] = refusing
    with rmqpy.PullConsumer("billing", config, auto_commit=False) as consumer:
        consumer.subscribe("orders")
        with pytest.raises(errors.AuthError, match="not for you"):
            consumer.poll(30)


@pytest.mark.parametrize("is_push", [False, True], ids=["pull", "push"])
def test_formerly_silent_broker_is_notified_before_queues_are_released(
    config: rmqpy.ClientConfig, silenced: Silenced, is_push: bool
) -> None:
    broker = silenced.broker
    silenced.end()
    is_known = False
    heartbeat = broker.handlers[RequestCode.HEART_BEAT]

    def hear(ask: Frame) -> Answer:
        nonlocal is_known
        # The first one came while it was silent.
        is_known = broker.count(RequestCode.HEART_BEAT) > 1
        return heartbeat(ask) if is_known else SILENCE

    broker.handlers[RequestCode.HEART_BEAT] = hear
    for code in (RequestCode.PULL_MESSAGE, RequestCode.UPDATE_CONSUMER_OFFSET):

        def serve(ask: Frame, handler: Handler = broker.handlers[code]) -> Answer:
            return handler(ask) if is_known else Frame(26, remark="no such group")

        broker.handlers[code] = serve
    found: list[str] = []
    if is_push:
        push = rmqpy.PushConsumer("billing", config, start_from="earliest")
        push.on("orders", "*", lambda message: found.append(message.text()))
        with push:
            until(lambda: found.count("broker-b") == 2 * COUNT)
    else:
        with rmqpy.PullConsumer("billing", config, start_from="earliest", auto_commit=False) as pull:
            pull.subscribe("orders")
            assert drain(pull, 4 * COUNT) == {"broker-a", "broker-b"}
            is_known = False
            pull.commit()
            assert broker.committed == {0: COUNT, 1: COUNT}
