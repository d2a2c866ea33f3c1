"""Sending: single messages, many messages, and the end of a producer."""

import math
import os
import signal
import threading
import time
import zlib
from datetime import timedelta
from typing import Any

import pytest

import rmqpy
from rmqpy import errors
from rmqpy.message import MessageQueue
from waiting import until

from .fakes import SILENCE, Brokers, NameServer, Network


def test_send_result_locates_the_message(name_server: NameServer, brokers: Brokers) -> None:
    with rmqpy.Producer(name_server.address, group="pg") as producer:
        result = producer.send("orders", "hello", tag="paid", queue=MessageQueue("orders", "broker-b", 1))
    assert result.ok
    assert result.queue == MessageQueue("orders", "broker-b", 1)
    assert result.message_id == brokers[1].unique_id()
    assert result.attempts == 1
    ask = brokers[1].sends[0]
    assert ask.body == b"hello"
    assert {name: (ask.ext or {})[name] for name in "abcdejkmn"} == {
        "a": "pg",
        "b": "orders",
        "c": "TBW102",
        "d": "4",
        "e": "1",
        "j": "0",
        "k": "false",
        "m": "false",
        "n": "broker-b",
    }


@pytest.mark.parametrize("limit", [math.inf, 1e300, timedelta.max])
def test_infinite_timeout_is_unlimited(
    name_server: NameServer, brokers: Brokers, limit: float | timedelta
) -> None:
    with rmqpy.Producer(name_server.address, send_timeout=limit) as producer:
        assert producer.send("orders", b"x").ok
        assert producer.send("orders", b"x", timeout=limit).ok
        assert producer.submit("orders", b"x", timeout=limit).result(timeout=math.inf).ok
        producer.flush(timeout=math.inf)
        with pytest.raises(errors.ConfigError, match="timeout is not a number"):
            producer.send("orders", b"x", timeout=math.nan)


@pytest.mark.parametrize("header", ["json", "binary"])
def test_headers_go_out_in_either_encoding(network: Network, brokers: Brokers, header: Any) -> None:
    servers = network.name_server(brokers, {"orders": 1})
    with rmqpy.Producer(rmqpy.ClientConfig(namesrv=servers.address, header=header)) as producer:
        producer.send("orders", b"x")
    assert {frame.encoding for broker in brokers for frame in broker.sends} == {int(header == "binary")}


def test_messages_rotate_over_queues_and_equal_keys_share_one(
    name_server: NameServer, brokers: Brokers
) -> None:
    with rmqpy.Producer(name_server.address) as producer:
        around = {producer.send("orders", b"x").queue for _ in range(4)}
        keyed = {producer.send("orders", b"x", sharding_key="customer-7").queue for _ in range(4)}
        assert around == set(producer.queues("orders"))
    assert len(keyed) == 1


def test_a_body_over_the_limit_is_compressed(name_server: NameServer, brokers: Brokers) -> None:
    body = b"x" * 5000
    queue = MessageQueue("orders", "broker-a", 0)
    with rmqpy.Producer(name_server.address) as producer:
        producer.send("orders", body, queue=queue)
        producer.send("orders", body[:4096], queue=queue)
    first, second = brokers[0].sends
    assert (first.ext or {})["f"] == str(0x301)
    assert zlib.decompress(first.body) == body
    assert ((second.ext or {})["f"], second.body) == ("0", body[:4096])


def test_client_refuses_a_body_over_the_maximum(name_server: NameServer, brokers: Brokers) -> None:
    with (
        rmqpy.Producer(name_server.address, max_message_size=100) as producer,
        pytest.raises(errors.MessageTooLarge, match="maxMessageSize"),
    ):
        producer.send("orders", b"x" * 101)
    assert not name_server.asked


def test_oneway_send_requests_no_reply(name_server: NameServer, brokers: Brokers) -> None:
    with rmqpy.Producer(name_server.address) as producer:
        producer.send_oneway("orders", b"x", queue=MessageQueue("orders", "broker-a", 0))
        until(lambda: bool(brokers[0].sends))
    assert brokers[0].sends[0].flag == 2


def test_thousand_submits_share_one_connection(name_server: NameServer, brokers: Brokers) -> None:
    with rmqpy.Producer(name_server.address) as producer:
        futures = [producer.submit("orders", str(number)) for number in range(1000)]
        assert all(future.result(20).ok for future in futures)
    bodies = sorted(int(frame.body) for broker in brokers for frame in broker.sends)
    assert bodies == list(range(1000))


