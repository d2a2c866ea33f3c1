"""Transactions: half messages, their ends, and recovery after a restart."""

from pathlib import Path

import pytest

from rmqpy.protocol.codes import RequestCode
from rmqpy.protocol.requests.brokers import UpdateBrokerConfig
from waiting import until_async
from wire import Frame, Peer

from .conftest import Cluster, Start, made_broker
from .records import Record, arrival, records
from .talk import pull, send

HALF = "RMQ_SYS_TRANS_HALF_TOPIC"
MARKS = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
KEY = "AC110001000018B4AAC2000000000001"
COMMIT, ROLLBACK, UNKNOWN = 8, 12, 0
ONEWAY = 2


async def half(peer: Peer, topic: str = "orders", body: bytes = b"hello", more: str = "") -> dict[str, str]:
    """A half message, as a Java producer sends it; the header fields with which it is decided about."""
    properties = f"UNIQ_KEY\x01{KEY}\x02TAGS\x01paid\x02TRAN_MSG\x01true\x02PGROUP\x01producers\x02{more}"
    answer = await send(peer, topic, body, f="4", i=properties)
    assert answer.code == 0, answer
    return decided_by(answer, topic)


def decided_by(answer: Frame, topic: str = "orders") -> dict[str, str]:
    """The header fields with which a half that was stored is decided about."""
    assert answer.ext is not None
    assert answer.ext["transactionId"] == KEY
    return {
        "topic": topic,
        "producerGroup": "producers",
        "tranStateTableOffset": answer.ext["queueOffset"],
        "commitLogOffset": str(int(answer.ext["msgId"][16:], 16)),
        "fromTransactionCheck": "false",
        "msgId": KEY,
        "transactionId": KEY,
    }


async def end(peer: Peer, decided: dict[str, str], decision: int, **changes: str) -> Frame:
    """The decision, in a request that is answered."""
    fields = decided | {"commitOrRollback": str(decision)} | changes
    return await peer.call(RequestCode.END_TRANSACTION, fields)


async def stored(peer: Peer, topic: str) -> list[Record]:
    """What a consumer sees of queue 0."""
    answer = await pull(peer, "readers", topic)
    return records(answer.body) if answer.code == 0 else []


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
async def test_committed_half_message_is_visible_once(start: Start, flush: str) -> None:
    cluster = await start(flushDiskType=flush)
    async with await Peer.connect(cluster.broker.address) as peer:
        decided = await half(peer)
        [waiting] = await stored(peer, HALF)
        assert (waiting.properties["REAL_TOPIC"], waiting.properties["REAL_QID"]) == ("orders", "0")
        assert waiting.properties["__transactionId__"] == KEY
        assert await stored(peer, "orders") == []
        assert (await end(peer, decided, COMMIT)).code == 0
        message = await arrival(peer, "orders")
        assert message.body == b"hello"
        assert message.properties.keys() >= {"TRAN_MSG", "PGROUP", "__transactionId__", "TAGS"}
        assert not message.properties.keys() & {"REAL_TOPIC", "REAL_QID"}
        answer = await end(peer, decided, COMMIT)
        assert (answer.code, answer.remark) == (1, "the transaction has ended already")
        assert len(await stored(peer, "orders")) == 1


async def test_commit_record_names_its_half_message_in_the_original_form(cluster: Cluster) -> None:
    async with await Peer.connect(cluster.broker.address) as peer:
        await half(peer)
        decided = await half(peer)
        await end(peer, decided, COMMIT)
        answer = await pull(peer, "readers", "orders")
        assert int.from_bytes(answer.body[36:40]) & 0xC == COMMIT
        assert int.from_bytes(answer.body[76:84]) == int(decided["commitLogOffset"])
        [mark] = await stored(peer, MARKS)
        assert (mark.body, mark.properties) == (b"1", {"WAIT": "true", "TAGS": "d"})


async def test_rolled_back_message_is_never_visible(cluster: Cluster) -> None:
    async with await Peer.connect(cluster.broker.address) as peer:
        decided = await half(peer)
        assert (await end(peer, decided, ROLLBACK)).code == 0
        assert (await end(peer, decided, COMMIT)).code == 1
        assert await stored(peer, "orders") == []


