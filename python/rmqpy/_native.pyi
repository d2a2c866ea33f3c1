"""The interface between Python and the native module.

Only `rmqpy` imports this module. Anything that may block releases the interpreter; no native thread ever
attaches to it. Native classes are frozen. Errors raised here are the classes of `rmqpy.errors`.
"""

import os
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence, Set
from concurrent.futures import Future
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Literal, Self, Unpack, final

from rmqpy.client.pull.puller import QueuePull
from rmqpy.config.access import AccessConfig
from rmqpy.config.broker import BrokerConfig
from rmqpy.config.replication import ReplicationConfig
from rmqpy.config.sender import SenderOptions
from rmqpy.config.store import StoreConfig
from rmqpy.load.plan import LoadPlan
from rmqpy.message import Body, MessageChanges, MessageQueue, SendResult
from rmqpy.protocol.requests.groups import SubscriptionGroup
from rmqpy.protocol.topics import TopicConfig

__all__ = [
    "AUTO_CREATE_TOPIC",
    "BENCHMARK_TOPIC",
    "BROKER_TOPICS",
    "DEAD_LETTER_PREFIX",
    "GROUP_BYTES_MAX",
    "GROUP_TOPIC_BYTES_MAX",
    "HALF_TOPIC",
    "HOT_CODES",
    "LATENCY_BOUNDS_US",
    "LIGHT_PREFIX",
    "MESSAGE_SIZE_BOUNDS",
    "OFFSET_MOVED_TOPIC",
    "OP_HALF_TOPIC",
    "PERMISSION_READ",
    "PERMISSION_WRITE",
    "PULL_SUBSCRIPTION",
    "PULL_SUSPEND",
    "RETRY_PREFIX",
    "SCHEDULE_TOPIC",
    "SELF_TEST_TOPIC",
    "SYSTEM_GROUP_PREFIX",
    "SYSTEM_TOPICS",
    "SYSTEM_TOPIC_PREFIX",
    "TIMER_BOUNDS_S",
    "TOPIC_BYTES_MAX",
    "TRACE_TOPIC",
    "TRANSACTION_BOUNDS_S",
    "TRANSACTION_GROUP",
    "UNDECIDED_TOPIC",
    "AccessRefusal",
    "ArrivalCounts",
    "ArrowBatch",
    "BrokerSet",
    "Call",
    "Client",
    "ClientTls",
    "Columns",
    "Completions",
    "ConnectedSlave",
    "ControlledReplica",
    "Controller",
    "ControllerCall",
    "ControllerOutcome",
    "ControllerWork",
    "DeliveryCounts",
    "DueHalf",
    "DueMessages",
    "EscapedMessage",
    "FailedAttempt",
    "FollowedMaster",
    "FollowedPage",
    "GroupStepBack",
    "HandClock",
    "InvalidRange",
    "LiteConsumer",
    "LiteConsumers",
    "Load",
    "LogComparison",
    "LostLiteTopic",
    "Message",
    "Metadata",
    "Namespace",
    "NotSent",
    "Offsets",
    "OrderedBatch",
    "ReceivedMessage",
    "RecordFilter",
    "RecordGroup",
    "RecordPage",
    "RefusedSlave",
    "Replication",
    "ReplyLatencies",
    "Request",
    "Rows",
    "SelectedRecords",
    "SendBatch",
    "SendFuture",
    "Sender",
    "Server",
    "ServerRequest",
    "ServerTls",
    "SharedRange",
    "StoppedStore",
    "Store",
    "StoreSetting",
    "TimerStatistics",
    "TopicCounts",
    "TopicTimers",
    "TopicTransactions",
    "Transactions",
    "__version__",
    "attach_count",
    "certificate_expiry",
    "check_entry",
    "decide",
    "encode_record",
    "hot_needs",
    "is_listed",
    "lite_parts",
    "lite_queue",
    "make_certificate",
    "record_destination",
    "record_stored_at_ms",
    "record_topic",
    "signature",
    "sql_error",
    "sql_matches",
    "store_reply",
    "store_settings",
    "tls_suites",
]

__version__: str

RETRY_PREFIX: str
DEAD_LETTER_PREFIX: str
LIGHT_PREFIX: str
#: The template for topics created by their first message.
AUTO_CREATE_TOPIC: str
#: The topic of delayed messages, one queue per delay level.
SCHEDULE_TOPIC: str
#: The topics of open half messages, and of the marks that end them.
HALF_TOPIC: str
OP_HALF_TOPIC: str
#: The topic of half messages whose transactions were given up.
UNDECIDED_TOPIC: str
SELF_TEST_TOPIC: str
OFFSET_MOVED_TOPIC: str
#: Topics that only brokers write.
BROKER_TOPICS: tuple[str, ...]
#: Other system topics, and the prefix of temporary ones.
SYSTEM_TOPICS: tuple[str, ...]
SYSTEM_TOPIC_PREFIX: str
SYSTEM_GROUP_PREFIX: str
#: The group under which the broker saves the progress of its transactions.
TRANSACTION_GROUP: str
TRACE_TOPIC: str
BENCHMARK_TOPIC: str
TOPIC_BYTES_MAX: int
#: Prefixes of retry and dead-letter topics; the group's name follows.
GROUP_TOPIC_BYTES_MAX: int
GROUP_BYTES_MAX: int
#: Permission bits of a topic or of a broker.
PERMISSION_READ: int
PERMISSION_WRITE: int
#: Flag bits of a pull: it may wait for a message, it carries its subscription.
PULL_SUSPEND: int
PULL_SUBSCRIPTION: int
#: Codes of the requests that the broker serves without Python.
HOT_CODES: tuple[int, ...]
#: Upper ends of the buckets of `Server.latencies`, in microseconds.
LATENCY_BOUNDS_US: tuple[int, ...]
#: Upper ends of the buckets of `Store.message_sizes`, in bytes.
MESSAGE_SIZE_BOUNDS: tuple[int, ...]
#: Upper ends of the delay buckets in `DueMessages.statistics`, in seconds; one more counts longer ones.
TIMER_BOUNDS_S: tuple[int, ...]
#: Upper ends of the commit buckets in `Transactions.statistics`, in seconds.
TRANSACTION_BOUNDS_S: tuple[int, ...]

def attach_count() -> int:
    """Return how many calls Python has made into server objects since the process began.

    Hot requests need none: the number does not change while messages are sent and pulled.
    """

@final
class StoreSetting:
    """A number that a store checks."""

    @property
    def default(self) -> int:
        """The default."""
    @property
    def low(self) -> int:
        """The minimum."""
    @property
    def high(self) -> int:
        """The maximum."""
    @property
    def unit(self) -> str:
        """The unit."""

def store_settings() -> dict[str, StoreSetting]:
    """Return each number that a store checks, by its key in broker.conf."""

def sql_error(expression: str, *, strict: bool = True) -> str | None:
    """Return the error in a SQL92 expression, or None if it is valid. Without `strict`, trailing text is
    ignored."""

def sql_matches(expression: str, properties: dict[str, str], *, strict: bool = True) -> bool:
    """Whether a message with these properties matches an expression. An invalid expression matches nothing."""

def hot_needs(code: int) -> list[tuple[str, str, list[str]]]:
    """Return the requirements of a natively served request code: resource kind, header field, and actions of which
    one is needed."""

def check_entry(
    resource: str, actions: Sequence[str], sources: Sequence[str], decision: str
) -> tuple[str, list[str], list[str], str]:
    """Return an entry in normal form: resource, actions, sources, decision. Raises `ValueError` for an invalid
    entry."""

def decide(
    custom: Sequence[_EntryRow], default: Sequence[_EntryRow], need: _Need, source: str
) -> tuple[bool, str | None]:
    """Evaluate custom and default entries for one requirement and source address: whether it is allowed, and the
    deciding entry or `None`."""

def is_listed(text: str, source: str) -> bool:
    """Return whether `source` matches a white list entry, in the notation of `plain_acl.yml`. Raises `ValueError` for
    an invalid entry."""

def lite_queue(parent: str, lite_topic: str) -> str | None:
    """Return the queue of a lite topic; `None` for a name that no lite topic may have."""

def lite_parts(queue: str) -> tuple[str, str] | None:
    """Return the parent and the lite topic of a queue; `None` for other queues."""

def record_destination(record: bytes) -> str:
    """Return the topic that a record of the log will be delivered to. For an open or abandoned half message that is
    its original topic. Empty for invalid records."""

def record_stored_at_ms(record: bytes) -> int:
    """Return the store time of a record of the log in ms since the epoch; 0 for invalid records."""

def record_topic(record: bytes) -> str:
    """Return the topic of a record of the log; empty for invalid records."""

def signature(secret: str, fields: Sequence[tuple[str, str]], body: bytes) -> str:
    """Return the signature of a request with these header fields, computed as Apache's clients do."""

def store_reply(
    server: Server,
    *,
    topic: str,
    queue_id: int,
    sys_flag: int,
    born_ms: int,
    born_host: str,
    flag: int,
    properties: str,
    reconsume_times: int,
    body: bytes,
) -> tuple[str, int]:
    """Store a reply that its requester has received, as a message of its topic. Returns its message id and queue
    offset. May wait for the disk. Raises `BrokerError` if the message is refused."""

def encode_record(
    *,
    topic: str,
    queue_id: int,
    flag: int,
    sys_flag: int,
    born_ms: int,
    born_host: str,
    stored_ms: int,
    store_host: str,
    reconsume_times: int,
    properties: str,
    body: bytes,
) -> bytes:
    """Build the record of a message that a broker sent in a request. Raises `DecodeError` for invalid fields."""

# --------------------------------------------------------------------------------------------------------------
# Broker: store, metadata, offsets, server
# --------------------------------------------------------------------------------------------------------------

@final
class HandClock:
    """A clock for brokers in tests that moves only when `advance` is called.

    It starts at the machine's time, or at `wall_ms`. Timeouts and intervals of connections still use the machine's
    clock.
    """

    def __new__(cls, wall_ms: int | None = None) -> Self: ...
    def wall_ms(self) -> int:
        """Milliseconds since the epoch."""
    def elapsed(self) -> float:
        """Seconds since the clock was made, measured by the machine's clock."""
    def advance(self, seconds: float) -> None:
        """Advance the time, and wait until every delayed and timed message that became due can be consumed.

        Raises `ValueError` for a negative or unrepresentable time.
        """

