"""Namespaces: clients of several, and one of none, share a broker and plain names; each sees only its messages."""

import asyncio
import json
import pickle
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

import rmqpy
from rmqpy import ClientConfig, MessageQueue, cli, errors, testing
from rmqpy.server import Standalone
from waiting import until

from .live import WAIT_S, Seen

TOPIC, GROUP = "orders", "billing"
#: Two namespaces, and none.
SPACES = ("shop", "shop2", "")


@pytest.fixture(scope="module")
def server() -> Iterator[Standalone]:
    with testing.broker() as server:
        yield server


@pytest.fixture(params=SPACES, ids=["shop", "shop2", "none"])
def space(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


def config(server: Standalone, space: str) -> ClientConfig:
    return ClientConfig(namesrv=server.namesrv, namespace=space)


def wire(space: str, name: str) -> str:
    """The name that the broker has, as `tests/interop` finds it with Java's clients."""
    return f"{space}%{name}" if space else name


@pytest.fixture(scope="module")
def topic(server: Standalone) -> str:
    """Create one topic of each, with a message that names its owner."""
    for space in SPACES:
        with rmqpy.Admin(config(server, space)) as admin:
            admin.create_topic(TOPIC, read_queues=4, write_queues=4)
        with rmqpy.Producer(config(server, space)) as producer:
            producer.send(TOPIC, f"first of {space}", tag="first", keys="k")
    return TOPIC


def bodies(messages: list[rmqpy.ReceivedMessage]) -> set[str]:
    assert {message.topic for message in messages} <= {TOPIC}
    assert {message.queue.topic for message in messages} <= {TOPIC}
    return {message.text() for message in messages}


def drained(consumer: rmqpy.PullConsumer, count: int) -> list[rmqpy.ReceivedMessage]:
    found: list[rmqpy.ReceivedMessage] = []
    until(lambda: (found.extend(consumer.poll(timeout=0.1)), len(found) >= count)[1])
    return found + consumer.poll(timeout=0.3)


def sent_every_way(producer: rmqpy.Producer, topic: str, space: str) -> set[str]:
    """Bodies of messages, sent by every kind of send."""
    kinds = ("sent", "keyed", "chosen", "submitted", "oneway", "batch 1", "batch 2")
    sent, keyed, chosen, submitted, oneway, *batch = texts = [f"{kind} of {space}" for kind in kinds]
    queue = producer.queues(topic)[-1]
    results = [
        producer.send(topic, sent),
        producer.send(topic, keyed, sharding_key="customer-7"),
        producer.send(topic, chosen, queue=queue),
        producer.submit(topic, submitted).result(),
        *producer.send_batch([rmqpy.Message(topic, body) for body in batch]),
    ]
    producer.send_oneway(topic, oneway)
    assert {result.queue.topic for result in results} == {topic}
    assert results[2].queue == queue
    return set(texts)


def test_every_kind_of_send_reaches_its_own_readers(server: Standalone, space: str) -> None:
    topic = "sends"
    with (
        rmqpy.Producer(config(server, space)) as producer,
        rmqpy.PullConsumer("reader", config(server, space), start_from="earliest") as consumer,
    ):
        producer.send(topic, f"first of {space}")
        until(lambda: knows(consumer, topic))
        consumer.assign(consumer.queues(topic))
        sent = sent_every_way(producer, topic, space) | {f"first of {space}"}
        found = drained(consumer, len(sent))
        assert {message.text() for message in found} == sent
        assert len(found) == len(sent)
        assert {message.topic for message in found} == {topic}
        # Of a batch the whole says it, which brokers do not hand on.
        alone = [message for message in found if not message.text().startswith("batch")]
        said = {message.properties.get("INSTANCE_ID") for message in alone}
        assert said == ({space} if space else {None})


def knows(consumer: rmqpy.PullConsumer, topic: str) -> bool:
    try:
        return bool(consumer.queues(topic))
    except errors.TopicNotFound:
        return False


async def test_the_async_clients_do_the_same(server: Standalone, space: str) -> None:
    topic = "async-sends"
    async with (
        rmqpy.AsyncProducer(config(server, space)) as producer,
        rmqpy.AsyncPullConsumer("reader", config(server, space), start_from="earliest") as consumer,
    ):
        result = await producer.send(topic, f"of {space}")
        assert result.queue.topic == topic
        await asyncio.wait_for(consumer.subscribe(topic), WAIT_S)
        found: list[rmqpy.ReceivedMessage] = []
        while not found:
            found = await consumer.poll(timeout=1)
        assert [message.text() for message in found] == [f"of {space}"]


def test_interceptors_see_plain_names(server: Standalone, topic: str, space: str) -> None:
    seen: list[str] = []

    class Note(rmqpy.ProducerInterceptor):
        def before_send(self, message: rmqpy.Message) -> rmqpy.Message:
            seen.append(message.topic)
            return message

        def after_send(self, message: rmqpy.Message, outcome: object) -> None:
            assert isinstance(outcome, rmqpy.SendResult)
            seen.append(outcome.queue.topic)

    with rmqpy.Producer(config(server, space), interceptors=[Note()]) as producer:
        producer.send("intercepted", b"x")
    assert seen == ["intercepted", "intercepted"]


def test_pull_consumer_keeps_the_progress_of_its_group(server: Standalone, topic: str, space: str) -> None:
    told: list[rmqpy.Rebalance] = []
    with rmqpy.PullConsumer(
        GROUP, config(server, space), start_from="earliest", auto_commit=False
    ) as consumer:
        consumer.subscribe(topic, "first", on_rebalance=told.append)
        found = drained(consumer, 1)
        assert bodies(found) == {f"first of {space}"}
        assert {queue.topic for change in told for queue in change.assigned} == {topic}
        assert {queue.topic for queue in consumer.assignment()} == {topic}
        queue = found[0].queue
        assert consumer.committed(queue) is None
        consumer.commit({queue: found[0].queue_offset + 1})
        assert consumer.committed(queue) == found[0].queue_offset + 1
        consumer.seek(queue, "begin")
        assert bodies(drained(consumer, 1)) == {f"first of {space}"}
    with rmqpy.Admin(server.namesrv) as admin:
        rows = [row for row in admin.progress(wire(space, GROUP)) if row.topic == wire(space, topic)]
        assert sum(row.offset for row in rows) == found[0].queue_offset + 1


def test_a_message_keeps_its_plain_topic_when_it_is_pickled(
    server: Standalone, topic: str, space: str
) -> None:
    with rmqpy.PullConsumer("pickler", config(server, space), start_from="earliest") as consumer:
        consumer.assign(consumer.queues(topic), "first")
        message = drained(consumer, 1)[0]
    again = pickle.loads(pickle.dumps(message))  # noqa: S301 - our own
    assert (again, again.topic, again.queue) == (message, topic, message.queue)


def test_handlers_get_retries_and_dead_letters_of_their_own_group(
    server: Standalone, space: str, capsys: pytest.CaptureFixture[str]
) -> None:
    topic, group = "failing", "failing-billing"
    attempts: list[tuple[str, str, str, int]] = []

    def handle(message: rmqpy.ReceivedMessage) -> object:
        attempts.append((message.topic, message.queue.topic, message.text(), message.delivery_attempt))
        return rmqpy.Retry(after=1)

    consumer = rmqpy.PushConsumer(group, config(server, space), start_from="earliest", max_attempts=2)
    consumer.on(topic, handler=handle)
    with rmqpy.Producer(config(server, space)) as producer, consumer:
        producer.send(topic, f"bad of {space}")
        with rmqpy.Admin(config(server, space)) as admin:
            until(lambda: any(each.group == group and each.messages for each in admin.dead_letters()))
            assert [each.group for each in admin.dead_letters() if each.group == group] == [group]
            (found,) = admin.dlq(group)
            queue, message = found
            assert (message.text(), message.queue.topic) == (f"bad of {space}", f"%DLQ%{group}")
            assert message.topic == f"%DLQ%{group}"
            assert attempts == [
                (topic, topic, f"bad of {space}", 1),
                (topic, f"%RETRY%{group}", f"bad of {space}", 2),
            ]
            shown = ["dlq", "show", group, "-o", "json", "-n", server.namesrv, "--namespace", space]
            assert cli.run(shown) == 0
            assert [row["topic"] for row in json.loads(capsys.readouterr().out)] == [topic]
            # Resent from the dead letters, it reaches the handler under its first topic.
            admin.resend(group, queue, message)
            until(lambda: len(attempts) > 2)
            assert attempts[2][:3] == (topic, f"%RETRY%{group}", f"bad of {space}")
            assert len(admin.resent(group, queue, message)) == 1
            admin.resend(group, queue, message, to_origin=True)
            until(lambda: any(each[1] == topic for each in attempts[3:]))


def test_a_push_consumer_is_asked_and_moved_by_its_plain_name(server: Standalone, space: str) -> None:
    topic, group = "asked", "asked-billing"
    seen = Seen()
    changes: list[rmqpy.Rebalance] = []
    hooked: set[str] = set()

    class Note(rmqpy.ConsumerInterceptor):
        def before_consume(self, messages: Sequence[rmqpy.ReceivedMessage]) -> None:
            hooked.update(message.topic for message in messages)

    consumer = rmqpy.PushConsumer(
        group,
        config(server, space),
        start_from="earliest",
        ordered=True,
        on_rebalance=changes.append,
        interceptors=[Note()],
    )
    with rmqpy.Producer(config(server, space)) as producer:
        kept = producer.send(topic, f"of {space}", keys="one")
        consumer.on(topic, handler=seen)
        with consumer, rmqpy.Admin(config(server, space)) as admin:
            until(lambda: seen.bodies == [f"of {space}"])
            assert hooked == {topic}
            assert {queue.topic for queue in consumer.queues()} <= {topic, f"%RETRY%{group}"}
            assert {queue.topic for change in changes for queue in change.assigned} >= {topic}
            (member,) = admin.members(group)
            assert member.subscriptions == {topic: "*", f"%RETRY%{group}": "*"}
            (stood,) = admin.positions(group, topic).values()
            assert {queue.topic for queue in stood} == {topic}
            told = admin.consume_directly(group, member.client_id, kept.message_id, topic)
            assert told.result == "CR_SUCCESS"
            assert seen.bodies == [f"of {space}"] * 2
            until(lambda: sum(row.lag for row in admin.progress(group, topic)) == 0)
            moves = admin.reset_offsets(group, topic, "begin")
            assert {move.topic for move in moves} == {topic}
            # A pull that the broker holds ends with the next message.
            producer.send(topic, f"next of {space}", queue=kept.queue)
            until(lambda: seen.bodies.count(f"of {space}") == 3)
            assert set(seen.bodies) <= {f"of {space}", f"next of {space}"}
            assert [client.group for client in admin.clients() if client.role == "consumer"] == [group]
    with rmqpy.Admin(server.namesrv) as admin:
        assert wire(space, group) in admin.groups()


def test_a_broadcast_consumer_keeps_its_file_under_the_name_of_the_wire(
    server: Standalone, topic: str, space: str, tmp_path: Path
) -> None:
    def read_all() -> list[str]:
        seen = Seen()
        consumer = rmqpy.PushConsumer(
            "everyone",
            config(server, space),
            broadcast=True,
            start_from="earliest",
            offset_folder=tmp_path,
        )
        consumer.on(topic, "first", seen)
        with consumer:
            until(lambda: seen.bodies)
        return seen.bodies

    assert read_all() == [f"first of {space}"]
    (file,) = tmp_path.rglob("offsets.json")
    assert file.parent.name == wire(space, "everyone")
    assert f'"topic":"{wire(space, topic)}"' in file.read_text()
    with rmqpy.Producer(config(server, space)) as producer:
        producer.send(topic, "another", tag="first")
    assert read_all() == ["another"]


def test_offset_store_gets_plain_topic_names(server: Standalone, topic: str, space: str) -> None:
    class Store:
        def __init__(self) -> None:
            self.table: dict[MessageQueue, int] = {}

        def load(self) -> None: ...
        def read(self, queue: MessageQueue) -> int | None:
            return self.table.get(queue)

        def update(self, queue: MessageQueue, offset: int) -> None:
            self.table[queue] = offset

        def persist(self, queues: object) -> None: ...

    store, seen = Store(), Seen()
    consumer = rmqpy.PushConsumer("stored", config(server, space), start_from="earliest", offset_store=store)
    consumer.on(topic, "first", seen)
    with consumer:
        until(lambda: seen.bodies)
    assert topic in {queue.topic for queue in store.table}
    assert {queue.topic for queue in store.table} <= {topic, "%RETRY%stored"}


def test_a_catalog_and_range_reads_know_one_namespace(server: Standalone, topic: str, space: str) -> None:
    with rmqpy.Catalog(config(server, space)) as catalog:
        names = catalog.topics()
        assert topic in names
        if space:
            assert not any("%" in name for name in names)
        queues = catalog.queues(topic)
        assert {queue.topic for queue in queues} == {topic}
        ends = catalog.offsets(queues)
        assert sum(limits[1] for limits in ends.values() if limits) >= 1
        full = next(queue for queue, limits in ends.items() if limits and limits[1])
        with rmqpy.Admin(config(server, space)) as admin:
            admin.create_group("cataloguer")
        catalog.commit("cataloguer", {full: 1})
        assert catalog.committed("cataloguer", [full]) == {full: 1}
        assert catalog.message_bytes({full: 0})[full] > 0
        assert catalog.wait({full: 0}, 5.0)
    ranges = [rmqpy.QueueRange(queue, 0, limits[1]) for queue, limits in ends.items() if limits]
    pyarrow = pytest.importorskip("pyarrow")
    with rmqpy.read_ranges(ranges, config(server, space), columns=["topic", "body"], tags="first") as rows:
        table = pyarrow.table(rows).to_pylist()
    assert {row["topic"] for row in table} == {topic}
    # Another test sends a further message with this tag.
    assert {row["body"] for row in table} - {b"another"} == {f"first of {space}".encode()}


def test_an_admin_makes_finds_and_deletes_by_plain_names(server: Standalone, topic: str, space: str) -> None:
    with rmqpy.Admin(config(server, space)) as admin, rmqpy.Admin(server.namesrv) as everyone:
        admin.create_topic("own", read_queues=2, write_queues=2)
        admin.create_group("own-group", retry_max=3)
        assert wire(space, "own") in everyone.topics()
        assert {"own", topic} <= set(admin.topics())
        assert "own-group" in admin.groups()
        (settings,) = admin.topic_settings("own").values()
        assert (settings.topic_name, settings.read_queue_nums) == ("own", 2)
        admin.update_group("own-group", retry_max=5)
        (group,) = admin.group("own-group").values()
        assert (group.group_name, group.retry_max_times) == ("own-group", 5)
        (other,) = everyone.group(wire(space, "own-group")).values()
        assert other.retry_max_times == 5
        (found,) = admin.messages_by_key(topic, "k")
        assert (found.topic, found.text()) == (topic, f"first of {space}")
        assert [each.text() for each in admin.tail(topic, 100)].count(f"first of {space}") == 1
        assert admin.message(found.message_id, topic) == found
        assert admin.message(found.offset_message_id).topic == topic
        flows = admin.topic_status(topic)
        assert flows[0].last_day >= 1
        admin.delete_group("own-group")
        admin.delete_topic("own")
        assert wire(space, "own") not in everyone.topics()
        if space:
            assert not any("%" in name for name in (*admin.topics(), *admin.groups()))
            with pytest.raises(errors.TopicNotFound):
                admin.topic("nobodys")


def test_an_order_topic_is_listed_under_the_name_that_brokers_know(server: Standalone, space: str) -> None:
    def listed() -> str | None:
        return everyone.values("ORDER_TOPIC_CONFIG").get(wire(space, "ordered"))

    with rmqpy.Admin(config(server, space)) as admin, rmqpy.Admin(server.namesrv) as everyone:
        admin.create_topic("ordered", read_queues=2, write_queues=2, order=True)
        assert listed() == "broker-a:2"
        assert len(admin.route("ordered").queue_datas) == 1
        admin.update_topic("ordered", write_queues=1)
        assert listed() == "broker-a:1"
        admin.delete_topic("ordered")
        assert listed() is None


def test_name_with_its_namespace_is_unchanged(server: Standalone, topic: str) -> None:
    with rmqpy.Admin(config(server, "shop")) as admin:
        assert admin.topic("shop%orders") == admin.topic("orders")


def test_members_of_one_group_name_in_two_namespaces_share_nothing(server: Standalone) -> None:
    topic, group = "apart", "apart-billing"
    seen: dict[str, Seen] = {space: Seen() for space in SPACES}
    consumers = []
    for space in SPACES:
        with rmqpy.Producer(config(server, space)) as producer:
            producer.send(topic, f"of {space}")
        consumer = rmqpy.PushConsumer(group, config(server, space), start_from="earliest")
        consumer.on(topic, handler=seen[space])
        consumers.append(consumer.start())
    try:
        for space in SPACES:
            until(lambda space=space: seen[space].bodies == [f"of {space}"])
        for consumer in consumers:
            until(lambda consumer=consumer: sum(q.topic == topic for q in consumer.queues()) == 4)
    finally:
        closing = [threading.Thread(target=consumer.close) for consumer in consumers]
        for thread in closing:
            thread.start()
        for thread in closing:
            thread.join()


@pytest.mark.parametrize("name", ["a%b", "a b", "ü"])
def test_invalid_namespace_is_refused(name: str) -> None:
    with pytest.raises(errors.ConfigError, match="namespace"):
        ClientConfig(namespace=name)
