"""Topics that are deleted, or do not exist yet: their consumers continue with other topics, without flooding brokers.

Runs against our servers. A broker answers a held pull of a deleted topic when its time is up.
"""

import asyncio
import logging
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial

import pytest

import rmqpy
from rmqpy import errors
from rmqpy._native import Client
from rmqpy.client.pull import fetcher
from rmqpy.client.pull.puller import PullPlan
from rmqpy.client.push import engine
from rmqpy.protocol.codes import RequestCode, ResponseCode
from rmqpy.protocol.requests.topics import GetTopicConfig, UpdateAndCreateTopic
from rmqpy.remoting.backoff import Backoff
from rmqpy.remoting.client import BlockingCaller, Peer, run
from rmqpy.server import Standalone
from waiting import until
from wire import Frame

from .fakes import Answer, Brokers, NameServer
from .live import BODIES, WAIT_S, Seen, knows, make_topic, send

#: Time for which what a client repeats is counted.
WATCH_S = 5.0


@pytest.fixture
def gone(topic: str, server: Standalone, monkeypatch: pytest.MonkeyPatch) -> str:
    """A second topic, for the test to delete; the pulls that brokers hold are short."""
    for module in (fetcher, engine):
        monkeypatch.setattr(module, "PullPlan", partial(PullPlan, suspend_s=0.2))
    name = f"gone-{topic}"[:60]
    make_topic(server, name)
    return name


def delete(server: Standalone, topic: str) -> None:
    with rmqpy.Admin(server.namesrv) as admin:
        admin.delete_topic(topic)


@contextmanager
def heartbeats(server: Standalone, group: str, caplog: pytest.LogCaptureFixture) -> Iterator[list[int]]:
    """How many heartbeats the broker was sent meanwhile, as its clients log them."""
    counts: list[int] = []
    with caplog.at_level(logging.DEBUG, "rmqpy.remoting.client"):
        before = len(caplog.records)
        yield counts
        counts.append(sum("HEART_BEAT of" in record.getMessage() for record in caplog.records[before:]))


def warnings_of(topic: str, caplog: pytest.LogCaptureFixture) -> int:
    """How many warnings and worse name the topic."""
    return sum(one.levelno >= logging.WARNING and topic in one.getMessage() for one in caplog.records)


def test_pull_member_continues_after_a_topic_is_deleted(server: Standalone, topic: str, gone: str) -> None:
    changes: list[rmqpy.Rebalance] = []
    seen: list[str] = []
    with rmqpy.PullConsumer(topic, server.namesrv, start_from="earliest") as consumer:
        consumer.subscribe(topic, "t")
        consumer.subscribe(gone, "t", on_rebalance=changes.append)
        until(lambda: (consumer.poll(0.1), len(consumer.assignment()) == 8)[1])
        send(server, gone, BODIES[:20])
        until(lambda: (seen.extend(m.text() for m in consumer.poll(0.1)), len(seen) == 20)[1])
        delete(server, gone)
        send(server, topic, BODIES[20:40])
        until(lambda: (seen.extend(m.text() for m in consumer.poll(0.1)), len(seen) == 40)[1])
        # Its queues are given up, and the user is told.
        until(lambda: (consumer.poll(0.1), len(consumer.assignment()) == 4)[1])
        assert {queue.topic for change in changes[1:] for queue in change.revoked | change.lost} == {gone}
    assert sorted(map(int, seen)) == list(range(40))


def test_push_member_releases_the_queues_of_a_deleted_topic_quietly(
    server: Standalone, topic: str, gone: str, caplog: pytest.LogCaptureFixture
) -> None:
    seen = Seen()
    consumer = rmqpy.PushConsumer(topic, server.namesrv, start_from="earliest")
    for each in (topic, gone):
        consumer.on(each, "t", seen)
    with consumer:
        until(lambda: len(consumer.queues()) >= 8)
        delete(server, gone)
        until(lambda: not any(queue.topic == gone for queue in consumer.queues()))
        until(lambda: f"topic {gone} does not exist" in caplog.text)
        lines = warnings_of(gone, caplog)
        with heartbeats(server, topic, caplog) as counts:
            until_at = time.monotonic() + WATCH_S
            until(lambda: time.monotonic() > until_at)
        # What comes round every half minute may be due, and the last words on the queues may be under way.
        assert counts[0] <= 3
        assert lines <= 20
        assert warnings_of(gone, caplog) <= lines + 1
        send(server, topic, ["on"])
        until(lambda: seen.has("on"))


