"""Destinations of an archive: the interface, and the partition columns that all of them have."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, Protocol

from rmqpy.bodies.arrow import pyarrow

if TYPE_CHECKING:
    import pyarrow as pa

#: Queue as `topic/broker/id` → the next offset to archive.
Position = Mapping[str, int]

#: The column that decides the partition.
TIME: Final = "storeTimestamp"
DATE, HOUR = "date", "hour"


class Destination(Protocol):
    """A table that takes rows and a position in one commit. For one thread."""

    def position(self) -> dict[str, int]:
        """Return the position of the last commit, empty for a new table."""

    def add(self, batch: "pa.RecordBatch") -> None:
        """Take rows for the next commit."""

    @property
    def is_full(self) -> bool:
        """Whether the next commit has enough rows."""

    def commit(self, position: Position) -> int:
        """Make the rows since the last commit visible together with the position after them; return the number of
        files. On return the commit survives a power loss."""

    def close(self) -> None:
        """Drop uncommitted rows."""


class Buffered:
    """The rows of the next commit, in memory until it is written: for formats that write a commit in one call."""

    #: The largest commit.
    BYTES_MAX: Final = 256 << 20

    def __init__(self, commit_bytes: int) -> None:
        self._commit_bytes = min(commit_bytes, self.BYTES_MAX)
        self._rows: list[pa.RecordBatch] = []
        self._bytes = 0

    def add(self, batch: "pa.RecordBatch") -> None:
        """Take rows for the next commit."""
        self._rows.append(batch)
        self._bytes += batch.nbytes

    @property
    def is_full(self) -> bool:
        """Whether the next commit has enough rows."""
        return self._bytes >= self._commit_bytes

    def close(self) -> None:
        """Drop uncommitted rows."""
        self._rows, self._bytes = [], 0


def by_hour(table: "pa.Table") -> "list[tuple[str, int, pa.Table]]":
    """Split rows by the hour in which they were stored, UTC: date, hour, rows."""
    pa = pyarrow("an archive")
    from pyarrow import compute

    hours = compute.floor_temporal(table.column(TIME), unit="hour")
    found: list[tuple[str, int, Any]] = []
    for moment in sorted(compute.unique(hours).to_pylist()):
        rows = table.filter(compute.equal(hours, pa.scalar(moment, hours.type)))
        found.append((f"{moment:%Y-%m-%d}", moment.hour, rows))
    return found
