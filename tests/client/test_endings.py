"""The ends of clients: closed, dropped, cancelled, in another loop, after a fork. Nothing remains at brokers or in the
process, and no accepted message is lost."""

from __future__ import annotations

import asyncio
import gc
import os
import sys
import threading
import types
import warnings
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Any

import pytest

import rmqpy
from rmqpy import errors
from rmqpy.client import cluster
from rmqpy.protocol.codes import RequestCode
from rmqpy.server import Standalone
from waiting import until, until_async

from .fakes import SILENCE, Brokers, NameServer
from .live import WAIT_S, Seen, committed, end, members, send

#: Far below the time that a silent broker is waited for.
PROMPT_S = 10.0


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    """No thread of a client outlives its test."""
    before = set(threading.enumerate())
    yield
    gc.collect()
    until(lambda: not threads_of_clients(before))


def threads_of_clients(before: set[threading.Thread]) -> list[str]:
    return [
        thread.name
        for thread in set(threading.enumerate()) - before
        if thread.name.startswith("rmqpy-") and not thread.name.startswith(("rmqpy-http", "rmqpy-bodies"))
    ]


def drop(held: list[Any]) -> None:
    held.clear()
    gc.collect()


def dropped(held: list[Any]) -> None:
    """Let go of a client that was not closed, which warns."""
    with pytest.warns(ResourceWarning, match="was not closed"):
        drop(held)


# ---- dropped ---------------------------------------------------------------------------------------------


def test_a_dropped_pull_consumer_leaves_its_group(server: Standalone, topic: str) -> None:
    held = [rmqpy.PullConsumer(topic, server.namesrv)]
    held[0].subscribe(topic)
    assert members(server, topic) == 1
    dropped(held)
    until(lambda: members(server, topic) == 0)


async def test_a_dropped_pull_consumer_of_a_loop_leaves_its_group(server: Standalone, topic: str) -> None:
    held = [rmqpy.AsyncPullConsumer(topic, server.namesrv)]
    await held[0].subscribe(topic)
    dropped(held)
    await asyncio.to_thread(until, lambda: members(server, topic) == 0)


def test_a_dropped_producer_leaves_its_group(server: Standalone, topic: str) -> None:
    held = [rmqpy.Producer(server.namesrv, group=topic)]
    held[0].send(topic, b"x")
    until(lambda: members(server, topic) == 1)
    dropped(held)
    until(lambda: members(server, topic) == 0)


async def test_a_dropped_producer_of_a_loop_leaves_its_group(server: Standalone, topic: str) -> None:
    held = [rmqpy.AsyncProducer(server.namesrv, group=topic)]
    await held[0].send(topic, b"x")
    await asyncio.to_thread(until, lambda: members(server, topic) == 1)
    dropped(held)
    await asyncio.to_thread(until, lambda: members(server, topic) == 0)


def test_dropped_running_push_consumer_continues_in_its_thread(server: Standalone, topic: str) -> None:
    seen, stop = Seen(), threading.Event()

    def begin() -> None:
        consumer = rmqpy.PushConsumer(topic, server.namesrv, start_from="earliest")

        def handle(message: rmqpy.ReceivedMessage) -> None:
            seen(message)
            if message.text() == "stop":
                stop.set()
                consumer.close()

        consumer.on(topic, handler=handle)
        consumer.start()

    begin()
    gc.collect()
    send(server, topic, ["stop"])
    assert stop.wait(WAIT_S)
    until(lambda: members(server, topic) == 0)


def test_dropped_catalog_releases_its_connections(server: Standalone, topic: str) -> None:
    config = rmqpy.ClientConfig(namesrv=server.namesrv, request_timeout=2.25)
    held = [rmqpy.Catalog(config)]
    held[0].queues(topic)
    assert any(key[1] == config for key in cluster._HELD)
    drop(held)
    assert not any(key[1] == config for key in cluster._HELD)


def test_another_thread_can_close_a_starting_consumer(name_server: NameServer, brokers: Brokers) -> None:
    for code in name_server.handlers:
        name_server.handlers[code] = lambda ask: SILENCE
    config = rmqpy.ClientConfig(namesrv=name_server.address, request_timeout=2)
    consumer = rmqpy.PushConsumer("starting", config)
    consumer.on("orders", handler=lambda message: None)
    with ThreadPoolExecutor(1) as pool:
        starting = pool.submit(consumer.start)
        until(lambda: consumer._is_started)
        consumer.close()
        assert consumer.is_closed
        with pytest.raises(errors.ClosedError, match="while it was starting"):
            starting.result(WAIT_S)


