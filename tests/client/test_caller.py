"""Callers: one policy, run by a blocked thread or suspended in a loop."""

import asyncio
import time
from typing import Any

import pytest

from rmqpy import errors
from rmqpy._native import Client
from rmqpy.protocol.requests.offsets import GetMaxOffset
from rmqpy.protocol.requests.routes import GetClusterInfo
from rmqpy.remoting.client import BlockingCaller, Caller, LoopCaller, run
from rmqpy.remoting.nameservers import NameServers
from wire import Frame

from .fakes import CLOSE, SILENCE, Broker, NameServer, Network

ASK = GetMaxOffset(topic="orders", queue_id=1)


@pytest.fixture
def broker(network: Network) -> Broker:
    broker = network.broker("broker-a")
    broker.log[1] = [b"x"] * 7
    return broker


async def every_outcome(caller: Caller, broker: Broker) -> None:
    """The same checks for every caller."""
    peer = caller.peer(broker.address, timeout=60)
    assert (await peer.call(ASK)).offset == 7

    broker.handlers[30] = lambda ask: Frame(17, remark="no such topic")
    with pytest.raises(errors.TopicNotFound) as caught:
        await peer.call(ASK)
    assert (caught.value.code, caught.value.topic, caught.value.broker) == (17, "orders", broker.address)

    broker.handlers[30] = lambda ask: SILENCE
    began = time.monotonic()
    with pytest.raises(errors.RequestTimeout):
        await peer.call(ASK, timeout=0.1)
    assert time.monotonic() - began < 30

    broker.handlers[30] = lambda ask: CLOSE
    with pytest.raises(errors.ConnectError, match="lost"):
        await peer.call(ASK)

    broker.handlers[30] = lambda ask: Frame(0, ext={"offset": "many"})
    with pytest.raises(errors.DecodeError, match="offset"):
        await peer.call(ASK)

    broker.stop()
    with pytest.raises(errors.ConnectError, match="connect"):
        await peer.call(ASK)
    broker.start()
    broker.handlers[30] = lambda ask: Frame(0, ext={"offset": "9"})
    assert (await peer.call(ASK)).offset == 9, "the connection is made again"


def test_a_thread_gets_every_outcome(broker: Broker) -> None:
    client = Client()
    run(every_outcome(BlockingCaller(client), broker))
    client.close()
    with pytest.raises(errors.ClosedError):
        run(BlockingCaller(client).ask(broker.address, ASK, timeout=1))


async def test_a_loop_gets_every_outcome(broker: Broker) -> None:
    client = Client()
    async with LoopCaller(client) as caller:
        await every_outcome(caller, broker)
    client.close()


async def test_slow_reply_delays_no_other(network: Network, broker: Broker) -> None:
    silent = network.broker("broker-b")
    silent.handlers[30] = lambda ask: SILENCE
    async with LoopCaller(Client()) as caller:
        slow = asyncio.ensure_future(caller.ask(silent.address, ASK, timeout=60))
        answers = await asyncio.gather(*(caller.ask(broker.address, ASK, timeout=60) for _ in range(1000)))
        assert {answer.offset for answer in answers} == {7}
        assert not slow.done()
        slow.cancel()


async def test_closing_a_caller_ends_every_wait(broker: Broker) -> None:
    broker.handlers[30] = lambda ask: SILENCE
    caller = LoopCaller(Client())
    waiting = asyncio.ensure_future(caller.ask(broker.address, ASK, timeout=30))
    await asyncio.sleep(0)
    caller.close()
    caller.close()
    with pytest.raises(errors.ClosedError):
        await waiting


def test_coroutine_that_awaits_something_else_is_refused() -> None:
    with pytest.raises(RuntimeError, match="never suspends"):
        run(asyncio.sleep(0))


def test_client_switches_from_a_failed_name_server_to_the_next(network: Network, broker: Broker) -> None:
    def info(ask: Frame) -> Any:
        body = b'{"brokerAddrTable":{"b":{"brokerAddrs":{0:"x:1"},"brokerName":"b","cluster":"c"}},'
        return Frame(0, body=body + b'"clusterAddrTable":{"c":["b"]}}')

    servers: list[NameServer] = [network.name_server([broker], {}) for _ in range(3)]
    for server in servers:
        server.handlers[106] = info
    names = NameServers([server.address for server in servers], timeout=2)
    caller = BlockingCaller(Client())
    for _ in servers:
        assert run(names.ask(caller, GetClusterInfo())).broker_addr_table["b"].broker_addrs == {0: "x:1"}
        next(server for server in servers if server.address == names.current).stop()
    with pytest.raises(errors.NameServerUnreachable) as caught:
        run(names.ask(caller, GetClusterInfo()))
    assert all(server.address in str(caught.value) for server in servers)
    assert caught.value.retriable


def test_refusal_of_a_name_server_counts_as_a_reply(network: Network, broker: Broker) -> None:
    first, second = (network.name_server([broker], {}) for _ in range(2))
    for server in (first, second):
        server.handlers[106] = lambda ask: Frame(1, remark="not ready")
    with pytest.raises(errors.BrokerError, match="not ready"):
        run(NameServers([first.address, second.address]).ask(BlockingCaller(Client()), GetClusterInfo()))
    assert first.count(106) + second.count(106) == 1
