"""The client and our servers, end to end: sent messages are read."""

import asyncio
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import rmqpy
from rmqpy import errors, testing
from rmqpy.server import Standalone
from waiting import moment_after_now, until


@pytest.fixture(scope="module")
def server() -> Iterator[Standalone]:
    with testing.broker() as server:
        yield server


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    name: str = request.node.name
    return name.replace("[", "-").replace("]", "").replace(" ", "-")[:100]


def known_queues(reader: rmqpy.PullConsumer, topic: str) -> list[rmqpy.MessageQueue]:
    """The queues of a topic whose first message made it: name servers learn of it a moment later."""
    return until(lambda: reader.queues(topic), failing=errors.TopicNotFound)


def read_all(namesrv: str, topic: str, **options: Any) -> list[rmqpy.ReceivedMessage]:
    """Everything the topic holds now."""
    found: list[rmqpy.ReceivedMessage] = []
    with rmqpy.PullConsumer("readers", namesrv, start_from="earliest", auto_commit=False) as reader:
        queues = known_queues(reader, topic)
        reader.assign(queues, **options)
        ends = {queue: reader.offsets(queue)[1] for queue in queues}
        while any(reader.position(queue) < end for queue, end in ends.items()):
            found += reader.poll(1)
    return found


def test_every_way_of_sending_is_read_back_whole(server: Standalone, topic: str) -> None:
    sent: dict[str, bytes] = {}
    with rmqpy.Producer(server.namesrv) as producer:
        for number in range(10):
            result = producer.send(
                topic,
                f"blå {number}",
                tag="t",
                keys=["k", str(number)],
                properties={"färg": "röd"},
                flag=number,
            )
            sent[result.message_id] = f"blå {number}".encode()
        futures = [producer.submit(topic, bytes([number])) for number in range(200)]
        sent |= {future.result().message_id: bytes([number]) for number, future in enumerate(futures)}
        batch = producer.send_batch([rmqpy.Message(topic, f"batch {number}") for number in range(30)])
        sent |= {result.message_id: f"batch {number}".encode() for number, result in enumerate(batch)}
        producer.send_oneway(topic, b"one way")
        producer.flush()

    async def from_a_loop() -> None:
        async with rmqpy.AsyncProducer(server.namesrv) as producer:
            results = await asyncio.gather(*(producer.send(topic, b"loop") for _ in range(50)))
            sent.update({result.message_id: b"loop" for result in results})

    asyncio.run(from_a_loop())
    found = read_all(server.namesrv, topic)
    assert {message.message_id: message.body for message in found if message.body != b"one way"} == sent
    first = next(message for message in found if message.body == "blå 7".encode())
    assert (first.tag, first.keys, first.properties["färg"], first.flag) == ("t", ("k", "7"), "röd", 7)
    for queue in {message.queue for message in found}:
        offsets = [message.queue_offset for message in found if message.queue == queue]
        assert offsets == list(range(len(offsets)))


@pytest.mark.parametrize("compression", ["zlib", "lz4", "zstd"])
@pytest.mark.parametrize("header", ["json", "binary"])
def test_large_bodies_survive_every_compression_and_encoding(
    server: Standalone, topic: str, compression: Any, header: Any
) -> None:
    bodies = {b"a" * 3_000_000, bytes(range(256)) * 100, b"x" * 4097}
    config = rmqpy.ClientConfig(namesrv=server.namesrv, header=header)
    with rmqpy.Producer(config, compression=compression, send_timeout=30) as producer:
        for body in bodies:
            assert producer.send(topic, body).ok
    assert {message.body for message in read_all(server.namesrv, topic)} == bodies


def test_tag_filter_delivers_only_wanted_tags(server: Standalone, topic: str) -> None:
    with rmqpy.Producer(server.namesrv) as producer:
        # AaAa and BBBB have one hash: the broker cannot tell them apart.
        for tag in ("AaAa", "BBBB", "other", None):
            producer.send(topic, b"x", tag=tag)
    assert [message.tag for message in read_all(server.namesrv, topic, tags="AaAa")] == ["AaAa"]


def test_a_group_goes_on_where_it_stopped(server: Standalone, topic: str) -> None:
    with rmqpy.Producer(server.namesrv) as producer:
        for number in range(20):
            producer.send(topic, str(number), sharding_key="one queue")
    seen: list[bytes] = []
    for _ in range(4):
        with rmqpy.PullConsumer("stepwise", server.namesrv, start_from="earliest") as consumer:
            consumer.assign(known_queues(consumer, topic))
            seen += [message.body for message in consumer.poll(30, max_messages=5)]
    assert seen == [str(number).encode() for number in range(20)]


