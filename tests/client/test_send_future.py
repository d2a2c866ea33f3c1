"""The future of a submitted message: callbacks, event loops, futures of the standard library, unread failures."""

import asyncio
import concurrent.futures
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import rmqpy
from rmqpy import errors
from waiting import until

from .fakes import SILENCE, Brokers, NameServer


def refuse(brokers: Brokers) -> None:
    for broker in brokers:
        broker.refuse(13, "never")


def silence(brokers: Brokers) -> None:
    for broker in brokers:
        broker.handlers[310] = lambda ask: SILENCE


@contextmanager
def no_warning() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.filterwarnings("error", ".*submitted message", RuntimeWarning)
        yield


def test_callback_gets_its_future_once_in_every_state(name_server: NameServer, brokers: Brokers) -> None:
    threads: list[int] = []
    seen: list[Any] = []

    def callback(future: rmqpy.SendFuture) -> None:
        threads.append(threading.get_ident())
        seen.append(future)

    with rmqpy.Producer(name_server.address) as producer:
        futures = [producer.submit("orders", b"x") for _ in range(100)]
        for future in futures:
            future.add_done_callback(callback)
            future.add_done_callback(callback)
        until(lambda: len(seen) == 200)
        assert all(future.done() for future in futures)
        futures[0].add_done_callback(callback)
        assert (seen.pop(), threads.pop()) == (futures[0], threading.get_ident())
    assert {id(future) for future in seen} == {id(future) for future in futures}
    assert sorted(map(id, seen)) == sorted([id(future) for future in futures] * 2)


def test_callback_gets_failures_and_may_raise(
    name_server: NameServer, brokers: Brokers, caplog: pytest.LogCaptureFixture
) -> None:
    failures: list[Any] = []

    def broken(future: rmqpy.SendFuture) -> None:
        raise asyncio.CancelledError

    refuse(brokers)
    with no_warning(), rmqpy.Producer(name_server.address) as producer:
        for _ in range(2):
            future = producer.submit("orders", b"x")
            future.add_done_callback(broken)
            future.add_done_callback(lambda future: failures.append(future.exception(0)))
        until(lambda: len(failures) == 2)
    assert all(isinstance(failure, errors.SendError) for failure in failures)
    assert caplog.text.count("the callback of a send to orders failed") == 2


def test_a_callback_must_be_callable(name_server: NameServer) -> None:
    wrong: Any = 5
    with rmqpy.Producer(name_server.address) as producer:
        with pytest.raises(TypeError, match="callback must be callable, not int"):
            producer.submit("orders", b"x", callback=wrong)
        future = producer.submit("orders", b"x")
        with pytest.raises(TypeError, match="callback must be callable, not int"):
            future.add_done_callback(wrong)


def test_close_calls_back_for_pending_sends(name_server: NameServer, brokers: Brokers) -> None:
    ended: list[Any] = []
    silence(brokers)
    # Another client of the cluster keeps the connection open.
    with rmqpy.Producer(name_server.address) as other:
        assert other.queues("orders")
        producer = rmqpy.Producer(name_server.address, send_timeout=30)
        futures = [producer.submit("orders", b"x") for _ in range(3)]
        futures[0].add_done_callback(lambda future: ended.append(future.exception(0)))
        standard = futures[1].as_future()
        producer.close(timeout=0.1)
        assert [type(error) for error in ended] == [errors.SendError]
        assert isinstance(standard.exception(0), errors.SendError)
        # Nobody would announce its end any more.
        assert isinstance(futures[2].as_future().exception(0), errors.SendError)


def test_dropped_producer_calls_back(name_server: NameServer, brokers: Brokers) -> None:
    silence(brokers)
    producer = rmqpy.Producer(name_server.address, send_timeout=30)
    standard = producer.submit("orders", b"x").as_future()
    with pytest.warns(ResourceWarning, match="not closed"):
        del producer
    assert isinstance(standard.exception(10), errors.SendError)


def test_a_future_can_be_awaited_in_any_loop(name_server: NameServer, brokers: Brokers) -> None:
    async def results(futures: list[rmqpy.SendFuture]) -> list[rmqpy.SendResult]:
        return list(await asyncio.gather(*futures))

    with rmqpy.Producer(name_server.address) as producer:
        for _ in range(2):
            futures = [producer.submit("orders", b"x") for _ in range(50)]
            assert all(result.ok for result in asyncio.run(results(futures)))
        # Also one that has ended.
        assert asyncio.run(results(futures[:1])) == [futures[0].result()]


