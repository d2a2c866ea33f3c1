"""Checks of transactions, frame by frame: a broker asks a producer's group, and its checker decides."""

import asyncio
import json
import logging
import threading
from collections.abc import Callable, Iterator

import pytest

import rmqpy
from golden import golden_frame
from rmqpy import ClientConfig, TransactionState
from rmqpy.protocol.codes import RequestCode
from waiting import until
from wire import ONEWAY, Frame

from .fakes import Broker, Brokers, NameServer, properties, record

MESSAGE_ID = "AC110001000018B4AAC2000000000001"


def question(group: str = "shop", topic: str = "orders", body: bytes = b"paid") -> Frame:
    """A broker asks about a half message at 4711, the ninth."""
    props = properties(UNIQ_KEY=MESSAGE_ID, TRAN_MSG="true", PGROUP=group, KEYS="A-1")
    return Frame(
        RequestCode.CHECK_TRANSACTION_STATE,
        flag=ONEWAY,
        ext={
            "topic": "RMQ_SYS_TRANS_HALF_TOPIC",
            "tranStateTableOffset": "9",
            "commitLogOffset": "4711",
            "msgId": MESSAGE_ID,
            "transactionId": MESSAGE_ID,
            "offsetMsgId": "7F00000100002A9F0000000000001267",
            "bname": "broker-a",
        },
        body=record(body, topic=topic, queue_id=1, offset=9, props=props),
    )


def decisions(broker: Broker) -> list[Frame]:
    return [frame for frame in broker.asked if frame.code == RequestCode.END_TRANSACTION]


def decided(broker: Broker) -> list[str]:
    return [(frame.ext or {})["commitOrRollback"] for frame in decisions(broker)]


@pytest.fixture
def asking(name_server: NameServer, brokers: Brokers) -> Brokers:
    """Brokers that the name server lists, and that take decisions."""

    def cluster(ask: Frame) -> Frame:
        table = {
            broker.name: {
                "brokerAddrs": {"0": broker.address},
                "brokerName": broker.name,
                "cluster": "c",
            }
            for broker in name_server.brokers
        }
        body = {"brokerAddrTable": table, "clusterAddrTable": {"c": list(table)}}
        return Frame(0, body=json.dumps(body).encode())

    name_server.handlers[RequestCode.GET_BROKER_CLUSTER_INFO] = cluster
    for broker in brokers:
        broker.handlers[RequestCode.END_TRANSACTION] = lambda ask: Frame(0)
        broker.handlers[RequestCode.UNREGISTER_CLIENT] = lambda ask: Frame(0)
    return brokers


def is_member(broker: Broker, group: str) -> bool:
    """Whether a producer of the group has told the broker about itself."""
    beats = [json.loads(frame.body) for frame in broker.asked if frame.code == RequestCode.HEART_BEAT]
    return any({"groupName": group} in beat["producerDataSet"] for beat in beats)


@pytest.fixture
def quiet() -> Iterator[None]:
    """No thread of checks is left behind."""
    yield
    names = {"rmqpy-transactions", "rmqpy-checks"}
    until(lambda: all(thread.name not in names for thread in threading.enumerate()))


Check = Callable[[rmqpy.ReceivedMessage], TransactionState | bool | None]


def fails(message: rmqpy.ReceivedMessage) -> bool:
    raise LookupError("no such order")


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize(
    ("check", "value"),
    [
        (lambda message: True, "8"),
        (lambda message: False, "12"),
        (lambda message: None, "0"),
        (lambda message: TransactionState.COMMIT, "8"),
        (lambda message: TransactionState.ROLLBACK, "12"),
        (lambda message: TransactionState.UNKNOWN, "0"),
        (lambda message: "yes", "0"),
        (fails, "0"),
    ],
    ids=["true", "false", "none", "commit", "rollback", "unknown", "nonsense", "raises"],
)
def test_decision_goes_to_the_asking_broker(
    name_server: NameServer, asking: Brokers, check: Check, value: str
) -> None:
    with rmqpy.Producer(name_server.address, group="shop", transaction_checker=check):
        # It has sent nothing: what an earlier process left open may lie at any broker.
        until(lambda: all(is_member(broker, "shop") for broker in asking))
        asking[1].push(question())
        until(lambda: decided(asking[1]) == [value])
        [answer] = decisions(asking[1])
        assert answer.ext == {
            "topic": "orders",
            "producerGroup": "shop",
            "tranStateTableOffset": "9",
            "commitLogOffset": "4711",
            "commitOrRollback": value,
            "fromTransactionCheck": "true",
            "msgId": MESSAGE_ID,
            "transactionId": MESSAGE_ID,
            "bname": "broker-a",
        }
        assert decided(asking[0]) == []


