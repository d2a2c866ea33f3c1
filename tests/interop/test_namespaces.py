"""Clients of one namespace in two languages: Java's after `setNamespace`, ours with `ClientConfig(namespace=...)`.

Goal: both use the same plain names for the same topics and groups. Method: messages both
ways, a group with members of both, retries and dead letters of either, next to a topic of the same plain name without a
namespace.
"""

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import pytest

import rmqpy
import waiting
from rmqpy import errors

from .clients import InteropClient, ProcessClient
from .messages import MessageSpec, bodies, numbered
from .servers import Cluster

WAIT_S = 60.0
until = partial(waiting.until, seconds=WAIT_S, pause=0.02)
pytestmark = pytest.mark.timeout(3 * WAIT_S, func_only=True)

NAMESPACE = "shop"
QUEUES = 4
RETRIES = 1

_numbers = itertools.count()


@dataclass(frozen=True)
class Shop:
    """A client of Java's, and a topic of the namespace; the group has its name as well."""

    theirs: ProcessClient
    config: rmqpy.ClientConfig
    topic: str

    @property
    def namesrv(self) -> str:
        return self.config.namesrv[0]


@pytest.fixture(
    params=[("java-5.5.0", "rmqpy"), ("java-4.9.8", "rmqpy"), ("java-5.5.0", "apache")], ids="-at-".join
)
def shop(
    request: pytest.FixtureRequest,
    client_of: Callable[[str], InteropClient],
    cluster_of: Callable[[str], Cluster],
) -> Shop:
    name, at = request.param
    client = client_of(name)
    assert isinstance(client, ProcessClient)
    config = rmqpy.ClientConfig(namesrv=cluster_of(at).namesrv, namespace=NAMESPACE)
    topic = f"orders-{next(_numbers)}"
    with rmqpy.Admin(config) as admin, rmqpy.Admin(config.namesrv) as everyone:
        admin.create_topic(topic, read_queues=QUEUES, write_queues=QUEUES)
        everyone.create_topic(topic, read_queues=QUEUES, write_queues=QUEUES)
        assert {topic, f"{NAMESPACE}%{topic}"} <= set(everyone.topics())
    with rmqpy.Producer(config.namesrv) as producer:
        producer.send(topic, b"of no namespace")
    return Shop(client, config, topic)


def polled(shop: Shop, topic: str, count: int) -> list[rmqpy.ReceivedMessage]:
    found: list[rmqpy.ReceivedMessage] = []
    with rmqpy.PullConsumer(f"reader-{next(_numbers)}", shop.config, start_from="earliest") as reader:

        def is_there() -> bool:
            try:
                reader.assign(reader.queues(topic))
            except errors.TopicNotFound:
                return False
            return True

        until(is_there)
        until(lambda: (found.extend(reader.poll(0.5)), len(found) >= count)[1])
    return found


@pytest.mark.parametrize("mode", ["sync", "async", "batch", "keyed", "oneway"])
def test_we_read_what_java_sends(shop: Shop, mode: str) -> None:
    messages = [MessageSpec(each.body, keys=("k",)) for each in numbered(8)]
    shop.theirs.send(shop.namesrv, shop.topic, messages, mode=mode, namespace=NAMESPACE)
    found = polled(shop, shop.topic, 8)
    assert sorted(message.body for message in found) == [message.body for message in messages]
    assert {(message.topic, message.queue.topic) for message in found} == {(shop.topic, shop.topic)}
    if mode != "batch":
        assert {message.properties["INSTANCE_ID"] for message in found} == {NAMESPACE}


