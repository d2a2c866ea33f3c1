"""Values that only other programs write: readers show the nearest one, keep the number, and continue.

The messages are stored by requests that any producer may send.
"""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

import foreign
import rmqpy
from foreign import BORN_MS, YEARS, Store
from rmqpy.client.push.send_back import SendBack
from rmqpy.errors import RocketMQError
from rmqpy.server import Standalone
from waiting import until

from .live import WAIT_S, Seen, committed, end


@pytest.fixture
def store(server: Standalone, topic: str) -> Iterator[Store]:
    with foreign.producer(server, topic) as store:
        yield store


def _largest(store: Store, name: str) -> int:
    """Store a message with the largest property that the broker accepts; return its length."""
    for chars in range(32_767, 32_000, -10):
        try:
            store(b"large", {name: "x" * chars, "small": "kept"})
        except RocketMQError:
            continue
        return chars
    raise AssertionError("no size is taken")


def _push(server: Standalone, topic: str, handler: Any, **options: Any) -> rmqpy.PushConsumer:
    consumer = rmqpy.PushConsumer(topic, server.namesrv, start_from="earliest", **options)
    consumer.on(topic, "t", handler)
    return consumer


def _dead_letters(server: Standalone, group: str, count: int) -> list[rmqpy.ReceivedMessage]:
    found: list[rmqpy.ReceivedMessage] = []
    with rmqpy.PullConsumer("probe", server.namesrv, start_from="earliest", auto_commit=False) as probe:
        probe.subscribe(f"%DLQ%{group}")
        until(lambda: (found.extend(probe.poll(0.1)), len(found) >= count)[1])
    return found


def test_out_of_range_time_is_shown_as_the_nearest_date(server: Standalone, topic: str, store: Store) -> None:
    for number, born in enumerate(BORN_MS):
        store(str(number).encode(), born_timestamp=born)
    found: dict[str, rmqpy.ReceivedMessage] = {}
    with rmqpy.PullConsumer(topic, server.namesrv, start_from="earliest", auto_commit=False) as consumer:
        consumer.subscribe(topic, "t")
        until(
            lambda: (found.update((m.text(), m) for m in consumer.poll(0.1)), len(found) == len(BORN_MS))[1]
        )
    messages = [found[str(number)] for number in range(len(BORN_MS))]
    assert [message.born_at_ms for message in messages] == BORN_MS
    assert [message.born_at.year for message in messages] == YEARS
    # In every time zone.
    for message in messages:
        for hours in (-14, 14):
            message.born_at.astimezone(timezone(timedelta(hours=hours)))
        assert abs(message.stored_at - datetime.now(UTC)) < timedelta(minutes=5)
        assert message.stored_at_ms == round(message.stored_at.timestamp() * 1000)


@pytest.mark.parametrize("is_ordered", [False, True], ids=["concurrent", "ordered"])
def test_message_with_a_foreign_time_can_become_a_dead_letter(
    server: Standalone, topic: str, store: Store, is_ordered: bool
) -> None:
    seen = Seen()

    def handle(message: rmqpy.ReceivedMessage) -> None:
        seen(message)
        if message.text() != "last":
            raise RuntimeError("no")

    for number, born in enumerate(BORN_MS):
        store(str(number).encode(), born_timestamp=born)
    store(b"last")
    with _push(server, topic, handle, ordered=is_ordered, max_attempts=1) as consumer:
        until(lambda: seen.has("last") and consumer.stats().waiting == 0)
    assert committed(server, topic, topic) == end(server, topic)
    letters = _dead_letters(server, topic, len(BORN_MS))
    assert {letter.text(): letter.born_at_ms for letter in letters} == {
        str(number): born for number, born in enumerate(BORN_MS)
    }


@pytest.mark.parametrize("reconsumed", [-(1 << 31), -1, (1 << 31) - 1])
def test_a_message_that_claims_any_number_of_attempts_is_retried_or_buried(
    server: Standalone, topic: str, store: Store, reconsumed: int
) -> None:
    attempts: list[int] = []

    def handle(message: rmqpy.ReceivedMessage) -> rmqpy.Retry | None:
        attempts.append(message.delivery_attempt)
        return rmqpy.Retry(after=1) if len(attempts) == 1 else None

    store(b"x", reconsume_times=reconsumed)
    with _push(server, topic, handle) as consumer:
        until(lambda: attempts and consumer.stats().waiting == 0)
        if reconsumed < 0:
            until(lambda: len(attempts) == 2)
        else:
            _dead_letters(server, topic, 1)
    assert all(attempt >= 1 for attempt in attempts)


def test_undecodable_body_and_properties_are_handled(server: Standalone, topic: str, store: Store) -> None:
    bodies: list[bytes] = []
    store(b"\xff\xfe", {"odd\u202e": "\ud7ff", "KEYS": "ab \x1b[31m"}, flag=-1)

    def handle(message: rmqpy.ReceivedMessage) -> None:
        bodies.append(message.body)
        message.text()

    with _push(server, topic, handle, max_attempts=1) as consumer:
        until(lambda: bodies and consumer.stats().waiting == 0)
    letter = _dead_letters(server, topic, 1)[0]
    assert (letter.body, letter.flag, letter.properties["odd\u202e"]) == (b"\xff\xfe", -1, "\ud7ff")


def test_an_error_in_giving_a_message_back_ends_the_consumer(
    server: Standalone, topic: str, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: Any) -> None:
        raise RuntimeError("a mistake of the library")

    monkeypatch.setattr(SendBack, "send_back", fail)
    store(b"x")
    consumer = _push(server, topic, lambda message: False)
    consumer.start()
    try:
        with pytest.raises(RuntimeError, match="a mistake of the library"):
            consumer.wait(WAIT_S)
    finally:
        consumer.close()


def test_oversized_copy_is_redelivered_with_fewer_properties(
    server: Standalone, topic: str, store: Store
) -> None:
    _largest(store, "large")
    seen: list[rmqpy.ReceivedMessage] = []

    def handle(message: rmqpy.ReceivedMessage) -> rmqpy.Retry | None:
        seen.append(message)
        return rmqpy.Retry(after=1) if len(seen) == 1 else None

    with _push(server, topic, handle) as consumer:
        until(lambda: len(seen) == 2 and consumer.stats().waiting == 0)
        assert consumer.stats().lost == 0
    assert ["large" in message.properties for message in seen] == [True, False]
    assert (seen[1].delivery_attempt, seen[1].properties["small"]) == (2, "kept")


@pytest.mark.parametrize("is_ordered", [False, True], ids=["concurrent", "ordered"])
def test_message_that_every_broker_refuses_is_dropped_and_counted(
    server: Standalone, topic: str, store: Store, caplog: pytest.LogCaptureFixture, is_ordered: bool
) -> None:
    chars = _largest(store, "large")
    # The tag selects the message's readers, so it is not dropped.
    store(b"tagged", {"TAGS": "t" * chars})
    store(b"last", {"TAGS": "last"})
    seen = Seen()

    def handle(message: rmqpy.ReceivedMessage) -> bool:
        seen(message)
        return message.text() == "last"

    consumer = rmqpy.PushConsumer(
        topic, server.namesrv, start_from="earliest", ordered=is_ordered, max_attempts=1
    )
    consumer.on(topic, handler=handle)
    with consumer:
        until(lambda: seen.has("tagged", "last") and consumer.stats().waiting == 0)
        assert consumer.stats().lost == 1
    assert committed(server, topic, topic) == end(server, topic)
    lost = [one for one in caplog.records if "dropped after 1 failed attempts" in one.getMessage()]
    assert [one.levelname for one in lost] == ["ERROR"]