@final
class Store:
    """A message store directory, opened by one process.

    The constructor only stores the configuration. `open` takes the lock, recovers and starts the store's threads.
    Sizes are bytes, times are milliseconds since the epoch, offsets are queue offsets unless called `physical`.
    """

    def __new__(
        cls, config: StoreConfig, *, clock: HandClock | None = None, is_replica: bool = False
    ) -> Self:
        """A replica refuses messages and copies its master's log. Raises `ConfigError` naming the key that is out of
        bounds."""
    def open(self) -> None:
        """Lock, recover and start. Blocks with the interpreter released.

        Raises `StoreError` naming the file and what was expected.
        """
    def progress(self) -> tuple[str, int, int]:
        """The progress of `open` in another thread: phase, bytes done, total bytes."""
    def close(self) -> None:
        """Flush everything, write the checkpoint, remove the abort file. Idempotent."""
    def fence(self) -> int:
        """Refuse messages from now on, because another broker leads. Returns the end of the log."""
    def abandon(self) -> None:
        """Stop the threads and leave the store as after a crash: the abort file stays."""
    def queues(self) -> list[tuple[str, list[int]]]:
        """Return the topics that have queue files, with their queue ids."""
    def min_offset(self, topic: str, queue_id: int) -> int:
        """Return the first available offset of a queue; 0 if the queue does not exist."""
    def max_offset(self, topic: str, queue_id: int) -> int:
        """Return the offset after the last visible entry; 0 if the queue does not exist."""
    def offset_by_time(self, topic: str, queue_id: int, timestamp_ms: int, *, upper: bool = False) -> int:
        """Return the offset of the first message stored at or after a time, or with `upper` of the last one at or
        before it."""
    def store_time(self, topic: str, queue_id: int, offset: int) -> int:
        """Return the store timestamp of the message at `offset`; -1 if absent."""
    def earliest_store_time(self, topic: str, queue_id: int) -> int:
        """Return the store timestamp of the oldest message of the queue; -1 if it is empty."""
    def log_begin_time(self) -> int:
        """Return the store timestamp of the oldest message of the log, of any topic; -1 if it is empty."""
    def message(self, physical: int) -> bytes | None:
        """Return the record at this position of the log."""
    def follow(
        self, physical: int, *, broker: str, count: int, bytes_max: int, topics: Sequence[str] | None = None
    ) -> FollowedPage:
        """Return the visible messages from a position of the log on, in its order: at most `count`, from at most
        `bytes_max` of the log, and at least one if there is one. Without `topics`, those of all topics but the broker's
        own.

        May wait for the disk.
        """
    def pass_over(
        self, physical: int, *, bytes_max: int, topics: Sequence[str] | None = None
    ) -> tuple[int, int]:
        """Count the messages that `follow` would return from at most `bytes_max` of the log, and return the position
        after them."""
    def query(
        self, topic: str, key: str, maximum: int, begin_ms: int, end_ms: int
    ) -> tuple[list[bytes], int, int]:
        """Return the records with this key hash, newest first, and the index's last update time and physical offset."""
    def set_compacted(self, topic: str, is_compacted: bool) -> None:
        """Begin or end to keep the newest message of each key of a topic, and to serve consumers from there. No-op if
        compaction is off."""
    def compacted_topics_are_known(self) -> None:
        """Let expired files of the log go that wait for copies of topics not named so far."""
    def delete_topic(self, topic: str) -> None:
        """Remove the topic's queues. Its bytes in the log stay until their segment expires."""
    def delete_topics(self, topics: Sequence[str]) -> None:
        """Remove the queues of topics in one step, as `delete_topic` does."""
    def queue_counts(self) -> tuple[int, int]:
        """Return the numbers of all queues and of the light ones."""
    def lite_topics(self) -> dict[str, int]:
        """Return the number of lite topics of each parent."""
    def stale_lite_topics(self, now_ms: int, kept_ms: Mapping[str, int], limit: int) -> list[str]:
        """Return the queues of at most `limit` lite topics without a new message for the milliseconds that `kept_ms`
        has for their parent; parents that it does not name keep theirs."""
    def retain(self, config: StoreConfig, utc_offset_ms: int) -> None:
        """Set the retention of messages and the limits of a full disk. Before the first call hours are UTC."""
    def keep_from(self, position: int) -> None:
        """Keep files of the log that end after this position, except from the deletion by force on a full disk."""
    def delete_expired(self) -> int:
        """Delete expired files of the log now, at any hour, with their queue and index entries.

        Returns the number of deleted log files. Raises `StoreError` if one cannot be deleted.
        """
    def trim(self) -> None:
        """Remove queue and index files whose messages were deleted from the log; each queue keeps its newest file."""
    def events(self) -> list[tuple[bool, str]]:
        """Take the log lines since the last call, oldest first: whether it is a warning, and the text."""
    def first_from(self, topic: str, queue_id: int, physical: int) -> int:
        """Return the offset of the first message of a queue whose record is at this position of the log or later; the
        end of the queue without one, and 0 if the queue does not exist."""
    def encoded_units(self, topic: str, queue_id: int, begin: int, end: int) -> bytes:
        """Return entries of a queue as in its files, 20 bytes each: those of the offsets [begin, end), at most 65,536,
        fewer at its end."""
    def units(self, topic: str, queue_id: int, offset: int, count: int) -> list[tuple[int, int, int]]:
        """Return at most 1,024 entries of a queue: position and size of the record, hash of its tag."""
    def take_arrivals(self) -> list[ArrivalCounts]:
        """Take the counts of messages that became visible since the last call. Only one caller may use it; the first
        call includes recovered messages."""
    def message_sizes(self) -> list[int]:
        """Return how many messages were stored since the start, by size in the log: up to 1 KiB, 4 KiB, 512 KiB, 1,
        2, 4 MiB, and larger."""
    def statistics(self) -> dict[str, int]:
        """Counters and positions: min_physical, max_physical, durable, visible, puts, put_bytes, put_failures, …"""
    @property
    def failure(self) -> str | None:
        """Why the store refuses writes, or None."""

@final
class RecordFilter:
    """The filter of a subscription, as a broker applies it: by the hash of the tag in an entry of a queue, or by SQL92
    on a record."""

    def __new__(cls, expression: str, kind: str, *, strict: bool = True) -> Self:
        """`kind` is `TAG` or `SQL92`. Raises `ValueError` for an invalid expression."""

@final
class RecordGroup:
    """Messages of a queue whose records are close together in a copied file of the log."""

    @staticmethod
    def of(
        units: bytes,
        *,
        first: int,
        begin: int,
        end: int,
        count_max: int,
        bytes_max: int,
        accepts: RecordFilter | None = None,
    ) -> list[RecordGroup]:
        """Group copied entries of a queue, the first of which has the offset `first`, so that at most `count_max`
        records of `bytes_max` are read together. [begin, end) is the range of the copied file. `accepts` leaves
        messages out by the hash of their tag; consumers compare tags. Raises `ValueError` for a damaged copy."""
    @property
    def first(self) -> int:
        """The offset of the first message."""
    @property
    def begin(self) -> int:
        """The position of the first record in the log."""
    @property
    def end(self) -> int:
        """The position after the last one."""
    def select(
        self,
        part: bytes,
        *,
        count_left: int,
        bytes_left: int,
        is_empty: bool,
        accepts: RecordFilter | None = None,
    ) -> SelectedRecords:
        """Select records from the bytes [begin, end) of the log that match the filter: at most `count_left`, and of
        `bytes_left` together, or one if the page is empty. Raises `ValueError` if they are not the entries' records."""

@final
class SelectedRecords:
    """The records that a group added to a page."""

    @property
    def count(self) -> int:
        """How many messages."""
    @property
    def records(self) -> bytes:
        """Their records, one after the other."""
    @property
    def refused(self) -> int | None:
        """The offset of the first message without room; `None` if all had room."""

@final
class FollowedPage:
    """A page of the log in its order."""

    @property
    def messages(self) -> list[ReceivedMessage]:
        """The messages of the selected topics."""
    @property
    def begin(self) -> int:
        """The position of the page: later than requested if the log begins later."""
    @property
    def next(self) -> int:
        """The position to continue at; equal to `begin` at the end of the visible log."""
    @property
    def damaged(self) -> int:
        """The bytes without readable records."""

@final
class ArrivalCounts:
    """Counts of the messages of one type that became visible in one queue."""

    @property
    def topic(self) -> str:
        """The topic."""
    @property
    def queue_id(self) -> int:
        """The id of the queue."""
    @property
    def message_type(self) -> str:
        """The type of the messages."""
    @property
    def messages(self) -> int:
        """The number of messages."""
    @property
    def bytes(self) -> int:
        """The size of the messages in bytes."""

@final
class RecordPage:
    """A page of records of a log."""

    @property
    def messages(self) -> list[ReceivedMessage]:
        """The records, as messages."""
    @property
    def next(self) -> int | None:
        """The position to continue at; None at the end."""
    @property
    def invalid(self) -> list[InvalidRange]:
        """The invalid ranges between the records."""

@final
class InvalidRange:
    """A range of a log without a valid record."""

    @property
    def begin(self) -> int:
        """The start of the range."""
    @property
    def end(self) -> int:
        """The end of the range."""
    @property
    def reason(self) -> str:
        """The reason."""

@final
class LogComparison:
    """The result of comparing two logs."""

    @property
    def begin(self) -> int:
        """The start of the log."""
    @property
    def end(self) -> int:
        """The end of the log."""
    @property
    def other_begin(self) -> int:
        """The start of the other log."""
    @property
    def other_end(self) -> int:
        """The end of the other log."""
    @property
    def common_end(self) -> int:
        """The end of the common part."""
    @property
    def difference(self) -> int | None:
        """The first position in the common part with different bytes."""

@final
class TopicCounts:
    """Counts of the records of one topic."""

    @property
    def queues(self) -> int:
        """The number of queues."""
    @property
    def records(self) -> int:
        """The number of records."""
    @property
    def bytes(self) -> int:
        """The size of the records in bytes."""
    @property
    def body_bytes(self) -> int:
        """The size of the bodies in bytes."""
    @property
    def oldest_ms(self) -> int:
        """The oldest store time."""
    @property
    def newest_ms(self) -> int:
        """The newest store time."""

@final
class StoppedStore:
    """A store directory, Apache's or rmqpy's, locked against brokers until `release`.

    Positions are bytes of the log, times milliseconds since the epoch. Every method releases the interpreter. Raises
    `StoreError` when a broker has the store open, or the directory has no store.
    """

    def __new__(cls, config: StoreConfig, *, exclusive: bool = False) -> Self:
        """Readers share a store; `rebuild_index` and `drain` need it exclusively.

        Folders missing from the configuration default to those of the last broker.
        """
    @property
    def index_folder(self) -> Path:
        """The folder of the index."""
    def progress(self) -> tuple[int, int]:
        """The bytes of the log that another thread has processed, and the total."""
    def release(self) -> None:
        """Release the store for brokers. Idempotent; the object cannot be used afterwards."""
    def verify(self, topics: Sequence[str] | None = None) -> dict[str, Any]:
        """Compare queues and index with the log, without writing.

        `topics` are the existing ones: records of others belong to deleted topics. The keys are `log_begin`,
        `log_end`, `records`, `queues`, `keys`, `is_aborted`, `damage`, `notes` and `findings`, a list of the first
        thousand with `kind`, `is_damage`, `path`, `at` and `text`.
        """
    def stats(self) -> dict[str, TopicCounts]:
        """Count the records of the log by topic."""
    def records(
        self,
        begin: int,
        end: int,
        *,
        topic: str | None = None,
        queue_id: int | None = None,
        offsets: tuple[int, int] | None = None,
        count: int = 1024,
    ) -> RecordPage:
        """Return at most `count` records that begin in this part of the log. `offsets` is a half-open range of queue
        offsets."""
    def undrained_bytes(self) -> int:
        """The bytes of records that a killed broker left in the write ring and may not have written to the log."""
    def drain(self) -> tuple[str | None, bool]:
        """Copy the records that a killed broker left in the write ring into the log.

        Returns the result, `None` if nothing was left, and whether all records are in the log. Needs the store
        exclusively.
        """
    def compare(self, other: StoppedStore) -> LogComparison:
        """Compare the log with another one."""
    def end_before(self, stored_ms: int) -> tuple[int, int]:
        """Return the position before the first record that was stored at `stored_ms` or later, and the end of the log;
        the same twice if there is none."""
    def cut(self, at: int) -> None:
        """Cut the log at a position, which must be the end of a record. Needs the store exclusively."""
    def rebuild_index(self) -> int:
        """Rebuild the index with every key of the log. Returns the number of records read."""
    def copy(self, target: str | os.PathLike[str], *, topics: Sequence[str] | None = None) -> dict[str, int]:
        """Copy the whole records, of `topics` or of all, to a new store; `config` is copied unchanged.

        The keys are `records`, `bytes`, `left_out` (other or deleted topics), `gaps` and `gap_bytes`.
        """