def test_close_ends_despite_a_stuck_on_rebalance(server: Standalone, topic: str) -> None:
    stuck, gate = threading.Event(), threading.Event()

    def on_rebalance(change: rmqpy.Rebalance) -> None:
        if change.revoked or change.lost:
            stuck.set()
            gate.wait(2 * WAIT_S)

    consumer = rmqpy.PushConsumer(topic, server.namesrv, on_rebalance=on_rebalance)
    consumer.on(topic, handler=lambda message: None)
    with rmqpy.PullConsumer(topic, server.namesrv) as other:
        consumer.start()
        other.subscribe(topic)
        assert stuck.wait(WAIT_S)
        closing = threading.Thread(target=consumer.close, args=[0.1], daemon=True)
        closing.start()
        closing.join(15)
        assert not closing.is_alive()
        gate.set()


# ---- closing in an event loop ----------------------------------------------------------------------------


async def test_cancelled_close_of_a_push_consumer_continues(server: Standalone, topic: str) -> None:
    begun, gate = asyncio.Event(), asyncio.Event()

    async def handle(message: rmqpy.ReceivedMessage) -> None:
        begun.set()
        await gate.wait()

    consumer = rmqpy.AsyncPushConsumer(topic, server.namesrv, start_from="earliest", workers=1)
    consumer.on(topic, "t", handle)
    await consumer.start()
    await asyncio.to_thread(send, server, topic, ["1"])
    await begun.wait()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await consumer.close()
    gate.set()
    # The second one waits for what the first one began.
    await consumer.close()
    assert await asyncio.to_thread(members, server, topic) == 0
    assert await asyncio.to_thread(committed, server, topic, topic) == await asyncio.to_thread(
        end, server, topic
    )


@pytest.mark.parametrize("kind", ["producer", "pull", "push"])
async def test_close_with_a_silent_broker_does_not_block_the_loop(
    name_server: NameServer, brokers: Brokers, kind: str
) -> None:
    for broker in brokers:
        broker.serve_groups()
    config = rmqpy.ClientConfig(namesrv=name_server.address, request_timeout=1)
    client: Any
    if kind == "producer":
        client = rmqpy.AsyncProducer(config, group="loop")
        await client.send("orders", b"x")
    elif kind == "pull":
        client = rmqpy.AsyncPullConsumer("loop", config)
        await client.subscribe("orders")
    else:
        client = rmqpy.AsyncPushConsumer("loop", config)
        client.on("orders", handler=lambda message: None)
        await client.start()
    # Only brokers that know the client hear of its end.
    await until_async(lambda: brokers[1].count(RequestCode.HEART_BEAT))
    for code in brokers[1].handlers:
        brokers[1].handlers[code] = lambda ask: SILENCE
    asked = len(brokers[1].asked)
    closing = asyncio.create_task(client.close())
    await until_async(lambda: len(brokers[1].asked) > asked)
    assert not closing.done(), "the loop goes on while the broker is silent"
    await closing


@pytest.mark.parametrize("kind", ["producer", "pull", "push"])
async def test_close_cancelled_at_any_step_leaks_nothing(server: Standalone, topic: str, kind: str) -> None:
    for step in range(12):
        group = f"{topic}-{step}"[-60:]
        client = await opened(kind, server, topic, group)
        closing = asyncio.create_task(client.close())
        for _ in range(step):
            await asyncio.sleep(0)
        closing.cancel()
        with suppress(asyncio.CancelledError):
            await closing
        await client.close()
        assert client.is_closed
        assert await asyncio.to_thread(members, server, group) == 0, step


async def opened(kind: str, server: Standalone, topic: str, group: str) -> Any:
    client: Any
    if kind == "producer":
        client = rmqpy.AsyncProducer(server.namesrv, group=group)
        await client.send(topic, b"x")
    elif kind == "pull":
        client = rmqpy.AsyncPullConsumer(group, server.namesrv)
        await client.subscribe(topic)
    else:
        client = rmqpy.AsyncPushConsumer(group, server.namesrv)
        client.on(topic, handler=lambda message: None)
        await client.start()
    return client


