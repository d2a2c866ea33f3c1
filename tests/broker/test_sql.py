"""SQL92 filters at the broker: delivered messages, replies to waiting pulls, and refusals."""

import json
import socket
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from rmqpy.control.clients.filter_file import bloom_positions
from rmqpy.protocol.requests.clients import (
    ConsumerData,
    HeartBeat,
    HeartbeatData,
    SubscriptionData,
)
from rmqpy.server import Standalone
from wire import Frame, Peer

from .conftest import Cluster, Start, made_broker
from .records import records
from .talk import beat, pull, send
from .test_filters import tagged_send
from .test_hot_path import exchange
from .test_owed_replies import answers, connect, first_offset, parked_pull

TOPIC = "priced"
EXPRESSION = "price > 10 AND region IN ('EU', 'UK')"
ON = {"enablePropertyFilter": "true"}
#: One connection is served in order: when this is answered, all pulls before it are parked.
MARKER = Frame(30, opaque=-1, ext={"topic": "hot", "queueId": "0"}).pack()


def sql(expression: str, **changes: str) -> dict[str, str]:
    return {"expressionType": "SQL92", "subscription": expression} | changes


async def send_priced(peer: Peer, price: int, region: str) -> None:
    body = f"{region}{price}".encode()
    assert (await send(peer, TOPIC, body, i=f"price\x01{price}\x02region\x01{region}\x02")).code == 0


def member(expression: str, version: int = 1) -> HeartBeat:
    """The heartbeat of a member that filters by SQL."""
    subscription = SubscriptionData(
        topic=TOPIC, sub_string=expression, expression_type="SQL92", sub_version=version
    )
    consumer = ConsumerData(group_name="billing", subscription_data_set=[subscription])
    return HeartBeat(body=HeartbeatData(client_id="one", consumer_data_set=[consumer]))


async def test_a_pull_gets_the_messages_whose_properties_match(start: Start) -> None:
    cluster = await start(**ON)
    async with await Peer.connect(cluster.broker.address) as peer:
        for price, region in [(5, "EU"), (11, "EU"), (12, "US"), (13, "UK")]:
            await send_priced(peer, price, region)
        answer = await pull(peer, "billing", TOPIC, **sql(EXPRESSION))
        assert [record.body for record in records(answer.body)] == [b"EU11", b"UK13"]
        assert answer.ext is not None
        assert (answer.code, answer.ext["nextBeginOffset"]) == (0, "4")
        nothing = await pull(peer, "billing", TOPIC, **sql("price > 100"))
        assert nothing.ext is not None
        assert (nothing.code, nothing.ext["nextBeginOffset"]) == (20, "4")


@pytest.mark.parametrize("memory", ["0", "40"], ids=["from the disk", "from memory"])
@pytest.mark.parametrize(
    "writing",
    [
        {"flushDiskType": "ASYNC_FLUSH"},
        {"flushDiskType": "SYNC_FLUSH"},
        {"commitLogWritePath": "mapping"},
    ],
    ids=lambda settings: next(iter(settings.items())),
)
async def test_filters_read_log_files_of_every_write_path(
    start: Start, tmp_path: Path, writing: dict[str, str], memory: str
) -> None:
    settings = (
        ON | writing | {"accessMessageInMemoryMaxRatio": memory, "mappedFileSizeCommitLog": str(1 << 20)}
    )
    cluster = await start(**settings)
    # With SYNC_FLUSH consumers see what is on the disk: a pull at the end waits for the last message.
    wanted = sql("price BETWEEN 7 AND 8 OR price = 299", sysFlag="6", suspendTimeoutMillis="20000")

    async def matching(address: str) -> list[bytes]:
        found: list[bytes] = []
        async with await Peer.connect(address) as peer:
            offset = 0
            while offset < 300:
                answer = await pull(peer, "billing", TOPIC, offset, **wanted)
                assert answer.code in (0, 20), answer
                assert answer.ext is not None
                offset = int(answer.ext["nextBeginOffset"])
                found += [record.body[:3] for record in records(answer.body)]
        return found

    async with await Peer.connect(cluster.broker.address) as peer:
        # Over three files of the log.
        for price in range(300):
            body = f"{price:03}".encode() + b"x" * 10_000
            assert (await send(peer, TOPIC, body, i=f"price\x01{price}\x02")).code == 0
    assert await matching(cluster.broker.address) == [b"007", b"008", b"299"]
    await cluster.broker.stop()
    async with made_broker(tmp_path, cluster.namesrv, settings) as again:
        assert await matching(again.address) == [b"007", b"008", b"299"]


