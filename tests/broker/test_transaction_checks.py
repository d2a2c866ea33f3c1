"""Checks of undecided half messages: the chosen producers, times and counts, and the end without a decision."""

import asyncio
import json
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from rmqpy.config.namesrv import NameServerConfig
from rmqpy.namesrv import NameServer
from rmqpy.protocol.codes import RequestCode
from rmqpy.protocol.requests.brokers import UpdateBrokerConfig
from rmqpy.testing import HandClock
from waiting import until_async
from wire import Frame, Peer

from .conftest import Cluster, made_broker, samples
from .records import Record, arrival, records
from .signing import add_user, entry, signed
from .talk import beat, heartbeat, pull, pushed, send
from .test_access import ON
from .test_transactions import COMMIT, HALF, KEY, MARKS, ONEWAY, ROLLBACK, UNKNOWN, end, half, stored

GIVEN_UP = "TRANS_CHECK_MAX_TIME_TOPIC"
#: Defaults of transactionTimeOut and transactionCheckInterval, in seconds.
TIME_OUT, INTERVAL = 6, 30


class Timed:
    """A cluster whose broker has a clock that is moved by hand."""

    def __init__(self, cluster: Cluster, clock: HandClock) -> None:
        self.cluster = cluster
        self.clock = clock

    async def connect(self, *, group: str = "") -> Peer:
        """A connection; of a producer of this group."""
        peer = await Peer.connect(self.cluster.broker.address)
        if group:
            await join(peer, group)
        return peer

    async def advance(self, seconds: float) -> None:
        await asyncio.to_thread(self.clock.advance, seconds)


StartTimed = Callable[..., Awaitable[Timed]]


@pytest.fixture
async def timed(tmp_path: Path) -> AsyncIterator[StartTimed]:
    """Starts clusters whose broker has these settings; stops them after the test."""
    async with AsyncExitStack() as running:

        async def started(**settings: str) -> Timed:
            clock = HandClock()
            server = await running.enter_async_context(
                NameServer(NameServerConfig(listen_port=0, kv_path="", store_path=""))
            )
            broker = made_broker(tmp_path, server.address, settings, clock)
            await running.enter_async_context(broker)
            return Timed(Cluster(server.address, broker, tmp_path / "store"), clock)

        yield started


async def join(peer: Peer, group: str = "producers") -> None:
    """The peer is a producer of this group from now on."""
    assert (await beat(peer, heartbeat(f"client of {group}", producer=group))).code == 0


async def asked(peer: Peer) -> Frame:
    """The next check that comes to this producer."""
    frame = await pushed(peer)
    assert (frame.code, frame.flag) == (RequestCode.CHECK_TRANSACTION_STATE, ONEWAY)
    return frame


async def asked_about(peer: Peer) -> tuple[bytes, str]:
    """The body of the half message that the next check is about, and the number of the check."""
    [record] = records((await asked(peer)).body)
    return record.body, record.properties["TRANSACTION_CHECK_TIMES"]


async def answers(peer: Peer) -> tuple[bytes, str]:
    """Answer the next check that it is not decided; what it was about."""
    check = await asked(peer)
    [record] = records(check.body)
    assert check.ext is not None
    decided = {name: check.ext[name] for name in ("tranStateTableOffset", "commitLogOffset", "msgId")}
    decided |= {"producerGroup": record.properties["PGROUP"], "fromTransactionCheck": "true"}
    assert (await end(peer, decided, UNKNOWN)).code == 0
    return record.body, record.properties["TRANSACTION_CHECK_TIMES"]


async def counted(server: Timed, name: str) -> float:
    """A metric of transactions."""
    [sample] = await samples(server.cluster, f"rmqpy_{name}_transactions")
    return float(sample.rpartition(" ")[2])


async def given_up(peer: Peer, count: int) -> list[Record]:
    """The half messages that nobody decided about, once there are so many."""
    return await until_async(lambda: stored(peer, GIVEN_UP), lambda found: len(found) >= count)


async def test_undecided_half_message_is_checked_and_the_answer_applies(
    timed: StartTimed,
) -> None:
    server = await timed()
    async with await server.connect(group="producers") as producer:
        decided = await half(producer)
        [waiting] = await stored(producer, HALF)
        await server.advance(TIME_OUT)
        check = await asked(producer)
        assert check.ext is not None
        message_id = check.ext.pop("offsetMsgId")
        assert int(message_id[16:], 16) == waiting.position
        assert check.ext == {
            "topic": HALF,
            "tranStateTableOffset": decided["tranStateTableOffset"],
            "commitLogOffset": decided["commitLogOffset"],
            "msgId": KEY,
            "transactionId": KEY,
            "bname": "broker-a",
        }
        [record] = records(check.body)
        assert (record.position, record.queue_offset, record.body) == (waiting.position, 0, b"hello")
        assert record.properties == waiting.properties | {"TRANSACTION_CHECK_TIMES": "1"}
        assert struct.unpack_from(">i", check.body, 12) == (0,)
        assert check.body[93:100] == b"\x06orders"
        answer = await end(producer, decided, COMMIT, fromTransactionCheck="true")
        assert answer.code == 0
        assert (await arrival(producer, "orders")).body == b"hello"


