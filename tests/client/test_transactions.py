"""Transactions: a message is seen if, and only if, its block succeeds, whatever happens to client and broker."""

import asyncio
import logging
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import rmqpy
from rmqpy import ClientConfig, TransactionState, errors, testing
from rmqpy.protocol.codes import RequestCode, ResponseCode
from rmqpy.remoting.client import run
from rmqpy.server import Standalone
from rmqpy.testing import SMALL
from wire import ONEWAY, Frame

from .fakes import CLOSE, Answer, Broker, Brokers, NameServer
from .live import WAIT_S, make_topic, until


def seen(namesrv: str | ClientConfig, topic: str) -> list[rmqpy.ReceivedMessage]:
    """All messages of a topic, but for the one that made it, up to one that is sent now."""
    with (
        rmqpy.Producer(namesrv) as producer,
        rmqpy.PullConsumer("readers", namesrv, auto_commit=False, start_from="earliest") as reader,
    ):
        marks = {producer.send(topic, b"end", queue=queue).message_id for queue in producer.queues(topic)}
        reader.assign(reader.queues(topic))
        found: list[rmqpy.ReceivedMessage] = []
        until(
            lambda: (
                found.extend(reader.poll(timeout=0.2)),
                marks <= {message.message_id for message in found},
            )[1]
        )
        return [message for message in found if message.body not in (b"end", b"first")]


def bodies(namesrv: str | ClientConfig, topic: str) -> list[str]:
    return sorted(message.text() for message in seen(namesrv, topic))


def producer(server: Standalone, **settings: object) -> rmqpy.Producer:
    return rmqpy.Producer(server.namesrv, group="shop", **settings)  # type: ignore[arg-type]


class Mishap(Exception):
    """Goes wrong inside of a block."""


def failing(transaction: rmqpy.Transaction, *steps: Callable[[], object]) -> None:
    """A block that raises, after some steps in it."""
    with transaction:
        for step in steps:
            step()
        raise Mishap


def test_a_message_is_seen_when_its_block_is_left_and_not_before(server: Standalone, topic: str) -> None:
    with producer(server) as shop:
        with shop.transaction(topic, b"paid") as transaction:
            assert bodies(server.namesrv, topic) == []
            assert transaction.half.ok
            assert transaction.state is TransactionState.UNKNOWN
        assert transaction.state is TransactionState.COMMIT
        [message] = seen(server.namesrv, topic)
        assert (message.body, message.message_id) == (b"paid", transaction.half.message_id)
        assert message.transaction_id == transaction.half.transaction_id


def test_an_exception_rolls_back_and_is_raised_on(server: Standalone, topic: str) -> None:
    with producer(server) as shop:
        transaction = shop.transaction(topic, b"paid")
        with pytest.raises(Mishap):
            failing(transaction)
        assert transaction.state is TransactionState.ROLLBACK
        with pytest.raises(KeyboardInterrupt), shop.transaction(topic, b"interrupted"):
            raise KeyboardInterrupt
    assert bodies(server.namesrv, topic) == []


def test_what_is_decided_inside_the_block_is_not_decided_again(server: Standalone, topic: str) -> None:
    with producer(server) as shop:
        with shop.transaction(topic, b"taken back") as transaction:
            transaction.rollback()
            with pytest.raises(errors.TransactionError, match="is over: ROLLBACK"):
                transaction.commit()
        transaction = shop.transaction(topic, b"committed")
        with pytest.raises(Mishap):
            failing(transaction, transaction.commit)
    assert bodies(server.namesrv, topic) == ["committed"]


def test_what_is_left_unknown_is_open_still(server: Standalone, topic: str) -> None:
    with producer(server) as shop:
        transaction = shop.transaction(topic, b"who knows")
        with pytest.raises(Mishap):
            failing(transaction, transaction.leave_unknown)
        assert transaction.state is TransactionState.UNKNOWN
        with pytest.raises(errors.TransactionError):
            transaction.commit()
        assert bodies(server.namesrv, topic) == []
        run(shop._end_half(transaction.message, transaction.half, TransactionState.COMMIT))
    assert bodies(server.namesrv, topic) == ["who knows"]


