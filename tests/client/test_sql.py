"""Filters by properties in our clients, against our own broker."""

import asyncio
import pickle
import threading

import pytest

import rmqpy
from rmqpy import errors, testing
from rmqpy.server import Standalone
from waiting import until

from .live import WAIT_S, make_topic

PRICES = (5, 11, 7, 12, 30)
DEAR = rmqpy.sql("price > 10 AND price <> 30")


def send_priced(server: Standalone, topic: str) -> None:
    with rmqpy.Producer(server.namesrv) as producer:
        for price in PRICES:
            producer.send(topic, str(price), properties={"price": str(price)})


def test_a_push_consumer_gets_what_matches(server: Standalone, topic: str) -> None:
    seen: list[str] = []
    consumer = rmqpy.PushConsumer(topic, server.namesrv, start_from="earliest")
    consumer.on(topic, DEAR, lambda message: seen.append(message.text()))
    with consumer:
        send_priced(server, topic)
        until(lambda: len(seen) >= 2)
    assert sorted(seen) == ["11", "12"]


async def test_an_async_push_consumer_gets_what_matches(server: Standalone, topic: str) -> None:
    seen: list[str] = []
    is_complete = asyncio.Event()

    async def handler(message: rmqpy.ReceivedMessage) -> None:
        seen.append(message.text())
        if len(seen) == 2:
            is_complete.set()

    consumer = rmqpy.AsyncPushConsumer(topic, server.namesrv, start_from="earliest")
    consumer.on(topic, DEAR, handler)
    async with consumer:
        await asyncio.to_thread(send_priced, server, topic)
        await asyncio.wait_for(is_complete.wait(), WAIT_S)
    assert sorted(seen) == ["11", "12"]


def test_pull_consumers_and_range_reads_get_what_matches(server: Standalone, topic: str) -> None:
    send_priced(server, topic)
    seen: list[str] = []
    with rmqpy.PullConsumer(topic, server.namesrv, start_from="earliest") as consumer:
        consumer.subscribe(topic, DEAR)
        until(lambda: (seen.extend(one.text() for one in consumer.poll(0.1)), len(seen) >= 2)[1])
        ranges = [(queue, *consumer.offsets(queue)) for queue in consumer.queues(topic)]
    assert sorted(seen) == ["11", "12"]
    with rmqpy.PullConsumer(f"{topic}-assigned", server.namesrv, start_from="earliest") as consumer:
        consumer.assign(consumer.queues(topic), rmqpy.sql("price = 30"))
        until(lambda: (seen.extend(one.text() for one in consumer.poll(0.1)), len(seen) >= 3)[1])
    assert seen[2:] == ["30"]
    wanted = [rmqpy.QueueRange(*each) for each in ranges]
    rows = sum(batch.num_rows for batch in rmqpy.read_ranges(wanted, server.namesrv, tags=DEAR))
    assert rows == 2


def test_a_filter_may_change_while_its_consumer_runs(server: Standalone, topic: str) -> None:
    seen: list[str] = []
    arrived = threading.Event()

    def handler(message: rmqpy.ReceivedMessage) -> None:
        seen.append(message.text())
        arrived.set()

    consumer = rmqpy.PushConsumer(topic, server.namesrv, start_from="earliest")
    consumer.on(topic, rmqpy.sql("price = 5"), handler)
    with consumer:
        send_priced(server, topic)
        assert arrived.wait(WAIT_S)
        consumer.on(topic, rmqpy.sql("price = 7"), handler)
        until(lambda: (send_priced(server, topic), "7" in seen)[1])
    assert set(seen) <= {"5", "7"}


@pytest.mark.parametrize(
    "expression", ["price >", "price LIKE 'x%'", "price != 5", "", "price > 'dear'", "price = 1 + 1"]
)
def test_invalid_expression_is_refused_at_its_creation(expression: str) -> None:
    with pytest.raises(errors.ConfigError, match="is not a valid filter"):
        rmqpy.sql(expression)


def test_a_filter_is_a_value() -> None:
    assert pickle.loads(pickle.dumps(DEAR)) == DEAR == rmqpy.sql(DEAR.expression)  # noqa: S301
    with pytest.raises(TypeError, match="str or Sql"):
        rmqpy.PushConsumer("g", "127.0.0.1:1").on("orders", 5, print)  # type: ignore[arg-type]


def test_broker_with_disabled_filters_names_the_setting() -> None:
    with testing.broker(enablePropertyFilter=False) as server:
        make_topic(server, "priced")
        with rmqpy.PullConsumer("readers", server.namesrv, start_from="earliest") as consumer:
            consumer.assign(consumer.queues("priced"), DEAR)
            with pytest.raises(errors.Unsupported, match="enablePropertyFilter=true"):
                consumer.poll(WAIT_S)
        push = rmqpy.PushConsumer("members", server.namesrv)
        push.on("priced", DEAR, print)
        with pytest.raises(errors.Unsupported, match="enablePropertyFilter=true"):
            push.run()
