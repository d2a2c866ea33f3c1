"""A folder with light queues (LMQ), passed from one broker to the other and back: every record keeps its places."""

from collections.abc import Callable
from pathlib import Path

import pytest

import rmqpy
from waiting import until

from . import wire
from .folders import SMALL_FILES, Folder, Record, records

TOPIC = "chat"
GROUP = "%LMQ%readers"
ROOMS = 7
MESSAGES = 300
SETTINGS = SMALL_FILES | {"enableLmq": "true", "enableMultiDispatch": "true"}


def rooms_of(number: int) -> list[str]:
    """The light queues of a message; some have none."""
    return [f"%LMQ%room{room}" for room in range(ROOMS) if number % (room + 2) == 0]


def send(folder: Folder, writer: str, numbers: range) -> dict[str, list[bytes]]:
    """Send messages one after the other; their bodies by queue."""
    until(lambda: wire.has_route(folder.namesrv, TOPIC))
    expected: dict[str, list[bytes]] = {}
    with rmqpy.Producer(folder.namesrv, send_timeout=30.0) as producer:
        for number in numbers:
            body, rooms = f"{writer} {number}".encode(), rooms_of(number)
            lists = {"INNER_MULTI_DISPATCH": ",".join(rooms)} if rooms else {}
            producer.send(rmqpy.Message(TOPIC, body, tag="red", properties=lists))
            for room in rooms:
                expected.setdefault(room, []).append(body)
    return expected


def offset_in(record: Record, name: str) -> int:
    names = record.properties["INNER_MULTI_DISPATCH"].split(",")
    return int(record.properties["INNER_MULTI_QUEUE_OFFSET"].split(",")[names.index(name)])


def read(folder: Folder, name: str) -> list[bytes]:
    """The bodies of a light queue, each at its offset."""
    offset = wire.min_offset(folder.broker, name, 0)
    found: list[bytes] = []
    while offset < wire.max_offset(folder.broker, name, 0):
        batch = records(wire.pull(folder.broker, name, 0, offset))
        assert [offset_in(record, name) for record in batch] == list(range(offset, offset + len(batch)))
        found += [record.body for record in batch]
        offset += len(batch)
    return found


@pytest.mark.timeout(600)
@pytest.mark.parametrize(("first", "second"), [("apache", "rmqpy"), ("rmqpy", "apache")])
def test_light_queues_and_their_offsets_move_to_the_other_broker_and_back(
    first: str, second: str, originals: Callable[[str], Path], namesrv: str, tmp_path: Path
) -> None:
    folder = Folder.make(tmp_path / "broker", namesrv, originals("apache"), **SETTINGS)
    expected: dict[str, list[bytes]] = {}
    for life, name in enumerate((first, second, first)):
        with folder.served_by(name):
            if life == 0:
                wire.create_topic(namesrv, folder.broker, TOPIC, 4)
            for room, bodies in expected.items():
                assert read(folder, room) == bodies, f"{room} at {name}"
                assert wire.committed(folder.broker, GROUP, room, 0) == len(bodies) // 2
            for room, bodies in send(folder, name, range(life * MESSAGES, (life + 1) * MESSAGES)).items():
                expected.setdefault(room, []).extend(bodies)
            for room, bodies in expected.items():
                until(lambda room=room: wire.max_offset(folder.broker, room, 0), wanted=len(bodies).__eq__)
                assert read(folder, room) == bodies, f"{room} at {name}"
                wire.commit(folder.broker, GROUP, room, 0, len(bodies) // 2)
        folder.verify()
