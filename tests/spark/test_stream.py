"""The streaming source against a real broker: decisions of the driver, without a session."""

import json
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

import rmqpy
import rmqpy.testing
from pyspark_rocketmq.cluster import Cluster
from pyspark_rocketmq.offsets import Position, Queue, format_offsets
from pyspark_rocketmq.schema import default_schema
from pyspark_rocketmq.source import RocketMQSource
from pyspark_rocketmq.stream import TopicStream
from pyspark_rocketmq.task import Task
from rmqpy import cli, errors
from rmqpy.server import Standalone
from waiting import until

if TYPE_CHECKING:
    pass

pytestmark = pytest.mark.timeout(300)


def send(producer: rmqpy.Producer, topic: str, count: int, queue_id: int = 0) -> None:
    queue = rmqpy.MessageQueue(topic, "broker-a", queue_id)
    for each in [producer.submit(topic, str(index), queue=queue) for index in range(count)]:
        each.result()


def stream(server: Standalone, topic: str, **options: str) -> TopicStream:
    source = RocketMQSource({"nameserver": server.namesrv, "subscribe": topic} | options)
    return source.streamReader(schema=default_schema(with_properties=False))


def ends(offset: dict[str, Any]) -> dict[int, int]:
    return {queue.queue_id: at for queue, at in Position.of_json(offset).queues.items() if at}


def rows(reader: TopicStream, start: dict[str, Any], end: dict[str, Any]) -> int:
    tasks = reader.partitions(start, end)
    return sum(batch.num_rows for task in tasks for batch in reader.read(task))


def test_stream_can_filter_by_sql(server: Standalone, producer: rmqpy.Producer, topic: str) -> None:
    for price in range(12):
        producer.send(topic, "x", properties={"price": str(price)})
    chosen = {"subExpressionType": "SQL92", "subExpression": "price > 8"}
    reader = stream(server, topic, startingOffsets="earliest", **chosen)
    start = reader.initialOffset()
    assert rows(reader, start, reader.next_offset(start, is_limited=True)) == 3


def test_stream_with_sql_fails_if_a_broker_disables_it() -> None:
    with rmqpy.testing.broker(enablePropertyFilter="false") as server:
        with rmqpy.Producer(server.namesrv) as producer:
            producer.send("orders", "x")
        chosen = {"subExpressionType": "SQL92", "subExpression": "price > 8"}
        reader = stream(server, "orders", startingOffsets="earliest", **chosen)
        start = reader.initialOffset()
        end = reader.next_offset(start, is_limited=True)
        with pytest.raises(errors.Unsupported, match="set enablePropertyFilter=true"):
            reader.partitions(start, end)


def test_a_stream_begins_at_the_latest_message_unless_asked(
    server: Standalone, producer: rmqpy.Producer, topic: str
) -> None:
    send(producer, topic, 3)
    assert ends(stream(server, topic).initialOffset()) == {0: 3}
    assert ends(stream(server, topic, startingOffsets="earliest").initialOffset()) == {}
    at = format_offsets({Queue(topic, "broker-a", 0): 2})
    assert ends(stream(server, topic, startingOffsets=at).initialOffset()) == {0: 2}


def test_the_first_offset_is_asked_for_twice_and_stays(
    server: Standalone, producer: rmqpy.Producer, topic: str
) -> None:
    reader = stream(server, topic)
    first = reader.initialOffset()
    send(producer, topic, 3)
    assert reader.initialOffset() == first


def test_repeated_first_batch_reads_its_planned_range(
    server: Standalone, producer: rmqpy.Producer, topic: str
) -> None:
    send(producer, topic, 2)
    reader = stream(server, topic)
    start = reader.initialOffset()
    send(producer, topic, 4)
    end = json.loads(json.dumps(reader.next_offset(start, is_limited=False)))
    # The sink failed; meanwhile the topic grew, and Spark computes the start again.
    send(producer, topic, 6)
    again = stream(server, topic)
    assert ends(again.initialOffset()) == {0: 12}
    assert rows(again, again.initialOffset(), end) == 4
    # From the second batch on, an offset carries no more of this.
    assert again.next_offset(end, is_limited=False).keys() == {"v", "queues", "begin"}


def test_latest_offset_is_the_start_without_new_messages(
    server: Standalone, producer: rmqpy.Producer, topic: str
) -> None:
    send(producer, topic, 3)
    reader = stream(server, topic, offsetPollIntervalMs="1")
    end = reader.next_offset(reader.initialOffset(), is_limited=False)
    assert reader.next_offset(end, is_limited=False) is end
    assert reader.partitions(end, end) == []


