"""Halves and ends of transactions at brokers with unexpected replies: the requests sent, and the errors reported to
the application."""

import logging
import threading
from collections.abc import Callable

import pytest

import rmqpy
from rmqpy import ClientConfig, TransactionState, errors
from rmqpy.protocol.codes import RequestCode, ResponseCode
from wire import ONEWAY, Frame

from .fakes import CLOSE, Answer, Broker, Brokers, NameServer
from .live import WAIT_S


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
    """Brokers that accept half messages and decisions."""
    for broker in brokers:
        broker.handlers[RequestCode.SEND_MESSAGE_V2] = stores_halves(broker)
        broker.handlers[RequestCode.END_TRANSACTION] = lambda ask: Frame(0)
    return brokers


def test_half_message_with_a_lost_reply_is_not_resent(name_server: NameServer, halves: Brokers) -> None:
    for broker in halves:
        broker.handlers[RequestCode.SEND_MESSAGE_V2] = lambda ask: CLOSE
    with (
        rmqpy.Producer(name_server.address, group="shop") as shop,
        pytest.raises(errors.SendError) as failed,
        shop.transaction("orders", b"x"),
    ):
        pytest.fail("it has not begun")
    assert len(failed.value.attempts) == 1
    assert sum(broker.count(RequestCode.SEND_MESSAGE_V2) for broker in halves) == 1


@pytest.mark.parametrize("is_away", [False, True], ids=["refuses", "is away"])
def test_half_message_refused_by_one_broker_goes_to_another(
    name_server: NameServer, halves: Brokers, is_away: bool
) -> None:
    halves[0].handlers[RequestCode.SEND_MESSAGE_V2] = lambda ask: Frame(ResponseCode.SERVICE_NOT_AVAILABLE)
    if is_away:
        halves[0].stop()
    with rmqpy.Producer(name_server.address, group="shop") as shop:
        for _ in range(4):
            with shop.transaction("orders", b"x") as transaction:
                assert transaction.half.queue.broker == "broker-b"
    assert ended(halves[1]) == [(0, "8")] * 4


@pytest.mark.parametrize("namespace", ["", "north"])
def test_half_message_and_its_end_match_the_original(
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
    [sent] = [frame for frame in broker.asked if frame.code == RequestCode.SEND_MESSAGE_V2]
    ext = sent.ext or {}
    assert (ext["a"], ext["b"], ext["f"]) == (f"{inside}shop", f"{inside}orders", "4")
    properties = dict(item.split("\x01") for item in ext["i"].split("\x02") if item)
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


def test_half_message_is_compressed_like_other_messages(name_server: NameServer, halves: Brokers) -> None:
    with (
        rmqpy.Producer(name_server.address, group="shop", compression="lz4") as shop,
        shop.transaction("orders", b"x" * 5_000),
    ):
        pass
    [sent] = [frame for each in halves for frame in each.asked if frame.code == RequestCode.SEND_MESSAGE_V2]
    # Compressed, by LZ4, a half message.
    assert int((sent.ext or {})["f"]) == 0x1 | 0x100 | 0x4
    assert len(sent.body) < 5_000


def test_half_message_stored_unsafely_is_rolled_back(name_server: NameServer, halves: Brokers) -> None:
    for broker in halves:
        broker.handlers[RequestCode.SEND_MESSAGE_V2] = stores_halves(broker, ResponseCode.FLUSH_DISK_TIMEOUT)
    with (
        rmqpy.Producer(name_server.address, group="shop") as shop,
        pytest.raises(errors.NotStored, match="FLUSH_DISK_TIMEOUT"),
        shop.transaction("orders", b"x"),
    ):
        pytest.fail("it has not begun")
    assert [*ended(halves[0]), *ended(halves[1])] == [(0, "12")]


def test_refused_commit_is_raised_and_not_repeated(name_server: NameServer, halves: Brokers) -> None:
    for broker in halves:
        broker.handlers[RequestCode.END_TRANSACTION] = lambda ask: Frame(1, remark="over already")
    with rmqpy.Producer(name_server.address, group="shop") as shop:
        transaction = shop.transaction("orders", b"x")
        with pytest.raises(errors.TransactionError, match="over already") as failed, transaction:
            pass
        assert (failed.value.code, failed.value.topic) == (1, "orders")
        assert transaction.state is TransactionState.UNKNOWN
    assert [*ended(halves[0]), *ended(halves[1])] == [(0, "8")]


def test_failed_rollback_hides_no_exception(
    name_server: NameServer, halves: Brokers, caplog: pytest.LogCaptureFixture
) -> None:
    for broker in halves:
        broker.handlers[RequestCode.END_TRANSACTION] = lambda ask: Frame(1, remark="over already")
    with rmqpy.Producer(name_server.address, group="shop") as shop, caplog.at_level(logging.WARNING):
        with pytest.raises(ZeroDivisionError), shop.transaction("orders", b"x"):
            raise ZeroDivisionError
        assert "cannot roll back" in caplog.text


def test_commit_retries_a_briefly_unreachable_broker(name_server: NameServer, halves: Brokers) -> None:
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