def test_a_committed_message_has_all_that_was_sent(server: Standalone, topic: str) -> None:
    large = b"0123456789" * 10_000
    message = rmqpy.Message(
        topic, large, tag="paid", keys=["A", "B"], properties={"colour": "red"}, sharding_key="k", flag=7
    )
    with producer(server) as shop, shop.transaction(message) as transaction:
        assert transaction.message == message
    [stored] = seen(server.namesrv, topic)
    assert (stored.body, stored.tag, stored.keys, stored.flag) == (large, "paid", ("A", "B"), 7)
    assert (stored.properties["colour"], stored.sharding_key) == ("red", "k")
    with rmqpy.Producer(server.namesrv) as plain:
        assert plain.send(topic, b"end", sharding_key="k").queue == stored.queue


def test_a_delay_begins_with_the_commit(server: Standalone, topic: str) -> None:
    with producer(server) as shop:
        with shop.transaction(topic, b"later", deliver_after=0.3):
            pass
        until(lambda: bodies(server.namesrv, topic) == ["later"])


async def test_the_same_holds_in_an_event_loop(server: Standalone, topic: str) -> None:
    async with rmqpy.AsyncProducer(server.namesrv, group="shop") as shop:
        async with shop.transaction(topic, b"paid") as transaction:
            assert transaction.half.ok
        assert transaction.state is TransactionState.COMMIT

        async def fail() -> None:
            async with shop.transaction(topic, b"failed"):
                raise Mishap

        with pytest.raises(Mishap):
            await fail()
        async with shop.transaction(topic, b"taken back") as transaction:
            await transaction.rollback()

        async def dawdle() -> None:
            async with shop.transaction(topic, b"cancelled"):
                entered.set()
                await asyncio.sleep(WAIT_S)

        entered = asyncio.Event()
        task = asyncio.create_task(dawdle())
        await entered.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert await asyncio.to_thread(bodies, server.namesrv, topic) == ["paid"]


def test_names_of_a_namespace_are_plain(server: Standalone, topic: str) -> None:
    config = ClientConfig(namesrv=server.namesrv, namespace="north")
    with rmqpy.Admin(config) as admin:
        admin.create_topic(topic, read_queues=2, write_queues=2)
    with rmqpy.Producer(config, group="shop") as shop:
        with shop.transaction(topic, b"paid") as transaction:
            assert transaction.half.queue.topic == topic
        [message] = seen(config, topic)
    assert (message.text(), message.topic) == ("paid", topic)
    assert message.properties["PGROUP"] == "north%shop"
    assert bodies(server.namesrv, topic) == []


def test_interceptors_see_the_half(server: Standalone, topic: str) -> None:
    told: list[object] = []

    class Marking(rmqpy.ProducerInterceptor):
        def before_send(self, message: rmqpy.Message) -> rmqpy.Message:
            return message.replace(properties={"path": "seen"})

        def after_send(self, message: rmqpy.Message, outcome: object) -> None:
            told.append(outcome)

    with producer(server, interceptors=[Marking()]) as shop, shop.transaction(topic, b"x") as transaction:
        assert told == [transaction.half]
    assert seen(server.namesrv, topic)[0].properties["path"] == "seen"


# ---- mistakes ------------------------------------------------------------------------------------------


def test_transactions_need_a_group(server: Standalone) -> None:
    with rmqpy.Producer(server.namesrv) as nameless, pytest.raises(errors.ConfigError, match="group"):
        nameless.transaction("orders", b"x")
    with pytest.raises(errors.ConfigError, match="group"):
        rmqpy.Producer(server.namesrv, transaction_checker=lambda message: True)

    async def check(message: rmqpy.ReceivedMessage) -> bool:
        return True

    with pytest.raises(TypeError, match="AsyncProducer"):
        producer(server, transaction_checker=check)