async def test_decision_can_be_oneway_and_unknown_leaves_the_half_open(cluster: Cluster) -> None:
    async with await Peer.connect(cluster.broker.address) as peer:
        decided = await half(peer)
        assert (await end(peer, decided, UNKNOWN)).code == 0
        await peer.send(RequestCode.END_TRANSACTION, decided | {"commitOrRollback": str(COMMIT)}, flag=ONEWAY)
        opaque = await peer.send(RequestCode.END_TRANSACTION, decided | {"commitOrRollback": str(COMMIT)})
        answer = await peer.receive()
        assert (answer.opaque, answer.code) == (opaque, 1)
        assert (await arrival(peer, "orders")).body == b"hello"


@pytest.mark.parametrize(
    ("field", "value", "remark"),
    [
        ("producerGroup", "others", "The producer group wrong"),
        ("tranStateTableOffset", "7", "The transaction state table offset wrong"),
        ("commitLogOffset", "1", "Find prepared transaction message failed"),
        ("commitOrRollback", "5", "commitOrRollback field wrong"),
    ],
)
async def test_a_decision_about_another_message_is_refused(
    cluster: Cluster, field: str, value: str, remark: str
) -> None:
    async with await Peer.connect(cluster.broker.address) as peer:
        decided = await half(peer)
        answer = await end(peer, decided, COMMIT, **{field: value})
        assert (answer.code, answer.remark) == (1, remark)
        assert (await end(peer, decided, COMMIT)).code == 0, "it is open still"


async def test_delay_of_a_half_message_starts_at_its_commit(start: Start) -> None:
    cluster = await start(messageDelayLevel="300ms 1h")
    async with await Peer.connect(cluster.broker.address) as peer:
        decided = await half(peer, more="DELAY\x011\x02")
        assert (await stored(peer, HALF))[0].properties["DELAY"] == "1"
        assert (await end(peer, decided, COMMIT)).code == 0
        assert await stored(peer, "orders") == []
        [waiting] = await stored(peer, "SCHEDULE_TOPIC_XXXX")
        assert (waiting.properties["REAL_TOPIC"], waiting.properties["DELAY"]) == ("orders", "1")
        assert (await arrival(peer, "orders")).body == b"hello"


async def test_half_message_with_a_delivery_time_is_delivered_then(cluster: Cluster) -> None:
    async with await Peer.connect(cluster.broker.address) as peer:
        decided = await half(peer, more="TIMER_DELAY_MS\x01300\x02")
        assert (await end(peer, decided, COMMIT)).code == 0
        assert len(await stored(peer, "rmq_sys_wheel_timer")) == 1
        assert (await arrival(peer, "orders")).body == b"hello"


async def test_late_decision_is_refused_unless_it_answers_a_check(
    start: Start,
) -> None:
    cluster = await start(transactionTimeOut="1")
    async with await Peer.connect(cluster.broker.address) as peer:
        # Born long ago, as `send` has it.
        decided = await half(peer, more="CHECK_IMMUNITY_TIME_IN_SECONDS\x0160\x02")
        assert (await end(peer, decided, COMMIT)).code == 604
        assert (await end(peer, decided, COMMIT, fromTransactionCheck="true")).code == 0


async def test_half_messages_can_be_refused_while_the_broker_runs(cluster: Cluster) -> None:
    async with await Peer.connect(cluster.broker.address) as peer:
        decided = await half(peer)
        await peer.ask(UpdateBrokerConfig(body="rejectTransactionMessage=true\n"))
        properties = "TRAN_MSG\x01true\x02PGROUP\x01producers\x02"
        answer = await send(peer, "orders", f="4", i=properties)
        assert (answer.code, "forbidden" in (answer.remark or "")) == (16, True)
        assert (await end(peer, decided, COMMIT)).code == 0, "those that are open may end"


async def test_committed_message_is_retried_as_an_ordinary_one(cluster: Cluster) -> None:
    async with await Peer.connect(cluster.broker.address) as peer:
        await pull(peer, "readers", "orders")
        answer = await send(peer, "%RETRY%readers", f="4", i="TRAN_MSG\x01true\x02PGROUP\x01producers\x02")
        assert answer.code == 0, answer
        assert (await arrival(peer, "%RETRY%readers")).body == b"hello"


