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

from pyspark_rocketmq.cluster import Cluster, existing, lost
from pyspark_rocketmq.offsets import LATEST, Position, Queue
from pyspark_rocketmq.options import Options
from pyspark_rocketmq.plan import Held, ranges_between, share
from pyspark_rocketmq.predicates import wanted_by
from pyspark_rocketmq.schema import Asked
from pyspark_rocketmq.task import read, tasks_of
from rmqpy.errors import RocketMQError

if TYPE_CHECKING:
    import pyarrow


class TopicStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans micro-batches on the driver and, pickled before its first use, reads on an executor."""

    def __init__(self, options: Options, asked: Asked) -> None:
        self._options = options
        self._asked = asked
        self._wanted = wanted_by(options)
        self._cluster: Cluster | None = None
        #: Brokers that name servers knew when this run began.
        self._registered: frozenset[str] = frozenset()
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
        cluster = self._at()
        held = cluster.offsets(cluster.queues(skip_missing=True), skip_unreachable=True, is_patient=True)
        self._target = {queue: end for queue, (_, end) in existing(held).items()}

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
            cluster, now_ms = self._at(), round(time.time() * 1000)
            queues = cluster.queues()
            offsets = cluster.offsets(queues, skip_unreachable=True, is_patient=True)
            silent = [queue for queue in queues if queue not in offsets]
            self._warn_held_up(silent, [])
            held = cluster.held(queues) if self._options.assign else existing(offsets)
            # A broker that came or went meanwhile may be missing in the routes.
            asked = self._registered & cluster.brokers() - {queue.broker for queue in silent}
            begin = cluster.begin(asked, now_ms)
            self._initial = Position(cluster.first(held, LATEST), is_first=True, begin=begin).to_json()
        return self._initial

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """The position at which the next micro-batch ends; `start` itself when there is nothing to do."""
        at = Position.of_json(start)
        if self._target is None:
            self._rest(at.queues)
        held = self._look(at.queues)
        joining = self._joining_late(at, held)
        late = self._at().late(joining, at.begin) if joining and at.begin else {}
        for queue in joining.keys() - late.keys():
            # Where to begin cannot be asked.
            del held[queue]
        self._ends = {queue: end for queue, (_, end) in held.items()}
        # Spark's `once` asks for everything, whatever the options say.
        end = self._advance(at.queues, held, late, is_limited=not isinstance(limit, ReadAllAvailable))
        late = {queue: offset for queue, offset in late.items() if queue in end}
        begun_at = {**at.queues, **late} if at.is_first or late else None
        if end == at.queues and not at.is_first:
            self._idle_since = time.monotonic()
            return start
        self._idle_since = None
        self._last_batch_at = time.monotonic()
        return Position(end, begun_at=begun_at, begin=at.begin).to_json()

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
        offsets = self._at().offsets(moved, skip_unreachable=True)
        # A queue that was deleted holds nothing.
        held = {queue: each or Held(0, 0) for queue, each in offsets.items()}
        ranges, losses = ranges_between(begun, {queue: last.queues[queue] for queue in moved}, held)
        self._lost(losses)
        # Here, where it is said once, and not in each task.
        self._at().check_filter(moved, self._wanted)
        return tasks_of(ranges, self._options, self._wanted)

    def read(self, partition: InputPartition) -> "Iterator[pyarrow.RecordBatch]":
        """The rows of one task."""
        return read(partition, self._options, self._asked)

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
            # Before any route is known.
            self._registered = self._cluster.brokers()
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

    def _look(self, at: Mapping[Queue, int]) -> dict[Queue, Held]:
        """The present begin and end of every queue, no further than this run goes. A queue that cannot be asked, or
        read, stays where it is: only its broker can say that it is gone."""
        cluster, target = self._at(), self._target
        # A topic that is missing now was there when the query began: it was deleted, and may come again.
        readable = set(cluster.queues(skip_missing=True))
        offsets = cluster.offsets({*readable, *at}, skip_unreachable=True)
        held: dict[Queue, Held] = {}
        losses: list[str] = []
        silent: list[Queue] = []
        unreadable: list[Queue] = []
        for queue in sorted({*readable, *at}):
            stands = at.get(queue)
            each = offsets.get(queue)
            if not cluster.is_wanted(queue):
                losses.append(f"queue {queue} is not among those to be read any more; it stood at {stands}")
            elif each is not None and queue in readable:
                last = each.end if target is None else target.get(queue, stands)
                if last is not None:
                    held[queue] = Held(each.begin, min(each.end, last))
            elif each is None and queue in offsets:
                if stands is not None:
                    losses.append(f"queue {queue} does not exist any more; it stood at {stands}")
            else:
                (silent if each is None else unreadable).append(queue)
                if stands is not None:
                    held[queue] = Held(stands, stands)
        self._lost(losses)
        self._warn_held_up(silent, unreadable)
        return held

    @staticmethod
    def _joining_late(at: Position, held: Mapping[Queue, Held]) -> dict[Queue, Held]:
        """Queues that were there when the query began, for all it knows: their brokers were missing."""
        begin = at.begin
        return {
            queue: each
            for queue, each in held.items()
            if begin is not None and queue not in at.queues and queue.broker not in begin.brokers
        }

    def _advance(
        self,
        at: Mapping[Queue, int],
        held: Mapping[Queue, Held],
        late: Mapping[Queue, int],
        *,
        is_limited: bool,
    ) -> Mapping[Queue, int]:
        """The end of the next micro-batch: everything, or the share that the limits leave. `late`: the places to begin
        at in queues that are not read from their beginning."""
        options = self._options
        base: dict[Queue, int] = {}
        losses = []
        for queue, (begin, end) in held.items():
            stands = at.get(queue, late.get(queue, 0))
            base[queue] = max(stands, begin)
            if end < stands and queue in at:
                losses.append(
                    f"queue {queue} ends at {end} and the query stands at {stands}: it was made anew, or cut"
                )
                base[queue] = min(begin, end)
        self._lost(losses)
        backlog = {queue: max(0, end - base[queue]) for queue, (_, end) in held.items()}
        if is_limited and self._is_too_little(sum(backlog.values())):
            return at
        taken = backlog
        if is_limited and options.max_offsets_per_trigger is not None:
            taken = share(backlog, options.max_offsets_per_trigger)
        if is_limited and options.max_bytes_per_trigger is not None:
            fitting = self._fitting(backlog, base, options.max_bytes_per_trigger)
            taken = {queue: min(rows, fitting.get(queue, 0)) for queue, rows in taken.items()}
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
        """Number of rows of each queue that fit into a budget of bytes, by the size of the next ones. None of a queue
        whose broker does not answer."""
        waiting = {queue: base[queue] for queue, rows in backlog.items() if rows}
        sizes = {queue: max(1, size) for queue, size in self._at().message_bytes(waiting).items()}
        shares = share({queue: backlog[queue] * size for queue, size in sizes.items()}, bytes_max)
        return {queue: max(1, taken // sizes[queue]) for queue, taken in shares.items()}

    def _lost(self, losses: list[str]) -> None:
        lost(losses, self._options, self._warn)

    def _warn_held_up(self, silent: list[Queue], unreadable: list[Queue]) -> None:
        """Once for each queue that is held up, and again after it was back."""
        for queues, reason in (
            (silent, "brokers that do not answer hold up"),
            (unreadable, "routes that do not lead there, or a missing permission to read, hold up"),
        ):
            if news := sorted(set(queues) - self._reported_away):
                self._warn(f"{reason} {', '.join(map(str, news))}")
        self._reported_away = {*silent, *unreadable}

    @staticmethod
    def _warn(text: str) -> None:
        warnings.warn(text, stacklevel=2)
