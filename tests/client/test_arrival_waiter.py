"""Waiting for queues to grow: `Catalog.wait`."""

from concurrent.futures import ThreadPoolExecutor

import pytest

import rmqpy
from rmqpy.client.pull import arrival_waiter
from rmqpy.message import MessageQueue
from rmqpy.protocol.codes import RequestCode, ResponseCode
from rmqpy.server import Standalone
from waiting import until
from wire import Frame

from .fakes import SILENCE, Answer, Broker, Network, record

QUEUES = [MessageQueue("orders", "broker-a", number) for number in range(2)]
PULL = RequestCode.PULL_MESSAGE


@pytest.fixture
def broker(network: Network) -> Broker:
    return network.broker("broker-a")


@pytest.fixture
def namesrv(network: Network, broker: Broker) -> str:
    return network.name_server([broker], {"orders": 2}).address


def test_a_message_in_any_queue_ends_a_wait(server: Standalone, topic: str) -> None:
    with rmqpy.Catalog(server.namesrv) as catalog, ThreadPoolExecutor() as threads:
        offsets = catalog.ends(catalog.queues(topic))
        waiting = threads.submit(catalog.wait, offsets, 60)
        with rmqpy.Producer(server.namesrv) as producer:
            producer.send(topic, b"x", queue=list(offsets)[2])
        assert waiting.result(60)


def test_existing_messages_end_the_wait_immediately(broker: Broker, namesrv: str) -> None:
    broker.log[1] = [record(b"x", queue_id=1)]
    with rmqpy.Catalog(namesrv) as catalog:
        assert catalog.wait({QUEUES[1]: 0}, 60)
        # An offset the queue does not have is for the caller to look at.
        assert catalog.wait({QUEUES[1]: 7}, 60)


def test_repeated_waits_share_one_held_pull_per_queue(broker: Broker, namesrv: str) -> None:
    with rmqpy.Catalog(namesrv) as catalog:
        for _ in range(5):
            assert not catalog.wait(dict.fromkeys(QUEUES, 0), 0.01)
        until(lambda: broker.count(PULL) == 2)
        assert not catalog.wait({QUEUES[0]: 0}, 0.01)
        assert not catalog.wait(dict.fromkeys(QUEUES, 0), 0.01)
        # The second queue was not waited for meanwhile.
        until(lambda: broker.count(PULL) == 3)


def test_wait_uses_the_current_offset_of_a_queue(broker: Broker, namesrv: str) -> None:
    broker.log[0] = [record(b"x"), record(b"y", offset=1)]
    with rmqpy.Catalog(namesrv) as catalog:
        assert catalog.wait({QUEUES[0]: 1, QUEUES[1]: 0}, 60)
        assert not catalog.wait({QUEUES[0]: 2, QUEUES[1]: 0}, 0.01)
        until(lambda: broker.count(PULL) == 3)
        asked = [(frame.ext or {}) for frame in broker.asked if frame.code == PULL]
        assert [(ext["queueId"], ext["queueOffset"]) for ext in asked] == [("0", "1"), ("1", "0"), ("0", "2")]


@pytest.mark.parametrize(
    "answer", [Frame(ResponseCode.PULL_NOT_FOUND), Frame(ResponseCode.NO_PERMISSION), "close"]
)
def test_broker_that_does_not_hold_pulls_is_polled_at_intervals(
    broker: Broker, namesrv: str, monkeypatch: pytest.MonkeyPatch, answer: Answer
) -> None:
    monkeypatch.setattr(arrival_waiter, "ROUND_S", 0.05)
    answers = [answer, answer, SILENCE]

    def pull(ask: Frame) -> Answer:
        first = answers.pop(0)
        return broker.pulled(first.code, 0, 0) if isinstance(first, Frame) else first

    broker.handlers[PULL] = pull
    with rmqpy.Catalog(namesrv) as catalog:
        while answers:
            assert not catalog.wait({QUEUES[0]: 0}, 0.2)
    assert broker.count(PULL) == 3
