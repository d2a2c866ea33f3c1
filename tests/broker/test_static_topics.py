"""Static topics at brokers: mappings stored and refused, logical queues and offsets of every request, slaves."""

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pytest

from broker.conftest import made_broker
from broker.records import records
from broker.replicas import made_slave
from broker.talk import pull, route, send
from rmqpy.broker import Broker
from rmqpy.protocol.codes import RequestCode
from rmqpy.protocol.declare import read_tree
from rmqpy.protocol.requests.offsets import (
    GetEarliestMsgStoreTime,
    GetMaxOffset,
    GetMinOffset,
    QueryConsumerOffset,
    SearchOffsetByTimestamp,
    UpdateConsumerOffset,
)
from rmqpy.protocol.requests.topics import (
    DeleteTopicInBroker,
    GetAllTopicConfig,
    GetTopicConfig,
    UpdateAndCreateStaticTopic,
    UpdateAndCreateTopic,
)
from rmqpy.protocol.static_topics import Segment, TopicMapping
from waiting import until_async
from wire import Peer, Refusal

TOPIC = "bills"
GROUP = "billing"
A, B = "broker-a", "broker-b"
NOT_LEADER = 501

pytestmark = pytest.mark.usefixtures("tries_soon")


class Two(NamedTuple):
    """Two brokers, with a connection to each."""

    namesrv: str
    brokers: dict[str, Broker]
    a: Peer
    b: Peer


@pytest.fixture
async def two(tmp_path: Path, namesrv: str) -> AsyncIterator[Two]:
    async with AsyncExitStack() as running:
        brokers, peers = {}, []
        for name in (A, B):
            made = made_broker(tmp_path / name, namesrv, {"brokerName": name})
            brokers[name] = await running.enter_async_context(made)
            peers.append(await running.enter_async_context(await Peer.connect(brokers[name].address)))
        yield Two(namesrv, brokers, *peers)


def first(broker: str = A, **fields: int) -> Segment:
    return Segment(**{"bname": broker, "queue_id": 0, "logic_offset": 0} | fields)


def mapping(broker: str, queues: Mapping[int, list[Segment]], *, epoch: int = 1_000) -> TopicMapping:
    return TopicMapping(topic=TOPIC, total_queues=8, bname=broker, epoch=epoch, hosted_queues=dict(queues))


async def put(peer: Peer, wanted: TopicMapping, *, queues: int = 4, force: bool = False) -> None:
    await peer.ask(
        UpdateAndCreateStaticTopic(
            topic=TOPIC, read_queue_nums=queues, write_queue_nums=queues, force=force, body=wanted
        )
    )


async def stored(peer: Peer) -> TopicMapping | None:
    return (await peer.ask(GetTopicConfig(topic=TOPIC, lo=True))).mapping_detail


def progress(**fields: object) -> QueryConsumerOffset:
    given = {"consumer_group": GROUP, "topic": TOPIC, "queue_id": 0, "set_zero_if_not_found": False}
    return QueryConsumerOffset(**given | fields)  # type: ignore[arg-type]


async def commit(peer: Peer, offset: int, **fields: object) -> None:
    given = {"consumer_group": GROUP, "topic": TOPIC, "queue_id": 0, "commit_offset": offset}
    await peer.ask(UpdateConsumerOffset(**given | fields))  # type: ignore[arg-type]


async def moved(two: Two, count: int = 3) -> None:
    """A queue that moved from one broker to the other with this number of messages."""
    await put(two.a, mapping(A, {0: [first()]}))
    for number in range(count):
        assert (await send(two.a, TOPIC, str(number).encode())).code == 0
    segments = [first(), first(B, queue_id=2, gen=1, logic_offset=10_000)]
    for peer, name in ((two.b, B), (two.a, A)):
        await put(peer, mapping(name, {0: segments}, epoch=2_000))
    await until_async(lambda: routed(two), lambda epochs: epochs == {A: 2_000, B: 2_000})


async def routed(two: Two) -> dict[str, int]:
    """The epochs that the name server has of the topic."""
    async with await Peer.connect(two.namesrv) as peer:
        found = await route(peer, TOPIC)
    mappings = (found.topic_queue_mapping_by_broker if found else None) or {}
    return {name: read_tree(TopicMapping, each).epoch for name, each in mappings.items()}


# ---- mappings ----


