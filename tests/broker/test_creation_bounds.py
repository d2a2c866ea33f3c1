"""Topics created by their first message: the most that one connection may create, and the refusal beyond."""

import json
from pathlib import Path
from typing import Any

import pytest

from broker.conftest import Start, samples
from broker.talk import pull, send
from rmqpy.protocol.codes import RequestCode, ResponseCode
from wire import ONEWAY, Peer


def made(folder: Path) -> set[str]:
    """The topics of these tests that are on the disk."""
    content: dict[str, Any] = json.loads((folder / "config" / "topics.json").read_text())
    return {name for name in content["topicConfigTable"] if name.startswith("wanted-")}


async def test_topics_created_per_minute_are_limited_per_connection(
    start: Start,
) -> None:
    cluster = await start(autoCreateTopicsPerMinute="5")
    async with (
        await Peer.connect(cluster.broker.address) as flood,
        await Peer.connect(cluster.broker.address) as other,
    ):
        answers = [await send(flood, f"wanted-{number}") for number in range(8)]
        assert [answer.code for answer in answers] == [0] * 5 + [ResponseCode.SYSTEM_BUSY] * 3
        assert all((answer.remark or "").startswith("[OVERLOAD]") for answer in answers[5:])
        # Existing topics can be used, and every connection has a separate budget.
        assert (await send(flood, "wanted-0")).code == 0
        assert (await send(other, "wanted-7")).code == 0
    assert made(cluster.folder) == {f"wanted-{number}" for number in (0, 1, 2, 3, 4, 7)}


async def test_groups_that_pulls_need_are_counted_with_the_topics_of_sends(start: Start) -> None:
    cluster = await start(autoCreateTopicsPerMinute="5")
    async with await Peer.connect(cluster.broker.address) as peer:
        assert (await send(peer, "wanted-0")).code == 0
        answers = [await pull(peer, f"readers-{number}", "wanted-0") for number in range(5)]
        assert [answer.code for answer in answers] == [0] * 4 + [ResponseCode.SYSTEM_BUSY]


async def test_oneway_sends_beyond_the_bound_are_dropped_and_counted(start: Start) -> None:
    cluster = await start(autoCreateTopicsPerMinute="5", httpPort="0")
    async with await Peer.connect(cluster.broker.address) as peer:
        for number in range(300):
            ext = {
                "producerGroup": "p", "topic": f"wanted-{number}", "defaultTopic": "TBW102", "queueId": "0",
                "defaultTopicQueueNums": "4", "sysFlag": "0", "bornTimestamp": "0", "flag": "0", "properties": "",
            }  # fmt: skip
            await peer.send(RequestCode.SEND_MESSAGE, ext, b"hello", flag=ONEWAY)
        assert (await send(peer, "wanted-300")).code == ResponseCode.SYSTEM_BUSY
        assert (await send(peer, "wanted-4")).code == 0
    assert made(cluster.folder) == {f"wanted-{number}" for number in range(5)}
    (dropped,) = await samples(cluster, "rmqpy_oneway_drops_total")
    (refused,) = await samples(cluster, "rmqpy_overloads_total")
    assert (dropped.split()[-1], refused.split()[-1]) == ("295.0", "296.0")


async def test_refused_names_do_not_count_against_the_limit(start: Start) -> None:
    """A consumer whose group is missing retries every few seconds for each queue, and gets the reason."""
    cluster = await start(autoCreateTopicsPerMinute="5", autoCreateSubscriptionGroup="false")
    async with await Peer.connect(cluster.broker.address) as peer:
        await send(peer, "orders")
        codes = {(await pull(peer, f"missing-{number}", "orders")).code for number in range(20)}
        assert codes == {ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST}
        assert (await send(peer, "wanted-0")).code == 0


@pytest.mark.parametrize("group", ["", " ", "a/b", "g" * 121, "g" * 60_000], ids=lambda name: f"{len(name)}")
async def test_forbidden_group_is_refused_without_a_creation_request(start: Start, group: str) -> None:
    cluster = await start(httpPort="0")
    async with await Peer.connect(cluster.broker.address) as peer:
        await send(peer, "orders")
        before = await samples(cluster, "rmqpy_upcalls_total")
        assert (await pull(peer, group, "orders")).code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
        assert await samples(cluster, "rmqpy_upcalls_total") == before