def test_a_transaction_is_used_once_and_inside_of_its_block(server: Standalone, topic: str) -> None:
    with producer(server) as shop:
        transaction = shop.transaction(topic, b"x")
        with pytest.raises(errors.TransactionError, match="has not begun"):
            transaction.commit()
        with transaction:
            pass
        with pytest.raises(errors.TransactionError, match="used once"), transaction:
            pass
        with pytest.raises(errors.MessageTooLarge), shop.transaction(topic, b"x" * (5 << 20)):
            pytest.fail("it has not begun")


# ---- what fails ----------------------------------------------------------------------------------------


def test_a_producer_that_is_closed_inside_the_block_leaves_the_transaction_open(
    server: Standalone, topic: str
) -> None:
    shop = producer(server)
    with (
        pytest.raises(errors.TransactionError, match="closed") as failed,
        shop.transaction(topic, b"x") as open_,
    ):
        shop.close()
    assert isinstance(failed.value.__cause__, errors.ClosedError)
    assert bodies(server.namesrv, topic) == []
    with producer(server) as another:
        run(another._end_half(open_.message, open_.half, TransactionState.COMMIT))
    assert bodies(server.namesrv, topic) == ["x"]


def killed(namesrv: str, topic: str) -> rmqpy.SendResult:
    """The half of a process that was killed inside its block."""
    program = f"""
        import os, signal, rmqpy
        with rmqpy.Producer({namesrv!r}, group="shop") as shop:
            with shop.transaction({topic!r}, b"half") as transaction:
                half = transaction.half
                print(half.message_id, half.offset_message_id, half.queue.broker, half.queue_offset, flush=True)
                os.kill(os.getpid(), signal.SIGKILL)
    """
    command = [sys.executable, "-c", textwrap.dedent(program)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert ran.returncode == -9, ran.stderr
    message_id, place, broker, offset = ran.stdout.split()
    queue = rmqpy.MessageQueue(topic, broker, 0)
    return rmqpy.SendResult(message_id, place, queue, int(offset), rmqpy.SendStatus.SEND_OK)


def test_a_process_that_is_killed_inside_the_block_leaves_the_transaction_open(
    server: Standalone, topic: str
) -> None:
    half = killed(server.namesrv, topic)
    assert bodies(server.namesrv, topic) == []
    with producer(server) as another:
        run(another._end_half(rmqpy.Message(topic, b"half"), half, TransactionState.COMMIT))
    assert bodies(server.namesrv, topic) == ["half"]


def test_a_broker_that_restarts_inside_the_block_keeps_the_transaction(tmp_path: Path) -> None:
    def start(ports: tuple[int, int] = (0, 0)) -> Standalone:
        return Standalone(tmp_path, namesrv_port=ports[0], broker_port=ports[1], **SMALL)

    with start() as server:
        shop = rmqpy.Producer(server.namesrv, group="shop", send_timeout=WAIT_S)
        shop.send("orders", b"first")
        transaction = shop.transaction("orders", b"x")
        transaction.__enter__()
        ports = (int(server.namesrv.rpartition(":")[2]), int(server.broker.rpartition(":")[2]))
    with start(ports) as server, shop:
        transaction.__exit__(None, None, None)
        assert bodies(server.namesrv, "orders") == ["x"]


def ended(broker: Broker) -> list[tuple[int, str]]:
    """Flags and decisions of the ends a broker was sent."""
    ends = [frame for frame in broker.asked if frame.code == RequestCode.END_TRANSACTION]
    return [(frame.flag & ONEWAY, (frame.ext or {})["commitOrRollback"]) for frame in ends]


def stores_halves(broker: Broker, code: int = 0) -> Callable[[Frame], Answer]:
    def store(ask: Frame) -> Answer:
        ext = {"msgId": "7F00000100002A9F" + f"{4711:016X}", "queueId": "1", "queueOffset": "9"}
        return Frame(code, ext=ext | {"MSG_REGION": "r", "TRACE_ON": "true"})

    return store


@pytest.fixture
def halves(brokers: Brokers) -> Brokers:
    """Brokers that take halves and decisions."""
    for broker in brokers:
        broker.handlers[RequestCode.SEND_MESSAGE] = stores_halves(broker)
        broker.handlers[RequestCode.END_TRANSACTION] = lambda ask: Frame(0)
    return brokers


def test_a_half_whose_answer_is_lost_is_not_sent_again(name_server: NameServer, halves: Brokers) -> None:
    for broker in halves:
        broker.handlers[RequestCode.SEND_MESSAGE] = lambda ask: CLOSE
    with (
        rmqpy.Producer(name_server.address, group="shop") as shop,
        pytest.raises(errors.SendError) as failed,
        shop.transaction("orders", b"x"),
    ):
        pytest.fail("it has not begun")
    assert len(failed.value.attempts) == 1
    assert sum(broker.count(RequestCode.SEND_MESSAGE) for broker in halves) == 1


@pytest.mark.parametrize("is_away", [False, True], ids=["refuses", "is away"])
def test_a_half_that_one_broker_cannot_have_goes_to_another(
    name_server: NameServer, halves: Brokers, is_away: bool
) -> None:
    halves[0].handlers[RequestCode.SEND_MESSAGE] = lambda ask: Frame(ResponseCode.SERVICE_NOT_AVAILABLE)
    if is_away:
        halves[0].stop()
    with rmqpy.Producer(name_server.address, group="shop") as shop:
        for _ in range(4):
            with shop.transaction("orders", b"x") as transaction:
                assert transaction.half.queue.broker == "broker-b"
    assert ended(halves[1]) == [(0, "8")] * 4


@pytest.mark.parametrize("namespace", ["", "north"])
def test_a_half_and_its_end_say_what_the_original_says(
    name_server: NameServer, halves: Brokers, namespace: str
) -> None:
    inside = f"{namespace}%" if namespace else ""
    name_server.topics = {f"{inside}orders": 1}
    config = ClientConfig(namesrv=name_server.address, namespace=namespace)
    with (
        rmqpy.Producer(config, group="shop") as shop,
        shop.transaction("orders", b"x", tag="t") as transaction,
    ):
        half = transaction.half
    broker = next(broker for broker in halves if broker.name == half.queue.broker)
    [sent] = [frame for frame in broker.asked if frame.code == RequestCode.SEND_MESSAGE]
    ext = sent.ext or {}
    assert (ext["producerGroup"], ext["topic"], ext["sysFlag"]) == (f"{inside}shop", f"{inside}orders", "4")
    properties = dict(item.split("\x01") for item in ext["properties"].split("\x02") if item)
    expected = {"TAGS": "t", "WAIT": "true", "UNIQ_KEY": half.message_id, "TRAN_MSG": "true"}
    expected |= {"PGROUP": f"{inside}shop"} | ({"INSTANCE_ID": namespace} if namespace else {})
    assert properties == expected
    [end] = [frame for frame in broker.asked if frame.code == RequestCode.END_TRANSACTION]
    assert end.ext == {
        "topic": f"{inside}orders",
        "producerGroup": f"{inside}shop",
        "tranStateTableOffset": "9",
        "commitLogOffset": "4711",
        "commitOrRollback": "8",
        "fromTransactionCheck": "false",
        "msgId": half.message_id,
        "transactionId": half.message_id,
        "bname": broker.name,
    }


def test_a_half_that_is_not_as_safe_as_promised_is_rolled_back(
    name_server: NameServer, halves: Brokers
) -> None:
    for broker in halves:
        broker.handlers[RequestCode.SEND_MESSAGE] = stores_halves(broker, ResponseCode.FLUSH_DISK_TIMEOUT)
    with (
        rmqpy.Producer(name_server.address, group="shop") as shop,
        pytest.raises(errors.NotStored, match="FLUSH_DISK_TIMEOUT"),
        shop.transaction("orders", b"x"),
    ):
        pytest.fail("it has not begun")
    assert [*ended(halves[0]), *ended(halves[1])] == [(0, "12")]


def test_a_commit_that_is_refused_is_told_and_not_repeated(name_server: NameServer, halves: Brokers) -> None:
    for broker in halves:
        broker.handlers[RequestCode.END_TRANSACTION] = lambda ask: Frame(1, remark="over already")
    with rmqpy.Producer(name_server.address, group="shop") as shop:
        transaction = shop.transaction("orders", b"x")
        with pytest.raises(errors.TransactionError, match="over already") as failed, transaction:
            pass
        assert (failed.value.code, failed.value.topic) == (1, "orders")
        assert transaction.state is TransactionState.UNKNOWN
    assert [*ended(halves[0]), *ended(halves[1])] == [(0, "8")]


def test_a_rollback_that_fails_hides_no_exception(
    name_server: NameServer, halves: Brokers, caplog: pytest.LogCaptureFixture
) -> None:
    for broker in halves:
        broker.handlers[RequestCode.END_TRANSACTION] = lambda ask: Frame(1, remark="over already")
    with rmqpy.Producer(name_server.address, group="shop") as shop, caplog.at_level(logging.WARNING):
        with pytest.raises(Mishap):
            failing(shop.transaction("orders", b"x"))
        assert "is not rolled back" in caplog.text


def test_a_commit_waits_for_a_broker_that_is_away_for_a_moment(
    name_server: NameServer, halves: Brokers
) -> None:
    name_server.brokers = [halves[0]]
    with rmqpy.Producer(name_server.address, group="shop", send_timeout=WAIT_S) as shop:
        with shop.transaction("orders", b"x"):
            halves[0].stop()
            with pytest.raises(errors.SendError):
                shop.send("orders", b"nobody is there", timeout=1.0)
            back = threading.Timer(0.3, halves[0].start)
            back.start()
        back.join()
        assert ended(halves[0]) == [(0, "8")]


# ---- with the checks of our broker ---------------------------------------------------------------------


@pytest.fixture
def clock() -> testing.HandClock:
    return testing.HandClock()


@pytest.fixture
def timed(clock: testing.HandClock) -> Iterator[Standalone]:
    with testing.broker(clock=clock) as server:
        make_topic(server, "orders")
        yield server


def decide_when_asked(server: Standalone, clock: testing.HandClock, decision: bool) -> list[str]:
    """Have a new producer of the group asked about what is open; the ids it was asked about."""
    asked: list[str] = []

    def check(message: rmqpy.ReceivedMessage) -> bool:
        asked.append(message.message_id)
        return decision

    with (
        rmqpy.Producer(server.namesrv, group="shop", transaction_checker=check),
        rmqpy.Admin(server.namesrv) as admin,
    ):
        until(lambda: any(client.group == "shop" for client in admin.clients()))
        until(lambda: (clock.advance(31), asked)[1])
        until(lambda: bodies(server.namesrv, "orders") == (["half"] if decision else []))
    return asked


@pytest.mark.parametrize("decision", [True, False], ids=["commit", "rollback"])
def test_what_a_killed_process_left_open_is_decided_by_the_next_one(
    timed: Standalone, clock: testing.HandClock, decision: bool
) -> None:
    message_id = killed(timed.namesrv, "orders").message_id
    assert bodies(timed.namesrv, "orders") == []
    assert set(decide_when_asked(timed, clock, decision)) == {message_id}


def test_what_is_left_unknown_is_asked_of_its_own_producer(
    timed: Standalone, clock: testing.HandClock
) -> None:
    asked: list[rmqpy.ReceivedMessage] = []

    def check(message: rmqpy.ReceivedMessage) -> bool | None:
        asked.append(message)
        return True if len(asked) > 1 else None

    with rmqpy.Producer(timed.namesrv, group="shop", transaction_checker=check) as shop:
        with shop.transaction("orders", b"half", keys="A-1") as transaction:
            transaction.leave_unknown()
        until(lambda: (clock.advance(31), len(asked) > 1)[1])
        until(lambda: bodies(timed.namesrv, "orders") == ["half"])
    assert {message.message_id for message in asked} == {transaction.half.message_id}
    assert {(message.topic, message.text(), message.keys) for message in asked} == {
        ("orders", "half", ("A-1",))
    }