@final
class Metadata:
    """The data plane's copy of topics, groups, subscriptions and the broker's settings.

    Every change is published atomically before the call returns; requests in flight see the old or the new value.
    """

    def __new__(cls, config: BrokerConfig, store_host: str) -> Self:
        """`store_host` is `ip:port` as written into records and message ids."""
    def put_topic(self, entry: TopicConfig) -> None:
        """Publish a new topic, or its new settings."""
    def remove_topic(self, name: str) -> None:
        """Remove a topic."""
    def put_mapping(
        self, topic: str, queues: Sequence[tuple[int, Sequence[tuple[int, bool, int, int, int]]]]
    ) -> None:
        """Publish the logical queues of a static topic, which exists: each with its segments, oldest first, as (local
        queue, is it of this broker, first logical offset, first and last local offset)."""
    def remove_mapping(self, topic: str) -> None:
        """Make a static topic an ordinary one."""
    def put_group(self, entry: SubscriptionGroup) -> None:
        """Publish a new group, or its new settings."""
    def remove_group(self, name: str) -> None:
        """Remove a group."""
    def put_subscriptions(
        self, group: str, *, is_broadcast: bool, subscriptions: Iterable[tuple[str, str, str, int]]
    ) -> None:
        """Publish the subscriptions of the registered members of `group`: (topic, expression type, expression,
        version)."""
    def remove_subscriptions(self, group: str) -> None:
        """Remove the subscriptions of a group without registered members."""
    def forbid(self, group: str, topic: str, is_forbidden: bool) -> None:
        """Set whether pulls of this group from this topic are refused."""
    def put_in_order(self, group: str, is_in_order: bool) -> None:
        """Set whether a member of `group` holds a queue lock. Messages that such a group sends to its retry topic go to
        its dead letters."""
    def set_transactions(self, rejects: bool, timeout_ms: int) -> None:
        """Set whether half messages are refused, and how long producers have to decide."""
    def set_message_type_check(self, is_on: bool) -> None:
        """Set whether topics with a declared message type accept only messages of that type."""
    def set_role(self, is_slave: bool, has_master: bool, *, is_acting: bool = False) -> None:
        """Set whether the broker is a slave, whether its master responds, and whether it acts for the master. A slave
        accepts no messages."""
    def set_copies_min(self, count: int) -> None:
        """Set the number of replicas in sync below which messages are refused."""
    def set_permission(self, permission: int) -> None:
        """Set the broker's permission bits."""

@final
class GroupStepBack:
    """A commit of a group below its earlier offset."""

    @property
    def group(self) -> str:
        """The group."""
    @property
    def topic(self) -> str:
        """The topic."""
    @property
    def queue_id(self) -> int:
        """The id of the queue."""
    @property
    def before(self) -> int:
        """The offset before the commit."""
    @property
    def after(self) -> int:
        """The offset after the commit."""