@pytest.mark.parametrize("api", ["old", "lite", "assign"])
def test_java_reads_what_we_send(shop: Shop, api: str) -> None:
    with rmqpy.Producer(shop.config) as producer:
        sent = [producer.send(shop.topic, message.body) for message in numbered(4)]
        sent += producer.send_batch(
            [rmqpy.Message(shop.topic, b"batch 1"), rmqpy.Message(shop.topic, b"batch 2")]
        )
    group = f"pull-{next(_numbers)}"
    found = shop.theirs.pull(shop.namesrv, shop.topic, group, api=api, count=6, namespace=NAMESPACE)
    assert bodies(found) == sorted([*(each.body for each in numbered(4)), b"batch 1", b"batch 2"])
    assert {each.id for each in found} == {each.message_id for each in sent}
    single = [each for each in found if not each.body.startswith(b"batch")]
    assert {each.properties["INSTANCE_ID"] for each in single} == {NAMESPACE}
    assert {each.topic for each in found} == {shop.topic}


def test_members_of_both_languages_share_the_queues_of_a_group(shop: Shop) -> None:
    seen: set[bytes] = set()
    consumer = rmqpy.PushConsumer(shop.topic, shop.config, start_from="earliest")
    consumer.on(shop.topic, handler=lambda message: seen.add(message.body))

    def share() -> int:
        return sum(queue.topic == shop.topic for queue in consumer.queues())

    with consumer:
        until(lambda: share() == QUEUES)
        theirs = shop.theirs.listen(shop.namesrv, shop.topic, shop.topic, namespace=NAMESPACE)
        until(lambda: share() == QUEUES // 2)
        sent = {message.body for message in numbered(40)}
        shop.theirs.send(shop.namesrv, shop.topic, numbered(40), namespace=NAMESPACE)
        until(lambda: seen | {message.body for message in theirs.consumed()} == sent)
        with rmqpy.Admin(shop.config) as admin:
            assert len(admin.members(shop.topic)) == 2
            subscribed = {topic for each in admin.members(shop.topic) for topic in each.subscriptions or ()}
        assert subscribed == {shop.topic, f"%RETRY%{shop.topic}"}
        consumed = theirs.stop()
    assert {message.topic for message in consumed} == {shop.topic}
    assert seen
    assert seen < sent


def test_message_that_we_fail_becomes_a_dead_letter_that_java_reads(shop: Shop) -> None:
    seen: list[tuple[str, int]] = []

    def handle(message: rmqpy.ReceivedMessage) -> rmqpy.Retry:
        seen.append((message.topic, message.delivery_attempt))
        return rmqpy.Retry(after=1)

    consumer = rmqpy.PushConsumer(shop.topic, shop.config, start_from="earliest", max_attempts=RETRIES + 1)
    consumer.on(shop.topic, handler=handle)
    with consumer:
        shop.theirs.send(shop.namesrv, shop.topic, [MessageSpec(b"bad")], namespace=NAMESPACE)
        until(lambda: len(seen) == RETRIES + 1)
        (letter,) = polled(shop, f"%DLQ%{shop.topic}", 1)
    assert seen == [(shop.topic, 1), (shop.topic, 2)]
    assert (letter.body, letter.topic) == (b"bad", f"%DLQ%{shop.topic}")
    assert letter.properties["RETRY_TOPIC"] == f"{NAMESPACE}%{shop.topic}"
    found = shop.theirs.pull(
        shop.namesrv, f"%DLQ%{shop.topic}", f"theirs-{shop.topic}", api="lite", count=1, namespace=NAMESPACE
    )
    assert bodies(found) == [b"bad"]


def test_message_that_java_returns_becomes_a_dead_letter_that_we_read(shop: Shop) -> None:
    with rmqpy.Producer(shop.config) as producer:
        producer.send(shop.topic, b"never done")
    listener = shop.theirs.listen_and_fail(
        shop.namesrv, shop.topic, shop.topic, retries=RETRIES, namespace=NAMESPACE
    )
    listener.wait_for(RETRIES + 1, WAIT_S)
    (letter,) = polled(shop, f"%DLQ%{shop.topic}", 1)
    consumed = listener.stop()
    assert {message.topic for message in consumed} == {shop.topic}
    assert letter.body == b"never done"
    with rmqpy.Admin(shop.config) as admin:
        assert shop.topic in {count.group for count in admin.dead_letters() if count.messages}
