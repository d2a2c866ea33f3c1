"""Replies between clients through the broker, frame by frame."""

import asyncio
import logging
from collections.abc import AsyncIterator

import pytest

from golden import golden_frame
from rmqpy.protocol.codes import RequestCode
from waiting import until_async
from wire import RESPONSE, TIMEOUT_S, Frame, Peer

from .conftest import Cluster, Start, samples
from .records import records
from .talk import beat, heartbeat, pull, pushed, send

REPLY_TOPIC = "c1_REPLY_TOPIC"
PUSH = RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT


def properties(**values: str) -> str:
    return "".join(f"{name}\x01{value}\x02" for name, value in values.items())


def ext_of(
    to: str = "requester", code: RequestCode = RequestCode.SEND_REPLY_MESSAGE_V2, **changes: str
) -> dict[str, str]:
    """The fields of a reply as a Java client sends them, or with long names as a Go client does."""
    props = properties(MSG_TYPE="reply", REPLY_TO_CLIENT=to, CORRELATION_ID="c-1", TTL="3000", colour="red")
    letters = {
        "a": "repliers", "b": REPLY_TOPIC, "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "1700000000000",
        "h": "7", "i": props, "j": "0", "k": "false", "m": "false", "n": "broker-a",
    }  # fmt: skip
    if code == RequestCode.SEND_REPLY_MESSAGE:
        names = (
            "producerGroup", "topic", "defaultTopic", "defaultTopicQueueNums", "queueId", "sysFlag",
            "bornTimestamp", "flag", "properties", "reconsumeTimes", "unitMode", "batch", "bname",
        )  # fmt: skip
        letters = dict(zip(names, letters.values(), strict=True))
    return letters | changes


async def reply(
    peer: Peer,
    body: bytes = b"4 kg",
    *,
    to: str = "requester",
    code: RequestCode = RequestCode.SEND_REPLY_MESSAGE_V2,
    **changes: str,
) -> Frame:
    """Send a reply and wait for what the broker says."""
    return await peer.call(code, ext_of(to, code, **changes), body)


async def taken(requester: Peer, code: int = 0, remark: str | None = None) -> Frame:
    """The next reply that the broker sends the requester, which says that it has come."""
    while (push := await pushed(requester)).code != PUSH:
        pass
    await requester.raw(Frame(code, opaque=push.opaque, flag=RESPONSE, remark=remark).pack())
    return push


def read(push: Frame) -> dict[str, str]:
    text = (push.ext or {})["properties"]
    return dict(entry.split("\x01") for entry in text.split("\x02") if entry)


@pytest.fixture
async def requester(cluster: Cluster) -> AsyncIterator[Peer]:
    """The client `requester`, which has a producer."""
    async with await Peer.connect(cluster.broker.address) as peer:
        await beat(peer, heartbeat("requester", producer="requesters"))
        yield peer


@pytest.fixture
async def replier(cluster: Cluster) -> AsyncIterator[Peer]:
    async with await Peer.connect(cluster.broker.address) as peer:
        yield peer


@pytest.mark.parametrize("code", [RequestCode.SEND_REPLY_MESSAGE, RequestCode.SEND_REPLY_MESSAGE_V2])
async def test_a_reply_goes_to_its_requester_and_is_stored(
    requester: Peer, replier: Peer, code: RequestCode
) -> None:
    sent = asyncio.create_task(reply(replier, code=code))
    push = await taken(requester)
    answer = await sent
    golden = golden_frame("client_326_rpc_B2C", "request")
    assert push.flag == 0
    assert (push.ext or {}).keys() == (golden.ext or {}).keys()
    ext = push.ext or {}
    told = (
        "producerGroup",
        "topic",
        "queueId",
        "flag",
        "sysFlag",
        "bornTimestamp",
        "reconsumeTimes",
        "unitMode",
    )
    assert [ext[name] for name in told] == [
        "repliers", REPLY_TOPIC, "0", "7", "0", "1700000000000", "0", "false",
    ]  # fmt: skip
    assert ext["bornHost"].startswith("127.0.0.1:")
    assert ext["storeHost"].startswith("127.0.0.1:")
    assert push.body == b"4 kg"
    assert read(push).items() >= {
        "MSG_TYPE": "reply", "REPLY_TO_CLIENT": "requester", "CORRELATION_ID": "c-1", "TTL": "3000", "colour": "red",
    }.items()  # fmt: skip
    assert read(push).keys() >= read(golden).keys() - {"UNIQ_KEY"}
    assert answer.code == 0
    assert (answer.ext or {}).keys() == (golden_frame("client_325_rpc_C2S", "reply").ext or {}).keys()
    [record] = records((await pull(replier, "billing", REPLY_TOPIC)).body)
    assert record.body == b"4 kg"
    assert (answer.ext or {})["queueOffset"] == "0"
    assert int((answer.ext or {})["msgId"][-16:], 16) == record.position


async def test_a_request_names_the_cluster_its_reply_goes_to(cluster: Cluster, replier: Peer) -> None:
    assert (await send(replier, "orders")).code == 0
    [record] = records((await pull(replier, "billing", "orders")).body)
    assert record.properties["CLUSTER"] == "c1"


