"""Recalls of timed messages: replies, refusals, and stored records."""

import base64
import struct
import time

import pytest

from rmqpy.protocol.codes import RequestCode
from rmqpy.protocol.ids import decode_recall_handle
from wire import Frame, Peer

from .conftest import Start
from .records import arrival, records
from .talk import pull, send

WHEEL = "rmq_sys_wheel_timer"
ON = {"recallMessageEnable": "true"}
ID = "AC110001000018B4AAC20000000000"


def now_ms() -> int:
    return time.time_ns() // 1_000_000


async def send_at(peer: Peer, at: int, number: int = 1, **changes: str) -> Frame:
    key = f"{ID}{number:02}"
    return await send(
        peer, "later", key.encode(), i=f"UNIQ_KEY\x01{key}\x02TIMER_DELIVER_MS\x01{at}\x02", **changes
    )


async def recall(peer: Peer, handle: str, topic: str = "later") -> Frame:
    ext = {"producerGroup": "producers", "topic": topic, "recallHandle": handle}
    return await peer.call(RequestCode.RECALL_MESSAGE, ext)


def handle_of(answer: Frame) -> str:
    assert answer.ext is not None
    return answer.ext["recallHandle"]


def made(topic: str = "later", broker: str = "broker-a", at: object = 0, key: str = f"{ID}01") -> str:
    return base64.urlsafe_b64encode(f"v1 {topic} {broker} {at} {key}".encode()).decode()


