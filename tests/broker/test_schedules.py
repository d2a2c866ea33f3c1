"""Schedules: a message for each occurrence, at its time, whatever happens in between. The clock is moved."""

import re
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

import rmqpy
from rmqpy import errors
from rmqpy.server import Standalone
from rmqpy.testing import SMALL, HandClock
from waiting import until

pytest.importorskip("cronsim")

#: Midnight, a Thursday.
START = datetime(2026, 1, 1, tzinfo=UTC)
HOUR, DAY = 3_600.0, 86_400.0


def ms(at: datetime) -> int:
    return round(at.timestamp() * 1_000)


class Life:
    """A broker that can be stopped and started on its folder while time passes."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.clock = HandClock(ms(START))
        self._server: Standalone | None = None

    def start(self) -> None:
        self._server = Standalone(
            self._folder, namesrv_port=0, broker_port=0, clock=self.clock, fileReservedTime=1_000_000, **SMALL
        )
        self._server.__enter__()
        self.admin = rmqpy.Admin(self._server.namesrv)
        self.admin.create_topic("jobs", exist_ok=True)

    def stop(self) -> None:
        if self._server is not None:
            self.admin.close()
            self._server.__exit__(None, None, None)
            self._server = None

    @property
    def namesrv(self) -> str:
        assert self._server is not None
        return self._server.namesrv

    def advance(self, seconds: float) -> None:
        self.clock.advance(seconds)

    def sent(self) -> list[tuple[str, datetime, rmqpy.ReceivedMessage]]:
        """What was delivered: the schedule, the occurrence and the message."""
        found = [
            (
                each.properties["SCHEDULE"],
                datetime.fromtimestamp(int(each.properties["SCHEDULED_MS"]) / 1_000, UTC),
                each,
            )
            for each in self.admin.messages_between("jobs")
        ]
        return sorted(found, key=lambda each: (each[1], each[0]))

    def times(self, name: str) -> list[datetime]:
        return [at for sender, at, _ in self.sent() if sender == name]

    def waiting(self) -> int:
        return sum(each.waiting for each in self.admin.pending_timers("jobs"))

    def armed(self, count: int = 1) -> None:
        """Wait until the next messages are in the timer log."""
        until(lambda: self.waiting() == count, seconds=10)

    def until_sent(self, name: str, count: int) -> list[datetime]:
        until(lambda: len(self.times(name)) >= count, seconds=10)
        return self.times(name)


@pytest.fixture
def life(tmp_path: Path) -> Iterator[Life]:
    life = Life(tmp_path)
    life.start()
    try:
        yield life
    finally:
        life.stop()


def test_a_message_comes_at_each_occurrence_with_what_was_set(life: Life) -> None:
    schedule = life.admin.create_schedule(
        "nightly",
        "jobs",
        "report",
        cron="0 2 * * *",
        tag="night",
        keys=["a", "b"],
        properties={"kind": "full"},
    )
    assert schedule.next_ms == ms(START + timedelta(hours=2))
    life.armed()
    life.advance(2 * HOUR - 1)
    assert life.sent() == []
    life.advance(1)
    life.until_sent("nightly", 1)
    ((_, at, message),) = life.sent()
    assert at == START + timedelta(hours=2)
    assert (message.body, message.tag, message.keys) == (b"report", "night", ("a", "b"))
    assert message.properties["kind"] == "full"
    assert message.stored_at == at
    for day in range(1, 4):
        life.armed()
        life.advance(DAY)
        assert life.until_sent("nightly", day + 1)[-1] == START + timedelta(days=day, hours=2)
    state = life.admin.schedule("nightly")
    assert (state.last_ms, state.next_ms) == (
        ms(life.times("nightly")[-1]),
        ms(START + timedelta(days=4, hours=2)),
    )


def test_zones_follow_their_clocks(life: Life) -> None:
    """Berlin skips 2:30 on 29 March and has it twice on 25 October."""
    life.advance((datetime(2026, 3, 28, tzinfo=UTC) - START).total_seconds())
    life.admin.create_schedule("berlin", "jobs", "x", cron="30 2 * * *", zone="Europe/Berlin")
    for day in range(3):
        life.armed()
        life.advance(DAY)
        life.until_sent("berlin", day + 1)
    zone = ZoneInfo("Europe/Berlin")
    local = [at.astimezone(zone).strftime("%d %H:%M") for at in life.times("berlin")]
    assert local == ["28 02:30", "29 03:00", "30 02:30"]
    life.admin.delete_schedule("berlin")
    life.advance((datetime(2026, 10, 24, 12, tzinfo=UTC) - START).total_seconds() - 89 * DAY)
    life.admin.create_schedule("autumn", "jobs", "x", cron="30 2 * * *", zone="Europe/Berlin")
    for day in range(2):
        life.armed()
        life.advance(DAY)
        life.until_sent("autumn", day + 1)
    local = [at.astimezone(zone).strftime("%d %H:%M") for at in life.times("autumn")]
    assert local == ["25 02:30", "26 02:30"]


@pytest.mark.parametrize(
    ("catch_up", "hours"),
    [("all", [1, 2, 3, 4, 5, 6]), ("latest", [1, 5, 6]), ("none", [1, 6])],
)
def test_the_rule_decides_about_occurrences_without_a_broker(
    life: Life, catch_up: Any, hours: list[int]
) -> None:
    life.admin.create_schedule("hourly", "jobs", "x", cron="0 * * * *", catch_up=catch_up)
    life.armed()
    life.stop()
    life.advance(5.5 * HOUR)
    life.start()
    # The first one was in the log.
    life.until_sent("hourly", len(hours) - 1)
    life.armed()
    life.advance(0.5 * HOUR)
    assert life.until_sent("hourly", len(hours)) == [START + timedelta(hours=hour) for hour in hours]


def test_a_paused_schedule_sends_nothing_and_resumes_with_the_next_occurrence(life: Life) -> None:
    life.admin.create_schedule("often", "jobs", "x", every=timedelta(minutes=10), catch_up="all")
    life.armed()
    life.admin.pause_schedule("often")
    assert life.admin.schedule("often").paused
    life.advance(HOUR + 60)
    life.admin.resume_schedule("often")
    life.armed()
    life.advance(600)
    assert life.until_sent("often", 1) == [START + timedelta(minutes=70)]
    life.armed()
    life.admin.delete_schedule("often")
    life.advance(DAY)
    assert life.admin.schedules() == []
    assert len(life.sent()) == 1
    # A new one of the same name has a course of its own.
    life.admin.create_schedule("often", "jobs", "x", every=600)
    life.armed()
    life.advance(600)
    life.until_sent("often", 2)


def test_an_unclean_end_repeats_and_loses_nothing(life: Life, tmp_path: Path) -> None:
    """The progress on disk is behind the log after a kill."""
    progress = tmp_path / "broker" / "config" / "scheduleProgress.json"
    names = [f"s{number}" for number in range(20)]
    for number, name in enumerate(names):
        life.admin.create_schedule(name, "jobs", "x", cron=f"{number} * * * *", catch_up="all")
    for _ in range(3):
        life.armed(20)
        life.stop()
        found = list(tmp_path.rglob("scheduleProgress.json*"))
        assert found, list(tmp_path.rglob("*.json"))
        for path in found:
            path.unlink()
        life.advance(HOUR)
        life.start()
    del progress
    life.armed(20)
    life.advance(HOUR)
    until(lambda: len(life.sent()) >= 80, seconds=10)
    life.armed(20)
    counts = Counter((name, at) for name, at, _ in life.sent())
    wanted = {
        (name, START + timedelta(hours=hour, minutes=number))
        for number, name in enumerate(names)
        for hour in range(5)
        if START < START + timedelta(hours=hour, minutes=number) <= START + timedelta(hours=4)
    }
    assert counts == Counter(wanted)


def test_schedules_beyond_the_longest_delay_wait_until_they_are_near(life: Life) -> None:
    life.admin.create_schedule("yearly", "jobs", "x", cron="0 0 1 1 *")
    life.advance(363.5 * DAY)
    assert life.waiting() == 0
    life.advance(DAY)
    life.armed()
    life.advance(0.5 * DAY)
    assert life.until_sent("yearly", 1) == [datetime(2027, 1, 1, tzinfo=UTC)]


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"cron": "61 * * * *"}, "is not a cron expression"),
        ({"cron": "* * *"}, "is not a cron expression"),
        ({"cron": "0 0 30 2 *"}, "30 2"),
        ({"cron": "* * * * *", "zone": "Europe/Nowhere"}, "does not know the time zone 'Europe/Nowhere'"),
        ({"cron": "* * * * *", "zone": "../etc/passwd"}, "does not know the time zone"),
        ({}, "either a cron expression or an interval"),
        ({"cron": "* * * * *", "every": 5}, "either a cron expression or an interval"),
        ({"every": 0.5}, "at least 1"),
        ({"name": "a b", "every": 5}, "is not a name"),
        ({"body": b"x" * 70_000, "every": 5}, "has 70000 bytes"),
        ({"topic": "nowhere", "every": 5}, "nowhere"),
        ({"every": 5, "broker": "broker-z"}, "is not at broker 'broker-z'"),
        ({"every": 5, "catch_up": "some"}, "catch_up must be one of"),
    ],
)
def test_schedules_that_cannot_work_are_refused(life: Life, given: dict[str, Any], text: str) -> None:
    settings = {"name": "wrong", "topic": "jobs", "body": "x", **given}
    with pytest.raises((errors.RocketMQError, ValueError), match=re.escape(text)):
        life.admin.create_schedule(**settings)
    assert life.admin.schedules() == []


def test_names_are_unique_and_unknown_ones_are_reported(life: Life) -> None:
    life.admin.create_schedule("a", "jobs", "x", every=60)
    with pytest.raises(errors.ConfigError, match="exists"):
        life.admin.create_schedule("a", "jobs", "x", every=60)
    for call in (life.admin.schedule, life.admin.pause_schedule, life.admin.delete_schedule):
        with pytest.raises(errors.ConfigError, match="no schedule 'b'"):
            call("b")


def test_a_schedule_without_its_topic_says_so_and_goes_on(life: Life) -> None:
    life.admin.create_schedule("lonely", "jobs", "x", every=60)
    life.armed()
    life.admin.delete_topic("jobs")
    life.advance(60)
    until(lambda: life.admin.schedule("lonely").fault != "", seconds=10)
    assert "jobs" in life.admin.schedule("lonely").fault
    life.admin.create_topic("jobs")
    # Refused sends are tried again after five seconds of the broker's clock.
    life.advance(6)
    life.armed()
    assert life.admin.schedule("lonely").fault == ""