async def test_broker_that_stores_no_replies_still_delivers_them(start: Start) -> None:
    cluster = await start(storeReplyMessageEnable="false")
    address = cluster.broker.address
    async with await Peer.connect(address) as requester, await Peer.connect(address) as replier:
        await beat(requester, heartbeat("requester", producer="requesters"))
        sent = asyncio.create_task(reply(replier))
        await taken(requester)
        answer = await sent
        assert answer.code == 0
        assert ((answer.ext or {})["msgId"], (answer.ext or {})["queueOffset"]) == ("0", "0")
        assert (await pull(replier, "billing", REPLY_TOPIC)).body == b""


async def test_reply_without_a_requester_is_refused_stored_counted_and_logged_once(
    start: Start, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rmqpy.control.startup.service.UNDELIVERED_SECONDS", 0.05)
    caplog.set_level(logging.WARNING)
    cluster = await start(httpPort="0")
    async with await Peer.connect(cluster.broker.address) as replier:
        answers = [await reply(replier, to="nobody") for _ in range(3)]
        assert {(one.code, one.remark) for one in answers} == {
            (1, "push reply message fail, channel of <nobody> not found.")
        }
        missing = await reply(replier, i=properties(MSG_TYPE="reply", CORRELATION_ID="c-1"))
        assert missing.code == 1
        assert "REPLY_TO_CLIENT" in (missing.remark or "")
        assert len(records((await pull(replier, "billing", REPLY_TOPIC)).body)) == 4
        [line] = [one for one in await samples(cluster, "rmqpy_replies_total") if "no_requester" in one]
        assert line.split()[-1] == "4.0"
        await until_async(lambda: said(caplog, 4))


def said(caplog: pytest.LogCaptureFixture, count: int) -> bool:
    """Whether so many undelivered replies are in the log."""
    lines = [one.getMessage() for one in caplog.records if "found no requester" in one.getMessage()]
    return sum(int(line.split()[0]) for line in lines) == count


async def test_replier_learns_of_a_refusing_or_disconnected_requester(
    cluster: Cluster, requester: Peer, replier: Peer
) -> None:
    sent = asyncio.create_task(reply(replier))
    await taken(requester, code=1, remark="not mine")
    assert ((await sent).code, (await sent).remark) == (1, "push reply message to requester fail: not mine")
    sent = asyncio.create_task(reply(replier))
    while (await pushed(requester)).code != PUSH:
        pass
    await requester.close()
    assert (await sent).code == 1
    assert "disconnected" in ((await sent).remark or "")
    async with asyncio.timeout(TIMEOUT_S):
        while "not found" not in ((await reply(replier)).remark or ""):
            pass


async def test_newest_connection_of_a_client_gets_replies(
    cluster: Cluster, requester: Peer, replier: Peer
) -> None:
    async with await Peer.connect(cluster.broker.address) as newer:
        await beat(newer, heartbeat("requester", producer="requesters"))
        sent = asyncio.create_task(reply(replier))
        await taken(newer)
        assert (await sent).code == 0
    async with asyncio.timeout(TIMEOUT_S):
        while True:
            sent = asyncio.create_task(reply(replier))
            # The broker may not have heard yet that the newer one is gone.
            first = asyncio.create_task(taken(requester))
            await asyncio.wait([first, sent], return_when=asyncio.FIRST_COMPLETED)
            if first.done():
                break
            first.cancel()
    assert (await sent).code == 0


async def test_unresponsive_requester_delays_only_its_own_replies(
    cluster: Cluster, requester: Peer, replier: Peer
) -> None:
    for number in range(100):
        await replier.send(RequestCode.SEND_REPLY_MESSAGE_V2, ext_of(), str(number).encode())
    async with await Peer.connect(cluster.broker.address) as other:
        await beat(other, heartbeat("other", producer="requesters"))
        async with await Peer.connect(cluster.broker.address) as second:
            # A large one, too: its body is not read as other large bodies are.
            for body in (b"small", bytes(1 << 20)):
                sent = asyncio.create_task(reply(second, body, to="other"))
                assert (await taken(other)).body == body
                assert (await sent).code == 0
    # No more than 64 are under way to one requester; the others follow.
    bodies = {(await taken(requester)).body for _ in range(100)}
    assert bodies == {str(number).encode() for number in range(100)}
    assert {(await replier.receive()).code for _ in range(100)} == {0}


async def test_replies_are_checked_like_sends_before_delivery(requester: Peer, replier: Peer) -> None:
    assert (await reply(replier, e="9")).code == 29
    assert (await reply(replier, bytes((4 << 20) + 1))).code == 13
    assert (await reply(replier, b="not a name")).code == 17
    # A client with a namespace has a topic of its own, which its first reply makes.
    sent = asyncio.create_task(reply(replier, b="shop%c1_REPLY_TOPIC"))
    assert ((await taken(requester)).ext or {})["topic"] == "shop%c1_REPLY_TOPIC"
    assert (await sent).code == 0
    assert not any(one.code == PUSH for one in requester.pushed)


async def test_a_reply_without_a_body_is_delivered_and_not_stored(
    cluster: Cluster, requester: Peer, replier: Peer
) -> None:
    sent = asyncio.create_task(reply(replier, b""))
    assert (await taken(requester)).body == b""
    answer = await sent
    assert (answer.code, (answer.ext or {})["msgId"]) == (0, "0")
    assert (await pull(replier, "billing", REPLY_TOPIC)).body == b""


async def test_a_client_cannot_push_a_reply_itself(replier: Peer) -> None:
    told = await replier.call(PUSH, golden_frame("client_326_rpc_B2C", "request").ext or {}, b"x")
    assert told.code == 3
    assert "it is a request of a broker to a client" in (told.remark or "")
