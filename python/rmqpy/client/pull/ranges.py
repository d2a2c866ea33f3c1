"""Range read: queues and offsets in, Arrow batches out.

Owns the loop that pulls a range to its end and detects data loss. Invariant: every message of a range that
the broker holds is in exactly one batch, in order within a range. A message that was deleted or cannot be decoded ends
the read with an error that names it, unless losses are allowed.

One reader is for one thread. The connection's thread turns replies into columns while the caller processes the previous
batch, and several ranges are pulled concurrently. At most one reply for each of them is buffered.
"""

from __future__ import annotations

import logging
import weakref
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, Self, TypedDict, TypeVar, Unpack

from rmqpy import errors
from rmqpy._native import ArrowBatch, Columns
from rmqpy.client.cluster import ClusterConnection
from rmqpy.client.group.checks import check_filter
from rmqpy.client.pull.puller import Puller, PullPlan, QueuePull
from rmqpy.config.arguments import check_ranges
from rmqpy.config.client import Address, ClientConfig
from rmqpy.message import Filter, MessageQueue
from rmqpy.remoting import pulls
from rmqpy.remoting.backoff import Backoff
from rmqpy.remoting.client import BlockingCaller, run

if TYPE_CHECKING:
    from rmqpy.client.codecs.codec import Codec

T = TypeVar("T")

log = logging.getLogger(__name__)

#: The columns that `read_values` reads.
_PLACE_AND_BODY: Final = ("topic", "brokerName", "queueId", "queueOffset", "body")
#: The group of these pulls. They commit nothing.
READER_GROUP: Final = "rmqpy-reader"
#: A row from a reply of 4 MiB takes longer than one from a reply of 2 MiB.
PULL_BYTES: Final = 2 << 20
#: Ranges pulled concurrently.
UNDER_WAY_MAX: Final = 4
FAILING: Final = Backoff(0.2, 2.0)


class QueueRange(NamedTuple):
    """The offsets of one `queue` from `begin` up to, not including, `end`."""

    queue: MessageQueue
    begin: int
    end: int


class RangeOptions(TypedDict, total=False):
    """The options of a range read."""

    #: Column names, or names with Spark types (`{"body": "string"}`): see `column_types`.
    columns: Sequence[str] | Mapping[str, str] | None
    #: Only messages with one of these tags, `"paid || refunded"`, or that `rmqpy.sql(…)` matches.
    tags: Filter
    group: str
    #: The target size of a batch; each range pulled concurrently may exceed it by one pull.
    batch_rows: int
    batch_bytes: int
    fail_on_data_loss: bool
    #: The effect of a string body that is not UTF-8: an error, null, or replacement characters.
    bad_text: Literal["fail", "null", "replace"]
    #: The messages per pull, its timeout in seconds, and its retries.
    pull_messages: int
    pull_timeout: float
    retries: int


_DEFAULTS: Final[RangeOptions] = {
    "columns": None,
    "tags": "*",
    "group": READER_GROUP,
    # A good size for Spark: large enough to be cheap per row, small enough for its socket.
    "batch_rows": 10_000,
    "batch_bytes": 8 << 20,
    "fail_on_data_loss": True,
    "bad_text": "fail",
    # Each pull costs about 90 µs of Python time, whatever its size.
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
) -> RangeReader:
    """Return the messages of one queue with offsets in [begin, end), as Arrow batches.

    ::

        queue = rmqpy.MessageQueue("orders", "broker-a", 0)
        for batch in rmqpy.read_range(queue, 0, 1000, columns=["queueOffset", "body"]):
            print(pyarrow.record_batch(batch))

    See `read_ranges` for options and errors.
    """
    return read_ranges([QueueRange(queue, begin, end)], namesrv, **options)


def read_ranges(
    ranges: Iterable[QueueRange],
    namesrv: Address | ClientConfig | None = None,
    **options: Unpack[RangeOptions],
) -> RangeReader:
    """Return the messages of several ranges as Arrow batches, with the options of `RangeOptions`. Messages of one range
    keep their order.

    Iterating raises `DataLoss` if the broker does not hold a whole range. With `fail_on_data_loss=False` it logs a
    warning instead and reads the rest. A body that cannot be decoded raises `DecodeError` with its position.
    """
    return RangeReader(list(ranges), ClientConfig.of(namesrv), options)


def read_values(
    ranges: Iterable[QueueRange],
    kind: type[T],
    namesrv: Address | ClientConfig | None = None,
    *,
    codec: Codec | None = None,
    on_error: Literal["raise", "skip"] = "raise",
    **options: Unpack[RangeOptions],
) -> Iterator[T]:
    """Yield the bodies of several ranges as values of one type, decoded by `codec`, `JsonCodec()` by default.

    Options as of `read_ranges`, but without `columns`. Needs `pyarrow`.

    ::

        for order in rmqpy.read_values([rmqpy.QueueRange(queue, 0, 1000)], Order):
            print(order.total)

    Raises `DecodeError` with the queue and offset of a body that cannot be decoded; with `on_error="skip"` it is logged
    and left out.
    """
    if on_error not in ("raise", "skip"):
        raise errors.ConfigError(f"on_error must be 'raise' or 'skip', not {on_error!r}")
    if "columns" in options:
        raise TypeError("read_values reads bodies: columns are an option of read_ranges")
    from rmqpy.client.codecs.json import JsonCodec

    decode = (codec or JsonCodec()).decoder(kind)
    bodies: RangeOptions = {**options, "columns": _PLACE_AND_BODY}
    reader = RangeReader(list(ranges), ClientConfig.of(namesrv), bodies)
    return _decoded(reader, decode, is_skipping=on_error == "skip")