async def test_open_transactions_survive_a_restart(start: Start, tmp_path: Path) -> None:
    settings = {"flushConsumerOffsetInterval": "100"}
    cluster = await start(**settings)
    async with await Peer.connect(cluster.broker.address) as peer:
        ended = [await half(peer, body=b"before") for _ in range(3)]
        waiting = [await half(peer, body=b"%d" % number) for number in range(2)]
        late = await half(peer, body=b"after")
        for decided in (*ended, late):
            assert (await end(peer, decided, COMMIT)).code == 0
        await saved(peer, HALF, 3)
        await saved(peer, MARKS, 3)
    await cluster.broker.stop()
    async with (
        made_broker(tmp_path, cluster.namesrv, settings) as again,
        await Peer.connect(again.address) as peer,
    ):
        for decided in (*ended, late):
            assert (await end(peer, decided, COMMIT)).code == 1
        assert (await end(peer, waiting[1], COMMIT)).code == 0
        assert (await end(peer, waiting[0], ROLLBACK)).code == 0
        bodies = [record.body for record in await stored(peer, "orders")]
        assert bodies == [b"before"] * 3 + [b"after", b"1"]
        await saved(peer, HALF, 6)
        await saved(peer, MARKS, 6)


async def saved(peer: Peer, topic: str, offset: int) -> None:
    """Wait until Apache's broker would go on here."""
    ask = {"consumerGroup": "CID_RMQ_SYS_TRANS", "topic": topic, "queueId": "0"}
    await until_async(
        lambda: peer.call(RequestCode.QUERY_CONSUMER_OFFSET, ask),
        lambda answer: (answer.ext or {}).get("offset") == str(offset),
    )


@pytest.mark.parametrize(
    "waits", ["", "DELAY\x013\x02", "TIMER_DELAY_MS\x0160000\x02", "TIMER_DELAY_SEC\x0160\x02"]
)
async def test_half_message_without_room_for_commit_properties_is_refused(
    cluster: Cluster, waits: str
) -> None:
    async with await Peer.connect(cluster.broker.address) as peer:
        codes = set()
        for size in range(32_300, 32_700, 7):
            pad = f"pad\x01{'p' * size}\x02"
            properties = f"UNIQ_KEY\x01{KEY}\x02TRAN_MSG\x01true\x02PGROUP\x01producers\x02{waits}{pad}"
            answer = await send(peer, "orders", f="4", i=properties)
            codes.add(answer.code)
            if answer.code == 0:
                assert (await end(peer, decided_by(answer), COMMIT)).code == 0, size
        assert codes == {0, 13}


async def test_half_message_too_large_for_a_log_file_with_its_mark_is_refused(
    start: Start,
) -> None:
    cluster = await start(mappedFileSizeCommitLog="65536", maxMessageSize="65000")
    async with await Peer.connect(cluster.broker.address) as peer:
        codes = set()
        for size in range(64_500, 65_000, 11):
            properties = f"UNIQ_KEY\x01{KEY}\x02TRAN_MSG\x01true\x02PGROUP\x01producers\x02"
            answer = await send(peer, "orders", b"b" * size, f="4", i=properties)
            codes.add(answer.code)
            if answer.code == 0:
                assert (await end(peer, decided_by(answer), COMMIT)).code == 0, size
        assert codes == {0, 13}


async def test_commit_with_a_torn_mark_is_not_delivered_twice(start: Start, tmp_path: Path) -> None:
    cluster = await start()
    async with await Peer.connect(cluster.broker.address) as peer:
        decided = await half(peer)
        assert (await end(peer, decided, COMMIT)).code == 0
    await cluster.broker.stop()
    [log] = (tmp_path / "store" / "commitlog").iterdir()
    with log.open("r+b") as file:
        content = file.read()
        # The mark is the last record, and its topic lies behind a head and a body of one byte.
        at = content.rindex(MARKS.encode()) - 86
        file.seek(at)
        file.write(bytes(1_000))
    (tmp_path / "store" / "checkpoint").unlink()
    for _ in range(2):
        async with (
            made_broker(tmp_path, cluster.namesrv, {}) as again,
            await Peer.connect(again.address) as peer,
        ):
            assert [record.body for record in await stored(peer, "orders")] == [b"hello"]
            assert [mark.body for mark in await stored(peer, MARKS)] == [b"0"]
            assert (await end(peer, decided, COMMIT)).code == 1, "it has ended"
            # Something else ends the log.
            assert (await send(peer, "others")).code == 0