async def test_recalled_message_is_not_delivered_and_its_neighbour_is(start: Start) -> None:
    cluster = await start(**ON)
    async with await Peer.connect(cluster.broker.address) as peer:
        at = now_ms() + 4_000
        stays, gone = await send_at(peer, at, 1), await send_at(peer, at, 2)
        handle = decode_recall_handle(handle_of(gone))
        assert handle == ("later", "broker-a", (at - 1) // 1_000 * 1_000 + 1, f"{ID}02")
        answers = [await recall(peer, handle_of(gone)) for _ in range(2)]
        # A client whose answer was lost asks again.
        assert [answer.code for answer in answers] == [0, 0]
        assert {"msgId": f"{ID}02", "MSG_REGION": "DefaultRegion"}.items() <= (answers[0].ext or {}).items()
        marker = records((await pull(peer, "readers", WHEEL, 2)).body)[0]
        wanted = {
            "TIMER_DEL_UNIQKEY": f"{ID}02", "UNIQ_KEY": f"{ID}02", "TIMER_DELIVER_MS": str(handle.time_ms),
            "TIMER_OUT_MS": str(handle.time_ms - 1), "REAL_TOPIC": "later", "REAL_QID": "0", "PGROUP": "producers",
            "TAGS": "_RECALL_TAG_",
        }  # fmt: skip
        assert marker.body == b"0"
        assert wanted.items() <= marker.properties.items()
        assert (await arrival(peer, "later")).body == f"{ID}01".encode()
        late = await recall(peer, handle_of(stays))
        assert (late.code, "too late" in (late.remark or "")) == (604, True)
        # What came after it was stored after the other one was due.
        await send(peer, "later", b"after")
        assert (await arrival(peer, "later", 1)).body == b"after"
    await cluster.broker.stop()
    log = (cluster.folder / "timerlog/00000000000000000000").read_bytes()
    kinds = [struct.unpack_from(">iqi", log, position)[2] for position in range(0, 4 * 52, 52)]
    assert kinds == [1, 1, 5, 5]


@pytest.mark.parametrize("key", [f"{ID}01", f"later+{ID}01"])
async def test_recall_does_not_affect_another_topic(start: Start, key: str) -> None:
    cluster = await start(**ON)
    async with await Peer.connect(cluster.broker.address) as peer:
        at = (now_ms() + 2_000) // 1_000 * 1_000 + 1
        await send_at(peer, at)
        recalled = f"UNIQ_KEY\x01{ID}09\x02TIMER_DEL_UNIQKEY\x01{key}\x02TIMER_DELIVER_MS\x01{at}\x02"
        assert (await send(peer, "mine", b"0", i=recalled)).code == 0
        await send(peer, "later", b"behind it", i=f"UNIQ_KEY\x01{ID}10\x02TIMER_DELIVER_MS\x01{at + 1}\x02")
        assert (await arrival(peer, "later")).body == f"{ID}01".encode()


@pytest.mark.parametrize(
    ("topic", "handle", "code", "reason"),
    [
        ("later", "damaged", 604, "invalid"),
        ("later", "", 604, "invalid"),
        ("later", made(key="a\x02WAIT\x01false"), 604, "invalid"),
        ("later", made(at="soon"), 604, "invalid"),
        ("later", made(topic="TBW102"), 604, "topic not match"),
        ("later", made(broker="broker-b"), 604, "is at broker broker-b"),
        ("later", made(at=1), 604, "too late"),
        ("later", made(at=1 << 62), 604, "timestamp invalid"),
        ("unknown", made(topic="unknown"), 17, "not exist"),
    ],
)
async def test_handle_without_a_pending_message_is_refused(
    start: Start, topic: str, handle: str, code: int, reason: str
) -> None:
    cluster = await start(**ON)
    async with await Peer.connect(cluster.broker.address) as peer:
        await send(peer, "later", b"makes the topic")
        answer = await recall(peer, handle, topic)
        assert (answer.code, reason in (answer.remark or "")) == (code, True), answer.remark


async def test_only_single_messages_with_a_time_have_a_handle(start: Start) -> None:
    cluster = await start()
    async with await Peer.connect(cluster.broker.address) as peer:
        for properties, has_handle in [
            ("", False),
            ("DELAY\x011\x02", False),
            ("DELAY\x011\x02TIMER_DELAY_SEC\x0160\x02", False),
            ("TIMER_DELAY_SEC\x010\x02", False),
            ("TIMER_DELAY_SEC\x0160\x02", True),
        ]:
            answer = await send(peer, "later", i=properties)
            assert ("recallHandle" in (answer.ext or {})) == has_handle, properties


async def test_recalls_are_refused_unless_enabled(start: Start) -> None:
    cluster = await start()
    async with await Peer.connect(cluster.broker.address) as peer:
        sent = await send_at(peer, now_ms() + 60_000)
        answer = await recall(peer, handle_of(sent))
        assert answer.code == 16
        assert "recallMessageEnable" in (answer.remark or "")


async def test_broker_without_write_permission_recalls_unless_configured_otherwise(start: Start) -> None:
    for allowed, code in [("true", 0), ("false", 14)]:
        cluster = await start(**ON, allowRecallWhenBrokerNotWriteable=allowed)
        async with await Peer.connect(cluster.broker.address) as peer:
            sent = await send_at(peer, now_ms() + 60_000)
            body = b"brokerPermission=4\n"
            assert (await peer.call(RequestCode.UPDATE_BROKER_CONFIG, {}, body)).code == 0
            assert (await recall(peer, handle_of(sent))).code == code
        await cluster.broker.stop()


async def test_recall_key_includes_the_topic_for_older_brokers(start: Start) -> None:
    cluster = await start(**ON, appendTopicForTimerDeleteKey="true")
    async with await Peer.connect(cluster.broker.address) as peer:
        at = now_ms() + 4_000
        gone, _ = await send_at(peer, at, 1), await send_at(peer, at, 2)
        assert (await recall(peer, handle_of(gone))).code == 0
        [marker] = records((await pull(peer, "readers", WHEEL, 2)).body)
        assert marker.properties["TIMER_DEL_UNIQKEY"] == f"later+{ID}01"
        assert (await arrival(peer, "later")).body == f"{ID}02".encode()


async def test_recall_pipelined_after_its_message_works(start: Start) -> None:
    cluster = await start(**ON)
    async with await Peer.connect(cluster.broker.address) as peer:
        at = (now_ms() + 4_000) // 1_000 * 1_000 + 1
        await send(peer, "later", b"makes the topic")
        properties = f"UNIQ_KEY\x01{ID}01\x02TIMER_DELIVER_MS\x01{at}\x02"
        ext = {
            "a": "p",
            "b": "later",
            "c": "TBW102",
            "d": "4",
            "e": "0",
            "f": "0",
            "g": "1",
            "h": "0",
            "i": properties,
        }
        ask = {"producerGroup": "p", "topic": "later", "recallHandle": made(at=at)}
        frames = [
            Frame(code=RequestCode.SEND_MESSAGE_V2, opaque=1_001, ext=ext, body=b"x"),
            Frame(code=RequestCode.RECALL_MESSAGE, opaque=1_002, ext=ask),
        ]
        await peer.raw(b"".join(frame.pack() for frame in frames))
        sent, recalled = await peer.receive(), await peer.receive()
        assert [(sent.opaque, sent.code), (recalled.opaque, recalled.code)] == [(1_001, 0), (1_002, 0)]
        assert (recalled.ext or {})["msgId"] == f"{ID}01"