def _decoded(reader: RangeReader, decode: Callable[[bytes], T], *, is_skipping: bool) -> Iterator[T]:
    import pyarrow

    with reader:
        for batch in reader:
            columns = pyarrow.record_batch(batch).to_pydict()
            for topic, broker, queue_id, offset, body in zip(
                *(columns[name] for name in _PLACE_AND_BODY), strict=True
            ):
                try:
                    value = decode(body)
                except ValueError as error:
                    text = f"message {offset} of queue {queue_id} of {topic} on {broker} cannot be decoded: {error}"
                    if not is_skipping:
                        raise errors.DecodeError(text, broker=broker, topic=topic) from error
                    log.warning("%s; skipping it", text)
                    continue
                yield value


def column_types() -> dict[str, list[str]]:
    """Return the columns of a range read with their possible Spark types, the default first.

    >>> column_types()["body"]
    ['binary', 'string']
    """
    return {name: kinds for name, kinds, _ in Columns.known()}


def default_columns() -> list[str]:
    """Return the default columns of a range read.

    >>> default_columns()[:4]
    ['topic', 'brokerName', 'queueId', 'queueOffset']
    """
    return [name for name, _, is_default in Columns.known() if is_default]


class RangeReader:
    """An iterator of `ArrowBatch`, and an Arrow stream: `pyarrow.table(reader)`, `polars.DataFrame(reader)`.

    Can be read once. Leaving a `with` block, or `close`, ends it early. Iterating raises rmqpy's errors; an Arrow
    library wraps an error in its own exception with the same text.
    """

    def __init__(self, ranges: Sequence[QueueRange], config: ClientConfig, options: RangeOptions) -> None:
        for queue, begin, end in ranges:
            if not 0 <= begin <= end:
                raise ValueError(f"a range needs 0 <= begin <= end, not begin={begin} end={end} ({queue})")
        if unknown := options.keys() - _DEFAULTS.keys():
            raise TypeError(f"a range read has no option {', '.join(sorted(unknown))}")
        check_ranges(options)
        self._options: RangeOptions = {**_DEFAULTS, **options}
        columns = self._options["columns"]
        asked = columns.items() if isinstance(columns, Mapping) else ((name, None) for name in columns or ())
        self._columns = Columns(None if columns is None else list(asked), bad_text=self._options["bad_text"])
        self._cluster = ClusterConnection.hold(config)
        # Executors read many ranges in a row, so the connection is kept.
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
        #: In order; earlier ranges are pulled first.
        self._unfinished = [
            QueuePull(queue, begin, check_filter(self._options["tags"]), end=end)
            for queue, begin, end in ranges
            if begin < end
        ]
        #: Called with the offsets that are left, before each batch.
        self.on_batch: Callable[[int], None] | None = None
        self._batches = self._read()

    @property
    def remaining(self) -> int:
        """The offsets that are not read yet, which is the maximum number of further messages."""
        return sum(pull.end - pull.offset for pull in self._unfinished if pull.end is not None)

    def __iter__(self) -> Iterator[ArrowBatch]:
        return self

    def __next__(self) -> ArrowBatch:
        batch = next(self._batches)
        if self.on_batch is not None:
            self.on_batch(self.remaining)
        return batch

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return self._columns.stream(self)

    def __arrow_c_schema__(self) -> object:
        return self._columns.__arrow_c_schema__()

    def close(self) -> None:
        """End the read and drop the pulls in flight. Idempotent."""
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
                    # The batch is full if another reply of this size does not fit.
                    rows, size = columns.num_rows, columns.nbytes
                    rows_after = rows + brought
                    is_full = (
                        rows_after > options["batch_rows"]
                        or size * rows_after > options["batch_bytes"] * rows
                    )
                    batch = columns.take() if is_full else None
                    # Started before the caller processes the batch, so that the broker works meanwhile.
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
        """Advance a range, or end it."""
        has_moved_on, is_over = pulled.next_offset > pull.offset, False
        if pulled.found in (pulls.Found.MESSAGES, pulls.Found.FILTERED) and has_moved_on:
            pull.advance(pulled)
        elif pulled.found is pulls.Found.MOVED:
            self._lost(pull, pulled)
            pull.offset = max(pull.offset, pulled.next_offset)
            is_over = not has_moved_on
        elif pull.failures < self._options["retries"]:
            # A new message may become visible here with a short delay.
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
        log.warning("%s; reading the rest", loss)
