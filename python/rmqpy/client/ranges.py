"""The range read: queues and offsets in, Arrow batches out.

Owns the loop that pulls a range to its end and knows a loss from a gap. Invariant: every message of a range that
the broker holds is in exactly one batch, those of one range in order; a message that is gone, or cannot be decoded,
ends the read with an error that names it, unless losses were allowed.

One reader is for one thread. Replies become columns where they are received, on the thread of the connection, while
the caller has the batch before; several ranges are pulled side by side. What lies ready is bounded by one reply for
each of them.
"""

import logging
import weakref
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Final, Literal, NamedTuple, Self, TypedDict, Unpack

from rmqpy import errors
from rmqpy._native import ArrowBatch, Columns
from rmqpy.client.checks import check_filter
from rmqpy.client.cluster import ClusterConnection
from rmqpy.client.puller import Puller, PullPlan, QueuePull
from rmqpy.config.arguments import check_ranges
from rmqpy.config.client import Address, ClientConfig
from rmqpy.message import Filter, MessageQueue
from rmqpy.remoting import pulls
from rmqpy.remoting.backoff import Backoff
from rmqpy.remoting.client import BlockingCaller, run

log = logging.getLogger(__name__)

#: The group such reads are made under. Nothing is committed to it.
READER_GROUP: Final = "rmqpy-reader"
#: A row costs more in replies of 4 MiB than in those of 2 MiB.
PULL_BYTES: Final = 2 << 20
#: Ranges pulled side by side.
UNDER_WAY_MAX: Final = 4
FAILING: Final = Backoff(0.2, 2.0)


class QueueRange(NamedTuple):
    """Offsets of one `queue`, from `begin` up to, not including, `end`."""

    queue: MessageQueue
    begin: int
    end: int


class RangeOptions(TypedDict, total=False):
    """Options of a range read."""

    #: Names, or names with Spark types where the usual one is not wanted (`{"body": "string"}`): see `column_types`.
    columns: Sequence[str] | Mapping[str, str] | None
    #: Only messages with one of these tags, `"paid || refunded"`, or those `rmqpy.sql(…)` matches.
    tags: Filter
    group: str
    #: A batch has up to so many, give or take a pull of each range read beside it.
    batch_rows: int
    batch_bytes: int
    fail_on_data_loss: bool
    #: A body asked for as string that is not UTF-8 fails the read, becomes null, or has what cannot be read replaced.
    bad_text: Literal["fail", "null", "replace"]
    #: A pull asks for so many messages, waits so many seconds for its answer, and is tried so many times more.
    pull_messages: int
    pull_timeout: float
    retries: int


_DEFAULTS: Final[RangeOptions] = {
    "columns": None,
    "tags": "*",
    "group": READER_GROUP,
    # Spark's sweet spot: large enough to be cheap per row, small enough to stay in its socket.
    "batch_rows": 10_000,
    "batch_bytes": 8 << 20,
    "fail_on_data_loss": True,
    "bad_text": "fail",
    # Each pull costs the interpreter some 90 µs whatever it brings.
    "pull_messages": 4096,
    "pull_timeout": 10.0,
    "retries": 3,
}


def read_range(
    queue: MessageQueue,
    begin: int,
    end: int,
    namesrv: Address | ClientConfig | None = None,
    **options: Unpack[RangeOptions],
) -> "RangeReader":
    """The messages of one queue with offsets in [begin, end), as Arrow batches.

    ::

        queue = rmqpy.MessageQueue("orders", "broker-a", 0)
        for batch in rmqpy.read_range(queue, 0, 1000, columns=["queueOffset", "body"]):
            print(pyarrow.record_batch(batch))

    See `read_ranges` for the rest.
    """
    return read_ranges([QueueRange(queue, begin, end)], namesrv, **options)


def read_ranges(
    ranges: Iterable[QueueRange],
    namesrv: Address | ClientConfig | None = None,
    **options: Unpack[RangeOptions],
) -> "RangeReader":
    """The messages of several ranges as Arrow batches, with the options of `RangeOptions`. Messages of one range come
    in order.

    Iterating raises `DataLoss` when the broker does not hold the whole range, unless `fail_on_data_loss` is False:
    then a warning is logged and the rest is read. A body that cannot be decoded raises `DecodeError` with its place.
    """
    return RangeReader(list(ranges), ClientConfig.of(namesrv), options)


def column_types() -> dict[str, list[str]]:
    """Every column a range read can have, with the Spark types it can have, the usual one first.

    >>> column_types()["body"]
    ['binary', 'string']
    """
    return {name: kinds for name, kinds, _ in Columns.known()}


def default_columns() -> list[str]:
    """The columns of a range read that does not name any.

    >>> default_columns()[:4]
    ['topic', 'brokerName', 'queueId', 'queueOffset']
    """
    return [name for name, _, is_default in Columns.known() if is_default]


