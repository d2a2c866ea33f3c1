"""A broker with tiny log files and tiered storage in a folder, and messages for it."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import rmqpy
from rmqpy.server import Standalone
from waiting import until

#: A file of the log holds some thirty of the messages.
BODY = b"x" * 2_000
SETTINGS = {
    "mappedFileSizeCommitLog": 1 << 16,
    "mappedFileSizeConsumeQueue": 20 * 16,
    "maxMessageSize": 60_000,
    "commitLogRingBytes": 1 << 20,
    "brokerName": "broker-a",
    "enablePropertyFilter": True,
    "httpPort": 0,
    # A file expires as soon as it is full, when it is asked for.
    "fileReservedTime": 0,
}


class Tiered:
    """A broker with tiered storage in a folder."""

    def __init__(self, folder: Path, server: Standalone) -> None:
        self.folder = folder
        self.server = server
        self.namesrv = server.namesrv

    @property
    def storage(self) -> Path:
        return self.folder / "tier" / "DefaultCluster" / "broker-a"

    def local_files(self) -> list[int]:
        """Positions of the files of the log on the disk."""
        log = next(self.folder.glob("store/**/commitlog"))
        return sorted(int(name) for name in os.listdir(log) if name.isdecimal())

    def expire(self, admin: rmqpy.Admin) -> None:
        """Have all full files copied, and deleted on the disk."""

        def is_short() -> bool:
            admin.delete_expired_log()
            # The file being written stays, with one that is made early.
            return len(self.local_files()) <= 2

        until(is_short)


@contextmanager
def tiered(folder: Path, **settings: Any) -> Iterator[Tiered]:
    given = {**SETTINGS, "tieredStorage": str(folder / "tier"), **settings}
    with Standalone(folder / "store", namesrv_port=0, broker_port=0, **given) as server:
        yield Tiered(folder, server)


def send(producer: rmqpy.Producer, topic: str, numbers: Sequence[int], **fields: Any) -> None:
    """One message a number, in turns in the queues of the topic."""
    queues = producer.queues(topic)
    for number in numbers:
        body = b"%d " % number + BODY
        producer.send(topic, body, queue=queues[number % len(queues)], **fields)


@contextmanager
def connected(folder: Path, **settings: Any) -> Iterator[tuple[Tiered, rmqpy.Admin, rmqpy.Producer]]:
    """The same, with an administrator and a producer of uncompressed messages."""
    with (
        tiered(folder, **settings) as broker,
        rmqpy.Admin(broker.namesrv) as admin,
        rmqpy.Producer(broker.namesrv, compress_above=None) as producer,
    ):
        yield broker, admin, producer
