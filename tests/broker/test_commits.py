"""Commits of offsets: accepted, refused, counted, and restored after a restart."""

import asyncio
import logging
from pathlib import Path

import pytest

from broker.conftest import Cluster, Start, made_broker, samples
from broker.talk import heartbeat, pull, send
from rmqpy.control.groups import steps_back
from rmqpy.protocol import fastjson
from rmqpy.protocol.codes import RequestCode, ResponseCode
from wire import ONEWAY, TIMEOUT_S, Frame, Peer

LONG_MAX = (1 << 63) - 1


async def commit(peer: Peer, queue_id: int, offset: int, *, topic: str = "orders") -> Frame:
    ext = {"consumerGroup": "billing", "topic": topic, "queueId": str(queue_id), "commitOffset": str(offset)}
    return await peer.call(RequestCode.UPDATE_CONSUMER_OFFSET, ext)


async def committed(peer: Peer, queue_id: int) -> int | None:
    """What the broker knows of a group in a queue; None for nothing."""
    ext = {
        "consumerGroup": "billing",
        "topic": "orders",
        "queueId": str(queue_id),
        "setZeroIfNotFound": "false",
    }
    answer = await peer.call(RequestCode.QUERY_CONSUMER_OFFSET, ext)
    return int((answer.ext or {})["offset"]) if answer.code == 0 else None


async def prepare(peer: Peer) -> None:
    """A topic of four queues, and a group that reads it."""
    assert (await send(peer, "orders")).code == 0
    await peer.ask(heartbeat("one", "orders"))


class StepsHeard(logging.Handler):
    """What the broker logs of groups that went back."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []
        self.first = asyncio.Event()

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())
        self.first.set()


@pytest.mark.parametrize(
    ("queue_id", "offset"),
    [
        (4, 0),
        (-1, 0),
        (1 << 31, 0),
        (1 << 70, 0),
        (0, -1),
        (0, LONG_MAX + 1),
        (0, (1 << 64) - 1),
        (0, 1 << 90),
    ],
)
async def test_a_commit_outside_the_read_queues_or_javas_numbers_is_refused(
    cluster: Cluster, queue_id: int, offset: int
) -> None:
    async with await Peer.connect(cluster.broker.address) as peer:
        await prepare(peer)
        assert (await commit(peer, queue_id, offset)).code == ResponseCode.INVALID_PARAMETER
        assert await committed(peer, 0) is None


async def test_every_queue_and_every_number_of_java_can_be_committed(cluster: Cluster) -> None:
    """Beyond the end of a queue, too: it is what Apache's broker takes."""
    async with await Peer.connect(cluster.broker.address) as peer:
        await prepare(peer)
        for queue_id, offset in ((0, 0), (3, 7), (1, LONG_MAX)):
            assert (await commit(peer, queue_id, offset)).code == 0
            assert await committed(peer, queue_id) == offset


async def test_oneway_commits_outside_a_topic_are_dropped_and_counted(start: Start) -> None:
    cluster = await start(httpPort="0")
    async with await Peer.connect(cluster.broker.address) as peer:
        await prepare(peer)
        for queue_id in range(1_000):
            ext = {
                "consumerGroup": "billing",
                "topic": "orders",
                "queueId": str(queue_id),
                "commitOffset": str((1 << 64) - 1 if queue_id < 4 else 5),
            }
            await peer.send(RequestCode.UPDATE_CONSUMER_OFFSET, ext, flag=ONEWAY)
        assert (await commit(peer, 2, 5)).code == 0
        assert [queue_id for queue_id in range(1_000) if await committed(peer, queue_id) is not None] == [2]
    (line,) = await samples(cluster, "rmqpy_refused_commits_total")
    assert line.endswith(" 1000.0")


async def test_step_back_of_a_group_is_counted_and_logged_once(
    start: Start, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = await start(httpPort="0")
    caplog.set_level(logging.INFO, steps_back.log.name)
    heard = StepsHeard()
    monkeypatch.setattr(steps_back.log, "handlers", [heard])
    async with await Peer.connect(cluster.broker.address) as peer:
        await prepare(peer)
        for offset in (9, 3):
            assert (await commit(peer, 0, offset)).code == 0
        await asyncio.wait_for(heard.first.wait(), TIMEOUT_S)
        # A pull that carries an offset commits it, too.
        assert (await pull(peer, "billing", "orders", sysFlag="5", commitOffset="1")).code == 0
        assert await committed(peer, 0) == 1
    assert heard.lines == [
        "group billing went back in queue 0 of orders, from 9 to 3: later ones are only counted"
    ]
    (line,) = await samples(cluster, "rmqpy_offset_steps_back_total")
    assert 'consumer_group="billing"' in line
    assert line.endswith(" 2.0")


@pytest.mark.parametrize("queue_id", [4, 1 << 20, 1 << 40])
@pytest.mark.parametrize("target", [{"offset": "0"}, {}])
async def test_reset_of_an_unknown_queue_is_refused(
    cluster: Cluster, queue_id: int, target: dict[str, str]
) -> None:
    async with await Peer.connect(cluster.broker.address) as peer:
        await prepare(peer)
        ext = {"topic": "orders", "group": "billing", "timestamp": "-1", "queueId": str(queue_id)}
        answer = await peer.call(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, ext | target)
        assert answer.code == ResponseCode.INVALID_PARAMETER


async def test_reset_of_all_queues_covers_the_readable_ones(cluster: Cluster) -> None:
    ext = {
        "topic": "uneven", "defaultTopic": "TBW102", "readQueueNums": "2", "writeQueueNums": "5", "perm": "6",
        "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false",
    }  # fmt: skip
    async with await Peer.connect(cluster.broker.address) as peer:
        await prepare(peer)
        assert (await peer.call(RequestCode.UPDATE_AND_CREATE_TOPIC, ext)).code == 0
        answer = await peer.call(
            RequestCode.INVOKE_BROKER_TO_RESET_OFFSET,
            {"topic": "uneven", "group": "billing", "timestamp": "-1"},
        )
        assert answer.code == 0, answer.remark
        table = fastjson.loads(answer.body)["offsetTable"]
        assert len(table) == 2


async def test_offsets_of_unknown_queues_in_the_file_are_dropped(tmp_path: Path) -> None:
    """The file may be of an earlier release, which took any number; what has messages stays."""
    async with made_broker(tmp_path, "", {}) as broker, await Peer.connect(broker.address) as peer:
        await prepare(peer)
        assert (await commit(peer, 0, 1)).code == 0
        assert (await commit(peer, 3, 0)).code == 0
    file = tmp_path / "store" / "config" / "consumerOffset.json"
    content = fastjson.loads(file.read_bytes())
    content["offsetTable"]["orders@billing"] |= {"4": 7, "-3": 1, str((1 << 32) - 1): (1 << 64) - 1}
    content["offsetTable"]["gone@billing"] = {"0": 7}
    file.write_text(fastjson.pretty(content))
    async with made_broker(tmp_path, "", {}) as broker, await Peer.connect(broker.address) as peer:
        assert [await committed(peer, queue_id) for queue_id in (0, 3, 4)] == [1, 0, None]
    assert fastjson.loads(file.read_bytes())["offsetTable"] == {"orders@billing": {"0": 1, "3": 0}}
