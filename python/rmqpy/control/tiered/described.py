"""Description of a file in the tiered storage: its range of the log, and the offsets of each queue in it.

The description is a separate object, `NNN.json`, written last: a file without one does not count. `NNN.log` is the
file as it was on the disk, `NNN.units` has the entries of the consume queues that point into it, queue by queue. NNN is
the position of the file in the log, in 20 digits. Pure; any thread.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

VERSION: Final = 1
UNIT_BYTES: Final = 20
DESCRIPTION: Final = ".json"


class TieredFile(NamedTuple):
    """A file of the log. Times are ms since the epoch."""

    begin: int
    size: int
    sha256: str
    #: Bytes of the object with entries of queues.
    units_size: int
    #: The store time of its first message, and that of the first message after it.
    first_ms: int
    end_ms: int

    @property
    def end(self) -> int:
        """The position after it."""
        return self.begin + self.size

    @property
    def log(self) -> str:
        """The name of the file's object."""
        return f"{self.begin:020}.log"

    @property
    def units(self) -> str:
        """The name of the object with entries of queues."""
        return f"{self.begin:020}.units"

    @property
    def description(self) -> str:
        """The name of the object that describes it."""
        return f"{self.begin:020}{DESCRIPTION}"


class Run(NamedTuple):
    """The messages of one queue in a file: their offsets, and the entry of the first one."""

    begin: int
    end: int
    #: Byte position in the object of entries.
    at: int


Runs = Mapping[str, Mapping[int, Run]]
"""Topic → queue id → run, of each queue that existed, also without messages in the file."""


def encode(file: TieredFile, runs: Runs) -> bytes:
    """Write a description."""
    queues = {
        topic: [[queue_id, *run] for queue_id, run in sorted(of_topic.items())]
        for topic, of_topic in runs.items()
    }
    return json.dumps(
        {"version": VERSION, "file": file._asdict(), "queues": queues}, separators=(",", ":")
    ).encode()


def decode(content: bytes) -> tuple[TieredFile, Runs]:
    """Read a description. Raises `ValueError` for any other content."""
    try:
        found: dict[str, Any] = json.loads(content)
        if found["version"] != VERSION:
            raise ValueError(f"version {found['version']} is not {VERSION}")
        file = TieredFile(**found["file"])
        runs = {
            str(topic): {
                int(queue_id): Run(int(begin), int(end), int(at)) for queue_id, begin, end, at in rows
            }
            for topic, rows in found["queues"].items()
        }
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"not a description: {type(error).__name__} {error}") from None
    if file.begin < 0 or file.size <= 0:
        raise ValueError("not a description: its range is empty")
    return file, runs
