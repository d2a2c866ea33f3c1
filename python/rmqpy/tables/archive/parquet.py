"""An archive as Parquet files in a folder, `date=2026-01-31/hour=12/part-00000017-000.parquet`.

Theory of a commit. Rows are written to `_rmqpy/staging`, under names that no reader takes for Parquet. Renaming
`_rmqpy/commit.json` is the commit: the file has the position, and the staged files with their final names. Then the
files are renamed. A crash before the commit leaves staged files, which the next run deletes. A crash after it
leaves files to rename, which the next run does first: it is the same rename, so it can be done twice. `commit.json`
is replaced only when all its files have their final names on disk.

A reader sees each file whole. It may see some files of a commit before the others, for the time of a few renames.
"""

import fcntl
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from rmqpy.bodies.arrow import pyarrow
from rmqpy.errors import ConfigError
from rmqpy.tables.archive.destination import Position, by_hour

if TYPE_CHECKING:
    import pyarrow as pa

VERSION: Final = 1
#: Rows in memory before they are written as row groups.
_GROUP_BYTES: Final = 32 << 20
#: Files of one commit.
_FILES_MAX: Final = 64


class ParquetArchive:
    """A folder of Parquet files, and its lock."""

    def __init__(self, folder: Path, topic: str, *, commit_bytes: int) -> None:
        self._pa = pyarrow("an archive")
        self._folder = folder
        self._own = folder / "_rmqpy"
        self._staging = self._own / "staging"
        self._commit_file = self._own / "commit.json"
        self._topic = topic
        self._commit_bytes = commit_bytes
        self._staging.mkdir(parents=True, exist_ok=True)
        self._lock = open(self._own / "lock", "w")  # noqa: SIM115
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._lock.close()
            raise ConfigError(f"another process archives to {folder}", hint="wait for its end") from None
        try:
            self._committed = self._recover()
        except BaseException:
            self._lock.close()
            raise
        self._clear()

    def position(self) -> dict[str, int]:
        """Return the position of the last commit."""
        return dict(self._committed["position"])

    def add(self, batch: "pa.RecordBatch") -> None:
        """Take rows for the next commit."""
        self._rows.append(batch)
        self._buffered += batch.nbytes
        self._bytes += batch.nbytes
        if self._buffered >= _GROUP_BYTES:
            self._write()

    @property
    def is_full(self) -> bool:
        """Whether the next commit has enough rows."""
        return self._bytes >= self._commit_bytes or len(self._writers) >= _FILES_MAX

    def commit(self, position: Position) -> int:
        """Make the rows visible together with the position."""
        self._write()
        number = int(self._committed["commit"]) + 1
        files = []
        for index, ((date, hour), (writer, staged)) in enumerate(sorted(self._writers.items())):
            writer.close()
            _sync(staged)
            final = f"date={date}/hour={hour:02}/part-{number:08}-{index:03}.parquet"
            files.append({"staged": staged.name, "file": final})
        _sync(self._staging)
        self._replace(
            {"v": VERSION, "topic": self._topic, "commit": number, "position": dict(position), "files": files}
        )
        self._rename()
        self._clear()
        return len(files)

    def close(self) -> None:
        """Drop uncommitted rows."""
        for writer, staged in self._writers.values():
            writer.close()
            staged.unlink(missing_ok=True)
        self._writers.clear()
        self._lock.close()

    def _clear(self) -> None:
        self._rows: list[Any] = []
        self._buffered = self._bytes = 0
        self._writers: dict[tuple[str, int], tuple[Any, Path]] = {}

    def _write(self) -> None:
        """Write the rows in memory, a row group for each hour."""
        from pyarrow import parquet

        if not self._rows:
            return
        table = self._pa.Table.from_batches(self._rows)
        self._rows, self._buffered = [], 0
        for date, hour, rows in by_hour(table):
            if (date, hour) not in self._writers:
                # Names of another commit, or a crash before this one would have its files taken for those of the last.
                number = int(self._committed["commit"]) + 1
                staged = self._staging / f"{number:08}-{len(self._writers):03}.staged"
                self._writers[date, hour] = (
                    parquet.ParquetWriter(staged, table.schema, compression="zstd"),
                    staged,
                )
            self._writers[date, hour][0].write_table(rows, row_group_size=max(1, len(rows)))

    def _recover(self) -> dict[str, Any]:
        """Finish the last commit, and delete what was staged after it."""
        try:
            found = json.loads(self._commit_file.read_text(encoding="utf-8"))
        except FileNotFoundError:
            found = {"v": VERSION, "topic": self._topic, "commit": 0, "position": {}, "files": []}
        except ValueError as error:
            raise ConfigError(
                f"{self._commit_file} is damaged: {error}", hint="archive to another folder"
            ) from None
        if found.get("v") != VERSION:
            raise ConfigError(f"{self._commit_file} is of version {found.get('v')}", hint="upgrade rmqpy")
        if found["topic"] != self._topic:
            raise ConfigError(
                f"{self._folder} has an archive of topic {found['topic']!r}", hint="use another folder"
            )
        self._committed = found
        self._rename()
        for staged in self._staging.iterdir():
            staged.unlink()
        return self._committed

    def _replace(self, commit: dict[str, Any]) -> None:
        written = self._commit_file.with_suffix(".tmp")
        written.write_text(json.dumps(commit), encoding="utf-8")
        _sync(written)
        os.replace(written, self._commit_file)
        _sync(self._own)
        self._committed = commit

    def _rename(self) -> None:
        """Give the files of the last commit their final names. A file without staged one has it, or was moved since."""
        folders: set[Path] = set()
        for each in self._committed["files"]:
            staged, final = self._staging / each["staged"], self._folder / each["file"]
            if not staged.exists():
                continue
            final.parent.mkdir(parents=True, exist_ok=True)
            os.replace(staged, final)
            folders.update((final.parent, final.parent.parent))
        for folder in folders | ({self._folder, self._staging} if folders else set()):
            _sync(folder)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
