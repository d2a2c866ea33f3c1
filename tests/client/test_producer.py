"""Sending, against brokers that refuse, fall silent or go away."""

import asyncio
import os
import signal
import threading
import time
import zlib
from collections.abc import Callable
from typing import Any

import pytest

import rmqpy
from rmqpy import errors
from rmqpy.client.routes import TEMPLATE_TOPIC
from rmqpy.message import MessageQueue
from wire import Frame

from .fakes import CLOSE, SILENCE, Broker, NameServer, Network

Brokers = tuple[Broker, Broker]


def unique_id(broker: Broker, index: int = 0) -> str:
    ext = broker.sends[index].ext or {}
    return dict(item.split("\x01") for item in ext["i"].split("\x02") if item)["UNIQ_KEY"]


def wait_for(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.001)


# ---- the way of one message ----------------------------------------------------------------------------


def test_a_send_tells_where_the_message_is(name_server: NameServer, brokers: Brokers) -> None:
    with rmqpy.Producer(name_server.address, group="pg") as producer:
        result = producer.send("orders", "hello", tag="paid", queue=MessageQueue("orders", "broker-b", 1))
    assert result.ok
    assert result.queue == MessageQueue("orders", "broker-b", 1)
    assert result.message_id == unique_id(brokers[1])
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


@pytest.mark.parametrize("header", ["json", "binary"])
def test_headers_go_out_in_either_encoding(network: Network, brokers: Brokers, header: Any) -> None:
    servers = network.name_server(brokers, {"orders": 1})
    with rmqpy.Producer(rmqpy.ClientConfig(namesrv=servers.address, header=header)) as producer:
        producer.send("orders", b"x")
    assert {frame.encoding for broker in brokers for frame in broker.sends} == {int(header == "binary")}