async def test_each_half_message_has_its_own_check_schedule(timed: StartTimed) -> None:
    server = await timed()
    async with await server.connect(group="producers") as producer:
        await half(producer, body=b"patient", more="CHECK_IMMUNITY_TIME_IN_SECONDS\x0160\x02")
        await half(producer, body=b"plain")
        await server.advance(TIME_OUT)
        assert await asked_about(producer) == (b"plain", "1")
        await server.advance(INTERVAL)
        assert await asked_about(producer) == (b"plain", "2")
        await server.advance(60 - TIME_OUT - INTERVAL)
        assert await asked_about(producer) == (b"patient", "1")


async def test_checks_rotate_over_members_of_the_group(timed: StartTimed) -> None:
    server = await timed()
    async with await server.connect(group="producers") as one, await server.connect(group="producers") as two:
        await half(one)
        await server.advance(TIME_OUT)
        assert await asked_about(one) == (b"hello", "1")
        await server.advance(INTERVAL)
        assert await asked_about(two) == (b"hello", "2")
        await server.advance(INTERVAL)
        assert await asked_about(one) == (b"hello", "3")


async def test_silent_member_does_not_replace_the_sending_producer(
    timed: StartTimed,
) -> None:
    server = await timed(transactionCheckMax="3")
    async with (
        await server.connect(group="producers") as sender,
        await server.connect(group="producers") as silent,
        await server.connect(group="producers") as other,
    ):
        decided = await half(sender)
        await server.advance(TIME_OUT)
        for number in ("1", "2"):
            assert await asked_about(sender) == (b"hello", number)
            assert (await end(sender, decided, UNKNOWN, fromTransactionCheck="true")).code == 0
            await server.advance(INTERVAL)
        # The producer does not answer: others are asked in turn with it.
        assert await asked_about(sender) == (b"hello", "3")
        for number in range(4, 10, 2):
            await server.advance(INTERVAL)
            assert await asked_about(silent if number % 4 == 0 else other) == (b"hello", str(number))
            await server.advance(INTERVAL)
            assert await asked_about(sender) == (b"hello", str(number + 1))
        assert await stored(sender, GIVEN_UP) == []
        assert (await end(sender, decided, COMMIT, fromTransactionCheck="true")).code == 0
        assert (await arrival(sender, "orders")).body == b"hello"


async def test_only_members_with_publish_permission_are_checked(timed: StartTimed) -> None:
    server = await timed(**ON)
    address = server.cluster.broker.address
    async with (
        await signed(address, "root") as root,
        await signed(address, "shop") as sender,
        await signed(address, "mallory") as stranger,
    ):
        await add_user(root, "shop", entry("Topic:orders", "Pub"))
        await add_user(root, "mallory", entry("Topic:other", "Pub"))
        await send(root, "orders")
        await join(stranger)
        await half(sender)
        await server.advance(TIME_OUT)
        await join(sender)
        for number in range(1, 6):
            await server.advance(INTERVAL)
            assert await asked_about(sender) == (b"hello", str(number))


async def test_unlimited_decision_time_ends_with_the_log_file(timed: StartTimed) -> None:
    server = await timed(fileReservedTime="1")
    async with await server.connect(group="producers") as sender:
        await half(sender, more=f"CHECK_IMMUNITY_TIME_IN_SECONDS\x01{1 << 60}\x02")
        await server.advance(3_600 - INTERVAL + 1)
        assert [record.body for record in await given_up(sender, 1)] == [b"hello"]


async def test_another_member_answers_for_a_disconnected_producer(timed: StartTimed) -> None:
    server = await timed()
    async with await server.connect(group="producers") as producer:
        decided = await half(producer)
    async with await server.connect(group="producers") as other:
        check = asyncio.create_task(asked(other))
        while not check.done():
            # The first may go to a connection that is not known to be closed yet.
            await server.advance(INTERVAL)
            await asyncio.wait([check], timeout=3)
        assert records(check.result().body)[0].body == b"hello"
        assert (await end(other, decided, COMMIT, fromTransactionCheck="true")).code == 0
        assert (await arrival(other, "orders")).body == b"hello"


