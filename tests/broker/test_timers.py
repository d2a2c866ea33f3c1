"""Timed messages: accepted and refused requests, and the state after a stop."""

import json
import struct
import time
from pathlib import Path

import pytest

from wire import Peer

from .conftest import Start, made_broker, samples
from .records import arrival, records
from .talk import pull, send

WHEEL = "rmq_sys_wheel_timer"
#: Position of the store time in a record with IPv4 hosts.
STORED_AT = 56


def now_ms() -> int:
    return time.time_ns() // 1_000_000


@pytest.mark.parametrize("asked", ["TIMER_DELAY_MS\x01700\x02", "TIMER_DELAY_SEC\x011\x02", None])
async def test_timed_message_is_pending_under_its_topic_and_arrives_unchanged(
    start: Start, asked: str | None
) -> None:
    cluster = await start()
    async with await Peer.connect(cluster.broker.address) as peer:
        before = now_ms()
        at = before + (1_000 if asked == "TIMER_DELAY_SEC\x011\x02" else 700)
        text = asked or f"TIMER_DELIVER_MS\x01{at}\x02"
        answer = await send(peer, "later", b"body", e="2", i=f"TAGS\x01A\x02{text}")
        assert answer.ext is not None
        assert (answer.code, answer.ext["queueId"], answer.ext["queueOffset"]) == (0, "2", "0")
        [waiting] = records((await pull(peer, "readers", WHEEL)).body)
        assert (waiting.properties["REAL_TOPIC"], waiting.properties["REAL_QID"]) == ("later", "2")
        out, due = (int(waiting.properties[name]) for name in ("TIMER_OUT_MS", "TIMER_DELIVER_MS"))
        assert out % 1_000 == 0
        assert 0 < due - out <= 1_000
        header = {"queueId": "2", "subscription": "A", "sysFlag": "6", "suspendTimeoutMillis": "20000"}
        answer = await pull(peer, "readers", "later", **header)
        (stored_at,) = struct.unpack_from(">q", answer.body, STORED_AT)
        assert stored_at >= due >= at
        [arrived] = records(answer.body)
        assert arrived.body == b"body"
        assert int(arrived.properties["TIMER_DEQUEUE_MS"]) >= due


async def test_past_time_means_immediate_delivery(start: Start) -> None:
    cluster = await start()
    async with await Peer.connect(cluster.broker.address) as peer:
        assert (await send(peer, "now", i=f"TIMER_DELIVER_MS\x01{now_ms() - 1}\x02")).code == 0
        assert (await arrival(peer, "now")).body == b"hello"


@pytest.mark.parametrize(
    ("asked", "code", "reason"),
    [
        ("TIMER_DELAY_MS\x01soon\x02", 13, "is not a number"),
        ("TIMER_DELAY_SEC\x01259201\x02", 13, "timerMaxDelaySec=259200"),
        ("TIMER_DELAY_SEC\x01-1\x02TIMER_DEL_UNIQKEY\x01key\x02", 13, "is due already"),
    ],
)
async def test_invalid_delivery_time_is_refused(start: Start, asked: str, code: int, reason: str) -> None:
    cluster = await start()
    async with await Peer.connect(cluster.broker.address) as peer:
        answer = await send(peer, "later", i=asked)
        assert answer.code == code
        assert reason in (answer.remark or "")


async def test_without_the_wheel_only_delay_levels_work(start: Start) -> None:
    cluster = await start(timerWheelEnable="false")
    async with await Peer.connect(cluster.broker.address) as peer:
        answer = await send(peer, "later", i="TIMER_DELAY_SEC\x011\x02")
        assert answer.code == 1
        assert "timerWheelEnable" in (answer.remark or "")
        assert (await send(peer, "later", i="DELAY\x011\x02TIMER_DELAY_SEC\x011\x02")).code == 0


async def test_clients_cannot_write_to_the_timer_topic(start: Start) -> None:
    cluster = await start()
    async with await Peer.connect(cluster.broker.address) as peer:
        assert (await send(peer, WHEEL)).code == 16