async def test_sql_sees_properties_that_the_broker_adds(start: Start) -> None:
    cluster = await start(**ON)
    async with await Peer.connect(cluster.broker.address) as peer:
        await send(peer, TOPIC, i="KEYS\x01k1\x02TAGS\x01paid\x02")
        for expression in ("KEYS = 'k1' AND TAGS = 'paid'", "CLUSTER = 'c1'"):
            assert (await pull(peer, "billing", TOPIC, **sql(expression))).code == 0, expression


def test_held_pulls_wait_for_a_matching_message(server: Standalone) -> None:
    offset = first_offset(server)
    with connect(server) as waiting, connect(server) as producer:
        park(waiting, offset, 100)
        for value in ("other", "another", "wanted"):
            exchange(producer, tagged_send(value), 1)
        found = answers(waiting, 100)
    # Each is answered by the last message alone: it went on behind those that do not match.
    assert Counter(frame.code for frame in found) == {0: 100}
    for frame in found:
        assert [record.properties["TAGS"] for record in records(frame.body)] == ["wanted"]


def test_timed_out_pull_resumes_after_unmatched_messages(server: Standalone) -> None:
    offset = first_offset(server)
    with connect(server) as waiting, connect(server) as producer:
        park(waiting, offset, 1, suspend_ms=1_500)
        for _ in range(3):
            exchange(producer, tagged_send("other"), 1)
        [answer] = answers(waiting, 1)
    assert answer.ext is not None
    assert answer.code in (19, 20)
    assert (int(answer.ext["nextBeginOffset"]), answer.body) == (offset + 3, b"")


def test_expensive_expressions_of_one_connection_delay_no_other(server: Standalone) -> None:
    pulls, offset = 1_000, first_offset(server)
    with connect(server) as waiting, connect(server) as producer, connect(server) as other:
        costly = " OR ".join(["a CONTAINS 'xy'"] * 200)
        frames = [
            parked_pull(offset, number, 60_000, **sql(f"{costly} OR a = '{number}' OR TAGS = 'wanted'"))
            for number in range(pulls)
        ]
        exchange(waiting, b"".join(frames) + MARKER, 1)
        unwanted = Frame.unpack(tagged_send("other")[4:])
        assert unwanted.ext is not None
        unwanted.ext["i"] += f"a\x01{'x' * 8_000}\x02"
        probe = Frame(14, ext={"consumerGroup": "readers", "topic": "hot", "queueId": "0"}).pack()
        exchange(other, probe, 1)
        exchange(producer, unwanted.pack(), 1)
        exchange(producer, tagged_send("wanted"), 1)
        with ThreadPoolExecutor(1) as reading:
            all_answered = reading.submit(answers, waiting, pulls)
            probes = 0
            while not all_answered.done():
                exchange(other, probe, 1)
                probes += 1
        assert Counter(frame.code for frame in all_answered.result()) == {0: pulls}
    # One or two would be answered if all evaluations ran in one turn.
    assert probes > 4


def park(peer: socket.socket, offset: int, count: int, suspend_ms: int = 60_000) -> None:
    """As many pulls on this connection that wait for a message with the tag `wanted`, by SQL."""
    wanted = sql("TAGS = 'wanted'")
    pulls = [parked_pull(offset, opaque, suspend_ms, **wanted) for opaque in range(count)]
    assert Frame.unpack(exchange(peer, b"".join(pulls) + MARKER, 1)[0]).opaque == -1


async def test_pull_without_a_filter_uses_the_heartbeats_subscription(start: Start) -> None:
    cluster = await start(**ON)
    async with await Peer.connect(cluster.broker.address) as peer:
        for price in (5, 11):
            await send_priced(peer, price, "EU")
        await beat(peer, member(EXPRESSION))
        # As Java's push consumer pulls: the type in the header means nothing.
        answer = await pull(peer, "billing", TOPIC, sysFlag="0", subscription="")
        assert [record.body for record in records(answer.body)] == [b"EU11"]
        await beat(peer, member("price <", version=2))
        answer = await pull(peer, "billing", TOPIC, sysFlag="0", subscription="")
        assert answer.code == 27
        assert "expression is wrong" in (answer.remark or "")


