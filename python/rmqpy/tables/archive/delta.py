"""An archive as a Delta table, in a folder or an object store.

Delta's log is the commit: an entry adds files and sets application transactions, one for each queue, whose version
is the next offset. The log keeps them for ever, also in its checkpoints. A commit is based on the version whose
transactions were read: of two archivers of one topic, which set the same transactions, Delta refuses the second.
"""

from typing import Any, Final

from rmqpy.bodies.arrow import need, pyarrow
from rmqpy.errors import ConfigError
from rmqpy.tables.archive.destination import DATE, HOUR, TIME, Buffered, Position

_APPLICATION: Final = "rmqpy:"


class DeltaArchive(Buffered):
    """A Delta table. `queues` are those whose position is looked up."""

    def __init__(self, address: str, queues: list[str], *, commit_bytes: int) -> None:
        super().__init__(commit_bytes)
        self._delta = need("deltalake", "delta", "an archive in Delta")
        self._pa = pyarrow("an archive")
        self._address = address
        self._queues = queues
        #: The table at the version that has the position. `None`: there is none yet.
        self._table: Any = self._found()
        self._position = self._committed()

    def position(self) -> dict[str, int]:
        """Return the position of the last commit."""
        return dict(self._position)

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
                self._address if self._table is None else self._table,
                table,
                # A new table must still be new.
                mode="error" if self._table is None else "append",
                partition_by=[DATE, HOUR],
                commit_properties=delta.CommitProperties(app_transactions=transactions, max_commit_retries=0),
            )
        except delta.exceptions.SchemaMismatchError as error:
            raise ConfigError(
                f"the table at {self._address} does not take these rows: {error}",
                hint="archive to another table, or add the columns to this one",
            ) from None
        except delta.exceptions.DeltaError as error:
            if self._table is not None and not isinstance(error, delta.exceptions.CommitFailedError):
                raise
            raise ConfigError(
                f"another process wrote to {self._address}: {error}", hint="run the command again"
            ) from None
        if self._table is None:
            self._table = self._found()
        self._position = dict(position)
        self.close()
        return table.num_rows and 1

    def _found(self) -> Any:
        delta = self._delta
        try:
            return delta.DeltaTable(self._address)
        except delta.exceptions.TableNotFoundError:
            return None

    def _committed(self) -> dict[str, int]:
        table = self._table
        if table is None:
            return {}
        found = {queue: table.transaction_version(_APPLICATION + queue) for queue in self._queues}
        return {queue: int(offset) for queue, offset in found.items() if offset is not None}