def test_limit_is_shared_among_queues_and_everything_is_read(
    server: Standalone, producer: rmqpy.Producer, topic: str
) -> None:
    send(producer, topic, 90, queue_id=0)
    send(producer, topic, 10, queue_id=1)
    reader = stream(server, topic, startingOffsets="earliest", maxOffsetsPerTrigger="20")
    at = reader.initialOffset()
    at = reader.next_offset(at, is_limited=True)
    assert ends(at) == {0: 18, 1: 2}
    assert ends(reader.known_ends() or {}) == {0: 90, 1: 10}
    batches = 1
    while (end := reader.next_offset(at, is_limited=True)) is not at:
        at, batches = end, batches + 1
    assert ends(at) == {0: 90, 1: 10}
    assert 5 <= batches <= 7
    # `Trigger.Once` asks for everything.
    once = stream(server, topic, startingOffsets="earliest", maxOffsetsPerTrigger="20")
    assert ends(once.next_offset(once.initialOffset(), is_limited=False)) == {0: 90, 1: 10}


def test_a_limit_in_bytes_follows_the_size_of_the_messages(
    server: Standalone, producer: rmqpy.Producer, topic: str
) -> None:
    large, small = (rmqpy.MessageQueue(topic, "broker-a", queue_id) for queue_id in (0, 1))
    for _ in range(20):
        producer.send(topic, b"x" * 3000, queue=large)
        producer.send(topic, b"x", queue=small)
    reader = stream(server, topic, startingOffsets="earliest", maxBytesPerTrigger="33000")
    end = ends(reader.next_offset(reader.initialOffset(), is_limited=True))
    assert 8 <= end[0] <= 10
    assert 8 <= end[1] <= 11


def test_a_batch_waits_for_enough_messages_or_long_enough(
    server: Standalone, producer: rmqpy.Producer, topic: str
) -> None:
    options = {"startingOffsets": "earliest", "minOffsetsPerTrigger": "5", "offsetPollIntervalMs": "1"}
    patient = stream(server, topic, **options, maxTriggerDelay="1h")
    hasty = stream(server, topic, **options, maxTriggerDelay="1ms")
    start = patient.next_offset(patient.initialOffset(), is_limited=True)
    hasty.next_offset(hasty.initialOffset(), is_limited=True)
    send(producer, topic, 4)
    assert patient.next_offset(start, is_limited=True) is start
    assert ends(hasty.next_offset(start, is_limited=True)) == {0: 4}
    send(producer, topic, 1)
    assert ends(patient.next_offset(start, is_limited=True)) == {0: 5}


def test_available_now_run_ends_at_its_fixed_end(
    server: Standalone, producer: rmqpy.Producer, topic: str
) -> None:
    options = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "4", "minOffsetsPerTrigger": "3"}
    reader = stream(server, topic, **options)
    send(producer, topic, 10)
    reader.fix_end()
    send(producer, topic, 7)
    at, seen = reader.initialOffset(), []
    while (end := reader.next_offset(at, is_limited=True)) is not at:
        seen.append(ends(end)[0])
        at = end
    assert seen == [4, 8, 10]


def test_new_queues_and_topics_join_a_running_query(server: Standalone, producer: rmqpy.Producer) -> None:
    def made(name: str, queues: int) -> None:
        assert cli.run(["topic", "create", name, "--queues", str(queues), "-n", server.namesrv]) == 0

    made("joining-0", 1)
    source = RocketMQSource({"nameserver": server.namesrv, "subscribePattern": r"joining-\d"})
    reader = source.streamReader(schema=default_schema(with_properties=False))
    at = reader.next_offset(reader.initialOffset(), is_limited=False)
    with rmqpy.Admin(server.namesrv) as admin:
        admin.update_topic("joining-0", read_queues=2, write_queues=2)
    made("joining-1", 1)
    send(producer, "joining-1", 2)
    expected = {
        Queue("joining-0", "broker-a", 0),
        Queue("joining-0", "broker-a", 1),
        Queue("joining-1", "broker-a", 0),
    }
    end = until(
        lambda: reader.next_offset(at, is_limited=False),
        wanted=lambda end: Position.of_json(end).queues.keys() == expected,
    )
    # Messages from before the query saw the topic are read as well.
    assert rows(reader, at, end) == 2