async def test_a_mapping_is_stored_returned_and_in_the_route_and_survives_a_restart(
    tmp_path: Path, namesrv: str
) -> None:
    wanted = mapping(A, {0: [first()], 5: [first(B), first(gen=1, queue_id=1, logic_offset=10_000)]})
    expected = replace(wanted, curr_id_map={0: 0, 5: 1})
    for is_again in (False, True):
        async with (
            made_broker(tmp_path, namesrv, {}) as broker,
            await Peer.connect(broker.address) as peer,
            await Peer.connect(namesrv) as name_server,
        ):
            if not is_again:
                await put(peer, wanted)
            assert await stored(peer) == expected
            assert (await peer.ask(GetTopicConfig(topic=TOPIC))).mapping_detail is None
            table = (await peer.ask(GetAllTopicConfig())).body
            details = table.topic_queue_mapping_detail_map or {}
            assert {name: read_tree(TopicMapping, each) for name, each in details.items()} == {
                TOPIC: expected
            }

            async def mapped(name_server: Peer = name_server) -> object:
                found = await route(name_server, TOPIC)
                return found and found.topic_queue_mapping_by_broker

            found = await until_async(mapped)
            assert isinstance(found, dict)
            assert found[A]["currIdMap"] == {"0": 0, "5": 1}
            assert "hostedQueues" not in found[A]
            answer = await send(peer, TOPIC, e="5")
            assert answer.ext is not None
            assert (answer.ext["queueId"], answer.ext["queueOffset"]) == ("5", str(10_000 + is_again))
    file = json.loads((tmp_path / "store" / "config" / "topicQueueMapping.json").read_text())
    assert file["topicQueueMappingInfoMap"][TOPIC]["hostedQueues"]["0"] == [
        {
            "bname": A,
            "queueId": 0,
            "gen": 0,
            "logicOffset": 0,
            "startOffset": 0,
            "endOffset": -1,
            "timeOfStart": -1,
            "timeOfEnd": -1,
        }
    ]


KNOWN = mapping(A, {0: [first()], 1: [first(queue_id=1)]})


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        (replace(KNOWN, epoch=999), "Can't accept data with small epoch 999 < 1000"),
        (replace(KNOWN, bname=B), "the mapping is of broker broker-b"),
        (replace(KNOWN, scope="__other__"), "the scope cannot change"),
        (mapping(A, {0: [first()]}), "Cannot accept equal epoch with null data"),
        (
            mapping(A, {**KNOWN.hosted_queues, 0: [first(), first(B, gen=1, logic_offset=10_000)]}),
            "The new leader is different but epoch equal",
        ),
        (mapping(A, {**KNOWN.hosted_queues, 0: []}, epoch=1_001), "queue 0 cannot lose its segments"),
        (mapping(A, {0: [first(queue_id=3)]}, epoch=1_001), "segment 0 cannot change"),
        (mapping(A, {0: [first(logic_offset=7)]}, epoch=1_001), "segment 0 cannot change"),
        (mapping(A, {2: [first(gen=-1)]}, epoch=1_001), "out of range"),
        (mapping(A, {2: [first(), first(gen=0, logic_offset=9)]}, epoch=1_001), "do not grow"),
        (mapping(A, {2: [first(), first(gen=1)]}, epoch=1_001), "logical offsets do not grow"),
        (
            mapping(A, {2: [first(logic_offset=-1), first(gen=1, logic_offset=5)]}, epoch=1_001),
            "only the newest segment",
        ),
        (mapping(A, {8: [first()]}, epoch=1_001), "queue 8 is not below 8"),
        (mapping(A, {2: [first(queue_id=4)]}, epoch=1_001), "a queue of this broker that is not below 4"),
    ],
)
async def test_a_mapping_that_would_lose_messages_is_refused(
    two: Two, wanted: TopicMapping, said: str
) -> None:
    await put(two.a, KNOWN)
    before = await stored(two.a)
    with pytest.raises(Refusal, match=said):
        await put(two.a, wanted)
    assert await stored(two.a) == before


async def test_a_newer_mapping_keeps_queues_that_it_does_not_name_and_force_takes_any(two: Two) -> None:
    await put(two.a, KNOWN)
    await put(two.a, mapping(A, {2: [first(queue_id=2)]}, epoch=1_001))
    assert (found := await stored(two.a)) is not None
    assert found.curr_id_map == {0: 0, 1: 1, 2: 2}
    await put(two.a, mapping(A, {1: [first(queue_id=3)]}, epoch=5), force=True)
    assert (found := await stored(two.a)) is not None
    assert (found.epoch, found.curr_id_map) == (5, {0: 0, 1: 3, 2: 2})


async def test_a_deleted_topic_made_again_is_an_ordinary_one(two: Two) -> None:
    await put(two.a, KNOWN)
    await two.a.ask(DeleteTopicInBroker(topic=TOPIC))
    await two.a.ask(UpdateAndCreateTopic(topic=TOPIC, read_queue_nums=4, write_queue_nums=4))
    assert await stored(two.a) is None
    answer = await send(two.a, TOPIC, e="3")
    assert answer.ext is not None
    assert (answer.code, answer.ext["queueId"], answer.ext["queueOffset"]) == (0, "3", "0")


