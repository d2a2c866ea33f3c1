"""The number of a write among those of one micro-batch: what keeps ids of two writes in one `foreachBatch` apart.

Spark plans and commits each write on the driver, in processes that know nothing of the micro-batch; its tasks know it,
and nothing of other writes. So tasks report the micro-batch, the commit notes it in a file, and the plan of the next
write takes the notes along for its tasks. A micro-batch that is repeated counts from 0 again, and so does a write that
failed: equal writes have equal numbers. Notes lie in a folder of Spark's own, which ends with the application.
"""

import os
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Final, NamedTuple

from rmqpy.errors import ConfigError

#: Notes that are kept; a micro-batch needs its own until it ends.
NOTES_MAX: Final = 1024


class MicroBatchWrite(NamedTuple):
    """A write in one attempt at a micro-batch."""

    query: str
    #: Spark's number for the attempt: never the same again in one application.
    execution: str
    topic: str
    number: int = 0


def noted() -> Mapping[MicroBatchWrite, int]:
    """How many writes each attempt at a micro-batch has committed to each topic, by the first of them."""
    counts: dict[MicroBatchWrite, int] = {}
    for note in _notes():
        first, number = _write(note)
        counts[first] = max(counts.get(first, 0), number + 1)
    return counts


def numbered(first: MicroBatchWrite, counts: Mapping[MicroBatchWrite, int]) -> MicroBatchWrite:
    """The next write to the same topic in the same attempt."""
    return first._replace(number=counts.get(_key(first), 0))


def note(write: MicroBatchWrite) -> None:
    """Count a write that is committed. Raises `ConfigError` if another one had its number: they overlapped."""
    folder = _folder()
    if folder is None:
        raise ConfigError("Spark names no local directory: writes in foreachBatch cannot be told apart")
    folder.mkdir(exist_ok=True)
    key = _key(write)
    try:
        (folder / f"{key.query},{key.execution},{key.topic},{write.number}").touch(exist_ok=False)
    except FileExistsError:
        raise ConfigError(
            f"two writes to {write.topic or 'topics of a column'} overlapped in one micro-batch: their rows have the "
            "same ids",
            hint="write one after the other, or set idempotencyKey=none",
        ) from None
    _forget(key)


def _forget(key: MicroBatchWrite) -> None:
    """Remove the notes of other attempts of the query, and the oldest beyond what is kept."""
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
    """As in the name of a file."""
    return write._replace(topic=sha256(write.topic.encode()).hexdigest()[:16], number=0)


def _write(note: Path) -> tuple[MicroBatchWrite, int]:
    query, execution, topic, number = note.name.split(",")
    return MicroBatchWrite(query, execution, topic), int(number)


def _notes() -> list[Path]:
    folder = _folder()
    return list(folder.iterdir()) if folder is not None and folder.is_dir() else []


def _folder() -> Path | None:
    """Spark tells the processes that plan and commit where its blocks lie."""
    folders = os.environ.get("SPARK_LOCAL_DIRS")
    return Path(folders.split(",")[0], "rmqpy-writes") if folders else None