def test_queue_overtaken_by_retention_is_data_loss(
    server: Standalone, producer: rmqpy.Producer, topic: str
) -> None:
    send(producer, topic, 3)
    strict = stream(server, topic)
    start = Position({Queue(topic, "broker-a", 0): 2, Queue(topic, "broker-a", 9): 7}).to_json()
    with pytest.raises(rmqpy.errors.DataLoss, match=f"queue {topic}/broker-a/9 no longer exists"):
        strict.next_offset(start, is_limited=False)
    lenient = stream(server, topic, failOnDataLoss="false")
    with pytest.warns(UserWarning, match="no longer exists"):
        end = lenient.next_offset(start, is_limited=False)
    assert 9 not in ends(end)
    assert rows(lenient, start, end) == 1


def test_recreated_topic_is_data_loss_and_then_read_from_its_beginning(
    server: Standalone, producer: rmqpy.Producer, topic: str
) -> None:
    send(producer, topic, 3)
    start = Position({Queue(topic, "broker-a", 0): 50}).to_json()
    with pytest.raises(rmqpy.errors.DataLoss, match="ends at 3, but the query was at 50"):
        stream(server, topic).next_offset(start, is_limited=False)
    lenient = stream(server, topic, failOnDataLoss="false")
    with pytest.warns(UserWarning, match="ends at 3, but the query was at 50"):
        end = lenient.next_offset(start, is_limited=False)
    assert rows(lenient, start, end) == 3


def test_topic_may_disappear_temporarily(server: Standalone, producer: rmqpy.Producer, topic: str) -> None:
    away = f"{topic}-away"
    # The checkpoint of a query whose topic was deleted, so that no queue is left in it.
    at = Position({}).to_json()
    lenient = stream(server, away, failOnDataLoss="false")
    for _ in range(3):
        assert lenient.next_offset(at, is_limited=False) == at
    with rmqpy.Admin(server.namesrv) as admin:
        admin.create_topic(away, read_queues=2, write_queues=2)
    send(producer, away, 3, 1)
    end = until(lambda: lenient.next_offset(at, is_limited=False), wanted=lambda end: ends(end).get(1) == 3)
    assert rows(lenient, at, end) == 3


def test_recreated_topic_with_fewer_queues_is_read(
    server: Standalone, producer: rmqpy.Producer, topic: str
) -> None:
    send(producer, topic, 3)
    start = Position({Queue(topic, "broker-a", queue_id): 50 for queue_id in (0, 7, 8)}).to_json()
    lenient = stream(server, topic, failOnDataLoss="false")
    with pytest.warns(UserWarning, match="broker-a/7 no longer exists"):
        end = lenient.next_offset(start, is_limited=False)
    assert ends(end) == {0: 3}
    assert rows(lenient, start, end) == 3


def test_offsets_are_stored_for_lag_tools_on_request(
    server: Standalone, producer: rmqpy.Producer, topic: str
) -> None:
    send(producer, topic, 3)
    queue = rmqpy.MessageQueue(topic, "broker-a", 0)
    with rmqpy.Catalog(server.namesrv) as catalog:
        for commits, expected in (("false", {}), ("true", {queue: 3})):
            reader = stream(server, topic, commitOffsets=commits, consumerGroup=f"lag-{topic}")
            begin = Position({Queue(topic, "broker-a", 0): 0}).to_json()
            end = reader.next_offset(begin, is_limited=False)
            # Brokers create a group when it reads.
            assert rows(reader, begin, end) == 3
            reader.commit(end)
            assert catalog.committed(f"lag-{topic}", [queue]) == expected
    # And lag tools read them back.
    send(producer, topic, 2)
    back = stream(server, topic, startingOffsets="group", consumerGroup=f"lag-{topic}")
    assert ends(back.initialOffset()) == {0: 3}


def test_unreachable_broker_delays_only_its_own_queues() -> None:
    with rmqpy.testing.Cluster(brokers=["broker-a", "broker-b"]) as cluster:
        assert cli.run(["topic", "create", "t", "--queues", "1", "-n", cluster.namesrv]) == 0
        with rmqpy.Producer(cluster.namesrv) as producer:
            options = {"nameserver": cluster.namesrv, "subscribe": "t", "requestTimeoutMs": "1000"}
            source = RocketMQSource(options | {"offsetPollIntervalMs": "1"})
            reader = source.streamReader(schema=default_schema(with_properties=False))
            for broker in ("broker-a", "broker-b"):
                producer.send("t", b"x", queue=rmqpy.MessageQueue("t", broker, 0))
            at = reader.next_offset(reader.initialOffset(), is_limited=False)
            cluster.stop("broker-b")
            producer.send("t", b"y", queue=rmqpy.MessageQueue("t", "broker-a", 0))
            with pytest.warns(UserWarning, match="brokers do not answer for t/broker-b/0"):
                at = reader.next_offset(at, is_limited=False)
            assert Position.of_json(at).queues == {Queue("t", "broker-a", 0): 2, Queue("t", "broker-b", 0): 1}
            assert reader.next_offset(at, is_limited=False) is at
            cluster.start("broker-b")

            def sent() -> bool:
                with suppress(rmqpy.RocketMQError):
                    return producer.send("t", b"z", queue=rmqpy.MessageQueue("t", "broker-b", 0)).ok
                return False

            until(sent)
            both = {Queue("t", "broker-a", 0): 2, Queue("t", "broker-b", 0): 2}
            end = until(
                lambda: reader.next_offset(at, is_limited=False),
                wanted=lambda end: Position.of_json(end).queues == both,
            )
            assert rows(reader, at, end) == 1


