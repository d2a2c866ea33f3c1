"""Start and end of a push consumer."""

import asyncio
import threading
from pathlib import Path

import pytest

import rmqpy
from rmqpy import errors, testing
from rmqpy.server import Standalone
from waiting import until

from .live import BODIES, WAIT_S, Seen, make_topic, send


def test_close_waits_for_running_handlers_and_starts_no_others(server: Standalone, topic: str) -> None:
    begun, gate = threading.Event(), threading.Event()
    seen = Seen()

    def handle(message: rmqpy.ReceivedMessage) -> None:
        begun.set()
        gate.wait(WAIT_S)
        seen(message)

    consumer = rmqpy.PushConsumer(topic, server.namesrv, start_from="earliest", workers=1)
    consumer.on(topic, "t", handle)
    consumer.start()
    send(server, topic, BODIES[:10], sharding_key="one queue")
    assert begun.wait(WAIT_S)
    threading.Timer(0.2, gate.set).start()
    consumer.close()
    assert seen.bodies == ["0"]
    again = Seen()
    consumer = rmqpy.PushConsumer(topic, server.namesrv)
    consumer.on(topic, "t", again)
    with consumer:
        until(lambda: again.has(*BODIES[1:10]))
    assert sorted(again.bodies) == BODIES[1:10]


def test_a_handler_may_close_its_own_consumer(server: Standalone, topic: str) -> None:
    consumer = rmqpy.PushConsumer(topic, server.namesrv, start_from="earliest")
    consumer.on(topic, "t", lambda message: consumer.close())
    consumer.start()
    with rmqpy.Producer(server.namesrv) as producer:
        last = producer.send(topic, "stop", tag="t")
    assert consumer.wait(WAIT_S)
    # Of its own queue: the messages of the others may not have been read by then.
    with rmqpy.PullConsumer(topic, server.namesrv, auto_commit=False) as probe:
        assert probe.committed(last.queue) == last.queue_offset + 1


def test_run_ends_when_another_thread_closes_it(server: Standalone, topic: str) -> None:
    consumer = rmqpy.PushConsumer(topic, server.namesrv)
    consumer.on(topic, "t", lambda message: None)
    thread = threading.Thread(target=consumer.run)
    thread.start()
    until(consumer.queues)
    consumer.close()
    thread.join(WAIT_S)
    assert not thread.is_alive()


def test_unreachable_cluster_fails_the_start_immediately() -> None:
    config = rmqpy.ClientConfig(namesrv="127.0.0.1:1", request_timeout=0.5)
    consumer = rmqpy.PushConsumer("lost", config)
    consumer.on("orders", "*", lambda message: None)
    with pytest.raises(errors.NameServerUnreachable):
        consumer.start()


def test_a_consumer_without_handlers_is_not_started(server: Standalone) -> None:
    with pytest.raises(errors.ConfigError, match="no handler"):
        rmqpy.PushConsumer("idle", server.namesrv).start()


def test_refused_group_fails_the_consumer() -> None:
    with testing.broker(autoCreateSubscriptionGroup=False) as server:
        make_topic(server, "orders")
        consumer = rmqpy.PushConsumer("no-handler", server.namesrv)
        consumer.on("orders", "*", lambda message: None)
        with pytest.raises(errors.GroupNotFound):
            consumer.run()


def test_on_rebalance_may_close_its_consumer(server: Standalone, topic: str) -> None:
    consumer = rmqpy.PushConsumer(topic, server.namesrv, on_rebalance=lambda change: consumer.close())
    consumer.on(topic, "t", lambda message: None)
    consumer.start()
    assert consumer.wait(WAIT_S)


async def test_on_rebalance_may_close_its_consumer_in_a_loop(server: Standalone, topic: str) -> None:
    async def leave(change: rmqpy.Rebalance) -> None:
        await consumer.close()

    consumer = rmqpy.AsyncPushConsumer(topic, server.namesrv, on_rebalance=leave)
    consumer.on(topic, "t", lambda message: None)
    async with asyncio.timeout(WAIT_S):
        await consumer.start()
        await consumer.wait()


@pytest.mark.parametrize("kind", ["named", "broadcast"])
def test_a_second_member_of_one_instance_is_refused_while_the_first_one_runs(
    server: Standalone, topic: str, kind: str, tmp_path: Path
) -> None:
    def made(group: str = topic) -> rmqpy.PushConsumer:
        if kind == "named":
            consumer = rmqpy.PushConsumer(group, server.namesrv, instance="one")
        else:
            consumer = rmqpy.PushConsumer(group, server.namesrv, broadcast=True, offset_folder=tmp_path)
        consumer.on(topic, "t", lambda message: None)
        return consumer

    with made():
        with pytest.raises(errors.ConfigError, match="already runs in this process"):
            made().start()
        # Another group has separate members.
        with made(f"other-{topic}"[:60]):
            pass
    # The place is free when the first one has ended.
    with made():
        pass