def test_messages_go_round_all_queues_and_equal_keys_to_one(
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


def test_a_body_over_the_maximum_is_refused_here(name_server: NameServer, brokers: Brokers) -> None:
    with (
        rmqpy.Producer(name_server.address, max_message_size=100) as producer,
        pytest.raises(errors.MessageTooLarge, match="maxMessageSize"),
    ):
        producer.send("orders", b"x" * 101)
    assert not name_server.asked


def test_a_oneway_send_asks_for_no_answer(name_server: NameServer, brokers: Brokers) -> None:
    with rmqpy.Producer(name_server.address) as producer:
        producer.send_oneway("orders", b"x", queue=MessageQueue("orders", "broker-a", 0))
        wait_for(lambda: bool(brokers[0].sends))
    assert brokers[0].sends[0].flag == 2


# ---- retries -------------------------------------------------------------------------------------------


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
    assert unique_id(brokers[0]) == unique_id(brokers[1]) == result.message_id


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
                result = producer.submit("orders", b"x").result(10)
            else:
                arrived: list[Any] = []
                producer.submit("orders", b"x", callback=arrived.append).result(10)
                producer.close()
                (result,) = arrived
    assert (result.queue.broker, result.attempts) == ("broker-b", 2)


@pytest.mark.parametrize("how", ["send", "submit", "async"])
def test_a_busy_broker_that_is_the_only_one_is_left_alone_for_a_while(
    network: Network, brokers: Brokers, how: str
) -> None:
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
                producer.send("orders", b"x") if how == "send" else producer.submit("orders", b"x").result(10)
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
    with rmqpy.Producer(name_server.address) as producer, pytest.raises(errors.SendError) as caught:
        producer.send("orders", b"x", timeout=0.3)
    assert 0.2 < time.monotonic() - began < 2
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


# ---- routes --------------------------------------------------------------------------------------------


def test_sends_go_on_while_every_name_server_is_down(name_server: NameServer, brokers: Brokers) -> None:
    config = rmqpy.ClientConfig(namesrv=name_server.address, route_refresh=0.02, request_timeout=0.2)
    with rmqpy.Producer(config) as producer:
        producer.send("orders", b"first")
        name_server.stop()
        deadline = time.monotonic() + 0.3
        while time.monotonic() < deadline:
            # Old enough for a look-up in the background now and then, and for one in front at the end.
            producer.send("orders", b"x")
        time.sleep(0.1)
        assert producer.send("orders", b"last").ok


def test_an_old_route_is_better_than_none(name_server: NameServer, brokers: Brokers) -> None:
    config = rmqpy.ClientConfig(namesrv=name_server.address, route_refresh=0.001, request_timeout=0.2)
    with rmqpy.Producer(config) as producer:
        producer.send("orders", b"x")
        name_server.stop()
        # So old that it is looked up before it is used; that fails, and it is used.
        deadline = time.monotonic() + 0.02
        wait_for(lambda: time.monotonic() > deadline)
        assert producer.send("orders", b"x").ok


def test_the_look_up_behind_the_senders_back_goes_to_the_next_name_server_as_well(
    network: Network, brokers: Brokers
) -> None:
    first, second = (network.name_server(brokers[:1], {"orders": 1}) for _ in range(2))
    config = rmqpy.ClientConfig(namesrv=[first.address, second.address], route_refresh=0.05)
    with rmqpy.Producer(config) as producer:
        producer.send("orders", b"x")
        asked, other = (first, second) if first.asked else (second, first)
        asked.stop()
        other.brokers = list(brokers)
        wait_for(lambda: producer.send("orders", b"x").queue.broker == "broker-b")


def test_a_dead_name_server_is_passed_over(network: Network, brokers: Brokers) -> None:
    dead, alive = (network.name_server(brokers, {"orders": 1}) for _ in range(2))
    dead.stop()
    for _ in range(5):
        with rmqpy.Producer([dead.address, alive.address]) as producer:
            assert producer.send("orders", b"x").ok


def test_no_name_server_and_no_route_yet_is_an_error_that_names_them(
    network: Network, brokers: Brokers
) -> None:
    dead = network.name_server(brokers, {})
    dead.stop()
    with (
        rmqpy.Producer(dead.address) as producer,
        pytest.raises(errors.NameServerUnreachable, match=str(dead.port)),
    ):
        producer.send("orders", b"x")


def test_a_new_topic_borrows_queues_until_its_first_message_made_it(
    name_server: NameServer, brokers: Brokers
) -> None:
    name_server.topics[TEMPLATE_TOPIC] = 8
    with rmqpy.Producer(name_server.address) as producer:
        assert len(producer.queues("fresh")) == 2 * 4
        assert producer.send("fresh", b"x").ok


def test_without_a_template_an_unknown_topic_says_how_to_make_it(name_server: NameServer) -> None:
    with (
        rmqpy.Producer(name_server.address) as producer,
        pytest.raises(errors.TopicNotFound, match="rmqpy topic create fresh"),
    ):
        producer.send("fresh", b"x")


def test_a_topic_that_takes_no_messages_says_so(name_server: NameServer, brokers: Brokers) -> None:
    for broker in brokers:
        broker.permission = 4
    with rmqpy.Producer(name_server.address) as producer, pytest.raises(errors.NoWritableQueue):
        producer.send("orders", b"x")


def test_a_changed_route_is_learned_behind_the_senders_back(
    network: Network, name_server: NameServer, brokers: Brokers
) -> None:
    config = rmqpy.ClientConfig(namesrv=name_server.address, route_refresh=0.01)
    newcomer = network.broker("broker-c")
    with rmqpy.Producer(config) as producer:
        producer.send("orders", b"x")
        name_server.brokers.append(newcomer)

        def reaches_newcomer() -> bool:
            return producer.send("orders", b"x").queue.broker == "broker-c"

        wait_for(reaches_newcomer)


# ---- many at once --------------------------------------------------------------------------------------


def test_a_thousand_submits_are_one_conversation(name_server: NameServer, brokers: Brokers) -> None:
    with rmqpy.Producer(name_server.address) as producer:
        futures = [producer.submit("orders", str(number)) for number in range(1000)]
        assert all(future.result(20).ok for future in futures)
    bodies = sorted(int(frame.body) for broker in brokers for frame in broker.sends)
    assert bodies == list(range(1000))


def test_callbacks_share_one_thread_and_one_that_fails_hurts_nobody(
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
        wait_for(lambda: len(outcomes) == 8)
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
    with rmqpy.Producer(name_server.address, send_timeout=0.5, when_full="raise", **budget) as producer:  # type: ignore[arg-type]
        futures = [producer.submit("orders", b"x") for _ in range(2)]
        with pytest.raises(errors.BufferFull):
            producer.submit("orders", b"x")
        # Failed sends give their room back.
        assert all(future.exception(10) is not None for future in futures)
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


# ---- the end -------------------------------------------------------------------------------------------


def test_closing_waits_no_longer_than_asked(name_server: NameServer, brokers: Brokers) -> None:
    for broker in brokers:
        broker.handlers[310] = lambda ask: SILENCE
    producer = rmqpy.Producer(name_server.address, send_timeout=30)
    future = producer.submit("orders", b"x")
    began = time.monotonic()
    producer.close(timeout=0.1)
    producer.close()
    assert time.monotonic() - began < 2
    assert isinstance(future.exception(1), errors.SendError)
    with pytest.raises(errors.ClosedError):
        producer.send("orders", b"x")


def test_leaving_a_producer_open_is_a_warning(name_server: NameServer) -> None:
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
            signal.setitimer(signal.ITIMER_REAL, 0.05)
            began = time.monotonic()
            with pytest.raises(Interrupted):
                producer.send("orders", b"x", timeout=2)
            assert time.monotonic() - began < 0.25
    finally:
        signal.signal(signal.SIGALRM, before)


def test_a_child_process_gets_an_error_and_can_make_its_own(
    name_server: NameServer, brokers: Brokers
) -> None:
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


# ---- event loops ---------------------------------------------------------------------------------------


async def test_a_loop_sends_many_and_awaits_them_in_any_order(
    name_server: NameServer, brokers: Brokers
) -> None:
    async with rmqpy.AsyncProducer(name_server.address, max_in_flight=64) as producer:
        futures = [await producer.submit("orders", str(number)) for number in range(500)]
        results = await asyncio.gather(*futures)
        batch = await producer.send_batch([rmqpy.Message("orders", b"x") for _ in range(3)])
        await producer.send_oneway("orders", b"x")
    assert all(result.ok for result in [*results, *batch])
    assert len({result.message_id for result in results}) == 500


async def test_a_loop_gets_the_same_errors(name_server: NameServer, brokers: Brokers) -> None:
    for broker in brokers:
        broker.refuse(13, "never")
    async with rmqpy.AsyncProducer(name_server.address) as producer:
        with pytest.raises(errors.SendError, match="never"):
            await producer.send("orders", b"x")
        with pytest.raises(errors.TopicNotFound):
            await producer.send("fresh", b"x")


async def test_cancelling_a_send_ends_the_wait_and_nothing_else(
    name_server: NameServer, brokers: Brokers
) -> None:
    held: list[Any] = []

    def hold(ask: Any) -> Any:
        held.append(ask)
        return SILENCE if len(held) == 1 else brokers[0].store(ask)

    for broker in brokers:
        broker.handlers[310] = hold
    async with rmqpy.AsyncProducer(name_server.address, send_timeout=0.5) as producer:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await producer.send("orders", b"x")
        assert (await producer.send("orders", b"y")).ok


@pytest.mark.parametrize("budget", [{"max_in_flight": 1}, {"max_in_flight": 7}, {"max_buffered_bytes": 300}])
async def test_sends_that_wait_for_room_go_in_order_and_all_get_through(
    name_server: NameServer, brokers: Brokers, budget: dict[str, int]
) -> None:
    only = [MessageQueue("orders", "broker-a", 0)]
    async with rmqpy.AsyncProducer(name_server.address, send_timeout=30, retries=0, **budget) as producer:  # type: ignore[arg-type]
        await producer.queues("orders")
        sizes = [400 if number % 10 == 0 else 10 for number in range(100)]
        tasks = [
            asyncio.ensure_future(producer.send("orders", f"{number:0{size}}", queue=only[0]))
            for number, size in enumerate(sizes)
        ]
        await asyncio.sleep(0)
        for victim in tasks[50:60]:
            victim.cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
    assert sum(isinstance(result, rmqpy.SendResult) for result in results) >= 90
    arrived = [int(frame.body) for frame in brokers[0].sends]
    assert arrived == sorted(arrived)


async def test_closing_ends_the_wait_for_room(name_server: NameServer, brokers: Brokers) -> None:
    for broker in brokers:
        broker.handlers[310] = lambda ask: SILENCE
    producer = rmqpy.AsyncProducer(name_server.address, max_in_flight=1, send_timeout=30)
    first = await producer.submit("orders", b"x")
    waiting = asyncio.ensure_future(producer.submit("orders", b"x"))
    await asyncio.sleep(0)
    await producer.close(timeout=0.05)
    with pytest.raises(errors.ClosedError):
        await waiting
    with pytest.raises(errors.SendError):
        await first
