"""The ends of clients: closed, dropped, interrupted, cancelled, in another loop, after a fork. Nothing is left at
brokers or in the process, and nothing that was accepted is lost.
"""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import subprocess
import sys
import threading
import time
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
from rmqpy._native import Client
from rmqpy.client import cluster
from rmqpy.protocol.codes import RequestCode
from rmqpy.protocol.requests.clients import GetConsumerConnectionList, GetProducerConnectionList
from rmqpy.remoting.client import BlockingCaller, run
from rmqpy.server import Standalone
from wire import Frame

from .fakes import SILENCE, Answer, Brokers, Handler, NameServer
from .live import WAIT_S, Seen, committed, end, send, until

#: Far below the time that a silent broker is waited for.
PROMPT_S = 0.5


def members(server: Standalone, group: str) -> int:
    """Clients of a group, consumers and producers, that the broker knows."""
    client = Client()
    try:
        caller = BlockingCaller(client)
        count = 0
        for ask in (
            GetConsumerConnectionList(consumer_group=group),
            GetProducerConnectionList(producer_group=group),
        ):
            with suppress(errors.BrokerError):
                count += len(run(caller.ask(server.broker, ask, timeout=WAIT_S)).connection_set)
        return count
    finally:
        client.close()


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    """No thread of a client outlives its test."""
    before = set(threading.enumerate())
    yield
    gc.collect()
    deadline = time.monotonic() + 10
    while left := threads_of_clients(before):
        assert time.monotonic() < deadline, left
        time.sleep(0.01)


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


def test_a_running_push_consumer_belongs_to_its_thread_and_goes_on(server: Standalone, topic: str) -> None:
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


# ---- interrupted -----------------------------------------------------------------------------------------

#: Interrupts the main thread while it waits for `STATEMENT`, and says how many members and threads are left.
INTERRUPTED = """
import os, signal, sys, threading, time
import rmqpy
namesrv, topic = sys.argv[1:]
consumer = {make}
began = threading.Event()

def interrupt():
    time.sleep(0.1)
    os.kill(os.getpid(), signal.SIGINT)

threading.Thread(target=interrupt).start()
try:
    {statement}
    print("not interrupted")
except KeyboardInterrupt:
    print("interrupted")
deadline = time.monotonic() + 10
def left():
    return [one.name for one in threading.enumerate() if one.name.startswith("rmqpy-")]
while left() and time.monotonic() < deadline:
    time.sleep(0.01)
print("left:", left())
"""


@pytest.mark.parametrize(
    ("make", "statement"),
    [
        ("rmqpy.PushConsumer(topic, config); consumer.on('orders', handler=print)", "consumer.start()"),
        ("rmqpy.PullConsumer(topic, config)", "consumer.subscribe('orders')"),
    ],
)
def test_an_interrupted_start_leaves_no_member(
    name_server: NameServer, brokers: Brokers, make: str, statement: str
) -> None:
    for broker in brokers:
        broker.serve_groups()

    def slowly(answer: Handler) -> Handler:
        def handle(ask: Frame) -> Answer:
            time.sleep(0.5)
            return answer(ask)

        return handle

    for code, answer in name_server.handlers.items():
        name_server.handlers[code] = slowly(answer)
    make = make.replace("config", "rmqpy.ClientConfig(namesrv=namesrv, request_timeout=3)")
    program = INTERRUPTED.format(make=make, statement=statement)
    ran = subprocess.run(
        [sys.executable, "-c", program, name_server.address, "interrupted"],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert ran.stdout.splitlines() == ["interrupted", "left: []"], ran.stderr


@pytest.mark.parametrize(
    ("make", "statement"),
    [
        ("rmqpy.PullConsumer('group', namesrv); consumer.subscribe('orders')", "consumer.close()"),
        ("rmqpy.Producer(namesrv, send_timeout=30); consumer.submit('orders', b'x')", "consumer.close(30)"),
    ],
    ids=["pull", "producer"],
)
def test_an_interrupted_close_leaves_nothing(
    name_server: NameServer, brokers: Brokers, make: str, statement: str
) -> None:
    for broker in brokers:
        broker.serve_groups()
        for code in (RequestCode.SEND_MESSAGE_V2, RequestCode.UNREGISTER_CLIENT):
            broker.handlers[code] = lambda ask: SILENCE
    program = INTERRUPTED.format(make=make, statement=statement)
    ran = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program, name_server.address, "interrupted"],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert ran.stdout.splitlines() == ["interrupted", "left: []"], ran.stderr


def test_a_dropped_catalog_gives_its_connections_back(server: Standalone, topic: str) -> None:
    config = rmqpy.ClientConfig(namesrv=server.namesrv, request_timeout=2.25)
    held = [rmqpy.Catalog(config)]
    held[0].queues(topic)
    assert any(key[1] == config for key in cluster._HELD)
    drop(held)
    assert not any(key[1] == config for key in cluster._HELD)


def test_another_thread_may_close_a_consumer_that_starts(name_server: NameServer, brokers: Brokers) -> None:
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
        with pytest.raises(errors.ClosedError, match="while it started"):
            starting.result(WAIT_S)


def test_a_close_ends_though_on_rebalance_is_stuck(server: Standalone, topic: str) -> None:
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