def test_offsets_can_be_found_by_time(server: Standalone, topic: str) -> None:
    with rmqpy.Producer(server.namesrv) as producer:
        early = producer.send(topic, b"early", sharding_key="k")
        moment = datetime.fromtimestamp(moment_after_now() / 1_000, UTC)
        late = producer.send(topic, b"late", sharding_key="k")
    with rmqpy.PullConsumer("g", server.namesrv) as consumer:
        consumer.assign([late.queue])
        assert consumer.offset_at(late.queue, moment) == late.queue_offset
        assert consumer.offset_at(late.queue, moment - timedelta(days=1)) == early.queue_offset
        consumer.seek(late.queue, moment)
        assert [message.body for message in consumer.poll(30)] == [b"late"]


def test_message_wakes_a_waiting_reader(server: Standalone, topic: str) -> None:
    with rmqpy.Producer(server.namesrv) as producer, rmqpy.PullConsumer("g", server.namesrv) as consumer:
        producer.send(topic, b"first")
        # Topic and queue end are known a moment after the answer. The member must not look before: queues that appear
        # later are read from their start.
        with rmqpy.PullConsumer("probe", server.namesrv) as probe:
            queues = known_queues(probe, topic)
            until(lambda: sum(probe.offsets(queue)[1] for queue in queues) == 1)
        consumer.assign(queues)
        assert consumer.poll(0.2) == []
        began = time.monotonic()
        producer.send(topic, b"second")
        assert [message.body for message in consumer.poll(60)] == [b"second"]
        assert time.monotonic() - began < 30


def test_range_read_equals_polling(server: Standalone, topic: str) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    with rmqpy.Producer(server.namesrv) as producer:
        for future in [producer.submit(topic, f"{number}", tag="ab"[number % 2]) for number in range(5000)]:
            future.result()
    polled = read_all(server.namesrv, topic)
    ends = {message.queue: message.queue_offset + 1 for message in polled}
    ranges = [rmqpy.QueueRange(queue, 0, end) for queue, end in ends.items()]
    table = pyarrow.table(rmqpy.read_ranges(ranges, server.namesrv))
    rows = {(row["queueId"], row["queueOffset"]): row for row in table.to_pylist()}
    assert len(rows) == table.num_rows == len(polled) == 5000
    for message in polled:
        row = rows[message.queue.queue_id, message.queue_offset]
        assert (row["body"], row["tags"], row["msgId"]) == (message.body, message.tag, message.message_id)
        assert dict(row["properties"]) == dict(message.properties)
        assert (row["bornTimestamp"], row["storeTimestamp"]) == (message.born_at, message.stored_at)
    beyond = [rmqpy.QueueRange(queue, 0, end + 1) for queue, end in ends.items()]
    with pytest.raises(errors.DataLoss):
        list(rmqpy.read_ranges(beyond, server.namesrv))


def test_sends_continue_without_name_servers_and_one_broker(topic: str) -> None:
    with (
        testing.Cluster(name_servers=2, brokers=["broker-a", "broker-b"]) as cluster,
        rmqpy.Producer(cluster.namesrv, send_timeout=10) as producer,
    ):
        # A topic is made where its first message goes: let both brokers have it.
        for queue in producer.queues(topic):
            assert producer.send(topic, b"x", queue=queue).ok
        assert {queue.broker for queue in producer.queues(topic)} == {"broker-a", "broker-b"}
        cluster.stop("name-server-0")
        cluster.stop("name-server-1")
        assert all(producer.send(topic, b"x").ok for _ in range(20))
        cluster.stop("broker-a")
        results = [producer.send(topic, b"x") for _ in range(20)]
        assert {result.queue.broker for result in results} == {"broker-b"}


def test_client_in_a_zone_sees_only_its_brokers() -> None:
    with testing.broker(zoneName="north") as server:
        for zone in (None, "north"):
            with rmqpy.Producer(rmqpy.ClientConfig(namesrv=server.namesrv, zone=zone)) as producer:
                assert producer.send("orders", b"x").ok
        with (
            rmqpy.Producer(rmqpy.ClientConfig(namesrv=server.namesrv, zone="south")) as producer,
            pytest.raises(errors.NoWritableQueue),
        ):
            producer.send("orders", b"x")


def test_zone_from_the_environment_needs_its_mode(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROCKETMQ_ZONE", "north")
    assert rmqpy.ClientConfig.from_env().zone is None
    monkeypatch.setenv("ROCKETMQ_ZONE_MODE", "true")
    assert rmqpy.ClientConfig.from_env().zone == "north"