def test_an_idle_stream_waits_for_a_message_but_no_longer_than_the_interval(
    server: Standalone, producer: rmqpy.Producer, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited: list[tuple[dict[int, int], float]] = []

    def wait(self: Cluster, offsets: Mapping[Queue, int], timeout_s: float) -> None:
        waited.append(({queue.queue_id: offset for queue, offset in offsets.items() if offset}, timeout_s))

    monkeypatch.setattr(Cluster, "wait", wait)
    send(producer, topic, 3)
    reader = stream(server, topic, offsetPollIntervalMs="5000000")
    at = reader.next_offset(reader.initialOffset(), is_limited=False)
    assert waited == []
    assert reader.next_offset(at, is_limited=False) is at
    assert reader.next_offset(at, is_limited=False) is at
    ((offsets, seconds),) = waited
    assert offsets == {0: 3}
    # The rest of the interval.
    assert 4000 < seconds <= 5000


def test_a_message_ends_the_rest_of_an_idle_stream(
    server: Standalone, producer: rmqpy.Producer, topic: str
) -> None:
    reader = stream(server, topic, offsetPollIntervalMs="5000000")
    at = reader.next_offset(reader.initialOffset(), is_limited=False)
    assert reader.next_offset(at, is_limited=False) is at
    with ThreadPoolExecutor() as threads:
        looking = threads.submit(reader.next_offset, at, is_limited=False)
        send(producer, topic, 1, queue_id=2)
        assert ends(looking.result(60)) == {2: 1}


def test_too_few_messages_do_not_end_the_wait(
    server: Standalone, producer: rmqpy.Producer, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept: list[float] = []
    # Not time.sleep itself, which other threads use.
    clock = SimpleNamespace(**{**vars(time), "sleep": slept.append})
    monkeypatch.setattr("pyspark_rocketmq.stream.time", clock)
    reader = stream(server, topic, offsetPollIntervalMs="5000000", minOffsetsPerTrigger="5")
    at = reader.next_offset(reader.initialOffset(), is_limited=True)
    send(producer, topic, 1)
    assert reader.next_offset(at, is_limited=True) is at
    assert reader.next_offset(at, is_limited=True) is at
    assert [4000 < seconds <= 5000 for seconds in slept] == [True]


def test_brokers_do_not_watch_very_many_queues(
    server: Standalone, producer: rmqpy.Producer, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An idle stream of more queues than the maximum polls, and rests in proportion to the time of a poll."""
    slept: list[float] = []
    clock = SimpleNamespace(**{**vars(time), "sleep": slept.append})
    monkeypatch.setattr("pyspark_rocketmq.stream.time", clock)
    monkeypatch.setattr("pyspark_rocketmq.stream.WATCHED_MAX", 3)
    monkeypatch.setattr("pyspark_rocketmq.stream.RESTS_PER_POLL", 1e9)
    monkeypatch.delattr(Cluster, "wait")
    reader = stream(server, topic, offsetPollIntervalMs="1")
    at = reader.next_offset(reader.initialOffset(), is_limited=False)
    assert reader.next_offset(at, is_limited=False) is at
    assert reader.next_offset(at, is_limited=False) is at
    # A poll takes a millisecond or longer.
    assert [seconds > 1e5 for seconds in slept] == [True]
    send(producer, topic, 1, queue_id=2)
    assert ends(reader.next_offset(at, is_limited=False)) == {2: 1}


def test_small_ranges_share_a_task(server: Standalone, producer: rmqpy.Producer, topic: str) -> None:
    for queue_id in range(4):
        send(producer, topic, 5, queue_id)
    reader = stream(server, topic, startingOffsets="earliest")
    start = reader.initialOffset()
    (task,) = reader.partitions(start, reader.next_offset(start, is_limited=False))
    assert isinstance(task, Task)
    assert len(task.ranges) == 4