async def test_a_cancelled_close_of_a_push_consumer_goes_on(server: Standalone, topic: str) -> None:
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
async def test_closing_holds_up_no_loop_where_a_broker_is_silent(
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
    for code in brokers[1].handlers:
        brokers[1].handlers[code] = lambda ask: SILENCE
    brokers[1].handlers[RequestCode.UNREGISTER_CLIENT] = lambda ask: SILENCE
    stalls = 0.0

    async def tick() -> None:
        nonlocal stalls
        while True:
            began = time.monotonic()
            await asyncio.sleep(0.01)
            stalls = max(stalls, time.monotonic() - began)

    ticking = asyncio.create_task(tick())
    await asyncio.sleep(0.05)
    await client.close()
    await asyncio.sleep(0.05)
    ticking.cancel()
    assert stalls < PROMPT_S


@pytest.mark.parametrize("kind", ["producer", "pull", "push"])
async def test_a_close_that_is_cancelled_at_each_step_leaves_nothing(
    server: Standalone, topic: str, kind: str
) -> None:
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


def test_closing_a_producer_sends_what_lingers(server: Standalone, topic: str) -> None:
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


def test_flushing_a_producer_sends_what_lingers(server: Standalone, topic: str) -> None:
    with rmqpy.Producer(server.namesrv, linger=30) as producer, ThreadPoolExecutor(1) as pool:
        sending = pool.submit(producer.send, topic, b"x")
        until(lambda: producer._accepted.count == 1)
        producer.flush(WAIT_S)
        assert sending.done() or sending.result(PROMPT_S)


async def test_closing_a_producer_of_a_loop_sends_what_waits_for_room(server: Standalone, topic: str) -> None:
    before = await asyncio.to_thread(end, server, topic)
    producer = rmqpy.AsyncProducer(server.namesrv, max_in_flight=2)
    sending = [asyncio.create_task(producer.send(topic, str(number))) for number in range(20)]
    await asyncio.sleep(0)
    await producer.close()
    assert len(await asyncio.gather(*sending)) == 20
    assert await asyncio.to_thread(end, server, topic) - before == 20
    with pytest.raises(errors.ClosedError):
        await producer.send(topic, b"x")


async def test_each_send_of_a_loop_ends_with_its_producer(name_server: NameServer, brokers: Brokers) -> None:
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


def test_a_forked_child_ends_no_client_of_its_parent(server: Standalone, topic: str) -> None:
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


# ---- Ctrl-C and SIGTERM ----------------------------------------------------------------------------------

RUNNING = """
import asyncio, sys, time
import rmqpy
namesrv, topic, seconds = sys.argv[1:]

async def later(message):
    print("begun", message.text(), flush=True)
    await asyncio.sleep(float(seconds))
    print("done", message.text(), flush=True)

def now(message):
    print("begun", message.text(), flush=True)
    time.sleep(float(seconds))
    print("done", message.text(), flush=True)

{run}
print("ended", flush=True)
"""

LOOP = """
async def main():
    consumer = rmqpy.AsyncPushConsumer(topic, namesrv, start_from="earliest", workers=1)
    consumer.on(topic, "t", later)
    await consumer.run()
asyncio.run(main())
"""

THREADS = """
consumer = rmqpy.PushConsumer(topic, namesrv, start_from="earliest", workers=1)
consumer.on(topic, "t", now)
consumer.run()
"""


def started(server: Standalone, topic: str, run: str, seconds: float) -> subprocess.Popen[str]:
    program = subprocess.Popen(
        [sys.executable, "-c", RUNNING.format(run=run), server.namesrv, topic, str(seconds)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert program.stdout is not None
    assert program.stdout.readline() == "begun 1\n"
    return program


@pytest.mark.parametrize("run", [LOOP, THREADS], ids=["loop", "threads"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_lets_the_handler_finish_and_commits(
    server: Standalone, topic: str, run: str, number: signal.Signals
) -> None:
    send(server, topic, ["1"], sharding_key="one queue")
    program = started(server, topic, run, 0.3)
    program.send_signal(number)
    out, err = program.communicate(timeout=WAIT_S)
    assert (program.returncode, out.splitlines(), err) == (0, ["done 1", "ended"], "")
    assert committed(server, topic, topic) == end(server, topic)
    assert members(server, topic) == 0


@pytest.mark.parametrize("run", [LOOP, THREADS], ids=["loop", "threads"])
def test_a_second_signal_ends_a_stuck_handler_at_once(server: Standalone, topic: str, run: str) -> None:
    send(server, topic, ["1"], sharding_key="one queue")
    program = started(server, topic, run, 60)
    program.send_signal(signal.SIGINT)
    assert program.stderr is not None
    told = program.stderr.readline()
    assert "waits up to 30 s for 1 handler" in told
    assert topic in told
    began = time.monotonic()
    program.send_signal(signal.SIGINT)
    out, _ = program.communicate(timeout=WAIT_S)
    assert time.monotonic() - began < 5
    assert (program.returncode, out.splitlines()) == (0, ["ended"])
    # What did not finish comes again.
    assert committed(server, topic, topic) < end(server, topic)


# ---- threads that are not threads ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("module", "check", "names"),
    [
        ("gevent.monkey", "is_module_patched", "threading"),
        ("eventlet.patcher", "is_monkey_patched", "thread"),
    ],
)
def test_a_client_refuses_threads_that_a_library_has_replaced(
    monkeypatch: pytest.MonkeyPatch, server: Standalone, module: str, check: str, names: str
) -> None:
    # What these libraries say of themselves: neither is installed here.
    library = types.ModuleType(module)
    monkeypatch.setattr(library, check, lambda name: name == names, raising=False)
    monkeypatch.setitem(sys.modules, module, library)
    config = rmqpy.ClientConfig(namesrv=server.namesrv, request_timeout=1.5)
    for make in (rmqpy.Producer, partial(rmqpy.PullConsumer, "green")):
        with pytest.raises(errors.ConfigError, match=r"has replaced Python's threads.*thread=False"):
            make(config)
