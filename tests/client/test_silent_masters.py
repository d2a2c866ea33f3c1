"""Masters that do not answer: their sends go to the broker that replaces them, and a slow master keeps its sends."""

import asyncio
import threading
import time

import pytest

import rmqpy
from waiting import until
from wire import RESPONSE, Frame

from .fakes import SENDS, SILENCE, Answer, Broker, NameServer, Network
from .sending import TIMEOUT_S, send

LIMIT_S = 5.0
SLOW_S = 1.5


@pytest.fixture
def masters(network: Network) -> tuple[Broker, Broker]:
    """Two brokers of one name, the first of which does not answer sends."""
    first, second = network.broker("broker-a"), network.broker("broker-a")
    for code in SENDS:
        first.handlers[code] = lambda ask: SILENCE
    return first, second


@pytest.mark.parametrize("how", ["send", "submit", "async"])
def test_sends_of_a_silent_master_are_retried_at_its_successor(
    network: Network, masters: tuple[Broker, Broker], how: str
) -> None:
    silent, successor = masters
    name_server = network.name_server([silent], {"orders": 4})
    results: list[rmqpy.SendResult] = []
    sending = threading.Thread(target=lambda: results.append(send(how, name_server.address)))
    sending.start()
    until(lambda: silent.sends)
    began = time.monotonic()
    name_server.brokers = [successor]
    sending.join(TIMEOUT_S)
    assert time.monotonic() - began < LIMIT_S
    (result,) = results
    assert result.attempts == 2
    assert successor.unique_id() == silent.unique_id() == result.message_id
    until(lambda: not silent.connections)


@pytest.mark.parametrize("how", ["send", "submit", "async"])
def test_a_slow_master_keeps_its_sends(network: Network, masters: tuple[Broker, Broker], how: str) -> None:
    slow, _ = masters
    name_server = network.name_server([slow], {"orders": 4})

    def answer_later(ask: Frame) -> Answer:
        answer = slow.store(ask)
        answer.opaque, answer.flag = ask.opaque, RESPONSE
        asyncio.get_running_loop().call_later(SLOW_S, lambda: [w.write(answer.pack()) for w in slow._writers])
        return SILENCE

    for code in SENDS:
        slow.handlers[code] = answer_later
    result = send(how, name_server.address)
    assert (result.attempts, len(slow.sends)) == (1, 1)


def test_a_replaced_master_that_answers_keeps_its_connection(
    network: Network, masters: tuple[Broker, Broker]
) -> None:
    former, successor = masters
    for code in SENDS:
        former.handlers[code] = former.store
    name_server: NameServer = network.name_server([former], {"orders": 4})
    with rmqpy.Producer(rmqpy.ClientConfig(namesrv=name_server.address, route_refresh=0.1)) as producer:
        producer.send("orders", b"x")
        name_server.brokers = [successor]
        until(lambda: producer.send("orders", b"y") and successor.sends)
        assert former.connections
