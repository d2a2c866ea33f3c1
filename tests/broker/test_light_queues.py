"""Light queues (LMQ): one record in many queues, and the offsets of groups that read them."""

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import rmqpy
from rmqpy.protocol.codes import RequestCode
from rmqpy.protocol.requests.assignments import AssignmentQuery, QueryAssignment
from rmqpy.protocol.requests.brokers import ViewBrokerStatsData
from rmqpy.protocol.requests.offsets import (
    GetMaxOffset,
    GetTopicStatsInfo,
    QueryConsumerOffset,
    UpdateConsumerOffset,
)
from rmqpy.protocol.requests.topics import (
    CleanUnusedTopic,
    DeleteTopicInBroker,
    GetAllTopicConfig,
    GetTopicConfig,
    UpdateAndCreateTopic,
)
from waiting import until_async
from wire import TIMEOUT_S, Frame, Peer, Refusal

from .conftest import Start, made_broker, samples
from .popping import pop
from .records import Record, records
from .replicas import made_slave
from .talk import beat, heartbeat, pull, send
from .test_sends_and_pulls import inner
from .test_transactions import COMMIT, end, half

ON = {"enableLmq": "true", "enableMultiDispatch": "true"}
GROUP = "%LMQ%readers"
TOPIC = "orders"
QUOTA_EXCEEDED = 2017
ILLEGAL, NO_TOPIC = 13, 17


def to(*names: str, more: str = "") -> str:
    """Properties of a message for these light queues."""
    return f"KEYS\x01k\x02INNER_MULTI_DISPATCH\x01{','.join(names)}\x02WAIT\x01true\x02{more}"


def offset_in(record: Record, name: str) -> int:
    """The offset of a record in a light queue."""
    names = record.properties["INNER_MULTI_DISPATCH"].split(",")
    return int(record.properties["INNER_MULTI_QUEUE_OFFSET"].split(",")[names.index(name)])


@pytest.fixture
async def peer(start: Start) -> AsyncIterator[Peer]:
    cluster = await start(**ON)
    async with await Peer.connect(cluster.broker.address) as peer:
        yield peer


async def dispatch(peer: Peer, body: bytes, *names: str, topic: str = TOPIC, more: str = "") -> Frame:
    answer = await send(peer, topic, body, i=to(*names, more=more))
    assert answer.code == 0, answer.remark
    return answer


async def read(peer: Peer, name: str, offset: int = 0, group: str = GROUP) -> list[Record]:
    answer = await pull(peer, group, name, offset)
    return records(answer.body) if answer.code == 0 else []


async def bodies(peer: Peer, name: str) -> list[bytes]:
    return [record.body for record in await read(peer, name)]


async def commit(peer: Peer, name: str, offset: int, group: str = GROUP) -> None:
    await peer.ask(UpdateConsumerOffset(consumer_group=group, topic=name, queue_id=0, commit_offset=offset))


async def committed(peer: Peer, name: str, group: str = GROUP) -> int | None:
    ask = QueryConsumerOffset(consumer_group=group, topic=name, queue_id=0, set_zero_if_not_found=False)
    try:
        return (await peer.ask(ask)).offset
    except Refusal:
        return None


async def test_a_record_is_in_a_thousand_queues_under_its_own_topic(peer: Peer) -> None:
    names = [f"%LMQ%room{number}" for number in range(1_000)]
    for body in (b"one", b"two"):
        answer = await dispatch(peer, body, *names)
        assert answer.ext is not None
        assert answer.ext["queueId"] == "0"
    for name in (names[0], names[499], names[999]):
        found = await read(peer, name)
        assert [(record.topic, record.body) for record in found] == [(TOPIC, b"one"), (TOPIC, b"two")]
        assert [offset_in(record, name) for record in found] == [0, 1]
        assert {"WAIT"}.isdisjoint(found[0].properties)
    answer = await pull(peer, GROUP, names[7], 1)
    assert answer.ext is not None
    assert {name: answer.ext[name] for name in ("nextBeginOffset", "minOffset", "maxOffset")} == {
        "nextBeginOffset": "2",
        "minOffset": "0",
        "maxOffset": "2",
    }
    assert await bodies(peer, TOPIC) == [b"one", b"two"]


