"""Write numbers: distinguish the ids of several writes in one `foreachBatch`.

Spark plans and commits each write on the driver, in processes that do not know the micro-batch. Tasks know it, but no
other writes. So tasks report the micro-batch, the commit records it as an empty file, and the next plan passes the
records to its tasks. A repeated micro-batch starts from 0 again, and failed writes are not counted, so equal writes
have equal numbers. The records are in a folder of Spark that is removed with the application.
"""

import os
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Final, NamedTuple

from rmqpy.errors import ConfigError

#: Maximum number of records. A micro-batch needs its own until it ends.
NOTES_MAX: Final = 1024


class MicroBatchWrite(NamedTuple):
    """A write in an attempt at a micro-batch."""

    query: str
    #: Spark's number of the attempt, unique in an application.
    execution: str
    topic: str
    number: int = 0


def noted() -> Mapping[MicroBatchWrite, int]:
    """Return the number of committed writes by attempt and topic."""
    counts: dict[MicroBatchWrite, int] = {}
    for note in _notes():
        first, number = _write(note)
        counts[first] = max(counts.get(first, 0), number + 1)
    return counts


def numbered(first: MicroBatchWrite, counts: Mapping[MicroBatchWrite, int]) -> MicroBatchWrite:
    """Return the next write to the same topic in the same attempt."""
    return first._replace(number=counts.get(_key(first), 0))


def note(write: MicroBatchWrite) -> None:
    """Record a committed write. Raises `ConfigError` if an overlapping write has the same number."""
    folder = _folder()
    if folder is None:
        raise ConfigError(
            "SPARK_LOCAL_DIRS is not set: cannot distinguish writes in foreachBatch; set idempotencyKey=none"
        )
    folder.mkdir(exist_ok=True)
    key = _key(write)
    try:
        (folder / f"{key.query},{key.execution},{key.topic},{write.number}").touch(exist_ok=False)
    except FileExistsError:
        raise ConfigError(
            f"two writes to {write.topic or 'topics of a column'} overlapped in one micro-batch, so their rows "
            "have the same ids",
            hint="write one after the other, or set idempotencyKey=none",
        ) from None
    _forget(key)


def _forget(key: MicroBatchWrite) -> None:
    """Remove records of earlier attempts of the query, and the oldest above the maximum."""
    rest = []
    for each in _notes():
        first, _ = _write(each)
        if first.query == key.query and first.execution != key.execution:
            each.unlink(missing_ok=True)
        else:
            rest.append(each)
    if len(rest) > NOTES_MAX:
        for each in sorted(rest, key=_age)[:-NOTES_MAX]:
            each.unlink(missing_ok=True)


def _age(note: Path) -> float:
    try:
        return note.stat().st_mtime
    except FileNotFoundError:
        return 0.0


def _key(write: MicroBatchWrite) -> MicroBatchWrite:
    """Return the form in the name of a file."""
    return write._replace(topic=sha256(write.topic.encode()).hexdigest()[:16], number=0)


def _write(note: Path) -> tuple[MicroBatchWrite, int]:
    query, execution, topic, number = note.name.split(",")
    return MicroBatchWrite(query, execution, topic), int(number)


def _notes() -> list[Path]:
    folder = _folder()
    return list(folder.iterdir()) if folder is not None and folder.is_dir() else []


def _folder() -> Path | None:
    """Return a folder below the one for blocks, which Spark passes to processes that plan and commit."""
    folders = os.environ.get("SPARK_LOCAL_DIRS")
    return Path(folders.split(",")[0], "rmqpy-writes") if folders else None
