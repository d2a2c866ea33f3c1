"""Hot requests byte by byte: inputs that a 5.5.0 broker mishandles, and behaviour that clients need.

Numbers in names are those of the traps in the project's list of real clients' pitfalls.
"""

import struct
from collections.abc import AsyncIterator

import pytest

from rmqpy import testing
from rmqpy.server import Standalone
from wire import BINARY, JSON, ONEWAY, Frame, Peer

SEND_V1, PULL, QUERY_OFFSET, UPDATE_OFFSET, SEND_V2, SEND_BATCH = 10, 11, 14, 15, 310, 320
GET_MAX_OFFSET = 30


@pytest.fixture
async def peer(server: Standalone) -> AsyncIterator[Peer]:
    async with await Peer.connect(server.broker) as peer:
        yield peer


def letters(topic: str, **changes: str) -> dict[str, str]:
    """Header of code 310; changes are named by their letter."""
    header = {"a": "senders", "b": topic, "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "1", "h": "0"}
    return header | {"i": "KEYS\x01k\x02", "m": "false"} | changes


def pull(topic: str, offset: int, **changes: str) -> dict[str, str]:
    """Header of a pull that carries its subscription and does not wait."""
    header = {
        "consumerGroup": "readers",
        "topic": topic,
        "queueId": "0",
        "queueOffset": str(offset),
        "maxMsgNums": "32",
        "sysFlag": "4",
        "commitOffset": "0",
        "suspendTimeoutMillis": "0",
        "subscription": "*",
        "subVersion": "0",
    }
    return header | changes


def inner(body: bytes, properties: bytes) -> bytes:
    """One message of a batch."""
    size = 22 + len(body) + len(properties)
    return (
        struct.pack(">iiiii", size, 0, 0, 0, len(body))
        + body
        + struct.pack(">h", len(properties))
        + properties
    )


def fields(frame: Frame) -> dict[str, str]:
    assert frame.ext is not None, frame
    return frame.ext


@pytest.mark.parametrize("encoding", [JSON, BINARY])
async def test_t1_t6_a_stored_message_is_answered_with_a_version_an_id_and_the_region(
    peer: Peer, encoding: int
) -> None:
    answer = await peer.call(SEND_V2, letters("answers"), b"x", encoding=encoding)
    assert (answer.code, answer.version, answer.encoding) == (0, 513, encoding)
    ext = fields(answer)
    assert (ext["MSG_REGION"], ext["TRACE_ON"], ext["queueId"]) == ("DefaultRegion", "true", "0")
    assert len(bytes.fromhex(ext["msgId"])) == 16
    assert len(ext["transactionId"]) == 32


async def test_t6_a_refused_send_carries_the_region_too(peer: Peer) -> None:
    answer = await peer.call(SEND_V2, letters("bad topic"), b"x")
    assert (answer.code, fields(answer)["MSG_REGION"]) == (29, "DefaultRegion")


async def test_long_names_and_letters_mean_the_same(peer: Peer) -> None:
    names = {"producerGroup": "p", "topic": "names", "defaultTopic": "TBW102", "defaultTopicQueueNums": "4"}
    names |= {"queueId": "0", "sysFlag": "0", "bornTimestamp": "1", "flag": "0", "properties": ""}
    first = await peer.call(SEND_V1, names, b"x")
    second = await peer.call(SEND_V2, letters("names"), b"x")
    assert [fields(answer)["queueOffset"] for answer in (first, second)] == ["0", "1"]


async def test_t8_t44_the_flag_decides_about_an_answer_not_the_code(peer: Peer) -> None:
    await peer.send(SEND_V2, letters("silent"), b"x", flag=ONEWAY)
    await peer.send(SEND_V2, letters("bad topic"), b"x", flag=ONEWAY)
    await peer.send(UPDATE_OFFSET, {"consumerGroup": "nobody", "topic": "silent"}, flag=ONEWAY)
    opaque = await peer.send(SEND_V2, letters("silent"), b"x")
    answer = await peer.receive()
    assert (answer.opaque, fields(answer)["queueOffset"]) == (opaque, "1")


async def test_t10_the_batch_flag_decides_and_members_get_consecutive_offsets(peer: Peer) -> None:
    body = b"".join(inner(f"member {index}".encode(), b"TAGS\x01A\x02") for index in range(3))
    for code in (SEND_BATCH, SEND_V2):
        answer = await peer.call(code, letters("batches", i="", m="true"), body)
        assert answer.code == 0, answer
        assert len(fields(answer)["msgId"].split(",")) == 3
    found = await peer.call(PULL, pull("batches", 0, subscription="A"))
    assert (found.code, fields(found)["nextBeginOffset"]) == (0, "6")
    assert (await peer.call(SEND_V2, letters("batches", m="true"), b"no batch")).code == 13


async def test_t18_unknown_offset_is_code_22(peer: Peer) -> None:
    ask = {"consumerGroup": "newcomers", "topic": "unknown-offsets", "queueId": "0"}
    assert (await peer.call(QUERY_OFFSET, ask)).code == 22
    await peer.call(SEND_V2, letters("unknown-offsets"), b"x")
    young = await peer.call(QUERY_OFFSET, ask)
    assert (young.code, fields(young)["offset"]) == (0, "0")
    assert (await peer.call(QUERY_OFFSET, ask | {"setZeroIfNotFound": "false"})).code == 22
    assert (await peer.call(QUERY_OFFSET, ask | {"queueId": "3"})).code == 22


async def test_messages_outside_memory_are_read_and_new_groups_do_not_start_there() -> None:
    with testing.broker(accessMessageInMemoryMaxRatio=0) as server:
        async with await Peer.connect(server.broker) as peer:
            for index in range(40):
                await peer.call(SEND_V2, letters("cold"), b"body %d." % index)
            asked = [await peer.send(PULL, pull("cold", offset, maxMsgNums="1")) for offset in range(40)]
            found = {answer.opaque: answer for answer in [await peer.receive() for _ in asked]}
            for index, answer in enumerate(found[opaque] for opaque in asked):
                assert (answer.code, fields(answer)["nextBeginOffset"]) == (0, str(index + 1))
                assert b"body %d." % index in answer.body
            at_the_end = await peer.call(PULL, pull("cold", 40))
            assert at_the_end.code == 19
            ask = {"consumerGroup": "newcomers", "topic": "cold", "queueId": "0"}
            assert (await peer.call(QUERY_OFFSET, ask)).code == 22


async def test_t19_every_pull_reply_has_the_next_offset(peer: Peer) -> None:
    for _ in range(3):
        await peer.call(SEND_V2, letters("moved"), b"x")
    for offset, code, begin in [(0, 0, "3"), (3, 19, "3"), (9, 21, "3"), (-1, 21, "0")]:
        answer = await peer.call(PULL, pull("moved", offset))
        ext = fields(answer)
        assert (answer.code, ext["nextBeginOffset"]) == (code, begin), offset
        assert (ext["minOffset"], ext["maxOffset"], ext["suggestWhichBrokerId"]) == ("0", "3", "0")


async def test_a_pull_has_no_more_bytes_than_its_limit_but_at_least_one_message(peer: Peer) -> None:
    for _ in range(4):
        await peer.call(SEND_V2, letters("limited"), b"x" * 1_000)
    for limit, begin in [(1 << 20, "4"), (2_500, "2"), (1, "1")]:
        answer = await peer.call(PULL, pull("limited", 0, maxMsgBytes=str(limit)))
        assert (answer.code, fields(answer)["nextBeginOffset"]) == (0, begin), limit


async def test_t45_a_direct_retry_goes_to_the_dead_letters_only_beyond_the_limit(peer: Peer) -> None:
    await peer.call(PULL, pull("retries", 0, consumerGroup="retriers"))
    for times, topic in [("2", "%RETRY%retriers"), ("3", "%DLQ%retriers")]:
        answer = await peer.call(SEND_V2, letters("%RETRY%retriers", j=times, l="2"), times.encode())
        assert answer.code == 0, answer
        found = await peer.call(PULL, pull(topic, 0))
        assert (found.code, times.encode() in found.body) == (0, True)


async def test_t45_a_message_may_wait_for_its_retry_topic_and_then_for_its_dead_letters(peer: Peer) -> None:
    sends = [await peer.send(SEND_V2, letters("%RETRY%unseen", j="3", l="2"), b"last") for _ in range(3)]
    answers = [await peer.receive() for _ in sends]
    assert [answer.code for answer in answers] == [0, 0, 0], answers
    assert (await peer.call(PULL, pull("%DLQ%unseen", 0))).body.count(b"last") == 3


async def test_t46_address_bits_of_a_client_do_not_reach_the_record(peer: Peer) -> None:
    await peer.call(SEND_V2, letters("masked", f=str(0x30 | 0xC0 | 0x1)), b"x")
    found = await peer.call(PULL, pull("masked", 0))
    assert struct.unpack_from(">i", found.body, 36)[0] == 0x1


@pytest.mark.parametrize("topic", ["rmq_sys_wheel_timer", "SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC"])
async def test_t47_topics_of_the_broker_itself_are_refused(peer: Peer, topic: str) -> None:
    assert (await peer.call(SEND_V2, letters(topic), b"x")).code == 16


@pytest.mark.parametrize(
    "changes",
    [
        {"f": "4"},
        {"i": "TRAN_MSG\x01true\x02", "f": "8"},
    ],
)
async def test_t48_undeliverable_message_is_not_accepted(peer: Peer, changes: dict[str, str]) -> None:
    answer = await peer.call(SEND_V2, letters("later", **changes), b"x")
    assert answer.code == 13
    assert "not served yet" in (answer.remark or "")
    assert (await peer.call(PULL, pull("later", 0))).code in (17, 19)


@pytest.mark.parametrize(("kind", "expression"), [("SQL92", "a >"), ("SQL92", "a > 1 x"), ("XPATH", "*")])
async def test_t49_unserved_expression_does_not_match_everything(
    peer: Peer, kind: str, expression: str
) -> None:
    await peer.call(SEND_V2, letters("filtered"), b"x")
    answer = await peer.call(PULL, pull("filtered", 0, expressionType=kind, subscription=expression))
    assert (answer.code, answer.body) == (23, b"")


async def test_t51_an_empty_expression_type_means_tags(peer: Peer) -> None:
    for tag in ("A", "B"):
        await peer.call(SEND_V2, letters("tagged", i=f"TAGS\x01{tag}\x02"), tag.encode())
    answer = await peer.call(PULL, pull("tagged", 0, expressionType="", subscription="B"))
    assert (answer.code, fields(answer)["nextBeginOffset"]) == (0, "2")
    assert answer.body.count(b"TAGS") == 1


async def test_t52_a_record_larger_than_a_segment_is_refused_and_nothing_is_lost() -> None:
    with testing.broker(mappedFileSizeCommitLog=1 << 20) as server:
        async with await Peer.connect(server.broker) as peer:
            assert (await peer.call(SEND_V2, letters("large"), b"x" * (2 << 20))).code == 13
            stored = await peer.call(SEND_V2, letters("large"), b"fits")
            assert (stored.code, fields(stored)["queueOffset"]) == (0, "0")


@pytest.mark.parametrize("properties", ["NAME\x01nul \x00 inside\x02", "A\x01" + "x" * 32_700 + "\x02"])
async def test_oversized_properties_are_refused(peer: Peer, properties: str) -> None:
    assert (await peer.call(SEND_V2, letters("properties", i=properties), b"x")).code == 13


async def test_a_batch_member_with_broken_text_refuses_the_batch(peer: Peer) -> None:
    body = inner(b"good", b"A\x01b\x02") + inner(b"bad", b"A\x01\xff\xfe\x02")
    assert (await peer.call(SEND_BATCH, letters("broken", m="true"), body)).code == 13
    assert (await peer.call(PULL, pull("broken", 0))).code in (17, 19)


async def test_an_empty_body_and_one_beyond_the_limit_are_refused(peer: Peer) -> None:
    assert (await peer.call(SEND_V2, letters("sizes"), b"")).code == 13
    assert (await peer.call(SEND_V2, letters("sizes"), b"x" * ((4 << 20) + 1))).code == 13
    assert (await peer.call(SEND_V2, letters("sizes"), b"x" * (4 << 20))).code == 0


async def test_a_waiting_pull_is_answered_by_the_message_it_waits_for(server: Standalone, peer: Peer) -> None:
    await peer.call(SEND_V2, letters("awaited", i="TAGS\x01A\x02"), b"x")
    async with await Peer.connect(server.broker) as waiting:
        header = pull("awaited", 1, sysFlag="6", subscription="B", suspendTimeoutMillis="15000")
        opaque = await waiting.send(PULL, header)
        # One connection is served in order: after this answer the pull is parked.
        await waiting.call(GET_MAX_OFFSET, {"topic": "awaited", "queueId": "0"})
        # Not the awaited message: the pull stays parked.
        await peer.call(SEND_V2, letters("awaited", i="TAGS\x01A\x02"), b"other")
        await peer.call(SEND_V2, letters("awaited", i="TAGS\x01B\x02"), b"awaited")
        answer = await waiting.receive()
        assert (answer.opaque, answer.code, fields(answer)["nextBeginOffset"]) == (opaque, 0, "3")
        assert b"awaited" in answer.body


async def test_a_waiting_pull_is_answered_when_its_time_is_up(peer: Peer) -> None:
    await peer.call(SEND_V2, letters("suspended"), b"x")
    answer = await peer.call(PULL, pull("suspended", 1, sysFlag="6", suspendTimeoutMillis="200"))
    assert (answer.code, fields(answer)["nextBeginOffset"]) == (19, "1")
