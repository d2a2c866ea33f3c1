"""Brokers with a clock that a test advances: delays and times pass without waiting."""

import time
from datetime import UTC, datetime, timedelta
from typing import Final

import pytest

import rmqpy
from rmqpy import testing
from rmqpy.server import Standalone

DAY_S: Final = 86_400


def bodies(consumer: rmqpy.PullConsumer, count: int) -> list[bytes]:
    """Return this number of messages; an empty poll is not a failure."""
    found: list[bytes] = []
    while len(found) < count and (polled := consumer.poll(timeout=10.0)):
        found += [message.body for message in polled]
    return found


def create(server: Standalone, topic: str) -> None:
    """A topic of one queue, which clients find."""
    with rmqpy.Admin(server.namesrv) as admin:
        admin.create_topic(topic, read_queues=1, write_queues=1)


def test_hand_clock_skips_a_day_for_delay_levels_and_timers() -> None:
    clock = testing.HandClock()
    with (
        testing.broker(clock=clock, messageDelayLevel="1s 2h") as server,
        rmqpy.Producer(server.namesrv) as producer,
        rmqpy.PullConsumer("readers", server.namesrv, start_from="earliest") as consumer,
    ):
        create(server, "reminders")
        producer.send("reminders", b"tomorrow", deliver_after=timedelta(days=1))
        producer.send("reminders", b"in two hours", delay_level=2)
        at = datetime.fromtimestamp(clock.wall_ms() / 1_000 + 3_600, UTC)
        producer.send("reminders", b"in an hour", deliver_at=at)
        producer.send("reminders", b"now")
        consumer.assign(producer.queues("reminders"))
        assert bodies(consumer, 1) == [b"now"]
        clock.advance(3_599)
        assert consumer.poll(timeout=0.2) == []
        clock.advance(1)
        assert bodies(consumer, 1) == [b"in an hour"]
        clock.advance(3_600)
        assert bodies(consumer, 1) == [b"in two hours"]
        clock.advance(DAY_S - 7_200.001)
        assert consumer.poll(timeout=0.2) == []
        clock.advance(0.001)
        assert bodies(consumer, 1) == [b"tomorrow"]


def test_due_messages_are_delivered_when_the_clock_has_moved() -> None:
    clock = testing.HandClock()
    with (
        testing.broker(clock=clock) as server,
        rmqpy.Producer(server.namesrv) as producer,
        rmqpy.PullConsumer("readers", server.namesrv) as consumer,
    ):
        create(server, "reminders")
        for number in range(200):
            producer.send("reminders", str(number), deliver_after=1 + number / 1_000)
        clock.advance(2)
        [queue] = producer.queues("reminders")
        assert consumer.offsets(queue) == (0, 200)


@pytest.mark.timeout(120)
def test_thirty_days_of_timers_pass_in_seconds() -> None:
    clock = testing.HandClock()
    settings = {"timerMaxDelaySec": 40 * DAY_S}
    with (
        testing.broker(clock=clock, **settings) as server,
        rmqpy.Producer(server.namesrv) as producer,
        rmqpy.PullConsumer("readers", server.namesrv, start_from="earliest") as consumer,
    ):
        create(server, "diary")
        hours = range(1, 30 * 24 + 1)
        start_ms = clock.wall_ms()
        for hour in reversed(hours):
            producer.send("diary", str(hour), deliver_at=start_ms / 1_000 + hour * 3_600)
        consumer.assign(producer.queues("diary"))
        began, found = time.monotonic(), list[bytes]()
        for day in range(1, 31):
            clock.advance(DAY_S)
            found += bodies(consumer, 24)
            assert len(found) == 24 * day
        print(f"30 days in {time.monotonic() - began:.1f} s")
        assert found == [str(hour).encode() for hour in hours]


@pytest.mark.parametrize("seconds", [-1.0, float("inf"), float("nan")])
def test_hand_clock_does_not_go_back(seconds: float) -> None:
    with pytest.raises(ValueError, match="finite and not negative"):
        testing.HandClock().advance(seconds)