async def test_property_filters_are_off_by_default(cluster: Cluster) -> None:
    async with await Peer.connect(cluster.broker.address) as peer:
        await send_priced(peer, 11, "EU")
        await beat(peer, member(EXPRESSION))
        for changes in (sql(EXPRESSION), {"sysFlag": "0"}):
            answer = await pull(peer, "billing", TOPIC, **changes)
            assert (answer.code, answer.body) == (1, b"")
            assert "does not support consumer to filter message by SQL92" in (answer.remark or "")


@pytest.mark.parametrize(
    ("settings", "expression", "code"),
    [
        ({}, "a > 5", 1),
        (ON, "a > 5", 0),
        (ON, "a >", 23),
        (ON, "", 23),
        (ON, "a LIKE 'x%'", 23),
        (ON | {"sqlStrict": "false"}, "a LIKE 'x%'", 0),
    ],
)
async def test_an_expression_is_checked_before_a_consumer_starts(
    start: Start, settings: dict[str, str], expression: str, code: int
) -> None:
    cluster = await start(**settings)
    body = json.dumps(
        {
            "clientId": "one",
            "group": "billing",
            "namespace": "",
            "subscriptionData": {
                "topic": TOPIC, "subString": expression, "expressionType": "SQL92",
                "tagsSet": [], "codeSet": [], "subVersion": 1, "classFilterMode": False,
            },
        }
    ).encode()  # fmt: skip
    async with await Peer.connect(cluster.broker.address) as peer:
        assert (await peer.call(46, {}, body)).code == code


@pytest.mark.parametrize(("strict", "code"), [("true", 23), ("false", 20)])
async def test_trailing_text_of_an_expression_is_an_error_or_ignored(
    start: Start, strict: str, code: int
) -> None:
    cluster = await start(**ON, sqlStrict=strict)
    async with await Peer.connect(cluster.broker.address) as peer:
        await send_priced(peer, 11, "EU")
        answer = await pull(peer, "billing", TOPIC, **sql("region LIKE 'E%'"))
        assert answer.code == code
        if code == 23:
            assert "would be ignored" in (answer.remark or "")


async def test_returned_messages_are_not_filtered_again(start: Start) -> None:
    cluster = await start(**ON)
    async with await Peer.connect(cluster.broker.address) as peer:
        await send_priced(peer, 11, "EU")
        retry = SubscriptionData(topic="%RETRY%billing", sub_string="*", sub_version=1)
        beating = member(EXPRESSION)
        beating.body.consumer_data_set[0].subscription_data_set.append(retry)
        await beat(peer, beating)
        await send(peer, "%RETRY%billing", b"again", i="price\x011\x02RETRY_TOPIC\x01priced\x02")
        answer = await pull(peer, "billing", "%RETRY%billing", sysFlag="0")
        assert [record.body for record in records(answer.body)] == [b"again"]


async def test_expensive_expression_is_evaluated_in_small_steps(start: Start) -> None:
    cluster = await start(**ON)
    async with await Peer.connect(cluster.broker.address) as peer:
        large = "x" * 20_000
        for _ in range(10):
            await send(peer, TOPIC, i=f"a\x01{large}\x02")
        costly = " OR ".join(["a CONTAINS 'xy'"] * 500)
        offset = steps = 0
        while offset < 10:
            answer = await pull(peer, "billing", TOPIC, offset, **sql(costly))
            assert answer.code == 20
            assert answer.ext is not None
            assert int(answer.ext["nextBeginOffset"]) > offset
            offset, steps = int(answer.ext["nextBeginOffset"]), steps + 1
        assert steps > 1


async def test_filters_are_kept_in_the_file_of_apaches_broker(start: Start) -> None:
    cluster = await start(**ON)
    async with await Peer.connect(cluster.broker.address) as peer:
        await beat(peer, member(EXPRESSION, version=3))
        await cluster.broker.stop()
    content = json.loads((cluster.folder / "config" / "consumerFilter.json").read_text())
    kept = content["filterDataByTopic"][TOPIC]["groupFilterData"]["billing"]
    assert kept.pop("bornTime") > 0
    kept.pop("deadTime")
    assert kept == {
        "consumerGroup": "billing",
        "topic": TOPIC,
        "expression": EXPRESSION,
        "expressionType": "SQL92",
        "clientVersion": 3,
        "bloomFilterData": {"bitNum": 112, "bitPos": bloom_positions(f"billing#{TOPIC}")},
    }
    assert set(content) == {"filterDataByTopic"}


def test_the_bits_of_a_filter_are_those_of_apaches_broker() -> None:
    assert bloom_positions("GroupA#TopicA") == [29, 107, 11]
