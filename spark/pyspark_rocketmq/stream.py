"""The streaming source: plans micro-batches on the driver and reads them on executors.

Owns the position of a query between two calls from Spark. Everything a restart needs is in the offsets it returns.
Invariants: equal positions are equal text, or Spark would run empty batches forever. New messages are always looked up,
never answered from an older copy, or `processAllAvailable` would miss some.

Spark creates the driver's instance in a separate process for each start of a query, calls it from one thread, and kills
the process when the query stops, so nothing here needs closing. Executors call `read` on another instance.
"""

import time
import warnings
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from pyspark_rocketmq.cluster import Cluster, existing, lost
from pyspark_rocketmq.offsets import LATEST, Position, Queue
from pyspark_rocketmq.options import Options
from pyspark_rocketmq.plan import Held, ranges_between, share
from pyspark_rocketmq.schema import Asked
from pyspark_rocketmq.task import read, tasks_of
from pyspark_rocketmq.wanted import wanted_by
from rmqpy.errors import RocketMQError

if TYPE_CHECKING:
    import pyarrow


#: Queues of an idle stream that brokers watch, one held pull each. A stream of more queues only polls.
WATCHED_MAX: Final = 4096
#: Such a stream rests for this multiple of the time of its last poll, so that idling costs a fraction of a core.
RESTS_PER_POLL: Final = 4


