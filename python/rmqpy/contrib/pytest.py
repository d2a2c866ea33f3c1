"""pytest plugin: a broker for each test, time that a test moves, and assertions on what was sent.

pytest loads it by itself where rmqpy is installed. A broker starts when a test asks for one.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping
from datetime import timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Final

import pytest

if TYPE_CHECKING:
    from rmqpy.admin.client import Admin
    from rmqpy.client.producer.producer import Producer
    from rmqpy.message import ReceivedMessage

#: Time for messages that are in flight when a test asserts that they were sent.
GRACE_S: Final = 0.5
_UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0}
_PART: Final = re.compile(r"(\d+(?:\.\d+)?)(ms|[smhd])")


class Clock:
    """The time of a test's broker: timers, delays, retries and invisible times follow it."""

    def __init__(self) -> None:
        from rmqpy._native import HandClock

        #: The clock as `rmqpy.testing.broker` takes it.
        self.hand = HandClock()

    def advance(self, by: str | float | timedelta) -> None:
        """Let time pass: seconds, a `timedelta`, or a text such as `3d` or `1h30m`. On return, all messages that became
        due can be consumed."""
        self.hand.advance(seconds(by))


class RocketMQ:
    """A name server and a broker of one test."""

    def __init__(self, namesrv: str, clock: Clock | None = None) -> None:
        #: The address for clients.
        self.namesrv = namesrv
        self._clock = clock

    @cached_property
    def producer(self) -> Producer:
        """A producer, closed after the test."""
        from rmqpy.client.producer.producer import Producer

        return Producer(self.namesrv)

    @cached_property
    def admin(self) -> Admin:
        """An admin, closed after the test."""
        from rmqpy.admin.client import Admin

        return Admin(self.namesrv)

    def sent(self, topic: str) -> list[ReceivedMessage]:
        """Return the messages of a topic, oldest first; timed ones once they are due."""
        from rmqpy.errors import TopicNotFound

        try:
            return sorted(self.admin.messages_between(topic), key=lambda message: message.commit_log_offset)
        except TopicNotFound:
            return []

    def scheduled(self, topic: str) -> int:
        """Return the number of timed messages to a topic that are not due."""
        from rmqpy.protocol.names import TIMER_TOPIC

        now = self._clock.hand.wall_ms() if self._clock else time.time() * 1_000
        due: dict[str, bool] = {}
        for message in self.admin.messages_between(TIMER_TOPIC):
            properties = message.properties
            if recalled := properties.get("TIMER_DEL_UNIQKEY"):
                due.pop(recalled, None)
            elif properties.get("REAL_TOPIC") == topic:
                due[message.message_id] = float(properties["TIMER_OUT_MS"]) <= now
        return list(due.values()).count(False)

    def assert_sent(
        self,
        topic: str,
        body: str | bytes | None = None,
        *,
        tag: str | None = None,
        key: str | None = None,
        properties: Mapping[str, str] | None = None,
        count: int | None = None,
    ) -> ReceivedMessage:
        """Fail unless a message with all that is given was sent, or exactly `count` of them, within half a second;
        return the newest."""
        __tracebackhide__ = True
        wanted = body.encode() if isinstance(body, str) else body
        until = time.monotonic() + GRACE_S
        while True:
            sent = self.sent(topic)
            found = [
                message
                for message in sent
                if wanted in (None, message.body)
                and tag in (None, message.tag)
                and (key is None or key in message.keys)
                and (properties or {}).items() <= message.properties.items()
            ]
            if (found and count in (None, len(found))) or time.monotonic() > until:
                break
            time.sleep(0.01)
        if not found or count not in (None, len(found)):
            asked = {"body": body, "tag": tag, "key": key, "properties": properties}
            given = ", ".join(f"{name}={value!r}" for name, value in asked.items() if value is not None)
            pytest.fail(
                f"{len(found)} messages to {topic} with {given or 'anything'}, "
                f"not {'any' if count is None else count}; sent were {[_shown(each) for each in sent]}"
            )
        return found[-1]

    def assert_not_sent(self, topic: str) -> None:
        """Fail if a message was sent to a topic, or is scheduled."""
        __tracebackhide__ = True
        sent, scheduled = self.sent(topic), self.scheduled(topic)
        if sent or scheduled:
            pytest.fail(f"sent to {topic}: {[_shown(each) for each in sent]}, and {scheduled} scheduled")

    def close(self) -> None:
        """Close the clients."""
        for name in ("producer", "admin"):
            if (client := self.__dict__.pop(name, None)) is not None:
                client.close()


@pytest.fixture
def rocketmq_clock() -> Clock:
    """The time of the fixture `rocketmq`, which moves only when the test calls `advance`."""
    return Clock()


@pytest.fixture
def rocketmq(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[RocketMQ]:
    """A name server and a broker in this process, empty, for one test. Clients without an address find it."""
    from rmqpy.client.simple import requests
    from rmqpy.testing import broker

    clock: Clock | None = None
    if "rocketmq_clock" in request.fixturenames:
        clock = request.getfixturevalue("rocketmq_clock")
        monkeypatch.setattr(requests, "now_ms", clock.hand.wall_ms)
    with broker(clock=clock.hand if clock else None) as server:
        monkeypatch.setenv("NAMESRV_ADDR", server.namesrv)
        rocketmq = RocketMQ(server.namesrv, clock)
        try:
            yield rocketmq
        finally:
            rocketmq.close()


def seconds(text: str | float | timedelta) -> float:
    """Return a time in seconds.

    >>> seconds("1h30m"), seconds("250ms"), seconds(timedelta(days=3))
    (5400.0, 0.25, 259200.0)
    """
    if isinstance(text, timedelta):
        return text.total_seconds()
    if not isinstance(text, str):
        return float(text)
    parts = _PART.findall(text.replace(" ", ""))
    if not parts or "".join(map("".join, parts)) != text.replace(" ", ""):
        raise ValueError(f"{text!r} is not a time such as 3d, 1h30m or 250ms")
    return sum(float(number) * _UNITS[unit] for number, unit in parts)


def _shown(message: ReceivedMessage) -> str:
    body = message.body if len(message.body) <= 80 else message.body[:80] + b"..."
    return f"{body!r} tag={message.tag} keys={list(message.keys)}"