@pytest.mark.parametrize("kind", ["producer", "pull", "push"])
def test_a_loop_that_ends_leaves_no_member(server: Standalone, topic: str, kind: str) -> None:
    client = asyncio.run(opened(kind, server, topic, topic))
    if kind == "push":
        # Its tasks ended with the loop.
        until(lambda: members(server, topic) == 0)
    # Another loop can close it, and can do nothing else with it.
    use: dict[str, Callable[[], Awaitable[object]]] = {
        "producer": lambda: client.send(topic, b"x"),
        "pull": lambda: client.poll(),
        "push": lambda: client.reply(None, b"x"),
    }

    async def in_another_loop() -> None:
        with pytest.raises(RuntimeError, match="event loop"):
            await use[kind]()
        await client.close()

    asyncio.run(in_another_loop())
    until(lambda: members(server, topic) == 0)


# ---- accepted is in flight -------------------------------------------------------------------------------


def test_close_sends_lingering_messages(server: Standalone, topic: str) -> None:
    before = end(server, topic)
    producer = rmqpy.Producer(server.namesrv, linger=30)
    with ThreadPoolExecutor(18) as pool:
        sending = [pool.submit(producer.send, topic, str(number)) for number in range(18)]
        until(lambda: sum(one.running() for one in sending) == 18)
        # All of them wait for each other.
        until(lambda: producer._accepted.count == 18)
        producer.close()
        assert {one.result(WAIT_S).status.name for one in sending} == {"SEND_OK"}
    assert end(server, topic) - before == 18


def test_flush_sends_lingering_messages(server: Standalone, topic: str) -> None:
    with rmqpy.Producer(server.namesrv, linger=30) as producer, ThreadPoolExecutor(1) as pool:
        sending = pool.submit(producer.send, topic, b"x")
        until(lambda: producer._accepted.count == 1)
        producer.flush(WAIT_S)
        assert sending.done() or sending.result(PROMPT_S)


async def test_async_close_sends_messages_waiting_for_room(server: Standalone, topic: str) -> None:
    before = await asyncio.to_thread(end, server, topic)
    producer = rmqpy.AsyncProducer(server.namesrv, max_in_flight=2)
    sending = [asyncio.create_task(producer.send(topic, str(number))) for number in range(20)]
    await asyncio.sleep(0)
    await producer.close()
    assert len(await asyncio.gather(*sending)) == 20
    assert await asyncio.to_thread(end, server, topic) - before == 20
    with pytest.raises(errors.ClosedError):
        await producer.send(topic, b"x")


async def test_every_async_send_ends_with_its_producer(name_server: NameServer, brokers: Brokers) -> None:
    for broker in brokers:
        for code in broker.handlers:
            broker.handlers[code] = lambda ask: SILENCE
    producer = rmqpy.AsyncProducer(name_server.address, send_timeout=30)
    sending = [await producer.submit("orders", b"x") for _ in range(700)]
    await producer.close(timeout=0.1)
    done, pending = await asyncio.wait(sending, timeout=PROMPT_S)
    assert (len(done), len(pending)) == (700, 0)
    assert all(one.exception() for one in done)


# ---- a fork ----------------------------------------------------------------------------------------------


def test_forked_child_closes_no_client_of_its_parent(server: Standalone, topic: str) -> None:
    consumer = rmqpy.PullConsumer(topic, server.namesrv)
    consumer.subscribe(topic)
    producer = rmqpy.Producer(server.namesrv, group=topic)
    producer.send(topic, b"x")
    until(lambda: members(server, topic) == 2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        code = 1
        try:
            consumer.close()
            producer.close()
            del consumer, producer
            gc.collect()
            code = 0
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
    assert members(server, topic) == 2
    consumer.poll(0.1)
    producer.send(topic, b"y")
    consumer.close()
    producer.close()


# ---- threads that are not threads ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("module", "check", "names"),
    [
        ("gevent.monkey", "is_module_patched", "threading"),
        ("eventlet.patcher", "is_monkey_patched", "thread"),
    ],
)
def test_client_refuses_monkey_patched_threads(
    monkeypatch: pytest.MonkeyPatch, server: Standalone, module: str, check: str, names: str
) -> None:
    # What these libraries say of themselves: neither is installed here.
    library = types.ModuleType(module)
    monkeypatch.setattr(library, check, lambda name: name == names, raising=False)
    monkeypatch.setitem(sys.modules, module, library)
    config = rmqpy.ClientConfig(namesrv=server.namesrv, request_timeout=1.5)
    for make in (rmqpy.Producer, partial(rmqpy.PullConsumer, "green")):
        with pytest.raises(errors.ConfigError, match=r"has patched threading.*thread=False"):
            make(config)