async def test_await_raises_failures_and_cancelling_ends_only_the_wait(
    name_server: NameServer, brokers: Brokers
) -> None:
    refuse(brokers[1:])
    silence(brokers[:1])
    with rmqpy.Producer(name_server.address, send_timeout=5) as producer:
        queues = await asyncio.to_thread(producer.queues, "orders")
        with pytest.raises(errors.SendError):
            await producer.submit("orders", b"x", queue=queues[-1])
        future = producer.submit("orders", b"x", queue=queues[0])
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await future
        assert not future.done()
        assert isinstance(future.exception(30), errors.SendError)


def test_a_future_of_the_standard_library_is_made_when_asked(
    name_server: NameServer, brokers: Brokers
) -> None:
    with rmqpy.Producer(name_server.address) as producer:
        futures = [producer.submit("orders", b"x") for _ in range(10)]
        assert not isinstance(futures[0], concurrent.futures.Future)
        standard = [future.as_future() for future in futures]
        done, late = concurrent.futures.wait(standard, timeout=20)
        assert (len(done), len(late)) == (10, 0)
        assert [future.result() for future in standard] == [future.result() for future in futures]
        assert not standard[0].cancel()
        refuse(brokers)
        assert isinstance(producer.submit("orders", b"x").as_future().exception(10), errors.SendError)


def test_internals_of_the_future_are_private() -> None:
    public = {name for name in dir(rmqpy.SendFuture) if not name.startswith("_")}
    assert public == {
        "add_done_callback",
        "as_future",
        "done",
        "exception",
        "message_ids",
        "result",
        "results",
        "topic",
    }


def test_unread_failures_are_one_warning_at_close(name_server: NameServer, brokers: Brokers) -> None:
    refuse(brokers)
    producer = rmqpy.Producer(name_server.address)
    asked = producer.submit("orders", b"x")
    assert asked.exception(10)
    for broker in brokers:
        broker.refuse(13, "the second reason")
    producer.submit("orders", b"x")
    producer.flush(10)
    for broker in brokers:
        broker.refuse(13, "the third reason")
    for _ in range(20):
        producer.submit("orders", b"x")
    with pytest.warns(RuntimeWarning) as told:
        producer.close()
    producer.close()
    # Those of others may be among them, as of a coroutine that is only now collected.
    [warning] = [one for one in told if "submitted" in str(one.message)]
    assert warning.category is RuntimeWarning
    text = str(warning.message)
    assert text.startswith("21 submitted messages were not sent, and their outcome was never read")
    assert "the second reason" in text
    assert warning.filename == __file__


def test_warning_is_visible_by_default(name_server: NameServer, brokers: Brokers) -> None:
    import subprocess
    import sys

    refuse(brokers)
    program = "import rmqpy, sys\nwith rmqpy.Producer(sys.argv[1]) as p:\n    p.submit('orders', b'x')\n"
    ran = subprocess.run(
        [sys.executable, "-c", program, name_server.address],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert ran.stderr.count("1 submitted message was not sent") == 1, ran.stderr
    assert "never" in ran.stderr


@pytest.mark.parametrize("how", ["result", "exception", "callback", "add_done_callback", "await"])
def test_no_warning_after_the_outcome_was_read(name_server: NameServer, brokers: Brokers, how: str) -> None:
    async def wait(future: rmqpy.SendFuture) -> None:
        await future

    refuse(brokers)
    told: list[object] = []
    with no_warning(), rmqpy.Producer(name_server.address) as producer:
        future = producer.submit("orders", b"x", callback=told.append if how == "callback" else None)
        if how == "result":
            with pytest.raises(errors.SendError):
                future.result(10)
        elif how == "exception":
            assert future.exception(10)
        elif how == "await":
            with pytest.raises(errors.SendError):
                asyncio.run(wait(future))
        elif how == "add_done_callback":
            future.add_done_callback(told.append)
        with pytest.raises(errors.SendError):
            producer.send("orders", b"x")
