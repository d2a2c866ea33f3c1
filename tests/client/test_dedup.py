"""Sends with a deduplication key: one message, whoever sends it again, also over a restart of the broker."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import rmqpy
from rmqpy.server import Standalone
from rmqpy.testing import SMALL, HandClock
from waiting import until


def bodies(namesrv: str, topic: str) -> list[bytes]:
    with rmqpy.Admin(namesrv) as admin:
        return sorted(message.body for message in admin.messages_between(topic) if message.tag != "first")


def test_a_repeated_send_is_answered_with_the_first_message(server: Standalone, topic: str) -> None:
    with rmqpy.Producer(server.namesrv) as producer:
        first = producer.send(
            topic, b"one", dedup="order-17", tag="t", keys=["a", "b"], properties={"n": "1"}, flag=7
        )
        again = producer.send(topic, b"two", dedup="order-17")
        other = producer.send(topic, b"three", dedup="order-18")
        plain = producer.send(topic, b"four")
    assert (first.is_duplicate, again.is_duplicate, other.is_duplicate, plain.is_duplicate) == (
        False,
        True,
        False,
        False,
    )
    assert again == first
    assert bodies(server.namesrv, topic) == [b"four", b"one", b"three"]
    with rmqpy.Admin(server.namesrv) as admin:
        stored = admin.message(first.message_id, topic)
    assert (stored.tag, stored.keys, stored.properties["n"], stored.flag) == ("t", ("a", "b"), "1", 7)
    assert (stored.offset_message_id, stored.queue_offset) == (first.offset_message_id, first.queue_offset)


def test_concurrent_sends_of_one_key_store_one_message(server: Standalone, topic: str) -> None:
    with rmqpy.Producer(server.namesrv) as producer, ThreadPoolExecutor(16) as pool:
        results = list(pool.map(lambda number: producer.send(topic, str(number), dedup="k"), range(64)))
    assert sum(not result.is_duplicate for result in results) == 1
    assert len({result.message_id for result in results}) == 1
    assert len(bodies(server.namesrv, topic)) == 1


async def test_coroutines_deduplicate(server: Standalone, topic: str) -> None:
    async with rmqpy.AsyncProducer(server.namesrv) as producer:
        results = await asyncio.gather(*(producer.send(topic, b"x", dedup="k") for _ in range(8)))
    assert sum(not result.is_duplicate for result in results) == 1


def test_keys_survive_restarts_and_end_with_the_window(tmp_path: Path) -> None:
    clock = HandClock()
    results = []
    for passed_s in (0, 300, 299, 2, 1):
        clock.advance(passed_s)
        with (
            Standalone(
                tmp_path, namesrv_port=0, broker_port=0, clock=clock, fileReservedTime=1_000_000, **SMALL
            ) as server,
            rmqpy.Producer(server.namesrv) as producer,
        ):
            results.append(producer.send("jobs", b"x", dedup="nightly"))
    assert [result.is_duplicate for result in results] == [False, True, True, False, True]


def test_timed_messages_are_deduplicated_while_they_wait(server: Standalone, topic: str) -> None:
    with rmqpy.Producer(server.namesrv) as producer:
        first = producer.send(topic, b"later", dedup="k", deliver_after=3600)
        assert producer.send(topic, b"later", dedup="k", deliver_after=3600).message_id == first.message_id
    with rmqpy.Admin(server.namesrv) as admin:
        until(lambda: [timers.waiting for timers in admin.pending_timers(topic)] == [1], seconds=20)


def test_sends_are_refused_as_without_a_key(server: Standalone, topic: str) -> None:
    with rmqpy.Producer(server.namesrv) as producer:
        for key in ("", "x" * 256, "a\nb"):
            with pytest.raises(ValueError, match="dedup must be"):
                producer.send(topic, b"x", dedup=key)
        with pytest.raises(TypeError, match="dedup"):
            producer.send(topic, b"x", dedup=17)  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="leave out queue"):
            producer.send(topic, b"x", dedup="k", queue=producer.queues(topic)[0])
    with pytest.raises(rmqpy.errors.ClosedError):
        producer.send(topic, b"x", dedup="k")
