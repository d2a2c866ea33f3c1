"""`SimpleConsumer` and its asyncio twin at a live broker: message by message, each acknowledged."""

import asyncio
import threading
import time
import uuid
from collections.abc import Iterator

import pytest

import rmqpy
from rmqpy import errors
from rmqpy.client.simple.requests import Handle
from rmqpy.server import Standalone
from rmqpy.testing import Cluster
from waiting import until


@pytest.fixture
def topic(server: Standalone) -> str:
    name = f"jobs-{uuid.uuid4().hex[:8]}"
    with rmqpy.Admin(server.namesrv) as admin:
        admin.create_topic(name, read_queues=4, write_queues=4)
    return name


@pytest.fixture
def group() -> str:
    return f"workers-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def consumer(server: Standalone, topic: str, group: str) -> Iterator[rmqpy.SimpleConsumer]:
    with rmqpy.SimpleConsumer(group, server.namesrv, start_from="earliest") as consumer:
        consumer.subscribe(topic)
        yield consumer


def send(server: Standalone, topic: str, *bodies: bytes, **fields: str) -> None:
    with rmqpy.Producer(server.namesrv) as producer:
        for body in bodies:
            producer.send(rmqpy.Message(topic, body, **fields))


def test_acknowledged_message_is_not_redelivered(
    server: Standalone, topic: str, consumer: rmqpy.SimpleConsumer
) -> None:
    send(server, topic, b"one", b"two", b"three")
    found: list[rmqpy.ReceivedMessage] = []
    while len(found) < 3:
        found += consumer.receive(invisible=1.2, wait=5)
    assert {message.body for message in found} == {b"one", b"two", b"three"}
    assert {message.topic for message in found} == {topic}
    consumer.ack(*found[:2])
    [again] = consumer.receive(wait=5)
    assert (again.body, again.delivery_attempt) == (found[2].body, 2)
    consumer.ack(again)
    assert consumer.receive(wait=1.5) == []


def test_invisible_time_can_be_extended_or_ended(
    server: Standalone, topic: str, consumer: rmqpy.SimpleConsumer
) -> None:
    send(server, topic, b"job")
    [message] = consumer.receive(invisible=1.0, wait=5)
    consumer.extend(message, 3)
    assert consumer.receive(wait=1.5) == [], "it is hidden for longer"
    consumer.nack(message)
    [again] = consumer.receive(invisible=1.0, wait=2)
    assert again.body == b"job"
    consumer.extend(again, 60)
    consumer.ack(again)
    assert consumer.receive(wait=1.5) == [], "an acknowledgement counts after an extension"


def test_failed_acknowledgement_after_an_extension_can_be_repeated(topic: str, group: str) -> None:
    with Cluster() as cluster, rmqpy.Producer(cluster.namesrv) as producer:
        producer.send(topic, b"job")
        config = rmqpy.ClientConfig(namesrv=cluster.namesrv, request_timeout=0.5)
        with rmqpy.SimpleConsumer(group, config, start_from="earliest") as consumer:
            consumer.subscribe(topic)
            [message] = consumer.receive(invisible=20, wait=5)
            consumer.extend(message, 2)
            cluster.stop("broker-a")
            with pytest.raises(errors.RocketMQError):
                consumer.ack(message)
            cluster.start("broker-a")
            consumer.ack(message)
            assert consumer.receive(wait=3) == []


def test_dead_letter_is_not_redelivered(
    server: Standalone, topic: str, group: str, consumer: rmqpy.SimpleConsumer
) -> None:
    send(server, topic, b"poison")
    [message] = consumer.receive(invisible=1.0, wait=5)
    consumer.dead_letter(message)
    assert consumer.receive(wait=1.5) == []
    with rmqpy.PullConsumer("undertaker", server.namesrv, start_from="earliest") as reader:
        reader.subscribe(f"%DLQ%{group}")
        [dead] = reader.poll(5)
    assert dead.body == b"poison"