def test_callbacks_share_one_thread_and_survive_a_failing_one(
    name_server: NameServer, brokers: Brokers, caplog: pytest.LogCaptureFixture
) -> None:
    threads: set[int] = set()
    outcomes: list[Any] = []

    def callback(outcome: Any) -> None:
        threads.add(threading.get_ident())
        outcomes.append(outcome)
        if len(outcomes) == 1:
            raise ZeroDivisionError

    brokers[1].refuse(13, "never")
    with rmqpy.Producer(name_server.address) as producer:
        for _ in range(8):
            producer.submit("orders", b"x", callback=callback)
        producer.flush(10)
        until(lambda: len(outcomes) == 8)
    assert len(threads) == 1
    assert threading.get_ident() not in threads
    assert sum(isinstance(outcome, errors.SendError) for outcome in outcomes) == 4
    assert "callback" in caplog.text


@pytest.mark.parametrize("budget", [{"max_in_flight": 2}, {"max_buffered_bytes": 120}])
def test_a_full_budget_raises_or_waits_as_asked(
    name_server: NameServer, brokers: Brokers, budget: dict[str, int]
) -> None:
    for broker in brokers:
        broker.handlers[310] = lambda ask: SILENCE
    with rmqpy.Producer(name_server.address, send_timeout=1.5, when_full="raise", **budget) as producer:  # type: ignore[arg-type]
        futures = [producer.submit("orders", b"x") for _ in range(2)]
        with pytest.raises(errors.BufferFull):
            producer.submit("orders", b"x")
        # Failed sends give their room back.
        assert all(future.exception(30) is not None for future in futures)
        producer.submit("orders", b"x")


def test_a_batch_is_stored_in_one_queue_in_order_and_cut_by_size(
    name_server: NameServer, brokers: Brokers
) -> None:
    messages = [rmqpy.Message("orders", b"x" * 100, tag=str(number)) for number in range(50)]
    with rmqpy.Producer(name_server.address, max_message_size=2000) as producer:
        results = producer.send_batch(messages)
    assert len(results) == 50
    assert len({result.queue for result in results}) == 1
    assert len({result.message_id for result in results}) == 50
    sends = [frame for broker in brokers for frame in broker.sends]
    assert len(sends) > 3
    assert all(frame.code == 320 and (frame.ext or {})["m"] == "true" for frame in sends)
    assert all(len(frame.body) <= 2000 for frame in sends)


@pytest.mark.parametrize(
    "messages",
    [
        [rmqpy.Message("orders", b"x"), rmqpy.Message("other", b"x")],
        [rmqpy.Message("orders", b"x", delay_level=1)],
        [rmqpy.Message("orders", b"x", sharding_key="a"), rmqpy.Message("orders", b"x", sharding_key="b")],
    ],
)
def test_messages_that_cannot_be_a_batch_are_refused(
    name_server: NameServer, messages: list[rmqpy.Message]
) -> None:
    with rmqpy.Producer(name_server.address) as producer, pytest.raises(ValueError, match="batch"):
        producer.send_batch(messages)


def test_close_respects_its_timeout(name_server: NameServer, brokers: Brokers) -> None:
    for broker in brokers:
        broker.handlers[310] = lambda ask: SILENCE
    producer = rmqpy.Producer(name_server.address, send_timeout=30)
    future = producer.submit("orders", b"x")
    began = time.monotonic()
    producer.close(timeout=0.1)
    producer.close()
    assert time.monotonic() - began < 15
    assert isinstance(future.exception(1), errors.SendError)
    with pytest.raises(errors.ClosedError):
        producer.send("orders", b"x")


def test_unclosed_producer_is_warned_of(name_server: NameServer) -> None:
    producer = rmqpy.Producer(name_server.address)
    with pytest.warns(ResourceWarning, match="not closed"):
        del producer


def test_a_signal_ends_a_blocking_send_within_a_fifth_of_a_second(
    name_server: NameServer, brokers: Brokers
) -> None:
    class Interrupted(Exception):
        pass

    def interrupt(*_: object) -> None:
        raise Interrupted

    for broker in brokers:
        broker.handlers[310] = lambda ask: SILENCE
    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        with rmqpy.Producer(name_server.address) as producer:
            producer.queues("orders")
            waits_s: list[float] = []
            # A busy machine may be late once, but not every time.
            while min(waits_s, default=1.0) > 0.2:
                assert len(waits_s) < 10, waits_s
                signal.setitimer(signal.ITIMER_REAL, 0.05)
                began = time.monotonic()
                with pytest.raises(Interrupted):
                    producer.send("orders", b"x", timeout=2)
                waits_s.append(time.monotonic() - began - 0.05)
    finally:
        signal.signal(signal.SIGALRM, before)


def test_forked_child_must_create_its_own_producer(name_server: NameServer, brokers: Brokers) -> None:
    with rmqpy.Producer(name_server.address) as producer:
        producer.send("orders", b"parent")
        child = os.fork()
        if child == 0:
            status = 1
            try:
                try:
                    producer.send("orders", b"child")
                except errors.ForkedError:
                    producer.close()
                    with rmqpy.Producer(name_server.address) as own:
                        status = 0 if own.send("orders", b"own").ok else 2
            finally:
                os._exit(status)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert producer.send("orders", b"parent").ok
