"""The streaming source: decisions of the driver between micro-batches.

Owns the position of a query between two calls of Spark; everything a restart needs is in the offsets it returns.
Invariants: equal positions are equal text, or Spark would run empty batches for ever; an answer about new messages is
never an old one, or `processAllAvailable` would miss some.

Spark makes one such object in a process of its own for each start of a query, calls it from one thread, and kills the
process when the query stops: nothing here needs closing. `read` runs on executors, on another instance.
"""

import time
import warnings
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from pyspark_rocketmq.cluster import Cluster, lost
from pyspark_rocketmq.offsets import LATEST, Position, Queue
from pyspark_rocketmq.options import Options
from pyspark_rocketmq.plan import ranges_between, share
from pyspark_rocketmq.task import read, tasks_of
from rmqpy.errors import RocketMQError

if TYPE_CHECKING:
    import pyarrow


class TopicStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans micro-batches on the driver and, pickled before its first use, reads on an executor."""

    def __init__(self, options: Options, columns: dict[str, str]) -> None:
        self._options = options
        self._columns = columns
        self._cluster: Cluster | None = None
        #: Where the query begins; asked for twice, and `latest` moves.
        self._initial: dict[str, Any] | None = None
        #: Where this run ends, with `availableNow`.
        self._target: Mapping[Queue, int] | None = None
        self._ends: Mapping[Queue, int] = {}
        self._reported_away: set[Queue] = set()
        self._idle_since: float | None = None
        self._last_batch_at = float("-inf")

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_cluster": None}

    # ---- called by Spark, in this order ------------------------------------------------------------------

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """The run ends where the topics end now; queues that appear later are for the next run."""
        self._target = self._look({})

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Any limit stands for all: `latestOffset` applies the limits of the options together."""
        options = self._options
        if options.max_offsets_per_trigger is not None:
            return ReadMaxRows(options.max_offsets_per_trigger)
        if options.max_bytes_per_trigger is not None:
            return ReadMaxBytes(options.max_bytes_per_trigger)
        if options.min_offsets_per_trigger is not None:
            return ReadMinRows(options.min_offsets_per_trigger)
        return ReadAllAvailable()

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """The position at which a new query begins."""
        if self._initial is None:
            cluster = self._at()
            found = cluster.queues()
            cluster.check_assignment(found)
            first = cluster.first(cluster.held(found), LATEST)
            self._initial = Position(first, is_first=True).to_json()
        return self._initial

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """The position at which the next micro-batch ends; `start` itself when there is nothing to do."""
        at = Position.of_json(start)
        if self._target is None:
            self._rest(at.queues)
            ends = self._look(at.queues)
        else:
            ends = {**self._missing(at.queues, self._target), **self._target}
        self._ends = ends
        # Spark's `once` asks for everything, whatever the options say.
        end = self._advance(at.queues, ends, is_limited=not isinstance(limit, ReadAllAvailable))
        if at.is_first:
            self._last_batch_at = time.monotonic()
            return Position(end, begun_at=at.queues).to_json()
        if end == at.queues:
            self._idle_since = time.monotonic()
            return start
        self._idle_since = None
        self._last_batch_at = time.monotonic()
        return Position(end).to_json()

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """The ends of the topics, as `latestOffset` has just found."""
        return Position(self._ends).to_json() if self._ends else None

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """The tasks of one micro-batch."""
        first, last = Position.of_json(start), Position.of_json(end)
        # Of a first batch that is repeated, `start` was computed anew and may lie too far on.
        begun = first.queues if last.begun_at is None else last.begun_at
        # A queue that ends before its begin was recreated: `latestOffset` has reported it, and all of it is read.
        begun = {queue: offset for queue, offset in begun.items() if offset <= last.queues.get(queue, offset)}
        moved = [queue for queue, offset in last.queues.items() if offset > begun.get(queue, 0)]
        held = self._at().held(moved, skip_unreachable=True)
        ranges, losses = ranges_between(begun, {queue: last.queues[queue] for queue in moved}, held)
        self._lost(losses)
        return tasks_of(ranges, self._options)

    def read(self, partition: InputPartition) -> "Iterator[pyarrow.RecordBatch]":
        """The rows of one task."""
        return read(partition, self._options, self._columns, self._options.tags)

    def commit(self, end: dict[str, Any]) -> None:
        """A micro-batch is done. Its offsets are stored for lag tools; a failure to do so is not the query's."""
        if self._options.commit_offsets:
            try:
                self._at().commit(Position.of_json(end).queues)
            except RocketMQError as error:
                self._warn(f"offsets were not stored under {self._options.consumer_group}: {error}")

    # ---- pieces ------------------------------------------------------------------------------------------

    def _at(self) -> Cluster:
        if self._cluster is None:
            self._cluster = Cluster(self._options)
        return self._cluster

    def _rest(self, at: Mapping[Queue, int]) -> None:
        """Spark asks some ninety times a second while nothing comes: wait for a message before looking, never answer
        unlooked. Where there are messages, but too few, only time counts."""
        if self._idle_since is None:
            return
        left_s = self._options.offset_poll_interval_ms / 1000 - (time.monotonic() - self._idle_since)
        if self._ends == at:
            self._at().wait(self._ends, left_s)
        else:
            time.sleep(max(0.0, left_s))

    def _look(self, at: Mapping[Queue, int]) -> dict[Queue, int]:
        """The present end of every queue; of those that cannot be asked, the position of the query."""
        cluster = self._at()
        queues = cluster.queues()
        ends = cluster.ends(queues, skip_unreachable=True)
        silent = [queue for queue in queues if queue not in ends]
        held_up = {queue: at[queue] for queue in silent if queue in at}
        self._warn_away(silent)
        return {**ends, **held_up, **self._missing(at, dict.fromkeys(queues, 0))}

    def _missing(self, at: Mapping[Queue, int], found: Mapping[Queue, int]) -> dict[Queue, int]:
        """Queues of the last offset that are not there: those of a broker that is away stay where they are, the
        others are lost."""
        missing = sorted(at.keys() - found.keys())
        away = {broker: self._at().is_away(broker) for broker in {queue.broker for queue in missing}}
        gone = [queue for queue in missing if not away[queue.broker]]
        self._lost([f"queue {queue} does not exist any more; it stood at {at[queue]}" for queue in gone])
        self._warn_away([queue for queue in missing if away[queue.broker]])
        return {queue: at[queue] for queue in missing if away[queue.broker]}

    def _advance(
        self, at: Mapping[Queue, int], ends: Mapping[Queue, int], *, is_limited: bool
    ) -> Mapping[Queue, int]:
        """The end of the next micro-batch: everything, or the share that the limits leave."""
        options = self._options
        shrunk = sorted(queue for queue, end in ends.items() if end < at.get(queue, 0))
        self._lost(
            [
                f"queue {queue} ends at {ends[queue]} and the query stands at {at[queue]}: it was made anew, or cut"
                for queue in shrunk
            ]
        )
        moved = [queue for queue, end in ends.items() if end != at.get(queue)]
        begins = self._at().begins(moved, skip_unreachable=True)
        base = {}
        for queue, end in ends.items():
            is_known = queue in at and end >= at[queue]
            base[queue] = min(end, max(at[queue] if is_known else 0, begins.get(queue, 0)))
        backlog = {queue: ends[queue] - base[queue] for queue in ends}
        if is_limited and self._is_too_little(sum(backlog.values())):
            return at
        taken = backlog
        if is_limited and options.max_offsets_per_trigger is not None:
            taken = share(backlog, options.max_offsets_per_trigger)
        if is_limited and options.max_bytes_per_trigger is not None:
            fitting = self._fitting(backlog, base, options.max_bytes_per_trigger)
            taken = {queue: min(rows, fitting[queue]) for queue, rows in taken.items()}
        return {queue: base[queue] + rows for queue, rows in taken.items()}

    def _is_too_little(self, rows: int) -> bool:
        """Whether to wait for more rows. The last run of `availableNow` would wait for ever."""
        options = self._options
        if options.min_offsets_per_trigger is None or self._target is not None:
            return False
        waited_s = time.monotonic() - self._last_batch_at
        return rows < options.min_offsets_per_trigger and waited_s < options.max_trigger_delay

    def _fitting(
        self, backlog: Mapping[Queue, int], base: Mapping[Queue, int], bytes_max: int
    ) -> dict[Queue, int]:
        """Number of rows of each queue that fit into a budget of bytes, by the size of the next ones."""
        waiting = {queue: base[queue] for queue, rows in backlog.items() if rows}
        sizes = self._at().message_bytes(waiting)
        shares = share({queue: rows * sizes.get(queue, 1) for queue, rows in backlog.items()}, bytes_max)
        return {
            queue: max(min(1, backlog[queue]), taken // sizes.get(queue, 1))
            for queue, taken in shares.items()
        }

    def _lost(self, losses: list[str]) -> None:
        lost(losses, self._options, self._warn)

    def _warn_away(self, queues: list[Queue]) -> None:
        """Once for each queue that is held up, and again after it was back."""
        news = sorted(set(queues) - self._reported_away)
        if news:
            self._warn(f"brokers that do not answer hold up {', '.join(map(str, news))}")
        self._reported_away = set(queues)

    @staticmethod
    def _warn(text: str) -> None:
        warnings.warn(text, stacklevel=2)