class RangeReader:
    """An iterator of `ArrowBatch`, and an Arrow stream: `pyarrow.table(reader)`, `polars.DataFrame(reader)`.

    It can be read once. Leaving a `with` block, or `close`, ends it early. An Arrow library that meets an error in the
    stream raises an exception of its own with our text; iterating raises ours.
    """

    def __init__(self, ranges: Sequence[QueueRange], config: ClientConfig, options: RangeOptions) -> None:
        for queue, begin, end in ranges:
            if not 0 <= begin <= end:
                raise ValueError(
                    f"a range goes from an offset to a later one, not from {begin} to {end} ({queue})"
                )
        if unknown := options.keys() - _DEFAULTS.keys():
            raise TypeError(f"a range read has no option {', '.join(sorted(unknown))}")
        check_ranges(options)
        self._options: RangeOptions = {**_DEFAULTS, **options}
        columns = self._options["columns"]
        asked = columns.items() if isinstance(columns, Mapping) else ((name, None) for name in columns or ())
        self._columns = Columns(None if columns is None else list(asked), bad_text=self._options["bad_text"])
        self._cluster = ClusterConnection.hold(config)
        # Executors read range after range, and connections are worth keeping.
        self._cluster.keep()
        self._release = weakref.finalize(self, self._cluster.release)
        self._release.atexit = False
        self._puller: Puller[QueuePull] = Puller(
            BlockingCaller(self._cluster.client),
            self._cluster.routes,
            PullPlan(
                self._options["group"],
                messages_max=self._options["pull_messages"],
                bytes_max=PULL_BYTES,
                suspend_s=0.0,
                reply_s=self._options["pull_timeout"],
                failing=FAILING,
                busy=FAILING,
                failures_max=self._options["retries"] + 1,
            ),
            columns=self._columns,
        )
        #: In order: the first ones are pulled first.
        self._unfinished = [
            QueuePull(queue, begin, check_filter(self._options["tags"]), end=end)
            for queue, begin, end in ranges
            if begin < end
        ]
        self._batches = self._read()

    def __iter__(self) -> Iterator[ArrowBatch]:
        return self

    def __next__(self) -> ArrowBatch:
        return next(self._batches)

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return self._columns.stream(self)

    def __arrow_c_schema__(self) -> object:
        return self._columns.__arrow_c_schema__()

    def close(self) -> None:
        """End the read; pulls under way are forgotten. Idempotent."""
        self._batches.close()
        self._puller.close()
        self._release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _read(self) -> Generator[ArrowBatch, None, None]:
        columns, options = self._columns, self._options
        try:
            while self._unfinished:
                self._start()
                self._puller.check()
                run(self._puller.wait(self._unfinished, options["pull_timeout"]))
                for pull, pulled in self._puller.completed():
                    brought = pulled.call.rows(pull.queue)
                    self._go_on(pull, pulled)
                    # Full is what has no room for another reply like this one.
                    rows, size = columns.num_rows, columns.nbytes
                    rows_after = rows + brought
                    is_full = (
                        rows_after > options["batch_rows"]
                        or size * rows_after > options["batch_bytes"] * rows
                    )
                    batch = columns.take() if is_full else None
                    # Before the caller works, so that the broker does, too.
                    self._start()
                    if batch is not None:
                        yield batch
            if columns.num_rows:
                yield columns.take()
        finally:
            self._puller.close()
            self._release()

    def _start(self) -> None:
        first = list(islice((pull for pull in self._unfinished if pull.is_due), UNDER_WAY_MAX))
        run(self._puller.look_up(first))
        self._puller.start(first, under_way_max=UNDER_WAY_MAX)

    def _go_on(self, pull: QueuePull, pulled: pulls.Pulled) -> None:
        """Move a range on, or end it."""
        has_moved_on, is_over = pulled.next_offset > pull.offset, False
        if pulled.found in (pulls.Found.MESSAGES, pulls.Found.FILTERED) and has_moved_on:
            pull.advance(pulled)
        elif pulled.found is pulls.Found.MOVED:
            self._lost(pull, pulled)
            pull.offset = max(pull.offset, pulled.next_offset)
            is_over = not has_moved_on
        elif pull.failures < self._options["retries"]:
            # What was just stored may need a moment to become visible here.
            self._puller.pause(pull)
        else:
            self._lost(pull, pulled)
            is_over = True
        if is_over or pull.is_at_end:
            self._unfinished.remove(pull)

    def _lost(self, pull: QueuePull, pulled: pulls.Pulled) -> None:
        topic, broker, queue_id = pull.queue
        loss = (
            f"queue {queue_id} of {topic} on {broker}: asked for {pull.offset} to {pull.end}, "
            f"the broker holds {pulled.begin} to {pulled.end}"
        )
        if self._options["fail_on_data_loss"]:
            raise errors.DataLoss(loss, broker=broker, topic=topic)
        log.warning("%s; reading what is left", loss)