async def test_half_messages_without_producers_wait_uncounted_and_block_no_others(
    timed: StartTimed,
) -> None:
    server = await timed(transactionCheckMax="1")
    async with await server.connect() as sender, await server.connect(group="others") as other:
        for _ in range(300):
            await half(sender, body=b"nobody's")
        await half(sender, body=b"another's", more="PGROUP\x01others\x02")
        await server.advance(TIME_OUT)
        assert await answers(other) == (b"another's", "1")
        await join(sender)
        await server.advance(INTERVAL)
        for _ in range(300):
            assert await asked_about(sender) == (b"nobody's", "1")
        [record] = await given_up(other, 1)
        assert record.body == b"another's"


async def test_undecided_transaction_is_given_up_after_the_last_check(
    timed: StartTimed,
) -> None:
    server = await timed(transactionCheckMax="2", httpPort="0")
    async with await server.connect(group="producers") as producer:
        decided = await half(producer)
        [waiting] = await stored(producer, HALF)
        await server.advance(TIME_OUT)
        assert await answers(producer) == (b"hello", "1")
        await server.advance(INTERVAL)
        assert await answers(producer) == (b"hello", "2")
        assert await counted(server, "open") == 1
        await server.advance(INTERVAL)
        [record] = await given_up(producer, 1)
        assert (record.body, record.properties) == (b"hello", waiting.properties)
        [mark] = await stored(producer, MARKS)
        assert mark.body == b"0"
        answer = await end(producer, decided, COMMIT, fromTransactionCheck="true")
        assert (answer.code, answer.remark) == (1, "the transaction has ended already")
        names = ("open", "checked", "discarded", "lost")

        async def counts() -> list[object]:
            return [await counted(server, name) for name in names]

        # It is visible a moment before it is counted.
        await until_async(counts, lambda found: found == [0, 2, 1, 0])


async def resumed(peer: Peer, message_id: str) -> tuple[int, str]:
    """The answer to an operator who wants a half message to be asked about again."""
    answer = await peer.call(RequestCode.RESUME_CHECK_HALF_MESSAGE, {"topic": GIVEN_UP, "msgId": message_id})
    return answer.code, answer.remark or ""


def message_id(record: Record) -> str:
    return f"{'0' * 15}1{record.position:016X}"


async def test_operator_resumes_a_given_up_transaction_once(
    timed: StartTimed,
) -> None:
    server = await timed(transactionCheckMax="1")
    async with await server.connect(group="producers") as producer:
        decided = await half(producer)
        [first] = await stored(producer, HALF)
        await server.advance(TIME_OUT)
        assert await answers(producer) == (b"hello", "1")
        await server.advance(INTERVAL)
        [record] = await given_up(producer, 1)
        assert await resumed(producer, message_id(record)) == (0, "")
        [_, again] = await stored(producer, HALF)
        assert again.body == b"hello"
        assert again.properties == first.properties | {"TRANSACTION_CHECK_TIMES": "0"}
        await server.advance(1)
        check = await asked(producer)
        assert check.ext is not None
        assert check.ext["tranStateTableOffset"] == str(again.queue_offset)
        assert await resumed(producer, message_id(record)) == (
            1,
            "the half message was resumed already",
        )
        assert (await end(producer, decided, COMMIT, fromTransactionCheck="true")).code == 1
        decided |= {
            "tranStateTableOffset": str(again.queue_offset),
            "commitLogOffset": str(again.position),
        }
        assert (await end(producer, decided, COMMIT, fromTransactionCheck="true")).code == 0
        assert (await arrival(producer, "orders")).body == b"hello"
        assert await resumed(producer, message_id(again)) == (1, "the transaction has ended already")
        assert (await resumed(producer, message_id(record)))[0] == 1
        assert len(await stored(producer, "orders")) == 1


async def test_operator_can_restart_the_check_count_of_an_open_half_message(
    timed: StartTimed,
) -> None:
    server = await timed()
    async with await server.connect(group="producers") as producer:
        await half(producer)
        [waiting] = await stored(producer, HALF)
        await server.advance(TIME_OUT)
        assert await asked_about(producer) == (b"hello", "1")
        assert await resumed(producer, message_id(waiting)) == (0, "")
        await server.advance(1)
        assert await asked_about(producer) == (b"hello", "1")
        assert len(await stored(producer, HALF)) == 1


async def test_only_half_messages_can_be_rechecked(timed: StartTimed) -> None:
    server = await timed()
    async with await server.connect() as peer:
        await send(peer, "orders")
        plain = await arrival(peer, "orders")
        for wrong in (message_id(plain), f"{'0' * 15}1{1 << 40:016X}", "nonsense", ""):
            code, remark = await resumed(peer, wrong)
            assert (code, remark != "") == (1, True), wrong