def test_recreated_topic_is_read_from_its_begin(server: Standalone, topic: str, gone: str) -> None:
    seen = Seen()
    consumer = rmqpy.PushConsumer(topic, server.namesrv, start_from="earliest")
    consumer.on(gone, "t", seen)
    with consumer, rmqpy.PullConsumer("probe", server.namesrv) as probe:
        until(lambda: any(queue.topic == gone for queue in consumer.queues()))
        delete(server, gone)
        until(lambda: not any(queue.topic == gone for queue in consumer.queues()))
        make_topic(server, gone)
        until(lambda: knows(probe, gone))
        send(server, gone, ["new"])
        until(lambda: seen.has("new"))


async def test_a_member_with_a_topic_that_does_not_exist_reads_the_others(
    server: Standalone, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with rmqpy.AsyncPullConsumer(topic, server.namesrv, start_from="earliest") as consumer:
        await consumer.subscribe("never-made", "t")
        await consumer.subscribe(topic, "t")
        await asyncio.to_thread(send, server, topic, ["0"])
        found: list[rmqpy.ReceivedMessage] = []
        async with asyncio.timeout(30):
            while not found:
                found += await consumer.poll(0.2)
    assert "topic never-made does not exist" in caplog.text


def test_route_ends_when_broker_and_name_server_agree(name_server: NameServer, brokers: Brokers) -> None:
    config = rmqpy.ClientConfig(namesrv=name_server.address, route_refresh=0.05)
    with rmqpy.Producer(config, retries=0) as producer:
        assert producer.send("orders", "0").ok
        # Forgotten by the name server alone, which may have been started a moment ago.
        count = name_server.topics.pop("orders")
        asked = name_server.count(RequestCode.GET_ROUTEINFO_BY_TOPIC)
        until(
            lambda: (
                producer.send("orders", "1").ok
                and name_server.count(RequestCode.GET_ROUTEINFO_BY_TOPIC) > asked + 2
            )
        )
        # Unknown to a broker alone, which may not have heard of it yet.
        name_server.topics["orders"] = count
        for broker in brokers:
            broker.refuse(ResponseCode.TOPIC_NOT_EXIST, "no such topic")
        for _ in range(3):
            with pytest.raises(errors.RocketMQError, match="no such topic"):
                producer.send("orders", "2")
        # Unknown to both.
        del name_server.topics["orders"]

        def is_gone() -> bool:
            with pytest.raises(errors.RocketMQError) as refused:
                producer.send("orders", "3")
            return "does not create topics" in str(refused.value)

        until(is_gone)


def test_unanswered_route_does_not_affect_the_other_topics(name_server: NameServer, brokers: Brokers) -> None:
    def route(ask: Frame) -> Answer:
        if (ask.ext or {})["topic"] == "silent":
            return None
        return name_server._route(ask)

    name_server.handlers[RequestCode.GET_ROUTEINFO_BY_TOPIC] = route
    for broker in brokers:
        broker.serve_groups()
    config = rmqpy.ClientConfig(namesrv=name_server.address, request_timeout=1)
    with rmqpy.PullConsumer("billing", config, auto_commit=False) as consumer:
        consumer.subscribe("orders")
        consumer.subscribe("silent")
        until(lambda: (consumer.poll(0.05), len(consumer.assignment()) == 4)[1])


def test_pauses_double_up_to_a_limit_with_jitter() -> None:
    backoff = Backoff(0.1, 3.0)
    for failures, shortest in ((1, 0.1), (2, 0.2), (5, 1.6), (6, 3.0), (10_000, 3.0)):
        pauses = {backoff.pause_s(failures) for _ in range(50)}
        assert all(shortest <= pause <= 1.5 * shortest for pause in pauses)
        assert len(pauses) > 1


def test_topic_recreated_during_its_deletion_keeps_its_messages(server: Standalone, topic: str) -> None:
    client = Client()
    broker = BlockingCaller(client).peer(server.broker, timeout=WAIT_S)
    with rmqpy.Admin(server.namesrv) as admin, ThreadPoolExecutor(1) as pool:
        for number in range(4):
            send(server, topic, BODIES[:100])
            deleting = pool.submit(admin.delete_topic, topic)
            until(lambda: is_forgotten(broker, topic))
            # As a tool makes it, which asks no name server.
            run(broker.call(UpdateAndCreateTopic(topic=topic, read_queue_nums=4, write_queue_nums=4, perm=6)))
            deleting.result()
            # Name servers forget the topic of the one who deletes it; brokers tell them that there is one.
            with rmqpy.PullConsumer(f"fresh-{number}", server.namesrv, start_from="earliest") as reader:
                until(lambda: knows(reader, topic), 5)
                send(server, topic, ["kept"])
                reader.assign(reader.queues(topic))
                assert [message.text() for message in reader.poll(5)] == ["kept"]
    client.close()


def is_forgotten(broker: Peer, topic: str) -> bool:
    try:
        run(broker.call(GetTopicConfig(topic=topic)))
    except errors.TopicNotFound:
        return True
    return False