@pytest.mark.parametrize("is_v2", [False, True])
@pytest.mark.parametrize("deliveries", [1, 2])
def test_resent_dead_letter_reaches_the_workers_of_its_group_alone(
    topic: str, group: str, deliveries: int, is_v2: bool
) -> None:
    with Cluster(enableRetryTopicV2=is_v2) as cluster:
        config = cluster.namesrv
        with (
            rmqpy.Producer(config) as producer,
            rmqpy.SimpleConsumer(group, config, start_from="earliest") as worker,
            rmqpy.SimpleConsumer("others", config, start_from="earliest") as other,
            rmqpy.Admin(config) as admin,
        ):
            producer.send(rmqpy.Message(topic, b"poison", tag="a", keys=["k"]))
            for consumer in (worker, other):
                consumer.subscribe(topic)
            [seen] = other.receive(wait=5)
            other.ack(seen)
            for _ in range(deliveries - 1):
                [message] = worker.receive(wait=5)
                worker.nack(message)
            [message] = worker.receive(wait=5)
            worker.dead_letter(message)
            [(queue, letter)] = admin.dlq(group)
            sent_as = admin.resend(group, queue, letter)
            [again] = worker.receive(wait=5)
            assert (again.topic, again.body, again.tag, again.keys) == (topic, b"poison", "a", ("k",))
            assert (again.offset_message_id, again.delivery_attempt) == (sent_as, 1)
            worker.ack(again)
            until(lambda: admin.resent(group, queue, letter))
            assert other.receive(wait=1) == worker.receive(wait=0) == []


def test_dead_letter_of_used_up_deliveries_is_resent_to_its_workers_or_its_topic(
    server: Standalone, topic: str, group: str, consumer: rmqpy.SimpleConsumer
) -> None:
    with rmqpy.Admin(server.namesrv) as admin:
        admin.create_group(group, retry_max=1)
        send(server, topic, b"poison")
        for _ in range(2):
            [message] = consumer.receive(wait=5)
            consumer.nack(message)
        [(queue, letter)] = until(lambda: list(admin.dlq(group)))
        assert letter.properties["RETRY_TOPIC"] == topic
        for to_origin in (False, True):
            admin.resend(group, queue, letter, to_origin=to_origin)
            [again] = consumer.receive(wait=5)
            consumer.ack(again)
            assert (again.topic, again.body, again.delivery_attempt) == (topic, b"poison", 1)


def test_tags_choose_messages(server: Standalone, topic: str, group: str) -> None:
    send(server, topic, b"a", tag="a")
    send(server, topic, b"b", tag="b")
    with rmqpy.SimpleConsumer(group, server.namesrv, start_from="earliest") as consumer:
        consumer.subscribe(topic, "b || c")
        assert [message.body for message in consumer.receive(wait=5)] == [b"b"]


def test_iteration_ends_with_the_consumer(
    server: Standalone, topic: str, consumer: rmqpy.SimpleConsumer
) -> None:
    send(server, topic, b"one", b"two")
    seen = []
    for message in consumer:
        consumer.ack(message)
        seen.append(message.body)
        if len(seen) == 2:
            consumer.close()
    assert set(seen) == {b"one", b"two"}


def test_unreceived_messages_are_returned_on_close(server: Standalone, topic: str, group: str) -> None:
    with rmqpy.Producer(server.namesrv) as producer:
        for number in range(4):
            producer.send(topic, b"%d" % number, queue=rmqpy.MessageQueue(topic, "broker-a", 0))
    with rmqpy.SimpleConsumer(group, server.namesrv, start_from="earliest") as first:
        first.subscribe(topic)
        kept = first.receive(3, wait=5)
        assert len(kept) == 3
    with rmqpy.SimpleConsumer(group, server.namesrv) as second:
        second.subscribe(topic)
        found = second.receive(wait=2)
    assert not {message.body for message in found} & {message.body for message in kept}, (
        "the first works on them"
    )


