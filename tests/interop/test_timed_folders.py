"""Timed messages in a folder passed from Apache's broker to ours and back: each is delivered once, and none early."""

import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

import rmqpy
from waiting import until

from . import wire
from .folders import SMALL_FILES, Folder, Record

TOPIC = "timed"
QUEUES = 1
SPACING_MS = 500
DELIVERED_SECONDS_MAX = 120.0


def send(folder: Folder, writer: str, count: int) -> dict[bytes, int]:
    """Messages that fall due one after the other from now on; their bodies and times."""
    until(lambda: wire.has_route(folder.namesrv, TOPIC))
    due: dict[bytes, int] = {}
    with rmqpy.Producer(folder.namesrv, send_timeout=30.0) as producer:
        for index in range(count):
            body, at_ms = f"{writer} {index}".encode(), time.time_ns() // 1_000_000 + index * SPACING_MS
            producer.send(rmqpy.Message(TOPIC, body, deliver_at=at_ms / 1_000))
            due[body] = at_ms
    return due


def wait_for(folder: Folder, count: int) -> list[Record]:
    """Return the received messages, once there are this many different ones."""
    return until(
        lambda: folder.queue(TOPIC, 0),
        DELIVERED_SECONDS_MAX,
        wanted=lambda found: len({record.body for record in found}) >= count,
        pause=0.2,
    )


@pytest.mark.timeout(400)
def test_waiting_timers_move_from_apache_to_rmqpy_and_back(
    originals: Callable[[str], Path], namesrv: str, tmp_path: Path
) -> None:
    folder = Folder.make(tmp_path / "broker", namesrv, originals("apache"), **SMALL_FILES)
    with folder.served_by("apache"):
        wire.create_topic(namesrv, folder.broker, TOPIC, QUEUES)
        due = send(folder, "apache", 80)
        wait_for(folder, 5)
    with folder.served_by("rmqpy"):
        due |= send(folder, "rmqpy", 80)
        wait_for(folder, 60)
    with folder.served_by("apache"):
        due |= send(folder, "apache again", 5)
        found = wait_for(folder, len(due))
    came = Counter(record.body for record in found)
    assert came.keys() == due.keys()
    assert {body: times for body, times in came.items() if times > 1} == {}
    assert [record.body for record in found if record.store_time_ms < due[record.body]] == []