async def test_a_slave_has_the_mapping_of_its_master(tmp_path: Path, namesrv: str) -> None:
    async with (
        made_broker(tmp_path, namesrv, {}) as master,
        made_slave(tmp_path, namesrv) as slave,
        await Peer.connect(master.address) as peer,
        await Peer.connect(slave.address) as copy,
    ):
        await put(peer, KNOWN)
        expected = await stored(peer)

        async def copied() -> TopicMapping | None:
            try:
                return await stored(copy)
            except Refusal:
                return None

        assert await until_async(copied) == expected
        # A change of the mapping alone.
        await put(peer, replace(KNOWN, epoch=1_001))
        await until_async(copied, lambda found: found is not None and found.epoch == 1_001)
        await peer.ask(DeleteTopicInBroker(topic=TOPIC))
        await until_async(copied, lambda found: found is None)


# ---- requests at the leader ----


async def test_sends_and_pulls_at_the_leader_have_logical_numbers(two: Two) -> None:
    await put(two.a, mapping(A, {6: [first(queue_id=1, logic_offset=10_000)]}))
    answers = [await send(two.a, TOPIC, e="6"), await send(two.a, TOPIC, e="-1")]
    assert [(each.ext or {}).get("queueOffset") for each in answers] == ["10000", "10001"]
    assert {(each.ext or {})["queueId"] for each in answers} == {"6"}
    found = await pull(two.a, GROUP, TOPIC, 10_000, queueId="6")
    assert found.code == 0
    assert found.ext is not None
    offsets = ("nextBeginOffset", "minOffset", "maxOffset", "offsetDelta")
    assert [found.ext[name] for name in offsets] == ["10002", "10000", "10002", "10000"]
    # Records have the numbers of the broker's own queue, which a request with lo=false names.
    assert [(each.queue_id, each.queue_offset) for each in records(found.body)] == [(1, 0), (1, 1)]
    local = await pull(two.a, GROUP, TOPIC, 0, queueId="1", lo="false")
    assert (local.code, local.body) == (0, found.body)
    assert local.ext is not None
    assert "offsetDelta" not in local.ext
    limits = [
        (await two.a.ask(kind(topic=TOPIC, queue_id=6))).offset for kind in (GetMinOffset, GetMaxOffset)
    ]
    assert limits == [10_000, 10_002]


async def test_progress_is_stored_with_local_numbers(two: Two) -> None:
    await put(two.a, mapping(A, {6: [first(queue_id=1, logic_offset=10_000)]}))
    with pytest.raises(Refusal) as refused:
        await two.a.ask(progress(queue_id=6))
    assert refused.value.code == 22
    await pull(two.a, GROUP, TOPIC, 10_000, queueId="6")
    await commit(two.a, 10_005, queue_id=6)
    assert (await two.a.ask(progress(queue_id=6))).offset == 10_005
    assert (await two.a.ask(progress(queue_id=1, lo=False))).offset == 5
    await pull(two.a, GROUP, TOPIC, 10_000, queueId="6", sysFlag="5", commitOffset="10007")
    assert (await two.a.ask(progress(queue_id=1, lo=False))).offset == 7


async def test_a_queue_led_by_no_or_another_broker_is_refused_with_501(two: Two) -> None:
    await moved(two, 1)
    for queue in ("0", "7"):
        answers = [
            await send(two.a, TOPIC, e=queue),
            await pull(two.a, GROUP, TOPIC, queueId=queue),
        ]
        number = int(queue)
        for ask in (
            progress(queue_id=number),
            UpdateConsumerOffset(consumer_group=GROUP, topic=TOPIC, queue_id=number, commit_offset=0),
            GetMaxOffset(topic=TOPIC, queue_id=number),
            GetMinOffset(topic=TOPIC, queue_id=number),
            SearchOffsetByTimestamp(topic=TOPIC, queue_id=number, timestamp=0),
            GetEarliestMsgStoreTime(topic=TOPIC, queue_id=number),
        ):
            with pytest.raises(Refusal) as refused:
                await two.a.ask(ask)
            answers.append(refused.value.frame)
        assert {answer.code for answer in answers} == {NOT_LEADER}
        assert all(TOPIC in (answer.remark or "") for answer in answers)
    assert (await send(two.a, TOPIC, e="-1")).code == NOT_LEADER


async def test_messages_of_an_undecided_segment_are_answered_with_offset_minus_one(two: Two) -> None:
    await put(two.b, mapping(B, {0: [first(), first(B, gen=1, logic_offset=-1)]}))
    answer = await send(two.b, TOPIC)
    assert answer.ext is not None
    assert (answer.code, answer.ext["queueOffset"]) == (0, "-1")


# ---- older segments ----


