"""An archive as a Delta table, in a folder or an object store.

Delta's log is the commit: an entry adds files and sets application transactions, one for each queue, whose version
is the next offset. The log keeps them for ever, also in its checkpoints. Two archivers of one topic set the same
transactions, and Delta refuses the second.
"""

from typing import TYPE_CHECKING, Any, Final

from rmqpy.bodies.arrow import need, pyarrow
from rmqpy.errors import ConfigError
from rmqpy.tables.archive.destination import DATE, HOUR, TIME, Position

if TYPE_CHECKING:
    import pyarrow as pa

#: Rows of a commit are in memory until it is written.
_BYTES_MAX: Final = 256 << 20
_APPLICATION: Final = "rmqpy:"


class DeltaArchive:
    """A Delta table. `queues` are those whose position is looked up."""

    def __init__(self, address: str, queues: list[str], *, commit_bytes: int) -> None:
        self._delta = need("deltalake", "delta", "an archive in Delta")
        self._pa = pyarrow("an archive")
        self._address = address
        self._commit_bytes = min(commit_bytes, _BYTES_MAX)
        self._queues = queues
        self._rows: list[Any] = []
        self._bytes = 0
        self._position = self._committed()

    def position(self) -> dict[str, int]:
        """Return the position of the last commit."""
        return dict(self._position)

    def add(self, batch: "pa.RecordBatch") -> None:
        """Take rows for the next commit."""
        self._rows.append(batch)
        self._bytes += batch.nbytes

    @property
    def is_full(self) -> bool:
        """Whether the next commit has enough rows."""
        return self._bytes >= self._commit_bytes

    def commit(self, position: Position) -> int:
        """Make the rows visible together with the position."""
        from pyarrow import compute

        delta = self._delta
        if not self._rows:
            # Nothing to add: the next run looks at the same offsets again, and finds nothing again.
            return 0
        table = self._pa.Table.from_batches(self._rows)
        moments = table.column(TIME)
        table = table.append_column(DATE, moments.cast(self._pa.date32()))
        table = table.append_column(HOUR, compute.hour(moments).cast(self._pa.int32()))
        moved = {queue: offset for queue, offset in position.items() if self._position.get(queue) != offset}
        transactions = [
            delta.Transaction(_APPLICATION + queue, offset) for queue, offset in sorted(moved.items())
        ]
        try:
            delta.write_deltalake(
                self._address,
                table,
                mode="append",
                partition_by=[DATE, HOUR],
                commit_properties=delta.CommitProperties(app_transactions=transactions, max_commit_retries=0),
            )
        except delta.exceptions.CommitFailedError as error:
            raise ConfigError(
                f"another process wrote to {self._address}: {error}", hint="run the command again"
            ) from None
        self._position = dict(position)
        self._rows, self._bytes = [], 0
        return table.num_rows and 1

    def close(self) -> None:
        """Drop uncommitted rows."""
        self._rows = []

    def _committed(self) -> dict[str, int]:
        delta = self._delta
        try:
            table = delta.DeltaTable(self._address)
        except delta.exceptions.TableNotFoundError:
            return {}
        found = {queue: table.transaction_version(_APPLICATION + queue) for queue in self._queues}
        return {queue: int(offset) for queue, offset in found.items() if offset is not None}