def test_checker_gets_the_message_like_a_consumer(name_server: NameServer, asking: Brokers) -> None:
    got: list[rmqpy.ReceivedMessage] = []

    def check(message: rmqpy.ReceivedMessage) -> None:
        got.append(message)
        assert threading.current_thread() is not threading.main_thread()

    with rmqpy.Producer(name_server.address, group="shop", transaction_checker=check):
        until(lambda: is_member(asking[0], "shop"))
        asking[0].push(question())
        until(lambda: decided(asking[0]) == ["0"])
    [message] = got
    assert (message.topic, message.body, message.keys) == ("orders", b"paid", ("A-1",))
    assert message.message_id == MESSAGE_ID
    assert message.queue == rmqpy.MessageQueue("orders", "broker-a", 1)


def test_failing_checker_is_logged_and_asked_again(
    name_server: NameServer, asking: Brokers, caplog: pytest.LogCaptureFixture
) -> None:
    with rmqpy.Producer(name_server.address, group="shop", transaction_checker=fails):
        until(lambda: is_member(asking[0], "shop"))
        with caplog.at_level(logging.ERROR):
            asking[0].push(question())
            until(lambda: decided(asking[0]) == ["0"])
        assert MESSAGE_ID in caplog.text
        assert "no such order" in caplog.text
        asking[0].push(question())
        until(lambda: decided(asking[0]) == ["0", "0"])


def test_names_of_a_namespace_are_plain_to_a_checker(name_server: NameServer, asking: Brokers) -> None:
    def check(message: rmqpy.ReceivedMessage) -> bool:
        return message.topic == "orders"

    config = ClientConfig(namesrv=name_server.address, namespace="north")
    with rmqpy.Producer(config, group="shop", transaction_checker=check):
        until(lambda: is_member(asking[0], "north%shop"))
        # The group of this name that is everybody's is another one.
        asking[0].push(question(group="shop"))
        asking[0].push(question(group="north%shop", topic="north%orders"))
        until(lambda: decided(asking[0]) == ["8"])
        ext = decisions(asking[0])[0].ext or {}
        assert (ext["producerGroup"], ext["topic"]) == ("north%shop", "north%orders")


def test_checks_for_other_groups_and_malformed_ones_are_ignored(
    name_server: NameServer, asking: Brokers, caplog: pytest.LogCaptureFixture
) -> None:
    with rmqpy.Producer(name_server.address, group="shop", transaction_checker=lambda message: True):
        until(lambda: is_member(asking[0], "shop"))
        asking[0].push(question(group="stock"))
        broken = question()
        broken.body = b"no record"
        with caplog.at_level(logging.WARNING):
            asking[0].push(broken)
            asking[0].push(question())
            until(lambda: decided(asking[0]) == ["8"])
        assert "cannot be read" in caplog.text


def test_check_of_an_apache_broker_is_understood(name_server: NameServer, asking: Brokers) -> None:
    got: list[rmqpy.ReceivedMessage] = []

    def check(message: rmqpy.ReceivedMessage) -> bool:
        got.append(message)
        return True

    with rmqpy.Producer(name_server.address, group="jtpg", transaction_checker=check):
        until(lambda: is_member(asking[0], "jtpg"))
        asking[0].push(golden_frame("client_39_oneway_B2C", "request"))
        until(lambda: decided(asking[0]) == ["8"])
    ext = decisions(asking[0])[0].ext or {}
    assert (ext["tranStateTableOffset"], ext["commitLogOffset"]) == ("3", "4240411")
    assert ext["msgId"] == got[0].message_id
    assert (got[0].body, got[0].tag) == (b"tx-u", "TagTx")