async def test_queues_and_offsets_survive_a_restart(tmp_path: Path, namesrv: str) -> None:
    async with (
        made_broker(tmp_path, namesrv, ON) as broker,
        await Peer.connect(broker.address) as peer,
    ):
        for number in range(5):
            await dispatch(peer, str(number).encode(), "%LMQ%a", *(("%LMQ%b",) if number % 2 else ()))
        await commit(peer, "%LMQ%a", 3)
        await commit(peer, "%LMQ%b", 1)
        await read(peer, TOPIC, group="billing")
        await commit(peer, TOPIC, 2, "billing")
        await commit(peer, "%LMQ%a", 4, "billing")
    folder = tmp_path / "store" / "config"
    file = json.loads((folder / "lmqConsumerOffset.json").read_text())
    assert file["lmqOffsetTable"] == {"%LMQ%a@%LMQ%readers": 3, "%LMQ%b@%LMQ%readers": 1}
    assert file["offsetTable"] == {"orders@billing": {"0": 2}, "%LMQ%a@billing": {"0": 4}}
    assert not (folder / "consumerOffset.json").exists()
    assert "%LMQ%" not in (folder / "topics.json").read_text()
    async with (
        made_broker(tmp_path, namesrv, ON) as broker,
        await Peer.connect(broker.address) as peer,
    ):
        found = [await committed(peer, name) for name in ("%LMQ%a", "%LMQ%b", "%LMQ%c")]
        assert found == [3, 1, None]
        assert await committed(peer, "%LMQ%a", "billing") == 4
        await dispatch(peer, b"5", "%LMQ%b", "%LMQ%a")
        assert [record.body for record in await read(peer, "%LMQ%a", 3)] == [b"3", b"4", b"5"]
        assert [offset_in(record, "%LMQ%b") for record in await read(peer, "%LMQ%b")] == [0, 1, 2]


async def test_groups_keep_their_offsets_when_light_queues_are_enabled(tmp_path: Path, namesrv: str) -> None:
    for settings, expected in (({}, None), (ON, 1), (ON, 2)):
        async with (
            made_broker(tmp_path, namesrv, settings) as broker,
            await Peer.connect(broker.address) as peer,
        ):
            assert (await send(peer, TOPIC)).code == 0
            await read(peer, TOPIC, group="billing")
            assert await committed(peer, TOPIC, "billing") == expected
            await commit(peer, TOPIC, (expected or 0) + 1, "billing")


async def test_a_parked_pull_wakes_up_on_arrival(start: Start) -> None:
    cluster = await start(**ON)
    async with (
        await Peer.connect(cluster.broker.address) as peer,
        await Peer.connect(cluster.broker.address) as reader,
    ):
        waiting = await reader.send(
            RequestCode.PULL_MESSAGE,
            {
                "consumerGroup": GROUP, "topic": "%LMQ%late", "queueId": "0", "queueOffset": "0",
                "maxMsgNums": "32", "sysFlag": "6", "commitOffset": "0", "subscription": "*", "subVersion": "0",
                "suspendTimeoutMillis": str(int(TIMEOUT_S * 1_000)), "expressionType": "TAG",
            },
        )  # fmt: skip
        # Answered after the pull was parked, because one connection is served in order.
        assert await committed(reader, "%LMQ%late") is None
        await dispatch(peer, b"other", "%LMQ%other")
        await dispatch(peer, b"hello", "%LMQ%other", "%LMQ%late")
        answer = await reader.receive()
        assert (answer.opaque, answer.code) == (waiting, 0)
        assert [record.body for record in records(answer.body)] == [b"hello"]


async def test_a_quota_refuses_messages_for_more_queues(start: Start) -> None:
    cluster = await start(**ON, enableLmqQuota="true", maxLmqConsumeQueueNum="2")
    async with await Peer.connect(cluster.broker.address) as peer:
        await dispatch(peer, b"1", "%LMQ%a")
        await dispatch(peer, b"2", "%LMQ%a", "%LMQ%b")
        refused = await send(peer, TOPIC, b"3", i=to("%LMQ%b", "%LMQ%c"))
        assert (refused.code, refused.remark) == (
            QUOTA_EXCEEDED,
            "[LMQ_CONSUME_QUEUE_NUM_EXCEEDED]lmq consume queue num exceeded.",
        )
        await dispatch(peer, b"4", "%LMQ%b")
        assert await bodies(peer, TOPIC) == [b"1", b"2", b"4"]
        assert await bodies(peer, "%LMQ%b") == [b"2", b"4"]


async def test_a_half_is_in_no_light_queue_until_its_commit(peer: Peer) -> None:
    decided = await half(peer, more=to("%LMQ%a"))
    await dispatch(peer, b"between", "%LMQ%a")
    assert await bodies(peer, "%LMQ%a") == [b"between"]
    assert (await end(peer, decided, COMMIT)).code == 0
    found = await read(peer, "%LMQ%a")
    assert [(record.topic, record.body, offset_in(record, "%LMQ%a")) for record in found] == [
        (TOPIC, b"between", 0),
        (TOPIC, b"hello", 1),
    ]


