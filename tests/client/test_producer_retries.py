"""Failed sends: retried or not, within their timeout."""

import asyncio
import time
from collections.abc import Callable
from typing import Any

import pytest

import rmqpy
from rmqpy import errors
from rmqpy.message import MessageQueue
from rmqpy.protocol.codes import ResponseCode
from waiting import until
from wire import Frame

from .fakes import CLOSE, SENDS, SILENCE, Answer, Broker, Brokers, NameServer, Network


@pytest.mark.parametrize("code", [1, 2, 14, 16, 17, 204, 205, 1500])
def test_a_refusal_another_broker_may_not_share_is_tried_there(
    name_server: NameServer, brokers: Brokers, code: int
) -> None:
    def refuse_the_first(broker: Broker) -> Callable[[Frame], Any]:
        def answer(ask: Frame) -> Any:
            is_first = sum(len(each.sends) for each in brokers) == 1
            return Frame(code, remark="not now") if is_first else broker.store(ask)

        return answer

    for broker in brokers:
        broker.handlers[310] = refuse_the_first(broker)
    with rmqpy.Producer(name_server.address) as producer:
        result = producer.send("orders", b"x")
    assert result.attempts == 2
    # The same message, at the other broker.
    assert brokers[0].unique_id() == brokers[1].unique_id() == result.message_id


@pytest.mark.parametrize("code", [3, 13, 26, 29])
def test_a_refusal_of_the_message_itself_is_final(
    name_server: NameServer, brokers: Brokers, code: int
) -> None:
    for broker in brokers:
        broker.refuse(code, "never")
    with rmqpy.Producer(name_server.address) as producer, pytest.raises(errors.SendError) as caught:
        producer.send("orders", b"x")
    assert len(caught.value.attempts) == 1
    assert caught.value.code == code
    assert sum(len(broker.sends) for broker in brokers) == 1


def test_the_error_lists_every_attempt(name_server: NameServer, brokers: Brokers) -> None:
    brokers[0].refuse(14, "disk full")
    brokers[1].refuse(14, "disk full")
    with (
        rmqpy.Producer(name_server.address, retries=2) as producer,
        pytest.raises(errors.NotStored) as caught,
    ):
        producer.send("orders", b"x")
    attempts = caught.value.attempts
    assert len(attempts) == 3
    assert {attempt.queue.broker for attempt in attempts[:2]} == {"broker-a", "broker-b"}  # type: ignore[attr-defined]
    assert caught.value.retriable
    assert "disk full" in str(caught.value)


@pytest.mark.parametrize("how", ["send", "submit", "callback", "async"])
def test_a_lost_connection_is_retried_elsewhere_however_it_was_sent(
    name_server: NameServer, brokers: Brokers, how: str
) -> None:
    brokers[0].handlers[310] = lambda ask: CLOSE
    queue_of_a = lambda message, queues: min(queues)  # noqa: E731
    if how == "async":

        async def send() -> rmqpy.SendResult:
            async with rmqpy.AsyncProducer(name_server.address, selector=queue_of_a) as producer:
                return await producer.send("orders", b"x")

        result = asyncio.run(send())
    else:
        with rmqpy.Producer(name_server.address, selector=queue_of_a) as producer:
            if how == "send":
                result = producer.send("orders", b"x")
            elif how == "submit":
                result = producer.submit("orders", b"x").result(30)
            else:
                arrived: list[Any] = []
                producer.submit("orders", b"x", callback=arrived.append).result(30)
                producer.close()
                (result,) = arrived
    assert (result.queue.broker, result.attempts) == ("broker-b", 2)


@pytest.mark.parametrize("how", ["send", "submit", "async"])
def test_only_broker_is_retried_after_a_pause_when_busy(network: Network, brokers: Brokers, how: str) -> None:
    broker = brokers[0]
    servers = network.name_server([broker], {"orders": 1})
    times: list[float] = []

    def busy_at_first(ask: Frame) -> Any:
        times.append(time.monotonic())
        return Frame(2, remark="busy") if len(times) < 3 else broker.store(ask)

    broker.handlers[310] = busy_at_first
    if how == "async":

        async def send() -> rmqpy.SendResult:
            async with rmqpy.AsyncProducer(servers.address) as producer:
                return await producer.send("orders", b"x")

        assert asyncio.run(send()).attempts == 3
    else:
        with rmqpy.Producer(servers.address) as producer:
            result = (
                producer.send("orders", b"x") if how == "send" else producer.submit("orders", b"x").result(30)
            )
        assert result.attempts == 3
    assert times[1] - times[0] > 0.04
    assert times[2] - times[1] > 0.09