class TopicStream(DataSourceStreamReader):
    """What all versions of Spark share. Pickled before its first use, an instance reads on an executor."""

    def __init__(self, options: Options, asked: Asked) -> None:
        self._options = options
        self._asked = asked
        self._wanted = wanted_by(options)
        self._cluster: Cluster | None = None
        #: The brokers that name servers knew when this run began.
        self._registered: frozenset[str] = frozenset()
        #: The start of the query. Spark asks for it twice, and `latest` moves in between.
        self._initial: dict[str, Any] | None = None
        #: The end of this run, with `availableNow`.
        self._target: Mapping[Queue, int] | None = None
        self._ends: Mapping[Queue, int] = {}
        self._reported_away: set[Queue] = set()
        self._idle_since: float | None = None
        #: How long the last look at all queues took.
        self._look_s = 0.0
        self._last_batch_at = float("-inf")

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_cluster": None}

    # ---- decisions, the same for all versions of Spark ---------------------------------------------------

    def fix_end(self) -> None:
        """Let this run end where the topics end now. The next run reads queues that appear later."""
        cluster = self._at()
        held = cluster.offsets(cluster.queues(skip_missing=True), skip_unreachable=True, is_patient=True)
        self._target = {queue: end for queue, (_, end) in existing(held).items()}

    def next_offset(self, start: dict[str, Any], *, is_limited: bool) -> dict[str, Any]:
        """Return the end of the next micro-batch, or `start` itself if there is nothing to read."""
        at = Position.of_json(start)
        if self._options.available_now and self._target is None:
            self.fix_end()
        if self._target is None:
            self._rest(at.queues)
        began_at = time.monotonic()
        held = self._look(at.queues)
        self._look_s = time.monotonic() - began_at
        joining = self._joining_late(at, held)
        late = self._at().late(joining, at.begin) if joining and at.begin else {}
        for queue in joining.keys() - late.keys():
            # Its broker does not answer where to begin.
            del held[queue]
        self._ends = {queue: end for queue, (_, end) in held.items()}
        end = self._advance(at.queues, held, late, is_limited=is_limited)
        late = {queue: offset for queue, offset in late.items() if queue in end}
        begun_at = {**at.queues, **late} if at.is_first or late else None
        if end == at.queues and not at.is_first:
            self._idle_since = time.monotonic()
            return start
        self._idle_since = None
        self._last_batch_at = time.monotonic()
        return Position(end, begun_at=begun_at, begin=at.begin).to_json()

    def known_ends(self) -> dict[str, Any] | None:
        """Return the ends of the topics that the last `next_offset` found."""
        return Position(self._ends).to_json() if self._ends else None

    # ---- called by Spark ---------------------------------------------------------------------------------

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """Return the position at which a new query begins."""
        if self._initial is None:
            cluster, now_ms = self._at(), round(time.time() * 1000)
            queues = cluster.queues()
            offsets = cluster.offsets(queues, skip_unreachable=True, is_patient=True)
            silent = [queue for queue in queues if queue not in offsets]
            self._warn_held_up(silent, [])
            held = cluster.held(queues) if self._options.assign else existing(offsets)
            # The routes may lack a broker that registered or left in the meantime.
            asked = self._registered & cluster.brokers() - {queue.broker for queue in silent}
            begin = cluster.begin(asked, now_ms)
            self._initial = Position(cluster.first(held, LATEST), is_first=True, begin=begin).to_json()
        return self._initial

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Return the tasks of one micro-batch."""
        if start == end:
            # Spark announces the last offset of its log after a restart.
            return []
        first, last = Position.of_json(start), Position.of_json(end)
        # In a repeated first batch, `start` was computed again and may be past the original one.
        begun = first.queues if last.begun_at is None else last.begun_at
        # A queue that ends before its start was recreated. `next_offset` has reported it, and all of it is read.
        begun = {queue: offset for queue, offset in begun.items() if offset <= last.queues.get(queue, offset)}
        moved = [queue for queue, offset in last.queues.items() if offset > begun.get(queue, 0)]
        offsets = self._at().offsets(moved, skip_unreachable=True)
        # A deleted queue holds nothing.
        held = {queue: each or Held(0, 0) for queue, each in offsets.items()}
        ranges, losses = ranges_between(begun, {queue: last.queues[queue] for queue in moved}, held)
        self._lost(losses)
        # On the driver, so that it is reported once and not by each task.
        self._at().check_filter(moved, self._wanted)
        return tasks_of(ranges, self._options, self._wanted)

    def read(self, partition: InputPartition) -> "Iterator[pyarrow.RecordBatch]":
        """Yield the rows of one task."""
        return read(partition, self._options, self._asked)

    def commit(self, end: dict[str, Any]) -> None:
        """Store the offsets of a finished micro-batch for lag tools. A failure to do so does not fail the query."""
        if self._options.commit_offsets:
            try:
                self._at().commit(Position.of_json(end).queues)
            except RocketMQError as error:
                self._warn(f"cannot store offsets under group {self._options.consumer_group}: {error}")

    # ---- steps -------------------------------------------------------------------------------------------

    def _at(self) -> Cluster:
        if self._cluster is None:
            self._cluster = Cluster(self._options)
            # Before the first route is fetched.
            self._registered = self._cluster.brokers()
        return self._cluster

    def _rest(self, at: Mapping[Queue, int]) -> None:
        """Wait for a message, at most until the poll interval ends: an idle Spark asks some ninety times a second.
        Sleep instead if there are messages, but too few for a micro-batch, or very many queues."""
        if self._idle_since is None:
            return
        left_s = self._options.offset_poll_interval_ms / 1000 - (time.monotonic() - self._idle_since)
        if len(at) > WATCHED_MAX:
            time.sleep(max(0.0, left_s, RESTS_PER_POLL * self._look_s))
        elif self._ends == at:
            self._at().wait(self._ends, left_s)
        else:
            time.sleep(max(0.0, left_s))

    def _look(self, at: Mapping[Queue, int]) -> dict[Queue, Held]:
        """Return the current start and end of every queue, at most up to the end of this run. A queue whose broker does
        not answer, or that cannot be read, keeps its position: only its broker can say that it does not exist."""
        cluster, target = self._at(), self._target
        # A topic that is missing now existed when the query began: it was deleted, and may be created again.
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
                losses.append(
                    f"queue {queue} is no longer selected by the options; the query was at {stands}"
                )
            elif each is not None and queue in readable:
                last = each.end if target is None else target.get(queue, stands)
                if last is not None:
                    # A query that began at the end after this run's end was fixed is past it.
                    held[queue] = Held(each.begin, min(each.end, max(last, stands or 0)))
            elif each is None and queue in offsets:
                if stands is not None:
                    losses.append(f"queue {queue} no longer exists; the query was at {stands}")
            else:
                (silent if each is None else unreadable).append(queue)
                if stands is not None:
                    held[queue] = Held(stands, stands)
        self._lost(losses)
        self._warn_held_up(silent, unreadable)
        return held

    @staticmethod
    def _joining_late(at: Position, held: Mapping[Queue, Held]) -> dict[Queue, Held]:
        """Return the queues that may have existed when the query began, because their brokers were missing then."""
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
        """Return the end of the next micro-batch: everything, or as much as the limits allow. `late` has the start of
        queues that are not read from their beginning."""
        options = self._options
        base: dict[Queue, int] = {}
        losses = []
        for queue, (begin, end) in held.items():
            stands = at.get(queue, late.get(queue, 0))
            base[queue] = max(stands, begin)
            if end < stands and queue in at:
                losses.append(
                    f"queue {queue} ends at {end}, but the query was at {stands}: it was recreated or truncated"
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
        """Return whether to wait for more rows. An `availableNow` run never waits, because it would not end."""
        options = self._options
        if options.min_offsets_per_trigger is None or self._target is not None:
            return False
        waited_s = time.monotonic() - self._last_batch_at
        return rows < options.min_offsets_per_trigger and waited_s < options.max_trigger_delay

    def _fitting(
        self, backlog: Mapping[Queue, int], base: Mapping[Queue, int], bytes_max: int
    ) -> dict[Queue, int]:
        """Return how many rows of each queue fit into a budget of bytes, estimated from the next messages. Leaves out
        queues whose broker does not answer."""
        waiting = {queue: base[queue] for queue, rows in backlog.items() if rows}
        sizes = {queue: max(1, size) for queue, size in self._at().message_bytes(waiting).items()}
        shares = share({queue: backlog[queue] * size for queue, size in sizes.items()}, bytes_max)
        return {queue: max(1, taken // sizes[queue]) for queue, taken in shares.items()}

    def _lost(self, losses: list[str]) -> None:
        lost(losses, self._options, self._warn)

    def _warn_held_up(self, silent: list[Queue], unreadable: list[Queue]) -> None:
        """Warn once for each queue that cannot be read, and again after it could."""
        for queues, reason in (
            (silent, "brokers do not answer for"),
            (unreadable, "no route, or no permission to read, for"),
        ):
            if news := sorted(set(queues) - self._reported_away):
                self._warn(f"{reason} {', '.join(map(str, news))}; the query continues without them")
        self._reported_away = {*silent, *unreadable}

    @staticmethod
    def _warn(text: str) -> None:
        warnings.warn(text, stacklevel=2)