@pytest.mark.parametrize("delay", ["DELAY\x011\x02", "TIMER_DELAY_MS\x01200\x02"])
async def test_a_delayed_message_is_dispatched_when_it_is_delivered(start: Start, delay: str) -> None:
    cluster = await start(**ON, messageDelayLevel="200ms")
    async with await Peer.connect(cluster.broker.address) as peer:
        await dispatch(peer, b"later", "%LMQ%a", more=delay)
        await dispatch(peer, b"now", "%LMQ%a")
        assert await bodies(peer, "%LMQ%a") == [b"now"]
        await until_async(lambda: bodies(peer, "%LMQ%a"), lambda found: found == [b"now", b"later"])
        assert [offset_in(record, "%LMQ%a") for record in await read(peer, "%LMQ%a")] == [0, 1]


async def test_without_multi_dispatch_the_property_has_no_effect(start: Start) -> None:
    cluster = await start(enableLmq="true")
    async with await Peer.connect(cluster.broker.address) as peer:
        await dispatch(peer, b"1", "%LMQ%a", more="INNER_MULTI_QUEUE_OFFSET\x017\x02")
        assert await bodies(peer, "%LMQ%a") == []
        [record] = await read(peer, TOPIC, group="billing")
        assert "INNER_MULTI_QUEUE_OFFSET" not in record.properties


async def test_a_broker_without_light_queues_has_no_such_topics_and_groups(start: Start) -> None:
    cluster = await start(autoCreateSubscriptionGroup="false")
    async with await Peer.connect(cluster.broker.address) as peer:
        await dispatch(peer, b"1", "%LMQ%a")
        assert (await pull(peer, "TOOLS_CONSUMER", "%LMQ%a")).code == NO_TOPIC
        assert (await pull(peer, GROUP, TOPIC)).code == 26


@pytest.mark.parametrize("names", [("orders",), ("%LMQ%a", "orders"), ("%LMQ%a", "%LMQ%a"), ("%LMQ%a/b",)])
async def test_a_list_that_is_not_of_light_queues_is_refused(peer: Peer, names: tuple[str, ...]) -> None:
    refused = await send(peer, TOPIC, i=to(*names))
    assert (refused.code, await bodies(peer, TOPIC)) == (ILLEGAL, [])
    assert "INNER_MULTI_DISPATCH" in (refused.remark or "")


async def test_offsets_of_a_client_are_never_stored(peer: Peer) -> None:
    forged = "INNER_MULTI_QUEUE_OFFSET\x0141\x02"
    await dispatch(peer, b"1", "%LMQ%a", more=forged)
    members = inner(b"2", to("%LMQ%a", more=forged).encode()) + inner(b"3", to("%LMQ%a").encode())
    answer = await send(peer, TOPIC, members, m="true")
    assert answer.code == 0, answer.remark
    assert [offset_in(record, "%LMQ%a") for record in await read(peer, "%LMQ%a")] == [0]
    stored = await read(peer, TOPIC, group="billing")
    assert [record.body for record in stored] == [b"1", b"2", b"3"]
    assert ["INNER_MULTI_QUEUE_OFFSET" in record.properties for record in stored] == [True, False, False]


async def test_every_name_is_a_topic_and_nothing_is_stored(peer: Peer) -> None:
    found = await peer.ask(GetTopicConfig(topic="%LMQ%any"))
    assert (found.read_queue_nums, found.write_queue_nums, found.perm) == (1, 1, 6)
    await peer.ask(UpdateAndCreateTopic(topic="%LMQ%any", read_queue_nums=8, write_queue_nums=8))
    assert (await peer.ask(GetTopicConfig(topic="%LMQ%any"))).read_queue_nums == 1
    await dispatch(peer, b"1", "%LMQ%any")
    assert not [
        name for name in (await peer.ask(GetAllTopicConfig())).body.topic_config_table if "LMQ" in name
    ]
    assert len((await peer.ask(GetTopicStatsInfo(topic="%LMQ%any"))).offset_table) == 1
    assert (await beat(peer, heartbeat("c1", "%LMQ%any", group=GROUP))).code == 0
    query = AssignmentQuery(topic="%LMQ%any", consumer_group=GROUP, client_id="c1", strategy_name="AVG")
    assigned = await peer.ask(QueryAssignment(body=query))
    queues = [each.message_queue for each in assigned.message_queue_assignments]
    assert [(queue.topic, queue.broker_name, queue.queue_id) for queue in queues if queue] == [
        ("%LMQ%any", "broker-a", 0)
    ]


async def test_a_light_queue_is_deleted_by_name_only(peer: Peer) -> None:
    await dispatch(peer, b"1", "%LMQ%a", "%LMQ%b")
    await commit(peer, "%LMQ%a", 1)
    await peer.ask(CleanUnusedTopic())
    assert await bodies(peer, "%LMQ%a") == [b"1"]
    await peer.ask(DeleteTopicInBroker(topic="%LMQ%a"))
    assert (await peer.ask(GetMaxOffset(topic="%LMQ%a", queue_id=0))).offset == 0
    assert (await committed(peer, "%LMQ%a"), await bodies(peer, "%LMQ%b")) == (None, [b"1"])
    await dispatch(peer, b"2", "%LMQ%a")
    assert [(record.body, offset_in(record, "%LMQ%a")) for record in await read(peer, "%LMQ%a")] == [
        (b"2", 0)
    ]