async def test_transactions_are_counted_by_topic_as_the_original_names_them(timed: StartTimed) -> None:
    server = await timed(httpPort="0")
    async with await server.connect(group="producers") as producer:
        ended = [await half(producer, topic="orders") for _ in range(3)]
        await half(producer, topic="bills")
        for decided, decision in zip(ended, (COMMIT, COMMIT, ROLLBACK), strict=True):
            assert (await end(producer, decided, decision)).code == 0
        found = {
            name: sorted(
                (line.partition('topic="')[2].partition('"')[0], float(line.rpartition(" ")[2]))
                for line in await samples(server.cluster, name)
            )
            for name in (
                "rocketmq_half_messages",
                "rocketmq_commit_messages_total",
                "rocketmq_rollback_messages_total",
                "rocketmq_finish_message_latency_count",
            )
        }
        assert found == {
            "rocketmq_half_messages": [("bills", 1), ("orders", 0)],
            "rocketmq_commit_messages_total": [("bills", 0), ("orders", 2)],
            "rocketmq_rollback_messages_total": [("bills", 0), ("orders", 1)],
            "rocketmq_finish_message_latency_count": [("bills", 0), ("orders", 2)],
        }


async def test_open_half_messages_are_counted_in_the_file_of_the_original(timed: StartTimed) -> None:
    server = await timed()
    async with await server.connect(group="producers") as producer:
        await half(producer, topic="bills")
    await server.cluster.broker.stop()
    [line] = (server.cluster.folder / "config/transactionMetrics").read_text().splitlines()
    table = json.loads(line)
    assert set(table) == {"dataVersion", "transactionCount"}
    assert table["transactionCount"]["bills"]["count"] == 1


async def test_a_half_message_is_given_up_before_its_file_of_the_log_expires(timed: StartTimed) -> None:
    server = await timed(fileReservedTime="1")
    async with await server.connect() as sender:
        await half(sender)
        await server.advance(3_600 - INTERVAL - 1)
        assert await stored(sender, GIVEN_UP) == []
        await server.advance(INTERVAL)
        assert [record.body for record in await given_up(sender, 1)] == [b"hello"]


async def test_checks_are_changed_while_the_broker_runs(timed: StartTimed) -> None:
    server = await timed()
    async with await server.connect(group="producers") as producer:
        settings = "transactionTimeOut=2000\ntransactionCheckInterval=1000\ntransactionCheckMax=1\n"
        await producer.ask(UpdateBrokerConfig(body=settings))
        await half(producer)
        await server.advance(2)
        assert await answers(producer) == (b"hello", "1")
        await server.advance(1)
        await given_up(producer, 1)


async def test_check_counts_survive_a_restart(tmp_path: Path) -> None:
    clock = HandClock()
    settings = {"transactionCheckMax": "2"}
    async with NameServer(NameServerConfig(listen_port=0, kv_path="", store_path="")) as namesrv:
        async with made_broker(tmp_path, namesrv.address, settings, clock) as broker:
            server = Timed(Cluster(namesrv.address, broker, tmp_path / "store"), clock)
            async with await server.connect(group="producers") as producer:
                await half(producer)
                await server.advance(TIME_OUT)
                assert await answers(producer) == (b"hello", "1")
        async with made_broker(tmp_path, namesrv.address, settings, clock) as broker:
            server = Timed(Cluster(namesrv.address, broker, tmp_path / "store"), clock)
            async with await server.connect(group="producers") as producer:
                await server.advance(TIME_OUT + INTERVAL)
                assert await answers(producer) == (b"hello", "2")
                await server.advance(INTERVAL)
                assert [record.body for record in await given_up(producer, 1)] == [b"hello"]


async def test_open_half_messages_are_checked_after_a_restart(tmp_path: Path) -> None:
    clock = HandClock()
    async with NameServer(NameServerConfig(listen_port=0, kv_path="", store_path="")) as namesrv:
        async with (
            made_broker(tmp_path, namesrv.address, {}, clock) as broker,
            await Peer.connect(broker.address) as peer,
        ):
            ended = await half(peer, body=b"ended")
            await half(peer, body=b"open")
            assert (await end(peer, ended, COMMIT)).code == 0
        async with made_broker(tmp_path, namesrv.address, {}, clock) as broker:
            server = Timed(Cluster(namesrv.address, broker, tmp_path / "store"), clock)
            async with await server.connect(group="producers") as producer:
                await server.advance(TIME_OUT)
                assert await asked_about(producer) == (b"open", "1")
                assert (await pull(producer, "readers", "orders")).code == 0
