"""A run of an archive: the remaining messages, and the loop from messages to commits."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from rmqpy.bodies.arrow import pyarrow
from rmqpy.client.pull.catalog import Catalog
from rmqpy.client.pull.ranges import QueueRange
from rmqpy.config.client import Address, ClientConfig
from rmqpy.errors import ConfigError, DataLoss, RocketMQError
from rmqpy.message import MessageQueue
from rmqpy.tables.archive.destination import TIME, Destination, Position
from rmqpy.tables.topic_read import Moment, TopicRead, read_topic

if TYPE_CHECKING:
    import pyarrow as pa

#: The size of a commit in memory. Parquet files are several times smaller.
COMMIT_BYTES: Final = 256 << 20
FORMATS: Final = ("parquet", "delta", "iceberg")
#: Columns that say where a message is and when it was stored.
_NEEDED: Final = ("brokerName", "queueId", "queueOffset", TIME)


class Archived(NamedTuple):
    """The result of a run."""

    messages: int
    commits: int
    files: int


class Archive:
    """A topic and its destination. Made by `open_archive`; closing it drops uncommitted rows."""

    def __init__(
        self,
        read: TopicRead,
        destination: Destination,
        commit_bytes: int,
        report: Callable[[Mapping[MessageQueue, int]], None] = lambda offsets: None,
    ) -> None:
        """`report` gets the position after each commit."""
        self._destination = destination
        self._report = report
        #: The reason why the group did not get the last position.
        self.group_fault: str | None = None
        self._commit_bytes = commit_bytes
        self._position = destination.position()
        self.is_new = not self._position
        self.read = read.between(self._left(read.ranges))

    @property
    def offsets(self) -> int:
        """The number of offsets that are left, which is the maximum number of messages."""
        return self.read.offsets

    def run(self, progress: Callable[[int, int], None] | None = None) -> Archived:
        """Archive the remaining messages."""
        messages = commits = files = since_commit = 0
        position = dict(self._position)
        for batch in self.read.watched(progress, self._commit_bytes // 4).batches():
            self._destination.add(batch)
            position |= _after(batch, self.read.topic)
            messages += batch.num_rows
            since_commit += batch.num_rows
            if self._destination.is_full:
                files += self._commit(position)
                commits, since_commit = commits + 1, 0
        # Offsets without a message, such as filtered ones, are archived too.
        ends = {_name(queue): end for queue, _, end in self.read.ranges}
        if since_commit or ends.items() - position.items():
            files += self._commit(position | ends)
            commits += 1
        return Archived(messages, commits, files)

    def _commit(self, position: Position) -> int:
        files = self._destination.commit(position)
        named = {_name(each.queue): each.queue for each in self.read.ranges}
        try:
            self._report({named[name]: offset for name, offset in position.items() if name in named})
            self.group_fault = None
        except RocketMQError as error:
            # The destination has the position: the next run does not depend on the group.
            self.group_fault = str(error)
        return files

    def close(self) -> None:
        """Drop uncommitted rows."""
        self._destination.close()

    def _left(self, ranges: Sequence[QueueRange]) -> list[QueueRange]:
        left = []
        for queue, begin, end in ranges:
            stands = self._position.get(_name(queue))
            if stands is not None and stands > end:
                raise DataLoss(
                    f"queue {_name(queue)} ends at {end}, but {stands} offsets are archived: it was recreated",
                    topic=queue.topic,
                    hint="archive to another destination",
                )
            left.append(QueueRange(queue, begin if stands is None else stands, end))
        return left


def open_archive(
    topic: str,
    destination: str,
    namesrv: Address | ClientConfig | None = None,
    *,
    format: str = "parquet",  # noqa: A002
    since: Moment | None = None,
    commit_bytes: int = COMMIT_BYTES,
    group: str | None = None,
    catalog: str | None = None,
    catalog_properties: Mapping[str, str] | None = None,
    **options: Any,
) -> Archive:
    """Return the archive of a topic at a destination, which may exist: a folder, or an address of Delta. With
    `catalog`, the name of one of pyiceberg's, the destination is the name of an Iceberg table in it, and
    `catalog_properties` are added to those of pyiceberg's configuration. `group`, which must exist, gets the position
    for tools that show lag. `options` are those of `read_topic`."""
    pyarrow("an archive")
    if format != "iceberg" and (catalog is not None or catalog_properties):
        raise ConfigError("only Iceberg has catalogs", hint="use the format iceberg")
    read = read_topic(topic, namesrv, since=since, **options)
    if missing := [name for name in _NEEDED if name not in read.column_names]:
        raise ConfigError(f"an archive needs the columns {', '.join(missing)}")
    made: Destination
    if format == "parquet":
        from rmqpy.tables.archive.parquet import ParquetArchive

        if "://" in destination:
            raise ConfigError(
                "Parquet is archived to folders only: object stores cannot rename",
                hint="use Delta or Iceberg there",
            )
        made = ParquetArchive(Path(destination), topic, commit_bytes=commit_bytes)
    elif format == "delta":
        from rmqpy.tables.archive.delta import DeltaArchive

        queues = [_name(each.queue) for each in read.ranges]
        made = DeltaArchive(destination, queues, commit_bytes=commit_bytes)
    elif format == "iceberg":
        from rmqpy.tables.archive.iceberg import IcebergArchive

        made = IcebergArchive(
            destination, topic, commit_bytes=commit_bytes, catalog=catalog, properties=catalog_properties
        )
    else:
        raise ConfigError(f"archive format {format!r}: use {', '.join(FORMATS)}")
    try:
        return Archive(read, made, commit_bytes, partial(_to_group, ClientConfig.of(namesrv), group))
    except BaseException:
        made.close()
        raise


def _to_group(config: ClientConfig, group: str | None, offsets: Mapping[MessageQueue, int]) -> None:
    if group is not None and offsets:
        with Catalog(config) as catalog:
            catalog.commit(group, offsets)


def _name(queue: MessageQueue) -> str:
    return f"{queue.topic}/{queue.broker}/{queue.queue_id}"


def _after(batch: "pa.RecordBatch", topic: str) -> dict[str, int]:
    """Return the offset after the last row of each queue."""
    pa = pyarrow("an archive")
    table = pa.Table.from_batches([batch]).select(["brokerName", "queueId", "queueOffset"])
    last = table.group_by(["brokerName", "queueId"]).aggregate([("queueOffset", "max")]).to_pylist()
    return {f"{topic}/{row['brokerName']}/{row['queueId']}": row["queueOffset_max"] + 1 for row in last}