async def test_waiting_timers_survive_a_stop_and_delivered_ones_do_not_repeat(
    start: Start, tmp_path: Path
) -> None:
    cluster = await start()
    async with await Peer.connect(cluster.broker.address) as peer:
        at = now_ms() + 8_000
        await send(peer, "later", b"second", i=f"TIMER_DELIVER_MS\x01{at}\x02")
        await send(peer, "later", b"first", i="TIMER_DELAY_MS\x0150\x02")
        assert (await arrival(peer, "later")).body == b"first"
    await cluster.broker.stop()
    check = (cluster.folder / "config/timercheck").read_bytes()
    delivered, end, offset = struct.unpack_from(">qqq", check)
    assert (len(check), offset) == (4096, 2)
    assert delivered > 0
    assert (cluster.folder / "timerwheel").stat().st_size == 38_707_200
    unit = (cluster.folder / "timerlog/00000000000000000000").read_bytes()[:end]
    assert end % 52 == 0
    assert struct.unpack_from(">iqi", unit)[::2] == (52, 1)
    async with (
        made_broker(tmp_path, cluster.namesrv, {}) as again,
        await Peer.connect(again.address) as peer,
    ):
        assert (await arrival(peer, "later", 1)).body == b"second"
        assert (await pull(peer, "readers", "later", 2)).code == 19


async def test_slaves_and_operators_can_query_pending_timers_and_progress(start: Start) -> None:
    cluster = await start(httpPort="0", flushConsumerOffsetInterval="100")
    async with await Peer.connect(cluster.broker.address) as peer:
        for seconds in (30, 40, 7_000):
            assert (await send(peer, "later", i=f"TIMER_DELAY_SEC\x01{seconds}\x02")).code == 0
        await send(peer, "soon", b"first", i="TIMER_DELAY_MS\x0150\x02")
        assert (await arrival(peer, "soon")).body == b"first"
        table = json.loads((await peer.call(61, {})).body)
        assert set(table) >= {"dataVersion", "timingCount"}
        assert {topic: found["count"] for topic, found in table["timingCount"].items()} == {
            "later": 3,
            "soon": 0,
        }
        table = json.loads((await peer.call(61, {"rmqpyDistribution": "true"})).body)
        assert table["timingDistribution"] == {"later": [0, 2, 0, 0, 0, 1, 0, 0, 0]}
        runtime = json.loads((await peer.call(28, {})).body)["table"]
        assert [runtime[f"timer{name}"] for name in ("ReadBehind", "OffsetBehind", "CongestNum")] == [
            "0",
            "0",
            "3",
        ]
    names = ("rocketmq_timing_messages", "rocketmq_timer_enqueue_total", "rocketmq_timer_dequeue_total")
    found = {
        name: sorted(float(line.rpartition(" ")[2]) for line in await samples(cluster, name))
        for name in names
    }
    assert found == dict(zip(names, ([0, 3], [1, 3], [0, 1]), strict=True))
    delays = await samples(cluster, "rocketmq_delay_message_latency_count")
    assert sorted(float(line.rpartition(" ")[2]) for line in delays) == [1, 3]
    minute = [
        line
        for line in await samples(cluster, "rocketmq_delay_message_latency_bucket")
        if 'le="60.0"' in line
    ]
    assert sorted(float(line.rpartition(" ")[2]) for line in minute) == [1, 2], (
        "one is due in an hour or more"
    )
    assert [line.rpartition(" ")[2] for line in await samples(cluster, "rocketmq_timer_enqueue_lag")] == [
        "0.0"
    ]
    bounds = await samples(cluster, "rocketmq_timer_message_snapshot")
    assert [
        line.rpartition(" ")[2] for line in bounds if 'bound_s="60"' in line or 'bound_s="14400"' in line
    ] == [
        "2.0",
        "1.0",
    ]
    await cluster.broker.stop()
    [line] = (cluster.folder / "config/timermetrics").read_text().splitlines()
    assert json.loads(line)["timingCount"]["later"]["count"] == 3
    again = await start()
    async with await Peer.connect(again.broker.address) as peer:
        told = (await peer.call(60, {})).body
        assert told == (again.folder / "config/timercheck").read_bytes()[:56]
        assert struct.unpack(">7q", told)[2:4] == (4, 4)
        table = json.loads((await peer.call(61, {})).body)
        assert {topic: found["count"] for topic, found in table["timingCount"].items()} == {"later": 3}


async def test_without_the_wheel_no_message_is_pending(start: Start) -> None:
    cluster = await start(timerWheelEnable="false")
    async with await Peer.connect(cluster.broker.address) as peer:
        assert json.loads((await peer.call(61, {})).body)["timingCount"] == {}