async def test_an_older_segment_at_another_broker_is_read_through_the_leader(two: Two) -> None:
    await moved(two)
    found = await pull(two.b, GROUP, TOPIC)
    assert found.ext is not None
    assert [each.body for each in records(found.body)] == [b"0", b"1", b"2"]
    assert (found.ext["nextBeginOffset"], found.ext["minOffset"], found.ext["maxOffset"]) == (
        "3",
        "0",
        "10000",
    )
    end = await pull(two.b, GROUP, TOPIC, 3)
    assert end.ext is not None
    assert (end.code, end.ext["nextBeginOffset"]) == (20, "10000")
    answers = [await send(two.b, TOPIC, body) for body in (b"3", b"4")]
    assert [(each.ext or {}).get("queueOffset") for each in answers] == ["10000", "10001"]
    fresh = await pull(two.b, GROUP, TOPIC, 10_000)
    assert fresh.ext is not None
    assert (fresh.ext["nextBeginOffset"], fresh.ext["offsetDelta"]) == ("10002", "10000")


async def test_a_pull_at_the_newest_segment_waits_for_a_message(two: Two) -> None:
    await moved(two)
    async with await Peer.connect(two.brokers[B].address) as waiting:
        ext = {
            "consumerGroup": GROUP, "topic": TOPIC, "queueId": "0", "queueOffset": "10000", "maxMsgNums": "32",
            "sysFlag": "6", "commitOffset": "0", "suspendTimeoutMillis": "20000", "subscription": "*",
            "subVersion": "0",
        }  # fmt: skip
        await waiting.send(RequestCode.PULL_MESSAGE, ext)
        await send(two.b, TOPIC, b"later")
        answer = await waiting.receive()
    assert answer.code == 0
    assert [each.body for each in records(answer.body)] == [b"later"]


async def test_an_own_older_segment_ends_in_the_newer_one(two: Two) -> None:
    await put(two.a, mapping(A, {0: [first()]}))
    await send(two.a, TOPIC, b"old")
    segments = [first(), first(queue_id=1, gen=1, logic_offset=10_000)]
    await put(two.a, mapping(A, {0: segments}, epoch=2_000))
    await send(two.a, TOPIC, b"new")
    bodies, offset = [], 0
    while offset < 10_001:
        found = await pull(two.a, GROUP, TOPIC, offset)
        assert found.code in (0, 20), found
        assert found.ext is not None
        bodies += [each.body for each in records(found.body)]
        assert int(found.ext["nextBeginOffset"]) > offset
        offset = int(found.ext["nextBeginOffset"])
    assert (bodies, offset) == ([b"old", b"new"], 10_001)


async def test_progress_across_the_edge_is_stored_at_the_broker_of_the_segment(two: Two) -> None:
    await moved(two)
    await pull(two.a, GROUP, TOPIC, queueId="0", lo="false")
    await pull(two.b, GROUP, TOPIC, 10_000)
    with pytest.raises(Refusal) as refused:
        await two.b.ask(progress())
    assert refused.value.code == 22
    await commit(two.b, 2)
    assert (await two.b.ask(progress())).offset == 2
    assert (await two.a.ask(progress(lo=False))).offset == 2
    await commit(two.b, 10_000)
    assert (await two.b.ask(progress())).offset == 10_000
    assert (await two.a.ask(progress(lo=False))).offset == 2
    assert (await two.b.ask(progress(queue_id=2, lo=False))).offset == 0


async def test_limits_and_times_of_a_moved_queue(two: Two) -> None:
    await moved(two)
    assert (await two.b.ask(GetMinOffset(topic=TOPIC, queue_id=0))).offset == 0
    assert (await two.b.ask(GetMaxOffset(topic=TOPIC, queue_id=0))).offset == 10_000
    oldest = (await two.b.ask(GetEarliestMsgStoreTime(topic=TOPIC, queue_id=0))).timestamp
    assert oldest == (await two.a.ask(GetEarliestMsgStoreTime(topic=TOPIC, queue_id=0, lo=False))).timestamp
    at = [
        (await two.b.ask(SearchOffsetByTimestamp(topic=TOPIC, queue_id=0, timestamp=moment))).offset
        for moment in (0, oldest + 3_600_000)
    ]
    assert at == [0, 10_000]
    await send(two.b, TOPIC, b"3")
    later = SearchOffsetByTimestamp(topic=TOPIC, queue_id=0, timestamp=oldest + 3_600_000)
    assert (await two.b.ask(later)).offset == 10_001


async def test_a_broker_of_an_older_segment_that_is_down_does_not_stop_the_newest(two: Two) -> None:
    await moved(two)
    await two.brokers[A].stop()
    assert (await pull(two.b, GROUP, TOPIC)).code == 1
    assert (await send(two.b, TOPIC, b"3")).code == 0
    assert (await pull(two.b, GROUP, TOPIC, 10_000)).code == 0