@final
class Offsets:
    """Committed consumer offsets, owned by the data plane.

    Individual commits are checked against the read queues of their topic in `metadata`."""

    def __new__(cls, metadata: Metadata) -> Self: ...
    def load(self, table: Mapping[str, Mapping[int, int]]) -> None:
        """Replace the whole table: `topic@group` to queue id to offset. The caller
        passes existing queues only."""
    def snapshot(self) -> tuple[int, dict[str, dict[int, int]]]:
        """Return the number of commits so far, and the whole table."""
    @property
    def commits(self) -> int:
        """The number of commits so far. Equal numbers mean an equal table."""
    @property
    def refused(self) -> int:
        """The number of refused commits and resets: unknown queue, or offset out of range."""
    def steps_back(self) -> dict[str, int]:
        """The groups that committed below an earlier offset, and how often."""
    def take_first_steps_back(self) -> list[GroupStepBack]:
        """Take the first step back of each group."""
    def commit(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Commit an offset. Raises `BrokerError`, with code 29 for a queue that consumers cannot read, 17 for an
        unknown topic, 16 for the broker's own progress."""
    def take_over(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Copy an offset from another broker; the broker's own progress with transactions is allowed.

        Raises as `commit`.
        """
    def query(self, group: str, topic: str, queue_id: int) -> int | None:
        """Return the committed offset of a queue, or `None`."""
    def groups_of(self, topic: str) -> list[str]:
        """Return the groups that have committed in a topic."""
    def topics_of(self, group: str) -> list[str]:
        """Return the topics in which a group has committed."""
    def remove_topic(self, topic: str) -> None:
        """Remove all commits in a topic."""
    def remove_topics(self, topics: Set[str]) -> None:
        """Remove all commits in these topics, in one step."""
    def remove_group(self, group: str) -> None:
        """Remove all commits of a group."""
    def reset(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Make the next pull of this queue return code 21 with `offset`. Commits are ignored until then.

        Raises as `commit`.
        """
    @property
    def size(self) -> int:
        """The number of topics with commits, each counted once for each group."""
    @property
    def order_size(self) -> int:
        """The number of batches that groups hold in order."""
    @property
    def order_changes(self) -> int:
        """The number of changes of `orders` so far. Equal numbers mean an equal table."""
    def orders(self, now_ms: int) -> tuple[int, dict[str, dict[int, OrderedBatch]]]:
        """Return the number of changes so far, and what groups that pop in order hold: `topic@group` to queue id to
        batch. Unknown queues, and batches that were not used for a day, are dropped."""
    def load_orders(self, table: Mapping[str, Mapping[int, OrderedBatch]]) -> None:
        """Replace the table of `orders`."""

@final
class OrderedBatch:
    """The last messages of a queue that a group popped in order."""

    def __new__(
        cls,
        *,
        pop_ms: int,
        invisible_ms: int | None,
        offsets: Sequence[int],
        visible_ms: Mapping[int, int],
        counts: Mapping[int, int],
        used_ms: int,
        acked: int,
        attempt: str | None,
    ) -> Self: ...
    @property
    def pop_ms(self) -> int:
        """When they were popped."""
    @property
    def invisible_ms(self) -> int | None:
        """The time for which they are hidden."""
    @property
    def offsets(self) -> list[int]:
        """Their offsets, ascending."""
    @property
    def visible_ms(self) -> dict[int, int]:
        """When those whose time was changed are visible again, by offset."""
    @property
    def counts(self) -> dict[int, int]:
        """Earlier deliveries of those that had any, by offset."""
    @property
    def used_ms(self) -> int:
        """When the queue was popped last."""
    @property
    def acked(self) -> int:
        """Bits of the acknowledged ones, the first offset lowest, as a signed number of 64 bits."""
    @property
    def attempt(self) -> str | None:
        """The client's name for the pop."""

@final
class Request:
    """One cold request, or one event, forwarded to Python."""

    @property
    def kind(self) -> Literal["request", "answer", "closed", "create_topic", "create_group"]:
        """`request`, or an event. `answer`: a client's response to `Server.ask`. `closed`: the connection ended.
        `create_topic`, `create_group`: the first send to an unknown topic, or pull of an unknown group; such requests
        are parked for at most 3 s, until `Server.release` is called for `name`."""
    @property
    def token(self) -> int:
        """Identifies this request in `Server.answer`. For an answer, the value that `Server.ask` returned; 0 for
        events."""
    @property
    def connection(self) -> int:
        """The number of the connection it arrived on."""
    @property
    def peer(self) -> str:
        """`ip:port` of the peer."""
    @property
    def local(self) -> str:
        """The local `ip:port`."""
    @property
    def is_vip(self) -> bool:
        """Whether it arrived on the VIP port."""
    @property
    def code(self) -> int:
        """The request code."""
    @property
    def version(self) -> int:
        """The ordinal of the sender's release."""
    @property
    def language(self) -> str:
        """The client's programming language."""
    @property
    def is_oneway(self) -> bool:
        """Whether it is one-way and must not be answered."""
    @property
    def user(self) -> str | None:
        """The authenticated user, if access control is on and the request names one."""
    @property
    def is_guarded(self) -> bool:
        """Whether `Server.authorize` must check its requirements."""
    @property
    def ext(self) -> dict[str, str]:
        """The header's fields."""
    @property
    def body(self) -> bytes:
        """The body; empty if absent, or if larger than `Server.declare_requests` allows."""
    @property
    def body_bytes(self) -> int:
        """The size of the body as received, in bytes."""
    @property
    def name(self) -> str:
        """The topic or group to create; empty for requests. `code` and `ext` are those of the first parked request."""
    @property
    def remark(self) -> str:
        """The remark of an answer; otherwise empty."""

#: token, response code, remark, header fields, body
_EntryRow = tuple[str, Sequence[str], Sequence[str], str]
_UserRow = tuple[str, str, bool, bool, Sequence[_EntryRow], Sequence[_EntryRow], str]
_Need = tuple[str, str, Sequence[str]]
_Answer = tuple[int, int, str | None, Mapping[str, str] | None, bytes | None]

@final
class ServerTls:
    """TLS for a server's ports: a certificate and its key, as PEM, and the policy for client certificates.

    `client_auth` is none, optional or require; the latter two need `trust`, the certificates of the authorities.
    Plain connections are served too, unless `is_enforced`. `protocols` and `ciphers` are lists as `tls_suites` takes
    them. Raises `ConfigError`.
    """

    def __new__(
        cls,
        certificate: bytes,
        key: bytes,
        *,
        is_enforced: bool,
        password: str | None = None,
        client_auth: str = "none",
        trust: bytes | None = None,
        protocols: str = "",
        ciphers: str = "",
    ) -> Self: ...
    def replace(
        self,
        certificate: bytes,
        key: bytes,
        *,
        password: str | None = None,
        client_auth: str = "none",
        trust: bytes | None = None,
    ) -> None:
        """Use another certificate for new connections, with the same suites. Raises `ConfigError` without any
        change."""
    def take_failures(self) -> tuple[list[tuple[str, str]], int]:
        """Take the handshake failures since the last call: `ip:port` and reason; and how many more there were."""

@final
class ClientTls:
    """TLS for a client's connections: trusted authorities as PEM (without them any server is trusted), and an optional
    certificate and key.

    With `server_name` every server's certificate must be for that name, whatever its address. `protocols` and
    `ciphers` are lists as `tls_suites` takes them. Raises `ConfigError`.
    """

    def __new__(
        cls,
        *,
        trust: bytes | None = None,
        certificate: bytes | None = None,
        key: bytes | None = None,
        password: str | None = None,
        server_name: str | None = None,
        protocols: str = "",
        ciphers: str = "",
    ) -> Self: ...
    def replace(self, other: ClientTls) -> None:
        """Use the settings of another `ClientTls` for new connections."""

def tls_suites(protocols: str, ciphers: str) -> list[tuple[str, str]]:
    """Return the suites of `tls.protocols` and `tls.ciphers`: protocol and OpenSSL name of each. Names may be those
    of rustls, Java or OpenSSL, separated by commas, colons or blanks; an empty list selects all. Raises `ConfigError`
    naming unavailable suites."""

def certificate_expiry(certificate: bytes) -> int:
    """Return when the first certificate of a PEM text expires, in seconds since 1970. Raises `ConfigError`."""

def make_certificate(
    names: Sequence[str], *, days: int, is_authority: bool = False, authority: tuple[str, str] | None = None
) -> tuple[str, str]:
    """Create a certificate and its key, as PEM, for these names and addresses, valid for some days from now. Signed
    by `authority`, a certificate and key from `make_certificate`, or self-signed. Raises `ConfigError`."""

@final
class ConnectedSlave:
    """A slave that is connected to a master."""

    @property
    def address(self) -> str:
        """Its `ip:port`."""
    @property
    def end(self) -> int:
        """The end of its log, as it last reported."""
    @property
    def is_in_sync(self) -> bool:
        """Whether it is in sync."""
    @property
    def silent_ms(self) -> int:
        """Milliseconds since its last message."""
    @property
    def broker_id(self) -> int | None:
        """Its broker id, if it is known."""
    @property
    def is_apache(self) -> bool:
        """Whether it is Apache's, of a set with a controller."""

@final
class RefusedSlave:
    """A slave that a master refused."""

    @property
    def address(self) -> str:
        """Its `ip:port`."""
    @property
    def reason(self) -> str:
        """The reason."""
    @property
    def lacks_ticket(self) -> bool:
        """Whether its ticket was missing; otherwise the logs diverge."""

@final
class FollowedMaster:
    """A slave's view of its master."""

    @property
    def address(self) -> str | None:
        """Its `host:port`, if known."""
    @property
    def is_connected(self) -> bool:
        """Whether there is a connection."""
    @property
    def end(self) -> int:
        """The end of the slave's log."""
    @property
    def silent_ms(self) -> int | None:
        """Milliseconds since its last message."""
    @property
    def fault(self) -> str | None:
        """The reason for a missing connection."""
    @property
    def is_diverged(self) -> bool:
        """Whether the logs diverge."""

@final
class SharedRange:
    """The part of a slave's log that must equal its master's."""

    @property
    def cut(self) -> int | None:
        """The position at which the slave cuts its log first, if it does."""
    @property
    def begin(self) -> int:
        """The start of the range."""
    @property
    def end(self) -> int:
        """The end of the range."""
    @property
    def digest(self) -> int:
        """The CRC-32 of the slave's bytes."""

@final
class ControlledReplica:
    """A replica of a broker set."""

    @property
    def id(self) -> int:
        """Its id."""
    @property
    def address(self) -> str:
        """Its `host:port`."""
    @property
    def is_alive(self) -> bool:
        """Whether it sends heartbeats."""
    @property
    def is_in_sync(self) -> bool:
        """Whether it is in the in-sync set."""

@final
class BrokerSet:
    """A broker set, as a controller knows it."""

    @property
    def name(self) -> str:
        """Its name."""
    @property
    def cluster(self) -> str:
        """Its cluster."""
    @property
    def next_id(self) -> int:
        """The id for the next applicant."""
    @property
    def master_id(self) -> int | None:
        """The id of its master, if there is one."""
    @property
    def master_address(self) -> str | None:
        """The `host:port` of its master."""
    @property
    def master_epoch(self) -> int:
        """The epoch of the master; 0 before the first election."""
    @property
    def in_sync_epoch(self) -> int:
        """The version of the in-sync set."""
    @property
    def in_sync(self) -> list[int]:
        """The ids in the in-sync set."""
    @property
    def replicas(self) -> list[ControlledReplica]:
        """Every replica."""
    @property
    def lease_ms(self) -> int:
        """Milliseconds until another replica than the master may be elected; 0 without a lease."""

@final
class ControllerOutcome:
    """The outcome of a request to a controller."""

    @property
    def code(self) -> int:
        """The response code."""
    @property
    def remark(self) -> str:
        """The reason for a code other than 0."""
    @property
    def set(self) -> BrokerSet | None:
        """The broker set after the request, if it exists."""
    @property
    def lease_ms(self) -> int | None:
        """The lease that a heartbeat was granted; 0 if it is withdrawn, `None` if nothing is said about it."""

@final
class ControllerWork:
    """What a controller wants its owner to do."""

    @property
    def answers(self) -> list[tuple[int, ControllerOutcome]]:
        """Outcomes by the token of their request."""
    @property
    def notices(self) -> list[tuple[str, BrokerSet]]:
        """Brokers to notify of their set, by `host:port`."""
    @property
    def notes(self) -> list[tuple[bool, str]]:
        """Lines for the log; true for a warning."""
    @property
    def fault(self) -> str | None:
        """The reason that the controller cannot go on."""
    @property
    def calls(self) -> list[ControllerCall]:
        """Calls to send to other controllers of the group."""
    @property
    def replies(self) -> list[tuple[int, bytes]]:
        """Replies to calls of other controllers, by the token of the call."""

@final
class ControllerCall:
    """A call to another controller of the group."""

    @property
    def number(self) -> int:
        """Its number."""
    @property
    def target(self) -> str:
        """The name of the other controller."""
    @property
    def body(self) -> bytes:
        """The call."""
    @property
    def limit_ms(self) -> int:
        """Milliseconds for the reply."""

@final
class Controller:
    """One controller: state, heartbeats, leases and elections of broker sets, over a durable log. `own_name` and
    `members` are the names of this controller and of all in its group."""

    def __new__(
        cls,
        folder: str,
        *,
        own_name: str,
        members: set[str],
        lease_ms: int,
        first_election_wait_ms: int,
        elects_unclean: bool,
    ) -> Self:
        """Raises `OSError` if the folder is in use or damaged, `ValueError` if `own_name` is not a member."""
    def fileno(self) -> int:
        """A descriptor that is readable while `pump` has work."""
    def configure(self, *, lease_ms: int, first_election_wait_ms: int, elects_unclean: bool) -> None:
        """Replace the settings."""
    def is_leader(self) -> bool:
        """Whether this controller leads its group."""
    def leader(self) -> str | None:
        """The name of the leading controller; `None` if it is this one, the only one, or unknown."""
    def serve(self, token: int, body: bytes) -> None:
        """Serve a call of another controller. The reply comes with the work, under this token."""
    def replied(self, number: int, body: bytes | None) -> None:
        """Hand in the reply to a call; `None` without one."""
    def names(self) -> list[str]:
        """The names of all broker sets."""
    def broker_set(self, name: str) -> BrokerSet | None:
        """Return a broker set; `None` if it is unknown."""
    def elections(self) -> tuple[int, int, int]:
        """The elections this controller decided: with a new master, with the present one, without any."""
    def next_broker_id(self, token: int, cluster: str, name: str) -> None:
        """Ask for the id of the next applicant."""
    def apply_broker_id(self, token: int, cluster: str, name: str, broker_id: int, check_code: str) -> None:
        """Apply for an id."""
    def register(
        self, token: int, cluster: str, name: str, broker_id: int, address: str, connection: int
    ) -> None:
        """Register a broker that has started."""
    def replica_info(self, token: int, name: str) -> None:
        """Ask for master and in-sync set."""
    def elect(self, token: int, cluster: str, name: str, broker_id: int, is_designated: bool) -> None:
        """Elect a master: the given broker, or whichever the rules choose."""
    def alter_sync_state_set(
        self,
        token: int,
        name: str,
        master: int,
        master_epoch: int,
        in_sync: list[int],
        in_sync_epoch: int,
        *,
        waits_for_all: bool = False,
    ) -> None:
        """Change the in-sync set. With `waits_for_all` the master acknowledges only messages that the whole set has."""
    def clean(self, token: int, cluster: str, name: str, ids: list[int] | None, may_live: bool) -> None:
        """Remove replicas; all without `ids`."""
    def heartbeat(
        self,
        name: str,
        broker_id: int,
        *,
        token: int | None,
        connection: int,
        timeout_ms: int,
        epoch: int,
        max_offset: int,
        confirm_offset: int,
        priority: int | None = None,
        releases: bool = False,
    ) -> None:
        """Note a heartbeat. A broker that takes leases has a `token`, under which it is answered."""
    def closed(self, connection: int) -> None:
        """Note the end of a connection."""
    def pump(self) -> ControllerWork:
        """Carry out what has become possible, and return the rest. To be called after requests, when the descriptor is
        readable, and every 100 ms."""
    def stop(self) -> None:
        """Close the log. Idempotent."""

@final
class Replication:
    """A broker's side of replication: a master after `listen`, or a slave after `follow`."""

    def __new__(
        cls,
        store: Store,
        config: ReplicationConfig,
        *,
        slaves_max: int,
        needs_ticket: bool = False,
        server_tls: ServerTls | None = None,
        client_tls: ClientTls | None = None,
    ) -> Self:
        """With `needs_ticket` a master admits only slaves that present a ticket of `expect`, or have a trusted
        address. Raises `ValueError` for an invalid address."""
    def listen(
        self,
        host: str,
        port: int,
        *,
        broker_id: int = 0,
        epoch: int | None = None,
        server: Server | None = None,
        in_sync: Sequence[int] | None = None,
    ) -> tuple[str, int]:
        """Accept slaves; port 0 selects a free port. Returns the bound address. The log continues in its last epoch, or
        begins `epoch`. `server`'s thread serves slaves that replies wait for while they keep up. `in_sync`: see
        `require`. Raises `OSError`, or `StoreError` when the epochs cannot be stored."""
    def follow(self) -> None:
        """Copy the log of the master named by `set_master_address`. Raises `StoreError` for a store that is not a
        replica."""
    def set_master_address(self, address: str | None) -> None:
        """Set a slave's master as `host:port`; `None` for none. A connection to another master ends."""
    def expect(self, ticket: bytes, broker_id: int | None = None, *, is_observer: bool = False) -> None:
        """Admit one connection of a slave that presents this ticket of 16 bytes soon, as the broker with this id. An
        observer reads the log and counts as no copy."""
    def require(self, slaves: Sequence[int] | None, count: int) -> None:
        """Set a master's replicas in sync: broker ids of slaves, all of which must have a message before it is
        confirmed, or `None` if the number of copies decides; and the number of replicas, the master included, that
        decides whether messages are accepted."""
    def confirmed(self) -> int:
        """The position that the replicas in sync have confirmed."""
    def slaves(self) -> list[ConnectedSlave]:
        """Return the connected slaves of a master, without observers."""
    def master(self) -> FollowedMaster | None:
        """Return a slave's view of its master; `None` on a master."""
    def refused(self) -> list[RefusedSlave]:
        """Return the refused slaves of a master."""
    def epochs(self) -> list[tuple[int, int]]:
        """The epochs of the log, oldest first: number and begin."""
    def range(self) -> tuple[int, int]:
        """Begin and end of the part of the log that may be copied."""
    def digest(self, begin: int, end: int) -> int | None:
        """Return the CRC-32 of a part of the log; `None` if some of it is missing."""
    def wanted(self) -> int | None:
        """The pending question of a slave about its master's log; `None` if there is none."""
    def propose(
        self, epochs: Sequence[tuple[int, int]], begin: int, end: int, confirmed: int = 0
    ) -> tuple[SharedRange | None, str | None]:
        """Compare a slave's log with a master's, given the start and end of each of its epochs: the range the master
        must share, or the reason not to follow it. Nothing before `confirmed`, the end of a record, is cut."""
    def accept(
        self,
        question: int,
        epochs: Sequence[tuple[int, int]],
        ticket: bytes | None = None,
        *,
        elected_as: int | None = None,
    ) -> None:
        """Answer a question: follow a master with these epochs, `None` if unknown, which admits this `ticket`.
        Without a ticket the question is asked again once there is a connection. `elected_as` is the id of this slave,
        to follow a master of Apache's that a controller elected."""
    def refuse(self, question: int, reason: str, *, is_diverged: bool = False) -> None:
        """Answer a question: do not follow. `is_diverged` means that the logs diverge."""
    def events(self) -> list[tuple[bool, str]]:
        """Take the log lines since the last call, oldest first: whether it is a warning, and the text."""
    def stop(self) -> None:
        """Close all connections. Idempotent."""

@final
class Server:
    """A remoting server. With a store it serves a broker: hot requests are served natively, others are forwarded to
    Python.

    `fileno` becomes readable when `take` has something. One thread drains it. Connections are closed on arrival
    beyond `connections_max`, beyond `connections_per_address_max` of one address, and while the process has
    `descriptors_max` open descriptors. With `tls`, connections may be encrypted.
    """

    def __new__(
        cls,
        *,
        idle_ms: int,
        connections_max: int,
        connections_per_address_max: int,
        descriptors_max: int,
        store: Store | None = None,
        metadata: Metadata | None = None,
        offsets: Offsets | None = None,
        clock: HandClock | None = None,
        tls: ServerTls | None = None,
    ) -> Self: ...
    def listen(self, host: str, port: int, *, vip: bool = False) -> tuple[str, int]:
        """Bind and serve; port 0 selects a free port. Returns the bound address. Raises `OSError`."""
    def listen_grpc(self, host: str, port: int, tls: ServerTls) -> tuple[str, int]:
        """Bind and serve 5.x clients, which speak gRPC; port 0 selects a free port. Returns the bound address. Raises
        `OSError`."""
    def listen_proxy(
        self,
        host: str,
        port: int,
        tls: ServerTls,
        *,
        name_servers: Sequence[str],
        message_bytes_max: int,
        user: tuple[str, str] | None = None,
        client_tls: ClientTls | None = None,
    ) -> tuple[str, int]:
        """Bind and serve 5.x clients in front of the brokers of these name servers, `host:port`; port 0 selects a free
        port. `client_tls` encrypts the connections to them, and `user`, name and secret, signs the proxy's own
        requests. Returns the bound address. Raises `OSError`."""
    def declare_requests(self, bodies_bytes_max: Mapping[int, int]) -> None:
        """Declare the request codes that are forwarded to Python, and the maximum body size of each. A larger body is
        discarded and only its size forwarded; other codes are refused with 3. Only the first call has an effect;
        before it, everything is forwarded."""
    def set_access(
        self,
        config: AccessConfig,
        *,
        open_codes: Set[int],
        cluster: str,
        users: Sequence[_UserRow],
        trusted: Sequence[str],
    ) -> None:
        """Replace checks and users, and discard cached decisions. Requests with `open_codes` need neither signature nor
        policy. A user: name, secret, whether super, whether enabled, custom and default entries as `check_entry`
        takes them, and a white list entry. `trusted` entries apply to every user. Raises `ValueError` for an invalid
        entry."""
    def authorize(self, code: int, user: str | None, peer: str, needs: Sequence[_Need]) -> str | None:
        """Check whether this user may make a request of this code from `peer` (`ip:port`), given the kind and name of
        each resource and the actions of which one is needed. Returns None, or the reason for the sender; the refusal
        is counted."""
    def might(self, user: str | None, peer: str, needs: Sequence[_Need]) -> bool:
        """Check as `authorize` does, without counting a refusal."""
    def take_refusals(self) -> tuple[list[AccessRefusal], int]:
        """Take the refusals since the last call, and how many more there were."""
    def take_foreign_clients(self) -> list[tuple[str, str]]:
        """Take the clients of other protocols that were closed since the last call, each address once a minute:
        `ip:port`, and protocol."""
    def fileno(self) -> int:
        """A descriptor that is readable while requests or events are pending."""
    def take(self, limit: int = 256) -> list[Request]:
        """Take pending requests and events, a few from each connection round-robin, oldest first; `fileno` is cleared
        when none are left."""
    def answer(self, answers: Sequence[_Answer]) -> None:
        """Send replies. A reply to a closed connection is dropped. A HEART_BEAT answered with code 0 is remembered:
        identical bytes on that connection are answered natively until `forget_heartbeats`."""
    def count_overload(self, is_oneway: bool) -> None:
        """Count a forwarded request that is refused because Python is overloaded; a one-way request is dropped."""
    def push(self, connection: int, code: int, ext: Mapping[str, str], body: bytes | None = None) -> bool:
        """Send a one-way request to a client. Returns False when its connection is gone."""
    def ask(
        self, connection: int, code: int, ext: Mapping[str, str], body: bytes | None = None
    ) -> int | None:
        """Send a request to a client, whose response arrives as a `Request` of kind `answer` with the returned token.
        None when its connection is gone, or too many of these requests are in flight."""
    def forget_answer(self, connection: int, token: int) -> None:
        """Discard the response when it arrives: the caller timed out."""
    def release(
        self,
        kind: Literal["create_topic", "create_group"],
        name: str,
        code: int = 0,
        remark: str | None = None,
    ) -> None:
        """Resume the requests parked for `name` (code 0, after its metadata was published), or refuse them."""
    def set_lease(self, end: float | None = None) -> None:
        """Set the end of a master's lease, in seconds of `time.monotonic`; `None` if it needs none. After the end it
        accepts and acknowledges no messages."""
    def wake_pulls(self) -> None:
        """Answer all waiting pulls now, because the broker's role has changed."""
    def forget_heartbeats(self) -> None:
        """Forward the next heartbeat of every client again."""
    def heartbeat_age_ms(self, connection: int) -> int | None:
        """Milliseconds since the connection's last accepted heartbeat; None when it is gone or never sent one."""
    def close_connection(self, connection: int) -> None:
        """Close a connection; no-op if it is gone."""
    def take_deliveries(self) -> list[DeliveryCounts]:
        """Take the counts of deliveries since the last call. Only one caller may use it."""
    def fetch_positions(self) -> dict[tuple[str, str, int], int]:
        """Return the offset after the last delivered message by group, topic and queue id, for groups that pull or did
        recently."""
    def in_flight(self) -> dict[tuple[str, str, int], int]:
        """Return the number of messages that were popped since the start and are not finished, by group, topic and
        queue id."""
    def latencies(self) -> list[ReplyLatencies]:
        """Return the latencies of replies since the start, by kind of request."""
    def statistics(self) -> dict[str, int]:
        """connections, refused_connections, requests, upcalls, sends, pulls, parked_pulls, buffer_bytes, ..."""
    def grpc_calls(self) -> list[tuple[str, int, int]]:
        """Return calls of 5.x clients and refused calls, by method; empty unless they are served."""
    def finds_brokers(self) -> bool:
        """Return whether the brokers of a proxy can be found: a name server has answered its last question."""
    def stop(self, grace_ms: int = 2_000) -> None:
        """Stop accepting, drain replies, close every connection, join the threads. Idempotent."""

@final
class AccessRefusal:
    """A request that was refused."""

    @property
    def code(self) -> int:
        """The request code."""
    @property
    def address(self) -> str:
        """The `ip:port` of the sender."""
    @property
    def reason(self) -> str:
        """The reason."""

@final
class DeliveryCounts:
    """Counts of the deliveries from one queue to one group."""

    @property
    def group(self) -> str:
        """The group."""
    @property
    def topic(self) -> str:
        """The topic."""
    @property
    def queue_id(self) -> int:
        """The id of the queue."""
    @property
    def pulls(self) -> int:
        """Pulls that were answered with messages."""
    @property
    def messages(self) -> int:
        """The number of messages."""
    @property
    def bytes(self) -> int:
        """The size of the messages in bytes."""
    @property
    def returned(self) -> int:
        """Messages that the group sent back."""
    @property
    def checkpoints(self) -> int:
        """Checkpoints of popped messages."""
    @property
    def acks(self) -> int:
        """Acknowledged messages."""

@final
class ReplyLatencies:
    """The latencies of the replies to one kind of request."""

    @property
    def code(self) -> int:
        """The request code."""
    @property
    def answer(self) -> int:
        """The response code."""
    @property
    def is_long_polling(self) -> bool:
        """Whether the requests waited for a message."""
    @property
    def counts(self) -> list[int]:
        """Replies in the buckets of `LATENCY_BOUNDS_US`, and one for longer times."""
    @property
    def sum_us(self) -> int:
        """Total microseconds."""
    @property
    def max_us(self) -> int:
        """The maximum in microseconds."""

@final
class DueMessages:
    """Delivery of a broker's delayed and timed messages."""

    def __new__(cls, server: Server) -> Self: ...
    def begin(self, offsets: dict[int, int], *, acts: bool = False) -> None:
        """Start delivery of timed and of delayed messages; `offsets` maps each delay level to the next offset of its
        queue. Messages go to the log, or, on a slave that `acts` for its master, to `take`. No-op if delivery has
        started. Raises `StoreError`."""
    def end(self) -> dict[int, int]:
        """Stop delivery and save the progress of timed messages; return the offset of each delay level. Raises
        `StoreError`."""
    def take(self, limit: int) -> list[EscapedMessage]:
        """Take at most `limit` due messages for another broker."""
    def decide(self, position: int, is_accepted: bool) -> None:
        """Report whether another broker accepted a message of `take`; a rejected one is offered again."""
    def close(self) -> int:
        """Stop offering messages through `take`; return how many are in flight, or accepted and not recorded as
        delivered yet."""
    def save(self) -> None:
        """Save the progress of timed messages durably; no-op if unchanged. Raises `StoreError`."""
    def statistics(self) -> TimerStatistics | None:
        """Return statistics of timed messages; None before `begin`. Raises `StoreError`."""
    def due_within(self, bounds_s: Sequence[int]) -> list[tuple[str, list[int]]]:
        """Count the timed messages of each topic by due time, in ascending buckets of seconds and one for later; each
        message counts once. Raises `StoreError`."""
    def slots_within(self, bounds_s: Sequence[int]) -> list[int]:
        """Likewise for all topics together, at slot precision, from memory."""
    def take_missing_topics(self) -> list[str]:
        """Take the names of POP retry and dead-letter topics that popped messages wait for."""
    def delay_offsets(self) -> dict[int, int]:
        """Return the offset of each delay level. The messages before it are delivered and durable: this flushes the
        log.

        Raises `StoreError` when the flush fails.
        """
    def delivered(self) -> dict[int, int]:
        """Likewise without a flush, for display."""

@final
class EscapedMessage:
    """A message for another broker."""

    @property
    def position(self) -> int:
        """The position of the waiting message in this log."""
    @property
    def topic(self) -> str:
        """The topic."""
    @property
    def queue_id(self) -> int:
        """The id of the queue."""
    @property
    def flag(self) -> int:
        """The application's flag."""
    @property
    def sys_flag(self) -> int:
        """The system flag."""
    @property
    def born_ms(self) -> int:
        """The time of birth."""
    @property
    def attempts(self) -> int:
        """Earlier deliveries."""
    @property
    def properties(self) -> str:
        """The properties as text."""
    @property
    def body(self) -> bytes:
        """The body."""

@final
class TimerStatistics:
    """Statistics of timed messages."""

    @property
    def pending(self) -> int:
        """Messages that wait for their time."""
    @property
    def unread(self) -> int:
        """Messages of the timer topic that delivery has not read."""
    @property
    def unread_ms(self) -> int:
        """The age of the last message that delivery has read."""
    @property
    def late(self) -> int:
        """Messages that are due."""
    @property
    def late_ms(self) -> int:
        """How long the first of them has been due."""
    @property
    def topics(self) -> list[TopicTimers]:
        """The statistics by topic."""

@final
class TopicTimers:
    """Statistics of the timed messages of one topic."""

    @property
    def topic(self) -> str:
        """The topic."""
    @property
    def pending(self) -> int:
        """Messages that wait for their time."""
    @property
    def read(self) -> int:
        """Messages read since the start."""
    @property
    def delivered(self) -> int:
        """Messages delivered since the start."""
    @property
    def delays(self) -> list[int]:
        """Messages read in the buckets of `TIMER_BOUNDS_S`, and one for longer delays."""
    @property
    def delay_s(self) -> int:
        """The total delay in seconds."""

@final
class Transactions:
    """The transactions of a broker."""

    def __new__(cls, server: Server) -> Self: ...
    def recover(self, checked: Sequence[tuple[int, int, int, int]]) -> None:
        """Find the open transactions, and continue from these `checked` counts. Called once, before the server listens.
        Raises `StoreError`."""
    def checked(self) -> list[tuple[int, int, int, int]]:
        """Return the check counts of open half messages, in runs of consecutive ones with equal counts: log position of
        the first and the last, checks of each, answered checks."""
    def save(self) -> None:
        """Commit the decided offset of half messages, under Apache's group name. Raises `StoreError`."""
    def take(self, limit: int, interval_ms: int) -> list[tuple[int, EscapedMessage]]:
        """Take half messages that are due, as `due` does, for another broker, each with its offset."""
    def leave(self, offset: int, physical: int) -> None:
        """Record that another broker has a half message; checks of it end here."""
    def forget(self) -> None:
        """Forget the open transactions, because another broker takes over."""
    def due(self, limit: int, interval_ms: int, expiry_ms: int) -> list[DueHalf]:
        """Return at most `limit` half messages whose producers must be checked now, or that are `expiry_ms` old, and
        again after `interval_ms`."""
    def count_checks(self, halves: Sequence[tuple[int, int]]) -> None:
        """Count one check of each of these (offset, position): a producer was sent one."""
    def discard(self, offset: int, physical: int) -> bool:
        """Discard a half message: store it in `UNDECIDED_TOPIC` and end its transaction. False if it is already
        decided. Raises `StoreError`."""
    def resume(self, physical: int) -> None:
        """Restart the checks of a half message that is open or was discarded. Raises `BrokerError` with the reason for
        any other, and `StoreError`."""
    def statistics(self) -> list[TopicTransactions]:
        """Return statistics by topic."""

@final
class LiteConsumers:
    """The consumers of lite topics of a broker."""

    def __new__(cls, server: Server) -> Self: ...
    def subscribe(
        self,
        group: str,
        client_id: str,
        parent: str,
        lite_topics: Sequence[str],
        *,
        connection: int,
        events_max: int,
        is_exclusive: bool,
        is_complete: bool,
    ) -> list[LostLiteTopic]:
        """Add subscriptions of a client as a member of a group to lite topics of `parent`, or with `is_complete`
        make them exactly these. In an exclusive group, added ones are taken over from other clients; a complete set
        leaves those of others. Returns the subscriptions that a client has lost. Unknown names are skipped. Raises
        `BrokerError` with 2018 for too many subscriptions."""
    def unsubscribe(self, group: str, client_id: str, parent: str, lite_topics: Sequence[str]) -> None:
        """Remove subscriptions of a client."""
    def leave(self, group: str, client_id: str) -> None:
        """Remove a client that has left its group; others get its pending messages."""
    def expire(self, silent_ms: int) -> list[tuple[str, str]]:
        """Remove the clients that have not sent their subscriptions for `silent_ms`, and return their groups and ids.
        Pending messages of clients that do not ask for them go to others."""
    def dispatch(self, group: str, client_id: str | None) -> None:
        """Have a client, or with `None` all clients of a group, look at all of their lite topics."""
    def remove_queues(self, queues: Sequence[str]) -> None:
        """Remove the subscriptions to deleted queues."""
    def subscribers(self, queue: str) -> list[tuple[str, str]]:
        """Return the clients and groups that have subscribed to a queue."""
    def consumer(self, group: str, client_id: str, queues_max: int) -> LiteConsumer | None:
        """Return a client as a member of a group, with at most `queues_max` of its queues; `None` if it is unknown."""
    def counts(self) -> dict[str, int]:
        """Return the numbers of consumers, subscriptions and events."""

@final
class LiteConsumer:
    """A consumer of lite topics."""

    @property
    def parent(self) -> str:
        """The topic whose lite topics it consumes."""
    @property
    def accessed_ms(self) -> int:
        """When it last asked for messages, in milliseconds since the epoch."""
    @property
    def consumed_ms(self) -> int:
        """When it last got messages, in milliseconds since the epoch."""
    @property
    def subscriptions(self) -> int:
        """The number of its subscriptions."""
    @property
    def queues(self) -> list[str]:
        """Some of the queues that it has subscribed to."""

@final
class LostLiteTopic:
    """A subscription that another consumer of an exclusive group has."""

    @property
    def client_id(self) -> str:
        """The client that has lost it."""
    @property
    def connection(self) -> int:
        """The connection for the notice."""
    @property
    def lite_topic(self) -> str:
        """The lite topic."""

@final
class DueHalf:
    """A half message whose producer must be checked."""

    @property
    def offset(self) -> int:
        """Its offset in the half topic."""
    @property
    def physical(self) -> int:
        """Its position in the log."""
    @property
    def checks(self) -> int:
        """Checks that were sent."""
    @property
    def answers(self) -> int:
        """Checks that were answered."""
    @property
    def sender(self) -> int | None:
        """The connection of its sender; None after a restart."""
    @property
    def stored_ms(self) -> int:
        """The store time."""
    @property
    def group(self) -> str:
        """The producer group."""
    @property
    def unique_key(self) -> str:
        """The producer's id of the message."""
    @property
    def message_id(self) -> str:
        """The broker's id of the message."""
    @property
    def record(self) -> bytes:
        """The record as its producer sent it."""

@final
class TopicTransactions:
    """Statistics of the transactions of one topic."""

    @property
    def topic(self) -> str:
        """The topic."""
    @property
    def open(self) -> int:
        """Open transactions."""
    @property
    def committed(self) -> int:
        """Transactions committed since the start."""
    @property
    def rolled_back(self) -> int:
        """Transactions rolled back since the start."""
    @property
    def ages(self) -> list[int]:
        """Commits by message age in the buckets of `TRANSACTION_BOUNDS_S`, and one for older messages."""
    @property
    def age_s(self) -> int:
        """The total age in seconds."""

# --------------------------------------------------------------------------------------------------------------
# Client: messages, connections, columns
# --------------------------------------------------------------------------------------------------------------

@final
class Message:
    """A message to send. Immutable, comparable by value, picklable.

    `body` may be text, which is sent as UTF-8; `keys` is one word or several. At most one of the delays may be given:
    `deliver_at` (a `datetime`, or seconds since the epoch), `deliver_after` (a `timedelta`, or seconds) or
    `delay_level`. Each argument is also an attribute. Raises `ValueError` for what brokers refuse: a bad topic name,
    a reserved property, an empty body without keys.

    >>> message = Message("orders", "paid in full", tag="paid", keys="A-1", properties={"colour": "red"})
    >>> message.body, message.keys, dict(message.properties)
    (b'paid in full', ('A-1',), {'colour': 'red'})
    """

    def __new__(
        cls,
        topic: str,
        body: bytes | bytearray | memoryview | str,
        *,
        tag: str | None = None,
        keys: str | Iterable[str] | None = None,
        properties: Mapping[str, str] | None = None,
        sharding_key: str | None = None,
        deliver_at: datetime | float | None = None,
        deliver_after: timedelta | float | None = None,
        delay_level: int | None = None,
        priority: int | None = None,
        lite_topic: str | None = None,
        flag: int = 0,
    ) -> Self: ...
    @property
    def topic(self) -> str:
        """The topic it is sent to."""
    @property
    def body(self) -> bytes:
        """The bytes; text is encoded as UTF-8."""
    @property
    def tag(self) -> str | None:
        """A word that consumers can filter by."""
    @property
    def keys(self) -> tuple[str, ...]:
        """Words that can be queried to find the message."""
    @property
    def properties(self) -> Mapping[str, str]:
        """The user's properties, without those that the library and brokers add."""
    @property
    def sharding_key(self) -> str | None:
        """Messages with equal keys go to one queue, in order."""
    @property
    def sharding_hash(self) -> int | None:
        """Java's hash of the sharding key."""
    @property
    def deliver_at(self) -> float | None:
        """The delivery time in seconds since the epoch."""
    @property
    def deliver_after(self) -> float | None:
        """The delay in seconds from the broker's receipt."""
    @property
    def delay_level(self) -> int | None:
        """The number, from 1, of a delay in the broker's configuration."""
    @property
    def priority(self) -> int | None:
        """The priority: the number of the queue, or of the last one if it is larger."""
    @property
    def lite_topic(self) -> str | None:
        """The lite topic that it belongs to, one of those of its topic."""
    @property
    def flag(self) -> int:
        """A number for the application's use."""
    @property
    def _is_plain(self) -> bool:
        """Whether it has no sharding key, time, priority or lite topic."""
    @property
    def size(self) -> int:
        """The size of body and properties in bytes, before compression."""
    @staticmethod
    def is_reserved(name: str) -> bool:
        """Whether RocketMQ reserves this property name.

        >>> Message.is_reserved("TAGS"), Message.is_reserved("colour")
        (True, False)
        """
    def replace(self, **changes: Unpack[MessageChanges]) -> Message:
        """Return a copy with some arguments changed.

        >>> Message("orders", b"x", tag="new").replace(tag="paid").tag
        'paid'
        """
    def _with_reserved(self, properties: Mapping[str, str]) -> Message:
        """Return a copy with reserved properties, for use by the library."""
    def __getnewargs_ex__(self) -> tuple[tuple[()], dict[str, Any]]: ...
    def __hash__(self) -> int: ...

@final
class ReceivedMessage:
    """A message as a broker returned it. Attributes are decoded on demand.

    Comparable by value, picklable. Made by the library. It keeps its whole reply in memory; to keep a few messages
    for long, keep pickled copies.
    """

    def __new__(
        cls, record: bytes, index: int | None, queue: MessageQueue, namespace: Namespace | None = None, /
    ) -> Self:
        """For pickle: the record, the index in a batch, the queue, and the namespace of the reader."""
    @property
    def topic(self) -> str:
        """The topic it was sent to. For a retried message `queue` names the retry topic it was read from."""
    @property
    def body(self) -> bytes:
        """The body, decompressed. Raises `DecodeError`, naming the message, when that fails."""
    @property
    def tag(self) -> str | None:
        """The word that consumers can filter by."""
    @property
    def keys(self) -> tuple[str, ...]:
        """Words that can be queried to find the message."""
    @property
    def properties(self) -> Mapping[str, str]:
        """All properties, including those of the library and the broker."""
    @property
    def message_id(self) -> str:
        """The producer's id, the same as in `SendResult`."""
    @property
    def offset_message_id(self) -> str:
        """The broker's id, which identifies the broker and the position in its log."""
    @property
    def queue(self) -> MessageQueue:
        """The queue it was read from."""
    @property
    def queue_offset(self) -> int:
        """Its offset in that queue."""
    @property
    def commit_log_offset(self) -> int:
        """Its position in the broker's log, in bytes."""
    @property
    def born_at(self) -> datetime:
        """When the producer made it, UTC, limited to the range of `datetime`; `born_at_ms` has the exact value."""
    @property
    def born_at_ms(self) -> int:
        """The producer's timestamp as written, usually in milliseconds since 1970."""
    @property
    def stored_at(self) -> datetime:
        """When the broker stored it, UTC, limited to the range of `datetime`."""
    @property
    def stored_at_ms(self) -> int:
        """The broker's timestamp as written."""
    @property
    def born_host(self) -> str:
        """`ip:port` of the producer."""
    @property
    def store_host(self) -> str:
        """`ip:port` of the broker."""
    @property
    def delivery_attempt(self) -> int:
        """The delivery attempt, from 1."""
    @property
    def flag(self) -> int:
        """A number for the application's use."""
    @property
    def sys_flag(self) -> int:
        """Bits of the record: compression, transaction, address family."""
    @property
    def sharding_key(self) -> str | None:
        """The key whose messages share a queue."""
    @property
    def transaction_id(self) -> str | None:
        """The id of its transaction."""
    def view(self) -> memoryview:
        """Return the body as a view, without another copy."""
    def text(self, encoding: str = "utf-8") -> str:
        """Return the body as text. Raises `UnicodeDecodeError`."""
    def json(self) -> Any:
        """Return the body parsed as JSON. Raises `ValueError`."""
    def __reduce__(self) -> tuple[type[ReceivedMessage], tuple[bytes, int | None, MessageQueue]]: ...
    def __hash__(self) -> int: ...

@final
class Completions:
    """A queue of finished requests for one reader. Any number of requests may post to it."""

    def __new__(cls) -> Self: ...
    def fileno(self) -> int:
        """A descriptor that is readable while the queue has entries, and after `close`."""
    def take(self, limit: int = 256) -> list[tuple[int, Any]]:
        """Take entries, oldest first: the token of a request with its `Call` or `SendFuture`, or a `ServerRequest`."""
    def wait(self, timeout: float | None = None) -> bool:
        """Wait for an entry or `close`. Returns False after `timeout` seconds."""
    def close(self) -> None:
        """Close the queue and wake its reader. Later completions are dropped, and failed sends are not retried.
        Idempotent."""
    def is_closed(self) -> bool:
        """Whether the queue is closed."""

@final
class Namespace:
    """The namespace of a client. Its users write `orders`, and brokers see the topic as `shop%orders`.

    Comparable by value, picklable.
    """

    def __new__(cls, name: str, /) -> Self:
        """Raises `ConfigError` for an invalid name, or one with a trailing `%`."""
    @property
    def name(self) -> str:
        """The name of the namespace."""
    def wrap(self, name: str) -> str:
        """Return a topic or group as brokers see it. System names and wrapped names are unchanged."""
    def unwrap(self, name: str) -> str:
        """Return a topic or group as users of this namespace write it; names of other namespaces are unchanged."""
    def shows(self, name: str) -> bool:
        """Whether users of this namespace see a broker's name: one of this namespace, or a system name."""

@final
class Client:
    """Connections to any number of addresses, made on first use, on one I/O thread that never enters Python.

    In a child process every method raises `ForkedError`.
    """

    def __new__(
        cls,
        *,
        connect_timeout_ms: int = 3000,
        binary: bool = False,
        namespace: str = "",
        credentials: tuple[str, str, str | None] | None = None,
        tls: ClientTls | None = None,
    ) -> Self:
        """Starts the I/O thread. `binary` selects the encoding of request headers; replies may use either.
        `credentials` (access key, secret key, token) sign every request; `tls` encrypts every connection. Raises
        `ConfigError` for an invalid namespace."""
    @property
    def namespace(self) -> Namespace | None:
        """The namespace of topics and groups that users name."""
    def call(
        self,
        address: str,
        code: int,
        ext: dict[str, str] | None = None,
        body: bytes | None = None,
        *,
        timeout_ms: int,
        completions: Completions | None = None,
        token: int = 0,
    ) -> Call:
        """Start a request and return immediately. Its outcome arrives within `timeout_ms` and is posted to
        `completions`."""
    def pull(
        self,
        pull: QueuePull,
        ext: dict[str, str],
        columns: Columns,
        *,
        timeout_ms: int,
        completions: Completions,
    ) -> Call:
        """Start a pull in the same way. The I/O thread adds the messages that have one of the tags and offsets in
        [offset, end) to `columns`; they are complete when the call is posted, see `Call.rows`."""
    def call_oneway(
        self, address: str, code: int, ext: dict[str, str] | None = None, body: bytes | None = None
    ) -> None:
        """Send a request that has no reply. Raises `ConnectError` if it cannot be queued."""
    def listen(self, completions: Completions, token: int = 0, *, codes: Sequence[int] = ()) -> None:
        """Post requests from servers, and the ends of connections, to `completions` as `ServerRequest`s: requests of
        these codes, or, without codes, all that no other listener takes. The last listener for a code wins; requests
        without a listener are dropped."""
    def silent(self, seconds: float) -> list[str]:
        """Return the addresses of servers that have left a request without a reply for `seconds`."""
    def abandon(self, address: str) -> None:
        """End the connection to a server that does not answer: its requests fail as `lost`, and the next request
        connects again."""
    def close(self, *, grace_ms: int = 0) -> None:
        """Close every connection. Requests without a reply within `grace_ms` fail as closed. Idempotent."""

@final
class ServerRequest:
    """A request from a server, or the end of its connection."""

    @property
    def address(self) -> str:
        """The address of the server, as connected to."""
    @property
    def code(self) -> int | None:
        """The request code; `None` for a connection that ended."""
    @property
    def ext(self) -> dict[str, str]:
        """The header's fields."""
    @property
    def body(self) -> bytes:
        """The body; empty if absent."""
    def answer(
        self,
        code: int = 0,
        remark: str | None = None,
        ext: dict[str, str] | None = None,
        body: bytes | None = None,
    ) -> None:
        """Send the response; no-op for a one-way or already answered request.

        Raises `ConnectError` when the connection has ended or the response does not fit a frame.
        """

@final
class Call:
    """A request in flight, then its outcome: a reply with any code, or a failure."""

    @property
    def token(self) -> int:
        """The token the request was made with."""
    def done(self) -> bool:
        """Whether there is an outcome."""
    def wait(self, timeout: float | None = None) -> bool:
        """Wait for the outcome. Returns False after `timeout` seconds."""
    @property
    def failure(self) -> tuple[str, str] | None:
        """Kind and text of the failure, or None: connect, overloaded, unsendable, lost, timeout or closed."""
    @property
    def code(self) -> int:
        """The response code. This and the following attributes raise `ConnectError` without a reply."""
    @property
    def remark(self) -> str | None:
        """The server's remark on the code."""
    @property
    def ext(self) -> dict[str, str]:
        """The header's fields."""
    @property
    def body(self) -> bytes:
        """The body; empty if absent."""
    @property
    def body_size(self) -> int:
        """The size of the body in bytes."""
    def rows(self, queue: MessageQueue) -> int:
        """How many messages `Client.pull` added to its columns. Raises `DecodeError` naming an undecodable message;
        those before it were added."""
    def messages(
        self,
        queue: MessageQueue,
        *,
        tags: str = "*",
        begin: int = 0,
        end: int = ...,
        namespace: Namespace | None = None,
    ) -> list[ReceivedMessage]:
        """Decode the body of a pull: the messages with offsets in [begin, end) and one of the tags.

        `namespace` is that of the reader. Raises `DecodeError` naming the place when the bytes are not records.
        """
    def popped(self, topic: str, broker: str, namespace: Namespace | None = None) -> list[ReceivedMessage]:
        """Decode the body of an answer to a pop; each message has its handle as the property `POP_CK`.

        `namespace` is that of the reader. Raises `DecodeError` naming the place when the bytes are not records.
        """

@final
class Sender:
    """The native part of a producer: encodes and sends messages, and collects their outcomes."""

    def __new__(cls, client: Client, completions: Completions, options: SenderOptions) -> Self: ...
    def learn(self, topic: str, queues: Sequence[tuple[str, str, int]], fresh: float) -> None:
        """Cache a route for `fresh` seconds: address, broker name and queue id of each queue of the topic."""
    def doubt(self, topic: str) -> None:
        """Mark the cached route of a topic as stale."""
    def cut(self, messages: Sequence[Message], member_bytes: int) -> list[int]:
        """Split messages into batches that brokers accept, and return their ends. A message takes `member_bytes` in
        addition to body and properties. Raises `ValueError` for a message that cannot share a batch with the first
        one."""
    def send(
        self,
        message: Message | str,
        body: Body | None = None,
        *,
        to: tuple[str, str, int, bool] | None = None,
        timeout: float | None = None,
        announce: Literal["never", "failures", "always"] = "failures",
        token: int = 0,
    ) -> SendFuture | NotSent:
        """Start sending a message, or a body to a topic, in one call.

        `to`: address, broker name, queue id, and whether only that queue may be used. Without it the sharding key
        selects a cached queue; without a key queues rotate. Raises `ValueError` and `TypeError` for messages that
        brokers refuse."""
    def send_half(
        self,
        message: Message,
        *,
        to: tuple[str, str, int, bool] | None = None,
        timeout: float | None = None,
        announce: Literal["never", "failures", "always"] = "failures",
        token: int = 0,
    ) -> SendFuture | NotSent:
        """Likewise for a half message, which waits at the broker for the end of its transaction. If it is stored less
        safely than requested, it is not retried."""
    def send_batch(
        self,
        messages: Sequence[Message],
        *,
        to: tuple[str, str, int, bool] | None = None,
        timeout: float | None = None,
        announce: Literal["never", "failures", "always"] = "failures",
        token: int = 0,
    ) -> SendFuture | NotSent:
        """Likewise for messages of one topic, sent as one batch."""
    def send_rows(
        self,
        rows: Rows,
        batch: SendBatch,
        *,
        topic: str,
        to: tuple[str, str, int, bool] | None = None,
    ) -> SendFuture | NotSent:
        """Likewise for rows that travel together; failures are posted to the queue. Raises `ValueError` for a row that
        brokers refuse."""
    def send_oneway(
        self,
        message: Message | str,
        body: Body | None = None,
        *,
        to: tuple[str, str, int, bool] | None = None,
    ) -> NotSent | None:
        """Send without waiting for a reply. Raises `ConnectError` if the message cannot be queued."""
    def again(self, future: SendFuture, address: str, broker: str, queue_id: int) -> None:
        """Retry after a failed attempt: send the same bytes elsewhere."""
    def flush(self, timeout: float | None = None) -> bool:
        """Wait until nothing is in flight. Returns False after `timeout` seconds."""
    def is_slow(self, broker: str) -> bool:
        """Whether a slow broker of this name is being avoided."""
    def region(self, broker: str) -> str | None:
        """The region of a broker, if regions are learnt from replies; `None` if it does not want traces."""
    def has_room(self, size: int) -> bool:
        """Whether the budget has room for a message of `size` bytes."""
    @property
    def in_flight(self) -> int:
        """The number of messages in flight."""
    def unasked_failures(self) -> tuple[int, tuple[str, FailedAttempt] | None]:
        """The number of failed sends whose outcome was neither read nor posted; topic and last attempt of the first."""

@final
class FailedAttempt:
    """A failed attempt of a send."""

    @property
    def broker(self) -> str:
        """The name of the broker."""
    @property
    def queue_id(self) -> int:
        """The id of the queue."""
    @property
    def address(self) -> str:
        """The broker's `host:port`."""
    @property
    def kind(self) -> str:
        """As in `Call.failure`, or `broker` (it refused, see the code), or `malformed`."""
    @property
    def code(self) -> int | None:
        """The broker's response code."""
    @property
    def text(self) -> str:
        """The error as text."""
    @property
    def seconds(self) -> float:
        """The duration in seconds."""

@final
class NotSent:
    """The reason a send did not start; it had no effect."""

    @property
    def reason(self) -> Literal["no_route", "no_room"]:
        """`no_route`: no valid route of the topic is known. Otherwise: the budget is used up."""
    @property
    def bytes(self) -> int:
        """The missing budget in bytes."""

@final
class Rows:
    """An Arrow batch or table as messages to send, one per row.

    Columns: `body` (binary) and `topic`, unless it is given; optionally `tags`, `keys` (a text separated by spaces,
    or a list), `shardingKey`, `brokerName`, `msgId`, `identity` (string), `properties` (map of strings), `queueId`,
    `delayLevel`, `flag` (int), `deliverTimestamp` (bigint, milliseconds). Other columns are ignored.
    """

    def __new__(
        cls,
        batch: object,
        *,
        topic: str | None = None,
        id_seed: bytes | None = None,
        first_row: int = 0,
        properties: Mapping[str, str] | None = None,
        compress_above: int | None = None,
    ) -> Self:
        """`id_seed`: ids are a hash of it and of the row's `identity`, or of its number, counted from `first_row`.
        `properties` are added to every message. Raises `ValueError` for a column of another type."""
    def topics(self) -> list[str]:
        """The topics of the rows, sorted."""
    def send_batches(
        self,
        topic: str,
        *,
        queues: int,
        placement: Literal["turn", "hash", "column"] = "turn",
        messages_max: int = 64,
        bytes_max: int = ...,
    ) -> list[SendBatch]:
        """Batch the rows of one topic. A row with a `queueId` goes to that queue; one with a `shardingKey` goes to the
        queue its hash selects among `queues`; others go to a queue by the hash of their keys, or to any."""
    def __len__(self) -> int: ...

@final
class SendBatch:
    """Rows that go to one queue in one request."""

    @property
    def queue_index(self) -> int | None:
        """The target as an index into the topic's queues, if it has one."""
    @property
    def broker(self) -> str | None:
        """The broker of the target, if named."""
    @property
    def queue_id(self) -> int | None:
        """The queue id of the target, if named."""
    def __len__(self) -> int: ...

@final
class SendFuture:
    """A send in flight. Done when a broker has stored it, or when no further attempt will be made.

    `await` returns the same as `result`, in any event loop; cancelling it ends the wait, not the send. Made by
    `Producer.submit`; any thread may use it.
    """

    def done(self) -> bool:
        """Whether the send has ended, stored or failed."""
    def result(self, timeout: float | None = None) -> SendResult:
        """Return where the message was stored.

        Waits at most `timeout` seconds. Raises `SendError` with every attempt, or `RequestTimeout` while the send is
        still in flight.
        """
    def results(self, timeout: float | None = None) -> list[SendResult]:
        """Return where the messages of a batch were stored, one result each, in order. Raises as `result` does."""
    def exception(self, timeout: float | None = None) -> Exception | None:
        """Return the error of a failed send, or `None`. Waits as `result` does."""
    def add_done_callback(self, callback: Callable[[SendFuture], object]) -> None:
        """Call `callback` with this future once the send has ended.

        The producer's callback thread calls it, one callback after the other; if the send has already ended, it is
        called immediately. Its exceptions are logged.
        """
    def as_future(self) -> Future[SendResult]:
        """Return a `concurrent.futures.Future` with the same outcome, for `concurrent.futures.wait` and similar
        functions.

        It cannot be cancelled: the message is already in flight.
        """
    def __await__(self) -> Generator[Any, None, SendResult]: ...
    @property
    def topic(self) -> str:
        """The topic of the message."""
    @property
    def message_ids(self) -> list[str]:
        """The ids of its messages; known before they are sent."""
    def _settle(self, timeout: float) -> bool | None:
        """Wait for the outcome of the attempt in flight. True when the send is done, False when a decision is due,
        `None` after `timeout` seconds."""
    def _give_up(self) -> None:
        """Make the failed attempt the last one."""
    def _abandon(self) -> None:
        """Make the current attempt the last one, even while it is in flight."""
    def _announce_end(self, token: int) -> int | None:
        """Post the end of the send under `token`, unless it already has one. Returns the token in use, or `None` when
        the send is done."""
    @property
    def _end_token(self) -> int | None:
        """The token under which the end is posted."""
    @property
    def _is_batch(self) -> bool:
        """Whether the caller must use `results`."""
    @property
    def _is_half(self) -> bool:
        """Whether it is a half message, which is sent again only if no broker can have it."""
    @property
    def _is_pinned(self) -> bool:
        """Whether retries may only use the queue of the first attempt."""
    @property
    def _broker(self) -> str:
        """The broker of the current or last attempt."""
    @property
    def _queue_id(self) -> int:
        """The queue of the current or last attempt."""
    @property
    def _remaining(self) -> float:
        """The seconds left for all further attempts."""
    @property
    def _attempts(self) -> list[FailedAttempt]:
        """The failed attempts."""

@final
class Columns:
    """Pulled messages as Arrow columns with exactly Spark's types. Not for concurrent use."""

    def __new__(
        cls,
        columns: Sequence[tuple[str, str | None]] | None = None,
        *,
        bad_text: Literal["fail", "null", "replace"] = "fail",
    ) -> Self:
        """Column names with types (`None` for the default), in order; `None` for the default columns. `bad_text`
        selects how invalid UTF-8 in a text body is handled. Raises `ConfigError`."""
    @staticmethod
    def known() -> list[tuple[str, list[str], bool]]:
        """Every column: name, possible types (default first), and whether it is included by default."""
    def append(
        self, call: Call, queue: MessageQueue, *, tags: str = "*", begin: int = 0, end: int = ...
    ) -> int:
        """Add the messages of a pull that have one of the tags and offsets in [begin, end); return how many.

        Raises `DecodeError` naming an undecodable message; those before it were added."""
    @property
    def num_rows(self) -> int:
        """The number of rows so far."""
    @property
    def nbytes(self) -> int:
        """The memory of the rows in bytes."""
    def take(self) -> ArrowBatch:
        """Return the rows so far, and leave the columns empty."""
    def stream(self, batches: Iterator[ArrowBatch]) -> object:
        """Return an `arrow_array_stream` capsule that reads its batches from an iterator."""
    def __arrow_c_schema__(self) -> object: ...

@final
class ArrowBatch:
    """Rows as Arrow data. Any Arrow library imports it without a copy: `pyarrow.record_batch(batch)`."""

    @property
    def num_rows(self) -> int:
        """The number of rows."""
    @property
    def nbytes(self) -> int:
        """The size of all columns in bytes."""
    @property
    def column_names(self) -> list[str]:
        """The names of the columns, in order."""
    def __arrow_c_array__(self, requested_schema: object | None = None) -> tuple[object, object]: ...
    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...
    def __arrow_c_schema__(self) -> object: ...
    def __len__(self) -> int: ...

# --------------------------------------------------------------------------------------------------------------
# Measuring brokers
# --------------------------------------------------------------------------------------------------------------

@final
class Load:
    """Load for any RocketMQ broker, on separate threads, started by the constructor.

    Raises `ConfigError` for settings out of bounds, and `ConnectError` when a broker is unreachable.
    """

    def __new__(cls, plan: LoadPlan) -> Self: ...
    def wait(self, timeout: float | None = None) -> bool:
        """Wait for the end. Returns False after `timeout` seconds. Ctrl-C interrupts it."""

    @property
    def messages(self) -> int:
        """Messages accepted or received so far."""

    def stop(self) -> None:
        """Stop sending. The load ends when the requests in flight have their responses."""

    def report(self) -> str | None:
        """Return the measurements as a JSON object, once; None before the end.

        Raises `ConnectError` when a connection broke, `RequestTimeout` when a broker stopped responding.
        """
