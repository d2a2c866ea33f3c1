"""A compacted topic in a folder passed from our broker to Apache's and back, without a changed byte."""

from collections.abc import Callable
from pathlib import Path

import pytest

import rmqpy
from waiting import until

from . import wire
from .folders import SMALL_FILES, Folder, Record

TOPIC = "profiles"
KEYS, EACH = 5, 200
WAIT_S = 60.0


def write(folder: Folder, writer: str, each: int) -> None:
    until(lambda: wire.has_route(folder.namesrv, TOPIC), WAIT_S)
    with rmqpy.Producer(folder.namesrv, send_timeout=30.0) as producer:
        for number in range(each):
            for key in range(KEYS):
                producer.send(TOPIC, f"{writer} {number} of {key}", keys=f"k{key}")


def served(folder: Folder) -> list[Record]:
    """What a consumer reads from offset 0."""
    found: list[Record] = []
    end = wire.max_offset(folder.broker, TOPIC, 0)
    offset = 0
    while offset < end:
        page = wire.pull(folder.broker, TOPIC, 0, offset)
        if not page:
            break
        while page:
            size = int.from_bytes(page[:4])
            found.append(Record(page[:size]))
            page = page[size:]
        offset = found[-1].queue_offset + 1
    return found


def newest(records: list[Record]) -> dict[str, bytes]:
    return {record.properties["KEYS"]: record.body for record in records}


@pytest.mark.timeout(300)
def test_a_compacted_topic_goes_to_apache_and_back(
    originals: Callable[[str], Path], namesrv: str, tmp_path: Path
) -> None:
    settings = SMALL_FILES | {"compactionScheduleInternal": 200}
    folder = Folder.make(tmp_path / "broker", namesrv, originals("apache"), **settings)
    with folder.served_by("rmqpy"):
        wire.create_topic(namesrv, folder.broker, TOPIC, 1, "+cleanup.policy=COMPACTION")
        write(folder, "first", EACH)
        until(lambda: len(served(folder)) == KEYS, WAIT_S)
        write(folder, "tail", 1)
        ours = served(folder)
        assert newest(ours) == {f"k{key}": f"tail 0 of {key}".encode() for key in range(KEYS)}
    folder.verify()

    with folder.served_by("apache"):
        assert [record.raw for record in served(folder)] == [record.raw for record in ours]
        write(folder, "second", 20)
        until(lambda: len(served(folder)) == len(ours) + 20 * KEYS, WAIT_S)
        theirs = served(folder)
    folder.verify()

    with folder.served_by("rmqpy"):
        found = served(folder)
        assert newest(found) == newest(theirs)
        until(lambda: len(served(folder)) == KEYS, WAIT_S)
        assert newest(served(folder)) == {f"k{key}": f"second 19 of {key}".encode() for key in range(KEYS)}
