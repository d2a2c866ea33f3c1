"""One store folder that Apache's broker and ours open in turn, and the data that a broker serves from it.

Owns the folder with its broker.conf, the same for both brokers. Data is read with plain requests
(`wire`), so that stored bytes are compared, independent of a client.
"""

import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.processes import Child
from rmqpy import cli

from . import servers, wire

SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"

SMALL_FILES = {
    "mappedFileSizeCommitLog": 1 << 20,
    "mappedFileSizeConsumeQueue": 20 * 500,
    "maxHashSlotNum": 500,
    "maxIndexNum": 2_000,
    "waitTimeMillsInSendQueue": 60_000,
}
"""So small that a few thousand messages fill several files of every kind; and a cold JVM is given its time."""

WRITE_PATH = {"commitLogWritePath": os.environ.get("RMQPY_WRITE_PATH", "ring")}
"""Write path of our broker; no key of Apache's."""


@dataclass(frozen=True)
class Record:
    """One message as stored in the log."""

    raw: bytes

    @property
    def queue_offset(self) -> int:
        return self._long(20)

    @property
    def physical_offset(self) -> int:
        return self._long(28)

    @property
    def store_time_ms(self) -> int:
        return self._long(56)

    @property
    def offset_id(self) -> str:
        """Return the id of the message for clients: its stored position."""
        host, port = self.raw[64:68], self.raw[68:72]
        return (host + port + self.raw[28:36]).hex().upper()

    @property
    def body(self) -> bytes:
        return self.raw[88 : 88 + self._body_bytes]

    @property
    def properties(self) -> dict[str, str]:
        at = 88 + self._body_bytes
        at += 1 + self.raw[at]
        (size,) = struct.unpack_from(">H", self.raw, at)
        text = self.raw[at + 2 : at + 2 + size].decode()
        return dict(pair.split("\x01", 1) for pair in text.split("\x02") if pair)

    @property
    def _body_bytes(self) -> int:
        (size,) = struct.unpack_from(">i", self.raw, 84)
        return int(size)

    def _long(self, at: int) -> int:
        (value,) = struct.unpack_from(">q", self.raw, at)
        return int(value)


def records(data: bytes) -> list[Record]:
    """The records of a pull, one behind the other."""
    found = []
    while data:
        (size,) = struct.unpack_from(">i", data, 0)
        found.append(Record(data[:size]))
        data = data[size:]
    return found


@dataclass(frozen=True)
class Folder:
    """A store folder and the broker.conf both brokers read."""

    home: Path
    port: int
    namesrv: str
    jars: Path

    @classmethod
    def make(cls, home: Path, namesrv: str, jars: Path, **settings: object) -> "Folder":
        home.mkdir()
        folder = cls(home, servers.broker_port(), namesrv, jars)
        servers.write_broker_conf(home / "broker.conf", folder.port, namesrv, **settings)
        return folder

    @property
    def broker(self) -> str:
        return f"127.0.0.1:{self.port}"

    @contextmanager
    def served_by(self, name: str) -> Iterator[Child]:
        """The broker called `apache` or `rmqpy` on this folder, serving and registered; stopped in order unless the
        caller kills it.
        """
        if name == "apache":
            command = servers.apache_broker_command(self.jars, self.home)
        else:
            command = servers.rmqpy_broker_command()
        with Child(name, command, self.home) as child:
            child.wait_until(self._is_serving, 3 * servers.APACHE_SECONDS_MAX)
            yield child
            child.stop(servers.APACHE_SECONDS_MAX)

    def verify(self) -> None:
        """Check that the folder is undamaged, as the last broker left it. No broker may have it open."""
        command = ["store", "verify", str(self.home / "store"), "-c", str(self.home / "broker.conf")]
        assert cli.run(command) == 0

    def drain(self) -> None:
        """Drain the write ring that a killed broker of ours left into the log, for Apache's broker."""
        command = ["store", "drain", str(self.home / "store"), "-c", str(self.home / "broker.conf")]
        assert cli.run(command) == 0

    def _is_serving(self) -> bool:
        try:
            wire.max_offset(self.broker, "TBW102", 0)
        except OSError:
            return False
        # Apache's broker answers up to 10 s before it is registered; a slave of ours may be known sooner.
        return wire.knows(self.namesrv, self.broker)

    def queue(self, topic: str, queue_id: int) -> list[Record]:
        """Every message of a queue."""
        offset, end = (
            wire.min_offset(self.broker, topic, queue_id),
            wire.max_offset(self.broker, topic, queue_id),
        )
        found: list[Record] = []
        while offset < end:
            found += records(wire.pull(self.broker, topic, queue_id, offset))
            assert found[-1].queue_offset >= offset, f"{topic}/{queue_id} at {offset}: the same again"
            offset = found[-1].queue_offset + 1
        return found

    def by_key(self, topic: str, key: str) -> list[Record]:
        """Messages that a query by key finds, or by unique key."""
        return records(wire.query(self.broker, topic, key))

    def by_id(self, physical_offset: int) -> Record:
        """The message at this position of the log."""
        return Record(wire.view(self.broker, physical_offset))


def master_and_slave(place: Path, namesrv: str, jars: Path) -> tuple[Folder, Folder]:
    """Folders of brokers of one name, whichever of them Apache's broker serves."""
    settings = {**SMALL_FILES, "haSendHeartbeatInterval": 500}
    master = Folder.make(place / "master", namesrv, jars, **settings)
    slave = Folder.make(
        place / "slave", namesrv, jars, **settings, brokerRole="SLAVE", brokerId=1, slaveReadEnable="true"
    )
    return master, slave