def test_two_producers_get_checks_of_their_own_groups(name_server: NameServer, asking: Brokers) -> None:
    shop = rmqpy.Producer(name_server.address, group="shop", transaction_checker=lambda message: True)
    stock = rmqpy.Producer(name_server.address, group="stock", transaction_checker=lambda message: False)
    with stock:
        with shop:
            until(lambda: is_member(asking[0], "shop") and is_member(asking[0], "stock"))
            asking[0].push(question("shop"))
            until(lambda: decided(asking[0]) == ["8"])
            asking[0].push(question("stock"))
            until(lambda: decided(asking[0]) == ["8", "12"])
        asking[0].push(question("shop"))
        asking[0].push(question("stock"))
        until(lambda: decided(asking[0]) == ["8", "12", "12"])


@pytest.mark.usefixtures("quiet")
def test_hanging_checker_delays_no_other_producer(name_server: NameServer, asking: Brokers) -> None:
    broker = asking[0]
    is_asked, may_end = threading.Event(), threading.Event()

    def hangs(message: rmqpy.ReceivedMessage) -> bool:
        is_asked.set()
        may_end.wait()
        return True

    def decides(message: rmqpy.ReceivedMessage) -> bool:
        return False

    with (
        rmqpy.Producer(name_server.address, group="shop", transaction_checker=hangs),
        rmqpy.Producer(name_server.address, group="bank", transaction_checker=decides),
    ):
        until(lambda: is_member(broker, "shop") and is_member(broker, "bank"))
        broker.push(question("shop"))
        assert is_asked.wait(10)
        broker.push(question("bank"))
        try:
            until(lambda: decided(broker) == ["12"])
        finally:
            may_end.set()
        until(lambda: decided(broker) == ["12", "8"])


@pytest.mark.usefixtures("quiet")
def test_slow_checker_delays_neither_sends_nor_close(name_server: NameServer, asking: Brokers) -> None:
    asked, go_on = threading.Event(), threading.Event()

    def check(message: rmqpy.ReceivedMessage) -> bool:
        asked.set()
        return go_on.wait(30)

    with rmqpy.Producer(name_server.address, group="shop", transaction_checker=check) as shop:
        until(lambda: is_member(asking[0], "shop"))
        asking[0].push(question())
        assert asked.wait(30)
        assert shop.send("orders", b"x").ok
    go_on.set()


@pytest.mark.usefixtures("quiet")
async def test_a_coroutine_function_runs_in_the_producers_loop(
    name_server: NameServer, asking: Brokers
) -> None:
    loop = asyncio.get_running_loop()

    async def check(message: rmqpy.ReceivedMessage) -> bool:
        await asyncio.sleep(0)
        return asyncio.get_running_loop() is loop

    async with rmqpy.AsyncProducer(name_server.address, group="shop", transaction_checker=check):
        await asyncio.to_thread(until, lambda: is_member(asking[0], "shop"))
        asking[0].push(question())
        await asyncio.to_thread(until, lambda: decided(asking[0]) == ["8"])


@pytest.mark.usefixtures("quiet")
async def test_hanging_coroutine_checker_ends_with_its_producer(
    name_server: NameServer, asking: Brokers
) -> None:
    asked = asyncio.Event()

    async def check(message: rmqpy.ReceivedMessage) -> None:
        asked.set()
        await asyncio.Event().wait()

    async with rmqpy.AsyncProducer(name_server.address, group="shop", transaction_checker=check):
        await asyncio.to_thread(until, lambda: is_member(asking[0], "shop"))
        asking[0].push(question())
        await asyncio.wait_for(asked.wait(), 30)
    assert decided(asking[0]) == []