def test_a_chosen_queue_is_kept_through_retries(name_server: NameServer, brokers: Brokers) -> None:
    brokers[0].refuse(1)
    queue = MessageQueue("orders", "broker-a", 1)
    with rmqpy.Producer(name_server.address) as producer, pytest.raises(errors.SendError):
        producer.send("orders", b"x", queue=queue)
    assert [(frame.ext or {})["e"] for frame in brokers[0].sends] == ["1", "1", "1"]
    assert not brokers[1].sends


def test_a_silent_broker_costs_no_more_than_the_timeout(name_server: NameServer, brokers: Brokers) -> None:
    for broker in brokers:
        broker.handlers[310] = lambda ask: SILENCE
    began = time.monotonic()
    with (
        rmqpy.Producer(name_server.address, send_timeout=60) as producer,
        pytest.raises(errors.SendError) as caught,
    ):
        producer.send("orders", b"x", timeout=0.3)
    assert 0.2 < time.monotonic() - began < 30
    assert isinstance(caught.value.__cause__, errors.RequestTimeout)


@pytest.mark.parametrize(("retry", "count"), [(False, 1), (True, 3)])
def test_stored_but_not_safely_is_a_result_unless_it_should_be_retried(
    name_server: NameServer, brokers: Brokers, retry: bool, count: int
) -> None:
    def slow_disk(broker: Broker) -> Callable[[Any], Any]:
        def answer(ask: Any) -> Any:
            frame = broker.store(ask)
            frame.code = 10  # type: ignore[union-attr]
            return frame

        return answer

    for broker in brokers:
        broker.handlers[310] = slow_disk(broker)
    with rmqpy.Producer(name_server.address, retry_not_stored=retry) as producer:
        result = producer.send("orders", b"x")
    assert result.status is rmqpy.SendStatus.FLUSH_DISK_TIMEOUT
    assert not result.ok
    assert sum(len(broker.sends) for broker in brokers) == count


def test_failed_broker_is_avoided_temporarily_if_enabled(name_server: NameServer, brokers: Brokers) -> None:
    brokers[0].refuse(ResponseCode.SYSTEM_ERROR)
    asked = []
    for avoids in (False, True):
        with rmqpy.Producer(name_server.address, latency_fault_tolerance=avoids) as producer:
            before = len(brokers[0].sends)
            for _ in range(40):
                assert producer.send("orders", b"x").queue.broker == "broker-b"
            asked.append(len(brokers[0].sends) - before)
            # Whoever names the queue gets it.
            with pytest.raises(errors.SendError):
                producer.send("orders", b"x", queue=MessageQueue("orders", "broker-a", 0))
    assert asked[0] > 15
    assert asked[1] == 1


def test_slow_broker_is_avoided_unless_all_are_slow(name_server: NameServer, brokers: Brokers) -> None:
    def slow(ask: Frame) -> Answer:
        time.sleep(0.6)  # more than the half second that counts as slow
        return brokers[0].store(ask)

    for code in SENDS:
        brokers[0].handlers[code] = slow
    with rmqpy.Producer(name_server.address, latency_fault_tolerance=True) as producer:
        until(lambda: producer.send("orders", b"x").queue.broker == "broker-a")
        for code in SENDS:
            brokers[0].handlers[code] = brokers[0].store
        assert {producer.send("orders", b"x").queue.broker for _ in range(16)} == {"broker-b"}
        brokers[1].refuse(ResponseCode.SYSTEM_ERROR)
        assert producer.send("orders", b"x").queue.broker == "broker-a"
        # Its answer was quick: it is one of the others again.
        assert {producer.send("orders", b"x").queue.broker for _ in range(16)} == {"broker-a"}


def test_exception_in_the_retry_rule_ends_only_its_send(
    name_server: NameServer,
    brokers: Brokers,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fail(*_: object) -> None:
        raise AttributeError("a defect")

    for broker in brokers:
        broker.refuse(14, "disk full")
    with rmqpy.Producer(name_server.address) as producer:
        with monkeypatch.context() as patched:
            patched.setattr("rmqpy.client.producer.retry.next_queue", fail)
            with pytest.raises(errors.NotStored):
                producer.submit("orders", b"x").result(30)
        assert "giving up a send to orders" in caplog.text
        for broker in brokers:
            broker.handlers.update(dict.fromkeys(SENDS, broker.store))
        assert producer.submit("orders", b"y").result(30).status is rmqpy.SendStatus.SEND_OK