async def test_the_administrator_deletes_a_light_queue_at_every_broker(start: Start) -> None:
    cluster = await start(**ON)
    async with await Peer.connect(cluster.broker.address) as peer:
        await dispatch(peer, b"1", "%LMQ%a", "%LMQ%b")
        async with rmqpy.AsyncAdmin(cluster.namesrv) as admin:
            assert await admin.delete_topic("%LMQ%a") == ["broker-a"]
        assert (await bodies(peer, "%LMQ%a"), await bodies(peer, "%LMQ%b")) == ([], [b"1"])


async def test_statistics_have_one_name_for_all_light_queues(start: Start) -> None:
    cluster = await start(**ON, httpPort="0")
    async with await Peer.connect(cluster.broker.address) as peer:
        await dispatch(peer, b"1", "%LMQ%a", "%LMQ%b")
        assert (await send(peer, "%LMQ%a", b"2")).code == 0
        for name in ("%LMQ%a", "%LMQ%b"):
            await read(peer, name)
        await commit(peer, "%LMQ%a", 1)

        async def counted(name: str, key: str) -> int:
            return (await peer.ask(ViewBrokerStatsData(stats_name=name, stats_key=key))).stats_minute.sum

        assert await counted("TOPIC_PUT_NUMS", TOPIC) == 1
        assert await counted("TOPIC_PUT_NUMS", "%LMQ%") == 1, "only what was sent to it"
        assert await counted("GROUP_GET_NUMS", "%LMQ%@%LMQ%") == 3
        with pytest.raises(Refusal):
            await counted("TOPIC_PUT_NUMS", "%LMQ%a")
    lines = await samples(cluster, "")
    assert any('"%LMQ%"' in line for line in lines)
    assert [line for line in lines if "%LMQ%a" in line or "%LMQ%b" in line or GROUP in line] == []


async def test_a_group_pops_and_acknowledges_a_light_queue(peer: Peer) -> None:
    for number in range(3):
        # Other offsets and another queue than in the light queue.
        assert (await send(peer, TOPIC, e="1")).code == 0
        answer = await send(peer, TOPIC, str(number).encode(), e="1", i=to("%LMQ%a"))
        assert answer.code == 0, answer.remark
    answer = await pop(peer, topic="%LMQ%a", queueId="0")
    assert answer.ext is not None
    assert (answer.ext["startOffsetInfo"], answer.ext["msgOffsetInfo"]) == ("0 0 0", "0 0 0,1,2")
    assert [record.body for record in records(answer.body)] == [b"0", b"1", b"2"]


async def test_slaves_have_light_queues_and_offsets(tmp_path: Path, namesrv: str, tries_soon: None) -> None:
    async with (
        made_broker(tmp_path, namesrv, ON) as master,
        made_slave(tmp_path, namesrv, **ON, slaveReadEnable="true") as slave,
        await Peer.connect(master.address) as peer,
        await Peer.connect(slave.address) as copy,
    ):
        for number in range(3):
            await dispatch(peer, str(number).encode(), "%LMQ%a")
        await commit(peer, "%LMQ%a", 2)
        await until_async(lambda: bodies(copy, "%LMQ%a"), lambda found: found == [b"0", b"1", b"2"])
        await until_async(lambda: committed(copy, "%LMQ%a"), lambda offset: offset == 2)


async def test_our_clients_read_light_queues_by_their_offsets(start: Start) -> None:
    cluster = await start(**ON)
    async with rmqpy.AsyncProducer(cluster.namesrv) as producer:
        for number in range(4):
            names = {"INNER_MULTI_DISPATCH": "%LMQ%a"} if number % 2 else {}
            await producer.send(rmqpy.Message(TOPIC, str(number), properties=names))
    queue = rmqpy.MessageQueue("%LMQ%a", "broker-a", 0)
    async with rmqpy.AsyncPullConsumer(GROUP, cluster.namesrv, start_from="earliest") as consumer:
        assert await consumer.queues("%LMQ%a") == [queue]
        await consumer.assign([queue])
        found = await consumer.poll(TIMEOUT_S, max_messages=1)
        assert [
            (message.text(), message.topic, message.queue, message.queue_offset) for message in found
        ] == [("1", TOPIC, queue, 0)]
        await consumer.commit()
        assert await consumer.committed(queue) == 1
        [second] = await consumer.poll(TIMEOUT_S, max_messages=1)
        assert (second.text(), second.queue_offset) == ("3", 1)
