"""An archive as an Iceberg table, in a folder with its own catalog, or in any catalog.

A commit of the catalog is that of the archive: it adds a snapshot with the files, and sets the property
`rmqpy.archive.TOPIC` of the table to the position, as JSON. The property stays when snapshots expire. A commit requires
the snapshot of the last one, so the second of two archivers is refused. A crash before a commit leaves files that no
snapshot has, as with any writer of Iceberg.

In a folder, files are on disk before the catalog, a SQLite database, refers to them.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from rmqpy.bodies.arrow import need, pyarrow
from rmqpy.errors import ConfigError
from rmqpy.tables.archive.destination import TIME, Buffered, Position

if TYPE_CHECKING:
    import pyarrow as pa

_PROPERTY: Final = "rmqpy.archive."
#: Tables of a folder are in this namespace of this catalog, by the names of their topics.
CATALOG, NAMESPACE = "rmqpy", "topics"
#: pyiceberg repeats a commit that lost to another on top of it, and the rows of both would be there.
_NO_RETRY: Final = {"commit.retry.num-retries": "0"}
#: Bound the metadata that each commit writes.
_TABLE: Final = {
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "20",
    "commit.manifest-merge.enabled": "true",
    "write.parquet.compression-codec": "zstd",
}


class IcebergArchive(Buffered):
    """An Iceberg table."""

    def __init__(
        self,
        destination: str,
        topic: str,
        *,
        commit_bytes: int,
        catalog: str | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> None:
        """`destination` is a folder, or the name of a table in `catalog`, whose `properties` are those of pyiceberg."""
        super().__init__(commit_bytes)
        self._pa = pyarrow("an archive")
        self._iceberg = need("pyiceberg.catalog", "iceberg", "an archive in Iceberg")
        # Computes the hours of partitions.
        need("pyiceberg_core", "iceberg", "an archive in Iceberg")
        self._destination = destination
        self._property = _PROPERTY + topic
        self._location: str | None = None
        if catalog is not None:
            self._name: tuple[str, ...] = tuple(destination.split("."))
            if len(self._name) < 2 or not all(self._name):
                raise ConfigError(
                    f"{destination!r} is not the name of a table in a catalog", hint="use namespace.table"
                )
            self._catalog = self._opened(catalog, dict(properties or {}))
        elif properties:
            raise ConfigError("properties of a catalog need its name", hint="set --catalog")
        else:
            self._name = (NAMESPACE, topic)
            self._catalog = self._opened(CATALOG, self._in_folder(destination, topic))
        self._table = self._found()
        self._position: dict[str, int] = self._committed()

    def position(self) -> dict[str, int]:
        """Return the position of the last commit."""
        return dict(self._position)

    def commit(self, position: Position) -> int:
        """Make the rows visible together with the position."""
        if not self._rows:
            # Nothing to add: the next run looks at the same offsets again, and finds nothing again.
            return 0
        rows = self._pa.Table.from_batches(self._rows)
        errors = need("pyiceberg.exceptions", "iceberg", "an archive in Iceberg")
        try:
            if self._table is None:
                self._table = self._made(rows.schema)
            table = self._table
            # Only in memory: other writers may retry.
            table.metadata.properties.update(_NO_RETRY)
            transaction = table.transaction()
            transaction.append(rows)
            transaction.set_properties({self._property: json.dumps(dict(position), sort_keys=True)})
            transaction.commit_transaction()
        except (errors.CommitFailedException, errors.TableAlreadyExistsError) as error:
            raise ConfigError(
                f"another process wrote to {self._destination}: {error}", hint="run the command again"
            ) from None
        except (ValueError, TypeError) as error:
            # As pyiceberg says it if columns differ.
            raise ConfigError(
                f"the table of {self._destination} does not take these rows: {error}",
                hint="archive to another table, or add the columns to this one",
            ) from None
        self._position = dict(position)
        self.close()
        snapshot = table.current_snapshot()
        return int(snapshot.summary["added-data-files"]) if snapshot and snapshot.summary else 1

    def _in_folder(self, destination: str, topic: str) -> dict[str, str]:
        """Return the properties of a folder's catalog."""
        if "://" in destination:
            raise ConfigError(
                "Iceberg in an object store needs a catalog",
                hint="set --catalog, and name the table: space.table",
            )
        need("sqlalchemy", "iceberg", "an archive in Iceberg")
        folder = Path(destination).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        self._location = str(folder / topic)
        return {
            "type": "sql",
            "uri": f"sqlite:///{folder / 'catalog.db'}",
            "warehouse": str(folder),
            "py-io-impl": "rmqpy.tables.archive.durable.DurableFileIO",
        }

    def _opened(self, name: str, properties: dict[str, str]) -> Any:
        try:
            return self._iceberg.load_catalog(name, **properties)
        except Exception as error:
            # The library has no common class: errors of its configuration, of HTTP, of databases.
            raise ConfigError(
                f"the catalog {name!r} cannot be opened: {error}",
                hint="see pyiceberg's configuration of catalogs",
            ) from None

    def _found(self) -> Any:
        errors = need("pyiceberg.exceptions", "iceberg", "an archive in Iceberg")
        try:
            return self._catalog.load_table(self._name)
        except (errors.NoSuchTableError, errors.NoSuchNamespaceError):
            return None

    def _made(self, schema: "pa.Schema") -> Any:
        """Create the table, partitioned by the hour in which messages were stored."""
        from pyiceberg.transforms import HourTransform

        self._catalog.create_namespace_if_not_exists(self._name[:-1])
        made = self._catalog.create_table_transaction(
            self._name, schema, location=self._location, properties=_TABLE
        )
        with made.update_spec() as spec:
            spec.add_field(TIME, HourTransform(), f"{TIME}_hour")
        return made.commit_transaction()

    def _committed(self) -> dict[str, int]:
        text = None if self._table is None else self._table.properties.get(self._property)
        if text is None:
            return {}
        try:
            return {str(queue): int(offset) for queue, offset in json.loads(text).items()}
        except (ValueError, TypeError, AttributeError):
            raise ConfigError(
                f"property {self._property} of the table is damaged: {text[:80]!r}",
                hint="archive to another table",
            ) from None