def test_sixteen_workers_share_one_queue(server: Standalone, group: str) -> None:
    topic = f"one-queue-{uuid.uuid4().hex[:8]}"
    with rmqpy.Admin(server.namesrv) as admin:
        admin.create_topic(topic, read_queues=1, write_queues=1)
    send(server, topic, *(b"%d" % number for number in range(48)))
    lock, done = threading.Lock(), []

    def work() -> None:
        with rmqpy.SimpleConsumer(group, server.namesrv, start_from="earliest") as consumer:
            consumer.subscribe(topic)
            while messages := consumer.receive(1, wait=1):
                time.sleep(0.1)  # work, while the others receive
                consumer.ack(*messages)
                with lock:
                    done.extend(message.body for message in messages)

    workers = [threading.Thread(target=work) for _ in range(16)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert sorted(map(int, done)) == list(range(48)), "each once"


def test_extended_message_stays_invisible_until_acknowledged(
    server: Standalone, topic: str, group: str
) -> None:
    send(server, topic, b"long job", b"forgotten job")
    with (
        rmqpy.SimpleConsumer(group, server.namesrv, start_from="earliest", auto_extend=3600) as consumer,
        rmqpy.SimpleConsumer(group, server.namesrv) as other,
    ):
        consumer.subscribe(topic)
        other.subscribe(topic)
        held: list[rmqpy.ReceivedMessage] = []
        while len(held) < 2:
            held += consumer.receive(invisible=1.0, wait=5)
        assert other.receive(wait=3) == [], "both are extended"
        consumer.ack(held[0])
        consumer.nack(held[1])
        [again] = other.receive(invisible=1.0, wait=5)
        assert (again.body, again.delivery_attempt) == (held[1].body, 2)
        other.ack(again)
        assert other.receive(wait=2) == [], "an extension before the acknowledgement is acknowledged, too"


def test_extended_message_is_redelivered_after_its_limit_or_a_close(
    server: Standalone, topic: str, group: str, caplog: pytest.LogCaptureFixture
) -> None:
    send(server, topic, b"job")
    with rmqpy.SimpleConsumer(group, server.namesrv, start_from="earliest", auto_extend=2) as consumer:
        consumer.subscribe(topic)
        began = time.monotonic()
        [first] = consumer.receive(1, invisible=1.0, wait=5)
        [again] = consumer.receive(1, invisible=1.0, wait=10)
        assert (again.body, again.delivery_attempt) == (first.body, 2)
        assert time.monotonic() - began >= 2, "it was extended"
    assert "is not extended any longer" in caplog.text
    with rmqpy.SimpleConsumer(group, server.namesrv) as other:
        other.subscribe(topic)
        assert [message.delivery_attempt for message in other.receive(wait=5)] == [3]


async def test_async_consumer_extends_messages(server: Standalone, topic: str, group: str) -> None:
    send(server, topic, b"job")
    async with (
        rmqpy.AsyncSimpleConsumer(group, server.namesrv, start_from="earliest", auto_extend=3600) as consumer,
        rmqpy.AsyncSimpleConsumer(group, server.namesrv) as other,
    ):
        consumer.subscribe(topic)
        other.subscribe(topic)
        [held] = await consumer.receive(1, invisible=1.0, wait=5)
        assert await other.receive(wait=2.5) == []
        await consumer.ack(held)
        assert await other.receive(wait=2) == []


@pytest.mark.parametrize("seconds", [-1, float("inf"), float("nan")])
def test_auto_extend_is_a_number_of_seconds(server: Standalone, group: str, seconds: float) -> None:
    with pytest.raises(ValueError, match="auto_extend"):
        rmqpy.SimpleConsumer(group, server.namesrv, auto_extend=seconds)


async def test_async_consumer_behaves_like_the_sync_one(server: Standalone, topic: str, group: str) -> None:
    await asyncio.to_thread(send, server, topic, b"one", b"two")
    async with rmqpy.AsyncSimpleConsumer(group, server.namesrv, start_from="earliest") as consumer:
        consumer.subscribe(topic)
        seen = []
        async for message in consumer:
            await consumer.ack(message)
            seen.append(message.body)
            if len(seen) == 2:
                break
        assert set(seen) == {b"one", b"two"}
        assert await consumer.receive(wait=0.2) == []


def test_names_are_wrapped_in_the_namespace(server: Standalone, group: str) -> None:
    config = rmqpy.ClientConfig(namesrv=server.namesrv, namespace="shop")
    with rmqpy.Admin(config) as admin:
        admin.create_topic("jobs")
    with rmqpy.Producer(config) as producer:
        producer.send("jobs", b"inside")
    with rmqpy.SimpleConsumer(group, config, start_from="earliest") as consumer:
        consumer.subscribe("jobs")
        [message] = consumer.receive(invisible=1.0, wait=5)
        assert (message.topic, message.body) == ("jobs", b"inside")
        [again] = consumer.receive(wait=5)
        assert (again.topic, again.delivery_attempt) == ("jobs", 2)
        consumer.ack(again)


def test_wrong_arguments_are_refused(server: Standalone, topic: str, consumer: rmqpy.SimpleConsumer) -> None:
    with rmqpy.SimpleConsumer("nobody", server.namesrv) as fresh:
        with pytest.raises(RuntimeError, match="subscribe to a topic first"):
            fresh.receive()
        fresh.subscribe("no-such-topic")
        with pytest.raises(errors.TopicNotFound):
            fresh.receive(wait=0.1)
    with pytest.raises(ValueError, match="start_from"):
        rmqpy.SimpleConsumer("g", server.namesrv, start_from="middle")  # type: ignore[arg-type]
    for wrong in ({"invisible": 0}, {"wait": -1}, {"max_messages": 0}):
        with pytest.raises((ValueError, errors.RocketMQError)):
            consumer.receive(**wrong)  # type: ignore[arg-type]
    send(server, topic, b"one")
    with rmqpy.PullConsumer("reader", server.namesrv, start_from="earliest") as reader:
        reader.subscribe(topic)
        [pulled] = reader.poll(5)
    with pytest.raises(ValueError, match="was not received by a SimpleConsumer"):
        consumer.ack(pulled)
    consumer.close()
    with pytest.raises(errors.ClosedError):
        consumer.receive()


def test_handle_round_trips(server: Standalone, topic: str, consumer: rmqpy.SimpleConsumer) -> None:
    send(server, topic, b"one")
    [message] = consumer.receive(wait=5)
    handle = Handle.of(message)
    assert str(handle) == message.properties["POP_CK"]
    assert (handle.broker, handle.queue_id, handle.offset) == (
        message.queue.broker,
        message.queue.queue_id,
        message.queue_offset,
    )


def test_the_most_urgent_message_is_received_first(server: Standalone, group: str) -> None:
    topic = f"urgent-{uuid.uuid4().hex[:8]}"
    with rmqpy.Admin(server.namesrv) as admin, rmqpy.Producer(server.namesrv, linger=0.01) as producer:
        admin.create_topic(topic, read_queues=8, write_queues=8, message_type="PRIORITY")
        assert admin.topic_types()[topic] == "PRIORITY"
        admin.create_group(group, priority_factor=100)
        sent = {priority: producer.send(topic, str(priority), priority=priority) for priority in (0, 5, 99)}
        queues = {priority: result.queue.queue_id for priority, result in sent.items()}
        assert queues == {0: 0, 5: 5, 99: 7}
        with rmqpy.SimpleConsumer(group, server.namesrv, start_from="earliest") as consumer:
            consumer.subscribe(topic)
            found = [message for _ in range(3) for message in consumer.receive(1, wait=5)]
            consumer.ack(*found)
        assert [message.text() for message in found] == ["99", "5", "0"]
        assert found[0].properties["_SYS_MSG_PRIORITY_"] == "99"
        admin.update_group(group, priority_factor=30)
        [settings] = admin.group(group).values()
        assert settings.attributes == {"priority.factor": "30"}
