"""Transactions: a message is visible only if its block succeeds, whatever happens to client and broker."""

import asyncio
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import rmqpy
from rmqpy import ClientConfig, TransactionState, errors, testing
from rmqpy.remoting.client import run
from rmqpy.server import Standalone
from rmqpy.testing import SMALL
from waiting import until

from .live import WAIT_S, make_topic


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


def test_message_is_visible_only_after_its_block(server: Standalone, topic: str) -> None:
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


def test_decision_inside_the_block_is_final(server: Standalone, topic: str) -> None:
    with producer(server) as shop:
        with shop.transaction(topic, b"taken back") as transaction:
            transaction.rollback()
            with pytest.raises(errors.TransactionError, match="is over: ROLLBACK"):
                transaction.commit()
        transaction = shop.transaction(topic, b"committed")
        with pytest.raises(Mishap):
            failing(transaction, transaction.commit)
    assert bodies(server.namesrv, topic) == ["committed"]


def test_unknown_transaction_stays_open(server: Standalone, topic: str) -> None:
    with producer(server) as shop:
        transaction = shop.transaction(topic, b"who knows")
        with pytest.raises(Mishap):
            failing(transaction, transaction.leave_unknown)
        assert transaction.state is TransactionState.UNKNOWN
        with pytest.raises(errors.TransactionError):
            transaction.commit()
        assert bodies(server.namesrv, topic) == []
        run(shop._transactions.end(shop, transaction.message, transaction.half, TransactionState.COMMIT))
    assert bodies(server.namesrv, topic) == ["who knows"]


def test_committed_message_is_complete(server: Standalone, topic: str) -> None:
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


async def test_async_transactions_behave_alike(server: Standalone, topic: str) -> None:
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
                await asyncio.Event().wait()

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
        with pytest.raises(errors.TransactionError, match="has not started"):
            transaction.commit()
        with transaction:
            pass
        with pytest.raises(errors.TransactionError, match="entered only once"), transaction:
            pass
        with pytest.raises(errors.MessageTooLarge), shop.transaction(topic, b"x" * (5 << 20)):
            pytest.fail("it has not started")


# ---- what fails ----------------------------------------------------------------------------------------


def test_producer_closed_inside_the_block_leaves_the_transaction_open(server: Standalone, topic: str) -> None:
    shop = producer(server)
    with (
        pytest.raises(errors.TransactionError, match="closed") as failed,
        shop.transaction(topic, b"x") as open_,
    ):
        shop.close()
    assert isinstance(failed.value.__cause__, errors.ClosedError)
    assert bodies(server.namesrv, topic) == []
    with producer(server) as another:
        run(another._transactions.end(another, open_.message, open_.half, TransactionState.COMMIT))
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


def test_process_killed_inside_the_block_leaves_the_transaction_open(server: Standalone, topic: str) -> None:
    half = killed(server.namesrv, topic)
    assert bodies(server.namesrv, topic) == []
    with producer(server) as another:
        run(another._transactions.end(another, rmqpy.Message(topic, b"half"), half, TransactionState.COMMIT))
    assert bodies(server.namesrv, topic) == ["half"]


def test_broker_restart_inside_the_block_keeps_the_transaction(tmp_path: Path) -> None:
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
def test_transaction_of_a_killed_process_is_decided_by_the_next_one(
    timed: Standalone, clock: testing.HandClock, decision: bool
) -> None:
    message_id = killed(timed.namesrv, "orders").message_id
    assert bodies(timed.namesrv, "orders") == []
    assert set(decide_when_asked(timed, clock, decision)) == {message_id}


def test_unknown_transaction_is_checked_at_its_own_producer(
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
