"""The seam between Python's control plane and the native half.

Only `rmqpy` imports this module. Anything that may block releases the interpreter; no native thread ever
attaches to it. Native classes are frozen. Errors raised here are the classes of `rmqpy.errors`.
"""

import os
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence, Set
from concurrent.futures import Future
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Literal, Self, Unpack, final

from rmqpy.config.broker import BrokerConfig
from rmqpy.config.store import StoreConfig
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
    "LATENCY_BOUNDS_US",
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
    "ArrowBatch",
    "Call",
    "Client",
    "ClientTls",
    "Columns",
    "Completions",
    "DueMessages",
    "HandClock",
    "Load",
    "Message",
    "Metadata",
    "Namespace",
    "NotSent",
    "Offsets",
    "ReceivedMessage",
    "Replication",
    "Request",
    "Rows",
    "SendBatch",
    "SendFuture",
    "Sender",
    "Server",
    "ServerRequest",
    "ServerTls",
    "StoppedStore",
    "Store",
    "Transactions",
    "__version__",
    "attach_count",
    "certificate_expiry",
    "check_entry",
    "decide",
    "encode_record",
    "hot_needs",
    "is_listed",
    "make_certificate",
    "record_destination",
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
#: The template of topics that are made by their first message.
AUTO_CREATE_TOPIC: str
#: Where delayed messages wait, one queue for each delay level.
SCHEDULE_TOPIC: str
#: Of messages whose transactions are open, and of marks on those whose transactions have ended.
HALF_TOPIC: str
OP_HALF_TOPIC: str
#: Of messages whose transactions nobody has ended.
UNDECIDED_TOPIC: str
SELF_TEST_TOPIC: str
OFFSET_MOVED_TOPIC: str
#: Topics that only brokers write.
BROKER_TOPICS: tuple[str, ...]
#: Topics of the system beside these, and the prefix of those that come and go.
SYSTEM_TOPICS: tuple[str, ...]
SYSTEM_TOPIC_PREFIX: str
SYSTEM_GROUP_PREFIX: str
#: The group under which the broker saves how far its transactions are done.
TRANSACTION_GROUP: str
TRACE_TOPIC: str
BENCHMARK_TOPIC: str
TOPIC_BYTES_MAX: int
#: Of a retry or dead-letter topic, whose name holds a group's.
GROUP_TOPIC_BYTES_MAX: int
GROUP_BYTES_MAX: int
#: Bits of the permission of a topic or of a broker.
PERMISSION_READ: int
PERMISSION_WRITE: int
#: Bits of the flags of a pull: it may wait for a message, it carries its subscription.
PULL_SUSPEND: int
PULL_SUBSCRIPTION: int
#: Upper ends of the buckets of `Server.latencies`, in microseconds.
LATENCY_BOUNDS_US: tuple[int, ...]
#: The same of `Store.message_sizes`, in bytes.
MESSAGE_SIZE_BOUNDS: tuple[int, ...]
#: Upper ends of the buckets of delays in `DueMessages.statistics`, in seconds; one more counts longer ones.
TIMER_BOUNDS_S: tuple[int, ...]
#: The same of commits in `Transactions.statistics`, in seconds.
TRANSACTION_BOUNDS_S: tuple[int, ...]

def attach_count() -> int:
    """Times that control crossed from Python into a server object since the process began.

    Hot requests are served without any: the number stands still while messages are sent and pulled.
    """

def store_settings() -> dict[str, tuple[int, int, int, str]]:
    """Default, lowest and highest value, and unit of each number that a store checks, by its key in broker.conf."""

def sql_error(expression: str, *, strict: bool = True) -> str | None:
    """What is wrong with a SQL92 expression, None where it can be used; without `strict`, text behind it is ignored."""

def sql_matches(expression: str, properties: dict[str, str], *, strict: bool = True) -> bool:
    """Whether a message with these properties matches an expression; one that cannot be used matches none."""

def hot_needs(code: int) -> list[tuple[str, str, list[str]]]:
    """What a request of this code, which is served natively, needs by its header: kind of the resource, header field,
    actions of which one will do."""

def check_entry(
    resource: str, actions: Sequence[str], sources: Sequence[str], decision: str
) -> tuple[str, list[str], list[str], str]:
    """An entry as it will be understood: resource, actions, sources, decision. Raises `ValueError` where it cannot
    be."""

def decide(
    custom: Sequence[_EntryRow], default: Sequence[_EntryRow], need: _Need, source: str
) -> tuple[bool, str | None]:
    """What these custom and default entries say to a need from an address: whether it is allowed, and the entry that
    decides, `None` where none does."""

def is_listed(text: str, source: str) -> bool:
    """Whether `source` is one of the addresses of an entry of a white list, in the notation of `plain_acl.yml`. Raises
    `ValueError` where it cannot be read."""

def record_destination(record: bytes) -> str:
    """The topic that a record of the log will be delivered to: of a half message that is open or was given up, the one
    it was sent to. Empty where it is none."""

def record_topic(record: bytes) -> str:
    """The topic of a record of the log; empty where it is none."""

def signature(secret: str, fields: Sequence[tuple[str, str]], body: bytes) -> str:
    """The signature of a request with these header fields, by the original's rules."""

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
) -> tuple[int, str, int]:
    """Store a reply whose requester has been sent it, as a message of its topic: response code 0, message id and offset
    in its queue; or the code of the refusal, its reason and 0. May wait for the disk."""

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
    """The bytes of a record, for a message that came as a request of a broker. Raises `DecodeError` for fields that
    make none."""

# --------------------------------------------------------------------------------------------------------------
# Broker: store, metadata, offsets, server
# --------------------------------------------------------------------------------------------------------------

@final
class HandClock:
    """A clock that stands still until it is moved: what time it is for the brokers that are given it.

    It begins at the machine's time, or at `wall_ms`. Timeouts and intervals of connections go by the machine's clock,
    so that clients notice nothing.
    """

    def __new__(cls, wall_ms: int | None = None) -> Self: ...
    def wall_ms(self) -> int:
        """Milliseconds since the epoch."""
    def elapsed(self) -> float:
        """Seconds since the clock was made, by the machine's clock."""
    def advance(self, seconds: float) -> None:
        """Let time pass, and wait until every delayed and timed message that fell due can be consumed.

        Raises `ValueError` for a negative or immeasurable time.
        """

@final
class Store:
    """A message store directory, opened by one process.

    The constructor only remembers the configuration. `open` takes the lock, recovers and starts the store's threads.
    Sizes are bytes, times are milliseconds since the epoch, offsets are queue offsets unless called `physical`.
    """

    def __new__(
        cls, config: StoreConfig, *, clock: HandClock | None = None, is_replica: bool = False
    ) -> Self:
        """A replica refuses messages and takes its master's log. Raises `ConfigError` naming the key that is out of
        its bounds."""
    def open(self) -> None:
        """Lock, recover and start. Blocks with the interpreter released.

        Raises `StoreError` naming the file and what was expected.
        """
    def progress(self) -> tuple[str, int, int]:
        """What `open` is doing in another thread: phase, bytes done, bytes in all."""
    def close(self) -> None:
        """Flush everything, write the checkpoint, remove the abort file. Idempotent."""
    def fence(self) -> int:
        """Refuse messages from now on, for another broker leads; returns where the log has ended."""
    def abandon(self) -> None:
        """Stop the threads and leave the store as a crash would: the abort file stays."""
    def queues(self) -> list[tuple[str, list[int]]]:
        """Topics that have queue files, with their queue ids."""
    def min_offset(self, topic: str, queue_id: int) -> int:
        """The first offset of a queue that is still there; 0 for a queue that does not exist."""
    def max_offset(self, topic: str, queue_id: int) -> int:
        """The position after the last visible entry; 0 for a queue that does not exist."""
    def offset_by_time(self, topic: str, queue_id: int, timestamp_ms: int, *, upper: bool = False) -> int:
        """The offset of the first message stored at or after a time, with `upper` of the last one at or before it."""
    def store_time(self, topic: str, queue_id: int, offset: int) -> int:
        """Store timestamp of the message at `offset`; -1 when it is not there."""
    def earliest_store_time(self, topic: str, queue_id: int) -> int:
        """Store timestamp of the oldest message of the queue; -1 when it has none."""
    def log_begin_time(self) -> int:
        """Store timestamp of the oldest message of the log, whatever its topic; -1 when there is none."""
    def message(self, physical: int) -> bytes | None:
        """The record that starts at this position of the log."""
    def query(
        self, topic: str, key: str, maximum: int, begin_ms: int, end_ms: int
    ) -> tuple[list[bytes], int, int]:
        """Records whose key hash matches, newest first; the index's last update time and physical offset."""
    def delete_topic(self, topic: str) -> None:
        """Remove the topic's queues; bytes in the log stay until their segment expires."""
    def retain(self, config: StoreConfig, utc_offset_ms: int) -> None:
        """Set how long messages are kept and what a full disk means; before the first call hours are UTC."""
    def delete_expired(self) -> int:
        """Delete expired files of the log now, whatever the hour, and what queues and index hold of them.

        Returns how many files of the log went. Raises `StoreError` where one cannot be deleted.
        """
    def trim(self) -> None:
        """Remove files of queues and index whose messages are no longer in the log; each queue keeps its newest."""
    def events(self) -> list[tuple[bool, str]]:
        """What happened since the last call and belongs into a log, oldest first: whether it warns, and the text."""
    def units(self, topic: str, queue_id: int, offset: int, count: int) -> list[tuple[int, int, int]]:
        """Entries of a queue, 1,024 at most: position and size of the record, hash of its tag."""
    def take_arrivals(self) -> list[tuple[str, int, str, int, int]]:
        """Topic, queue id, type of message, messages and bytes of what became visible since the last call. One caller
        keeps count; the first call counts what recovery found as well."""
    def message_sizes(self) -> list[int]:
        """Messages stored since the start by bytes in the log: up to 1 KiB, 4 KiB, 512 KiB, 1, 2, 4 MiB, and larger."""
    def statistics(self) -> dict[str, int]:
        """Counters and positions: min_physical, max_physical, durable, visible, puts, put_bytes, put_failures, …"""
    @property
    def failure(self) -> str | None:
        """Why the store refuses writes, or None while it accepts them."""

@final
class StoppedStore:
    """A store directory, Apache's or ours, that no broker has open and none can open until `release`.

    Positions are bytes of the log, times milliseconds since the epoch. Everything releases the interpreter. Raises
    `StoreError` when a broker has the store open, and where there is none.
    """

    def __new__(cls, config: StoreConfig, *, exclusive: bool = False) -> Self:
        """Readers share a store; `rebuild_index` and `drain` want it exclusively.

        Folders that the configuration does not name are where the last broker had them.
        """
    @property
    def index_folder(self) -> Path:
        """The folder of the index."""
    def progress(self) -> tuple[int, int]:
        """Bytes of the log that another thread has gone through, and bytes in all."""
    def release(self) -> None:
        """Let brokers open the store. Idempotent; nothing else can be done afterwards."""
    def verify(self, topics: Sequence[str] | None = None) -> dict[str, Any]:
        """Compare everything with the log; nothing is written.

        `topics` are those that exist: records of others are left over from deleted ones. The keys are `log_begin`,
        `log_end`, `records`, `queues`, `keys`, `is_aborted`, `damage`, `notes` and `findings`, a list of the first
        thousand with `kind`, `is_damage`, `path`, `at` and `text`.
        """
    def stats(self) -> tuple[int, int, dict[str, tuple[int, int, int, int, int, int]]]:
        """Begin and end of the log; for each topic queues, records, bytes, body bytes, oldest and newest store time."""
    def records(
        self,
        begin: int,
        end: int,
        *,
        topic: str | None = None,
        queue_id: int | None = None,
        offsets: tuple[int, int] | None = None,
        count: int = 1024,
    ) -> tuple[list[ReceivedMessage], int | None, list[tuple[int, int, str]]]:
        """At most `count` records that begin in this part of the log; where to go on, `None` at the end; what between
        them is no record: begin, end and reason. `offsets` are queue offsets, the second one not included."""
    def spooled_bytes(self) -> int:
        """Bytes of records that a killed broker has left in the spool, and that may not be in the log yet."""
    def drain(self) -> tuple[str | None, bool]:
        """Bring what a killed broker has left in the spool into the log.

        What came of it, `None` where nothing was left, and whether it is all in the log. Wants the store exclusively.
        """
    def compare(self, other: StoppedStore) -> tuple[tuple[int, int], tuple[int, int], int, int | None]:
        """Compare the log with another one's: begin and end of either, end of what both have, and the first position in
        that whose bytes differ."""
    def cut(self, at: int) -> None:
        """Give up what the log has from a position on, the end of a record. Wants the store exclusively."""
    def rebuild_index(self) -> int:
        """Replace the index by one with every key of the log. How many records it was made of."""
    def copy(self, target: str | os.PathLike[str], *, topics: Sequence[str] | None = None) -> dict[str, int]:
        """Write the whole records, of `topics` or of all, to a store of their own; `config` is copied as it is.

        The keys are `records`, `bytes`, `left_out` (other or deleted topics), `gaps` and `gap_bytes`.
        """

@final
class Metadata:
    """What the data plane may know: topics, groups, subscriptions and the broker's own settings.

    Every change is published whole before the call returns; requests in flight see the old or the new value.
    """

    def __new__(cls, config: BrokerConfig, store_host: str) -> Self:
        """`store_host` is `ip:port` as written into records and message ids."""
    def put_topic(self, entry: TopicConfig) -> None:
        """A topic that exists from now on, or has other settings."""
    def remove_topic(self, name: str) -> None:
        """A topic that does not exist any more."""
    def put_group(self, entry: SubscriptionGroup) -> None:
        """A group that exists from now on, or has other settings."""
    def remove_group(self, name: str) -> None:
        """A group that does not exist any more."""
    def put_subscriptions(
        self, group: str, *, is_broadcast: bool, subscriptions: Iterable[tuple[str, str, str, int]]
    ) -> None:
        """What the registered members of `group` consume: (topic, expression type, expression, version)."""
    def remove_subscriptions(self, group: str) -> None:
        """A group that has no registered members any more."""
    def forbid(self, group: str, topic: str, is_forbidden: bool) -> None:
        """Whether pulls of this group from this topic are refused."""
    def put_in_order(self, group: str, is_in_order: bool) -> None:
        """Say that a member of `group` holds the lock of a queue, or that none does: what such a group sends to its
        retry topic goes to its dead letters."""
    def set_transactions(self, rejects: bool, timeout_ms: int) -> None:
        """Whether half messages are refused, and how long their producers have to decide."""
    def set_message_type_check(self, is_on: bool) -> None:
        """Whether topics whose type was set take messages of that type alone."""
    def set_role(self, is_slave: bool, has_master: bool, *, is_acting: bool = False) -> None:
        """Whether the broker is a slave, whether its master answers, and whether it acts for that. A slave takes no
        messages."""
    def set_permission(self, permission: int) -> None:
        """Bits of the permission of the broker itself."""

@final
class Offsets:
    """Committed consumer offsets, owned by the data plane.

    What comes in one by one is checked against the read queues of its topic in `metadata`."""

    def __new__(cls, metadata: Metadata) -> Self: ...
    def load(self, table: Mapping[str, Mapping[int, int]]) -> None:
        """Replace everything: `topic@group` to queue id to offset, of queues and up to ends that there are."""
    def snapshot(self) -> tuple[int, dict[str, dict[int, int]]]:
        """Number of commits so far, and the whole table."""
    @property
    def commits(self) -> int:
        """Number of commits so far: equal numbers mean an equal table."""
    @property
    def refused(self) -> int:
        """Commits and resets, of clients too, outside the queues of their topic or the numbers an offset may have."""
    def steps_back(self) -> dict[str, int]:
        """How often each group committed an offset below the one before, of those that did."""
    def take_first_steps_back(self) -> list[tuple[str, str, int, int, int]]:
        """Group, topic, queue id, offset before and after: the first step back of each group, once."""
    def commit(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Raises `BrokerError`, with code 29 for a queue that consumers cannot read, 17 for no such topic, 16 for the
        broker's own progress."""
    def take_over(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Take over what another broker has of a group, its own progress with transactions included.

        Raises as `commit`.
        """
    def query(self, group: str, topic: str, queue_id: int) -> int | None:
        """The committed offset of a queue, `None` without one."""
    def groups_of(self, topic: str) -> list[str]:
        """Groups that have committed in a topic."""
    def topics_of(self, group: str) -> list[str]:
        """Topics that a group has committed in."""
    def remove_topic(self, topic: str) -> None:
        """Forget what was committed in a topic."""
    def remove_group(self, group: str) -> None:
        """Forget what a group has committed."""
    def reset(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Let the next pull of this queue answer 21 with `offset`; commits are ignored until then.

        Raises as `commit`.
        """

@final
class Request:
    """One cold request, or one event, that went up to Python."""

    @property
    def kind(self) -> Literal["request", "answer", "closed", "create_topic", "create_group"]:
        """`answer`: what a client says to `Server.ask`. `closed`: the connection is gone. `create_topic`,
        `create_group`: the first send to a topic, or pull of a group, that does not exist; such requests are parked
        until `Server.release` for `name`, for 3 s at most."""
    @property
    def token(self) -> int:
        """Names this request in `Server.answer`; of an answer, what `Server.ask` returned; 0 for events."""
    @property
    def connection(self) -> int:
        """Number of the connection it came on."""
    @property
    def peer(self) -> str:
        """`ip:port` of the other side."""
    @property
    def is_vip(self) -> bool:
        """Whether it came on the port for those that must not wait."""
    @property
    def code(self) -> int:
        """The request code."""
    @property
    def version(self) -> int:
        """Ordinal of the sender's release."""
    @property
    def language(self) -> str:
        """The client's programming language."""
    @property
    def is_oneway(self) -> bool:
        """One-way: do not answer."""
    @property
    def user(self) -> str | None:
        """Who sent it, where access control is on and it says so."""
    @property
    def is_guarded(self) -> bool:
        """Whether what it needs must be asked for, with `Server.authorize`."""
    @property
    def ext(self) -> dict[str, str]:
        """The header's fields."""
    @property
    def body(self) -> bytes:
        """The body, empty without one, and where it has more than `Server.declare_requests` said."""
    @property
    def body_bytes(self) -> int:
        """Bytes of the body as it came."""
    @property
    def name(self) -> str:
        """What is to be created; empty for requests. `code` and `ext` are those of the first parked request."""
    @property
    def remark(self) -> str:
        """Of an answer; empty for everything else."""

#: token, response code, remark, header fields, body
_EntryRow = tuple[str, Sequence[str], Sequence[str], str]
_UserRow = tuple[str, str, bool, bool, Sequence[_EntryRow], Sequence[_EntryRow], str]
_Need = tuple[str, str, Sequence[str]]
_Answer = tuple[int, int, str | None, Mapping[str, str] | None, bytes | None]

@final
class ServerTls:
    """The TLS of a server's ports: a certificate with its key, as PEM, and what is asked of clients.

    `client_auth` is none, optional or require; where it is not none, `trust` has the certificates of the authorities.
    Connections that are not encrypted are served too, unless `is_enforced`. `protocols` and `ciphers` are lists as
    `tls_suites` takes them. Raises `ConfigError`.
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
        """Take another certificate for the connections to come, with the same suites; those there keep theirs. Raises
        `ConfigError`, and nothing has changed then."""
    def take_failures(self) -> tuple[list[tuple[str, str]], int]:
        """Handshakes that failed since the last call: `ip:port` of who tried, and why; and how many more."""

@final
class ClientTls:
    """The TLS of a client's connections: the authorities it trusts, as PEM, or any server without; and the certificate
    and key that it shows where it is asked for one.

    With `server_name` every server's certificate is for that name, whatever its address. `protocols` and `ciphers` are
    lists as `tls_suites` takes them. Raises `ConfigError`.
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
        """Be as another one for the connections to come."""

def tls_suites(protocols: str, ciphers: str) -> list[tuple[str, str]]:
    """The suites of `tls.protocols` and `tls.ciphers`: protocol and OpenSSL's name of each. Names are those of rustls,
    Java or OpenSSL, separated by commas, colons or blanks; an empty list is all there are. Raises `ConfigError` naming
    what cannot be had."""

def certificate_expiry(certificate: bytes) -> int:
    """When the certificate that comes first in this PEM text ends to be valid, in seconds since 1970. Raises
    `ConfigError`."""

def make_certificate(
    names: Sequence[str], *, days: int, is_authority: bool = False, authority: tuple[str, str] | None = None
) -> tuple[str, str]:
    """A certificate and its key, as PEM: for these names and addresses, from now on for some days. Made by the
    `authority`, whose certificate and key `make_certificate` has made, or by itself. Raises `ConfigError`."""

@final
class Replication:
    """A broker's side of replication: a master that has called `listen`, or a slave that has called `follow`."""

    def __new__(
        cls,
        store: Store,
        *,
        heartbeat_interval_ms: int,
        silence_ms_max: int,
        transfer_bytes_max: int,
        gap_bytes_max: int,
        copies: int,
        slaves_max: int,
        copies_last_file: bool = False,
        needs_ticket: bool = False,
        trusted: Sequence[str] | None = None,
        server_tls: ServerTls | None = None,
        client_tls: ClientTls | None = None,
    ) -> Self:
        """With `needs_ticket` a master lets no slave in that shows none of `expect`, but for those of `trusted`
        addresses. Raises `ValueError` for what is no address."""
    def listen(
        self,
        host: str,
        port: int,
        *,
        broker_id: int = 0,
        epoch: int | None = None,
        server: Server | None = None,
    ) -> tuple[str, int]:
        """Wait for slaves; port 0 picks a free one. Returns the bound address. The log goes on in its last epoch, or
        begins `epoch`. Slaves that replies wait for are served by `server`'s thread while they keep up. Raises
        `OSError`, or `StoreError` where the epochs cannot be kept."""
    def follow(self) -> None:
        """Copy the log of the master that `set_master_address` names. Raises `StoreError` for a store that is no
        replica."""
    def set_master_address(self, address: str | None) -> None:
        """Say where a slave's master waits for it, as `host:port`; `None`: nowhere. A connection to another one
        ends."""
    def expect(self, ticket: bytes) -> None:
        """Let in the connection of a slave that shows this ticket of 16 bytes, once and soon."""
    def slaves(self) -> list[tuple[str, int, int, int, bool, int]]:
        """The slaves that are connected to a master: address, number of the connection, what it has of the log, bytes
        it lacks, whether it is in sync, milliseconds since it said something."""
    def master(self) -> tuple[str | None, bool, int, int | None, str | None, bool] | None:
        """What a slave knows of its master, `None` for a master: its address, whether it is connected, the end of the
        own log, milliseconds since the master said something, why there is no connection, whether the logs do not fit
        together."""
    def refused(self) -> list[tuple[str, str, bool]]:
        """Slaves that were refused: address, reason, and whether it is that they showed no ticket; otherwise their logs
        do not fit that of this master."""
    def epochs(self) -> list[tuple[int, int]]:
        """The epochs of the log, oldest first: number and begin."""
    def range(self) -> tuple[int, int]:
        """Where the log begins and ends, as far as others may copy it."""
    def digest(self, begin: int, end: int) -> int | None:
        """CRC-32 of a part of the log; `None` where some of it is not there."""
    def wanted(self) -> int | None:
        """The question of a slave about its master's log that waits for an answer; `None`: none does."""
    def propose(
        self, epochs: Sequence[tuple[int, int]], begin: int, end: int
    ) -> tuple[tuple[int | None, int, int, int] | None, str | None]:
        """What a slave does beside a master whose log has these epochs, begin and end: where it cuts its own first, if
        anywhere, and begin, end and digest of what the master must have, too; or why it does not follow."""
    def accept(self, question: int, epochs: Sequence[tuple[int, int]], ticket: bytes | None = None) -> None:
        """Answer a question: follow a master of these epochs, none where they are not known, which lets in by the
        ticket that it gave. Without one the question comes again once there is a connection."""
    def refuse(self, question: int, reason: str, *, is_diverged: bool = False) -> None:
        """Answer a question: do not follow; `is_diverged`: the two logs do not fit together."""
    def events(self) -> list[tuple[bool, str]]:
        """What happened since the last call and belongs into a log, oldest first: whether it warns, and the text."""
    def stop(self) -> None:
        """End all connections. Idempotent."""

@final
class Server:
    """A remoting server. With a store it is a broker's: hot requests end there, everything else comes up.

    `fileno` becomes readable when `take` has something. One thread drains it. Connections beyond `connections_max`,
    those of one address beyond `connections_per_address_max`, and those that come while the process has
    `descriptors_max` descriptors open, are closed as they come. With `tls`, those that begin so are encrypted.
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
        """Bind and serve; port 0 picks a free one. Returns the bound address. Raises `OSError`."""
    def declare_requests(self, bodies_bytes_max: Mapping[int, int]) -> None:
        """Say which requests come up, by code, and how many bytes of a body are read of each. Of a body with more the
        number of bytes comes up alone, and a request of any other code is refused with 3. Only the first call counts;
        before it, everything comes up."""
    def set_access(
        self,
        *,
        authenticates: bool,
        authorizes: bool,
        takes_certificates: bool,
        unsigned_codes: Set[int],
        unguarded_codes: Set[int],
        cluster: str,
        users: Sequence[_UserRow],
        trusted: Sequence[str],
        limits: tuple[int, int, int],
    ) -> None:
        """Put these checks and users in the place of those before; what connections were allowed is forgotten. With
        `takes_certificates` a request without a signature is of the user its connection's certificate is for. A user:
        name, secret, whether super, whether enabled, custom and default entries as `check_entry` takes them, and an
        entry of a white list. `trusted` are entries for everybody; `limits` of each user: connections, requests and
        bytes a second. Raises `ValueError` for an entry that cannot be read."""
    def authorize(self, code: int, user: str | None, peer: str, needs: Sequence[_Need]) -> str | None:
        """Whether this user may do all of that in a request of this code from `peer`, an `ip:port`: kind and name of
        each resource, and the actions of which one is needed. The sentence for its sender where not; the refusal is
        counted."""
    def might(self, user: str | None, peer: str, needs: Sequence[_Need]) -> bool:
        """Whether this user might do all of that from `peer`: as `authorize`, and nothing is counted."""
    def take_refusals(self) -> tuple[list[tuple[int, str, str]], int]:
        """What was refused since the last call: code of the request, `ip:port` of its sender, what that was told; and
        how many more."""
    def take_foreign_clients(self) -> list[tuple[str, str]]:
        """Clients of other protocols that were closed since the last call, each address once a minute: `ip:port`, and
        what they speak."""
    def fileno(self) -> int:
        """A descriptor that is readable while requests or events wait."""
    def take(self, limit: int = 256) -> list[Request]:
        """Requests and events that wait, of each connection in turn, oldest first, and a few; clears `fileno` when it
        took the last one."""
    def answer(self, answers: Sequence[_Answer]) -> None:
        """Send replies. A reply to a connection that is gone is dropped. A HEART_BEAT answered with code 0 is
        remembered: equal bytes on that connection are answered natively from then on, until `forget_heartbeats`."""
    def count_overload(self, is_oneway: bool) -> None:
        """Count a request that came up and is refused for want of room; a one-way request is dropped."""
    def push(self, connection: int, code: int, ext: Mapping[str, str], body: bytes | None = None) -> bool:
        """Send a one-way request to a client; False when its connection is gone."""
    def ask(
        self, connection: int, code: int, ext: Mapping[str, str], body: bytes | None = None
    ) -> int | None:
        """Send a client a request whose answer comes up as a `Request` of the kind `answer` with this token. None when
        its connection is gone, or too many clients are being asked."""
    def forget_answer(self, connection: int, token: int) -> None:
        """Drop the answer when it comes: its waiter has given up."""
    def release(
        self,
        kind: Literal["create_topic", "create_group"],
        name: str,
        code: int = 0,
        remark: str | None = None,
    ) -> None:
        """Let requests parked for `name` run again (code 0, its metadata published before), or refuse them."""
    def wake_pulls(self) -> None:
        """Answer the pulls that wait for messages now: the role of the broker is another."""
    def forget_heartbeats(self) -> None:
        """Make every client's next heartbeat come up again."""
    def heartbeat_age_ms(self, connection: int) -> int | None:
        """Time since the last accepted heartbeat of the connection; None when it is gone or never sent one."""
    def close_connection(self, connection: int) -> None:
        """End a connection; nothing where it is gone."""
    def take_deliveries(self) -> list[tuple[str, str, int, int, int, int, int]]:
        """Group, topic, queue id, and since the last call: answered pulls, messages and bytes in them, messages the
        group gave back. One caller keeps count."""
    def fetch_positions(self) -> list[tuple[str, str, int, int]]:
        """Group, topic, queue id, and the offset after the last message the group was given there: of those that take
        messages, or did a moment ago."""
    def latencies(self) -> list[tuple[int, int, bool, list[int], int, int]]:
        """Request code, response code, whether the request waited for a message; how many answers took up to
        each of `LATENCY_BOUNDS_US` and longer, each counted once; microseconds of all together, and of the longest.
        Since the start."""
    def statistics(self) -> dict[str, int]:
        """connections, refused_connections, requests, upcalls, sends, pulls, parked_pulls, buffer_bytes, ..."""
    def stop(self, grace_ms: int = 2_000) -> None:
        """Stop accepting, let replies drain, close every connection, join the threads. Idempotent."""

@final
class DueMessages:
    """Delayed and timed messages of a broker, and their way to the queues they were meant for."""

    def __new__(cls, server: Server) -> Self: ...
    def begin(self, offsets: dict[int, int], *, acts: bool = False) -> None:
        """Begin to deliver delayed messages, delay level to the offset in its queue, and timed ones: into the log, or,
        of a slave that `acts` for its master, by way of `take`. Nothing where the broker delivers already.
        Raises `StoreError`."""
    def end(self) -> dict[int, int]:
        """End what `begin` began, and save how far timed messages have got; how far each delay level has. Raises
        `StoreError`."""
    def take(self, limit: int) -> list[tuple[int, str, int, int, int, int, int, str, bytes]]:
        """Messages that are due and wait for another broker, at most `limit`: position in this log, topic, queue id,
        flag, system flag, time of birth in ms, earlier attempts, properties, body."""
    def decide(self, position: int, is_accepted: bool) -> None:
        """Say of a message of `take` whether another broker has it; one that none has comes again."""
    def close(self) -> int:
        """Let no more messages come by `take`; how many are on their way, or were accepted and are not noted as
        delivered yet."""
    def save(self) -> None:
        """Make durable how far the delivery of timed messages has got; nothing where it has not moved. Raises
        `StoreError`."""
    def statistics(
        self,
    ) -> tuple[int, tuple[int, int], tuple[int, int], list[tuple[str, int, int, int, list[int], int]]] | None:
        """Timed messages: how many wait; of the queue of those that were sent how many are not read, and since when in
        ms; how many are due, and for how long in ms; by topic how many wait, were read and were delivered since the
        start, how many of those read had to wait so many seconds as each of `TIMER_BOUNDS_S`, and more, each counted
        once, and the seconds of all together. None before `begin`. Raises `StoreError`."""
    def due_within(self, bounds_s: Sequence[int]) -> list[tuple[str, list[int]]]:
        """How many timed messages of each topic are due within each of these seconds, growing, and later; each counts
        once. Raises `StoreError`."""
    def slots_within(self, bounds_s: Sequence[int]) -> list[int]:
        """The same of all topics together, to the width of a slot, from memory."""
    def delay_offsets(self) -> dict[int, int]:
        """How far each delay level has got. What lies before is delivered and durable: the log is flushed for it.

        Raises `StoreError` when that fails.
        """
    def delivered(self) -> dict[int, int]:
        """The same for those who only look: nothing is flushed."""

@final
class Transactions:
    """The transactions of a broker."""

    def __new__(cls, server: Server) -> Self: ...
    def recover(self, checked: Sequence[tuple[int, int, int, int]]) -> None:
        """Find the transactions that are open, and count on from these `checked`. Once, before the server
        listens. Raises `StoreError`."""
    def checked(self) -> list[tuple[int, int, int, int]]:
        """Open half messages about which somebody was asked: position in the log of the first and of the last one of
        several that follow one another, how often about each of them, and how many of these checks were answered."""
    def save(self) -> None:
        """Commit, under the group of the original, how far half messages are decided. Raises `StoreError`."""
    def take(
        self, limit: int, interval_ms: int
    ) -> list[tuple[int, tuple[int, str, int, int, int, int, int, str, bytes]]]:
        """Half messages that are due as `due` has them, for another broker: offset, and the rest as
        `DueMessages.take`."""
    def leave(self, offset: int, physical: int) -> None:
        """Note that another broker has a half message now: nobody is asked about it here any more."""
    def forget(self) -> None:
        """Forget which transactions are open: another broker looks after them from now on."""
    def due(
        self, limit: int, interval_ms: int, expiry_ms: int
    ) -> list[tuple[int, int, tuple[int, int], int | None, int, str, str, str, bytes]]:
        """Half messages whose producers are to be asked now, or that are `expiry_ms` old, at most `limit`, and after
        `interval_ms` again: offset, position in the log, how often a producer was asked and answered, the connection
        that the half came on, store time, producer group, unique key, message id, record as it was sent."""
    def count_checks(self, halves: Sequence[tuple[int, int]]) -> None:
        """Count a check of each of these, offset and position: a producer was sent one."""
    def discard(self, offset: int, physical: int) -> bool:
        """Give a half message up: it is stored in `UNDECIDED_TOPIC`, and its transaction has ended. False where
        somebody has decided. Raises `StoreError`."""
    def resume(self, physical: int) -> None:
        """Ask producers about a half message again, from the first time on: one that is open, or that was given up and
        is a half once more then. Raises `BrokerError` with the reason for any other, and `StoreError`."""
    def statistics(self) -> list[tuple[str, int, int, int, list[int], int]]:
        """Topic, and of its transactions: how many are open, were committed and rolled back since the start; how many
        commits came when their message was as old as each of `TRANSACTION_BOUNDS_S` at most, and older, each counted
        once; seconds of all together."""

# --------------------------------------------------------------------------------------------------------------
# Client: messages, connections, columns
# --------------------------------------------------------------------------------------------------------------

@final
class Message:
    """A message to send. Immutable, comparable by value, picklable.

    `body` may be text, sent as UTF-8; `keys` one word, or several. Of the three ways to delay give one: `deliver_at`
    (a `datetime`, or seconds since the epoch), `deliver_after` (a `timedelta`, or seconds) or `delay_level`. Each
    argument is an attribute, too. Raises `ValueError` for what no broker takes: a bad topic name, a reserved property,
    an empty body.

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
        keys: str | Iterable[str] = (),
        properties: Mapping[str, str] | None = None,
        sharding_key: str | None = None,
        deliver_at: datetime | float | None = None,
        deliver_after: timedelta | float | None = None,
        delay_level: int | None = None,
        priority: int | None = None,
        flag: int = 0,
    ) -> Self: ...
    @property
    def topic(self) -> str:
        """Where it is sent to."""
    @property
    def body(self) -> bytes:
        """The bytes; text was made UTF-8."""
    @property
    def tag(self) -> str | None:
        """One word that consumers can filter by."""
    @property
    def keys(self) -> tuple[str, ...]:
        """Words the message can be found by."""
    @property
    def properties(self) -> Mapping[str, str]:
        """The user's own; what the library and brokers add is not here."""
    @property
    def sharding_key(self) -> str | None:
        """Messages with equal keys go to one queue, in order."""
    @property
    def sharding_hash(self) -> int | None:
        """Java's hash of the sharding key."""
    @property
    def deliver_at(self) -> float | None:
        """Seconds since the epoch."""
    @property
    def deliver_after(self) -> float | None:
        """Seconds after the broker got it."""
    @property
    def delay_level(self) -> int | None:
        """One of the delays the broker's configuration lists, from 1."""
    @property
    def priority(self) -> int | None:
        """A number that brokers keep with it."""
    @property
    def flag(self) -> int:
        """A number of the application's own."""
    @property
    def size(self) -> int:
        """Bytes of body and properties before compression."""
    @staticmethod
    def is_reserved(name: str) -> bool:
        """Whether a property of this name is RocketMQ's own, which no user may set.

        >>> Message.is_reserved("TAGS"), Message.is_reserved("colour")
        (True, False)
        """
    def replace(self, **changes: Unpack[MessageChanges]) -> Message:
        """A copy with some arguments changed.

        >>> Message("orders", b"x", tag="new").replace(tag="paid").tag
        'paid'
        """
    def _with_reserved(self, properties: Mapping[str, str]) -> Message:
        """A copy with properties that no user may set, for the library."""
    def __getnewargs_ex__(self) -> tuple[tuple[()], dict[str, Any]]: ...
    def __hash__(self) -> int: ...

@final
class ReceivedMessage:
    """A message as a broker returned it. Attributes are read from its bytes when they are asked for.

    Comparable by value, picklable. Made by the library. It keeps the whole reply it came in; keep a pickled copy of
    the few messages that are kept for long.
    """

    def __new__(
        cls, record: bytes, index: int | None, queue: MessageQueue, namespace: Namespace | None = None, /
    ) -> Self:
        """For pickle: the record, the place in it when it is a batch, the queue it came from, and the namespace of its
        reader."""
    @property
    def topic(self) -> str:
        """Where it was sent to. `queue` tells where it was read: of a retried message, the group's retry topic."""
    @property
    def body(self) -> bytes:
        """Decompressed. Raises `DecodeError`, naming the message, when that fails."""
    @property
    def tag(self) -> str | None:
        """The word that consumers can filter by."""
    @property
    def keys(self) -> tuple[str, ...]:
        """Words the message can be found by."""
    @property
    def properties(self) -> Mapping[str, str]:
        """All of them, those of the library and the broker included."""
    @property
    def message_id(self) -> str:
        """The producer's id: the one in `SendResult`."""
    @property
    def offset_message_id(self) -> str:
        """The broker's id: names broker and place in its log."""
    @property
    def queue(self) -> MessageQueue:
        """Where it was read."""
    @property
    def queue_offset(self) -> int:
        """Its position in that queue."""
    @property
    def commit_log_offset(self) -> int:
        """Its position in the broker's log, in bytes."""
    @property
    def born_at(self) -> datetime:
        """When the producer made it, UTC. A time that no date has is the nearest; `born_at_ms` has it as it is."""
    @property
    def born_at_ms(self) -> int:
        """The producer's time as it was written: milliseconds since 1970, as a rule."""
    @property
    def stored_at(self) -> datetime:
        """When the broker stored it, UTC; likewise."""
    @property
    def stored_at_ms(self) -> int:
        """The broker's time as it was written."""
    @property
    def born_host(self) -> str:
        """`ip:port` of the producer."""
    @property
    def store_host(self) -> str:
        """`ip:port` of the broker."""
    @property
    def delivery_attempt(self) -> int:
        """1 for a message that was never retried."""
    @property
    def flag(self) -> int:
        """The application's own number."""
    @property
    def sys_flag(self) -> int:
        """Bits of the record: compression, transaction, address family."""
    @property
    def sharding_key(self) -> str | None:
        """The key whose messages share a queue."""
    @property
    def transaction_id(self) -> str | None:
        """Id of the transaction it was sent in."""
    def view(self) -> memoryview:
        """The body, without another copy."""
    def text(self, encoding: str = "utf-8") -> str:
        """The body as text. Raises `UnicodeDecodeError`."""
    def json(self) -> Any:
        """The body read as JSON. Raises `ValueError`."""
    def __reduce__(self) -> tuple[type[ReceivedMessage], tuple[bytes, int | None, MessageQueue]]: ...
    def __hash__(self) -> int: ...

@final
class Completions:
    """Requests that have an outcome, for one reader; any number of requests announce themselves to it."""

    def __new__(cls) -> Self: ...
    def fileno(self) -> int:
        """Readable while something waits here, and after `close`."""
    def take(self, limit: int = 256) -> list[tuple[int, Any]]:
        """Oldest first: the token a request was made with, and its `Call` or `SendFuture`; or a `ServerRequest`."""
    def wait(self, timeout: float | None = None) -> bool:
        """Sleep until something is here or `close` was called; False when `timeout` seconds passed first."""
    def close(self) -> None:
        """Wake the reader for good; what completes later is dropped, and sends that failed are given up. Idempotent."""
    def is_closed(self) -> bool:
        """Whether `close` was called."""

@final
class Namespace:
    """The namespace of a client: its users write `orders`, and brokers know the topic as `shop%orders`.

    Comparable by value, picklable.
    """

    def __new__(cls, name: str, /) -> Self:
        """Raises `ConfigError` for what is no name, or has the `%` that stands behind it."""
    @property
    def name(self) -> str:
        """What users call it."""
    def wrap(self, name: str) -> str:
        """A topic or group as brokers know it. One of the system, or that is wrapped already, stays as it is."""
    def unwrap(self, name: str) -> str:
        """A topic or group as users of this namespace write it; names of others stay as they are."""
    def shows(self, name: str) -> bool:
        """Whether users of this namespace see a name that brokers know: one of theirs, or of the system."""

@final
class Client:
    """Connections to any number of addresses, made when first used, on one I/O thread that never enters Python.

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
        """Starts the I/O thread. `binary` chooses the encoding of request headers; replies may use either. With
        `credentials`, access key, secret key and token, every request is signed; with `tls` every connection is
        encrypted. Raises `ConfigError` for a namespace that is none."""
    @property
    def namespace(self) -> Namespace | None:
        """Of the topics and groups that users name."""
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
        """Send a request and return at once. It has an outcome within `timeout_ms`, announced to `completions`."""
    def pull(
        self,
        address: str,
        ext: dict[str, str],
        columns: Columns,
        queue: MessageQueue,
        *,
        tags: str = "*",
        begin: int = 0,
        end: int = ...,
        timeout_ms: int,
        completions: Completions,
        token: int = 0,
    ) -> Call:
        """Send a pull, likewise. The messages of its reply that have one of the tags and offsets in [begin, end) go
        into `columns` as they are received, on the I/O thread, and are in when the call is announced: see
        `Call.rows`."""
    def call_oneway(
        self, address: str, code: int, ext: dict[str, str] | None = None, body: bytes | None = None
    ) -> None:
        """Send a request without a reply. Raises `ConnectError` when it cannot even be queued."""
    def listen(self, completions: Completions, token: int = 0, *, codes: Sequence[int] = ()) -> None:
        """Announce what servers send without being asked to `completions`, as a `ServerRequest`: requests of these
        codes, or, without any, those that no other listener has; and the ends of connections. Of a code the last
        listener gets it; without one it is dropped."""
    def close(self, *, grace_ms: int = 0) -> None:
        """End every connection. Requests that are not answered within `grace_ms` fail as closed. Idempotent."""

@final
class ServerRequest:
    """A request that a server sent unasked, or the end of its connection."""

    @property
    def address(self) -> str:
        """The server, as it was called."""
    @property
    def code(self) -> int | None:
        """The request code; `None` for a connection that ended."""
    @property
    def ext(self) -> dict[str, str]:
        """The header's fields."""
    @property
    def body(self) -> bytes:
        """The body, empty without one."""
    def answer(
        self,
        code: int = 0,
        remark: str | None = None,
        ext: dict[str, str] | None = None,
        body: bytes | None = None,
    ) -> None:
        """Answer a server that waits for it; does nothing for a one-way request, or one that was answered before.

        Raises `ConnectError` when the connection has ended or the answer does not fit a frame.
        """

@final
class Call:
    """A request under way, then its outcome: a reply with any code, or the reason why there is none."""

    @property
    def token(self) -> int:
        """The number it was made with."""
    def done(self) -> bool:
        """Whether there is an outcome."""
    def wait(self, timeout: float | None = None) -> bool:
        """Until there is an outcome; False when `timeout` seconds passed first."""
    @property
    def failure(self) -> tuple[str, str] | None:
        """Kind and text, when there is no reply: connect, overloaded, unsendable, lost, timeout or closed."""
    @property
    def code(self) -> int:
        """Of the reply, as all below; `ConnectError` while there is none."""
    @property
    def remark(self) -> str | None:
        """What the server says about the code."""
    @property
    def ext(self) -> dict[str, str]:
        """The header's fields."""
    @property
    def body(self) -> bytes:
        """The body, empty without one."""
    @property
    def body_size(self) -> int:
        """Bytes of the body."""
    def rows(self, queue: MessageQueue) -> int:
        """How many messages `Client.pull` has put into its columns. Raises `DecodeError` naming the one that cannot be
        read; those before it are in."""
    def messages(
        self,
        queue: MessageQueue,
        *,
        tags: str = "*",
        begin: int = 0,
        end: int = ...,
        namespace: Namespace | None = None,
    ) -> list[ReceivedMessage]:
        """The body of a pull, read: what has offsets in [begin, end) and one of the tags.

        `namespace`: that of the reader. Raises `DecodeError` naming the place when the bytes are not records.
        """

@final
class Sender:
    """The native half of a producer: messages become frames here, and their outcomes arrive here."""

    def __new__(
        cls,
        client: Client,
        completions: Completions,
        *,
        group: str,
        compress_above: int | None = None,
        compression: str = "zlib",
        template_queues: int = 4,
        max_in_flight: int = 1024,
        max_buffered_bytes: int = 67108864,
        retry_not_safe: bool = False,
        timeout: float = 3.0,
        waits_for_room: bool = True,
        body_bytes_max: int = 4194304,
        avoids_slow_brokers: bool = False,
        learns_regions: bool = False,
        add_callback: Callable[[SendFuture, Callable[[SendFuture], object]], None] | None = None,
    ) -> Self:
        """`retry_not_safe`: stored, but not as safely as asked, counts as a failed attempt. `timeout`: of a send that
        has none of its own. `waits_for_room`: a send without room in the budget blocks for as long as it may take.
        `avoids_slow_brokers`: one that was slow or failed is passed over for a while, where there is another.
        `learns_regions`: replies tell `region`. `add_callback`: what `SendFuture.add_done_callback` calls."""
    def learn(self, topic: str, queues: Sequence[tuple[str, str, int]], fresh: float) -> None:
        """For `fresh` seconds, these queues take the topic's messages: address, name of the broker, queue id."""
    def doubt(self, topic: str) -> None:
        """What was learnt of a topic is not valid any more."""
    def cut(self, messages: Sequence[Message], member_bytes: int) -> list[int]:
        """Ends of the batches that brokers take these messages in. A message takes `member_bytes` beside
        body and properties. Raises `ValueError` for a message that does not belong into a batch with the first one."""
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
        """Start sending a message, or a body to a topic. All that a message takes, in one call.

        `to`: address, name of the broker, queue id, and whether only that queue will do; without it the sharding key
        chooses among the queues that were learnt, else it is the next one's turn. Raises `ValueError` and `TypeError`
        for what no broker takes."""
    def send_batch(
        self,
        messages: Sequence[Message],
        *,
        to: tuple[str, str, int, bool] | None = None,
        timeout: float | None = None,
        announce: Literal["never", "failures", "always"] = "failures",
        token: int = 0,
    ) -> SendFuture | NotSent:
        """Likewise for messages of one topic, stored side by side."""
    def send_rows(
        self,
        rows: Rows,
        batch: SendBatch,
        *,
        topic: str,
        to: tuple[str, str, int, bool] | None = None,
    ) -> SendFuture | NotSent:
        """Likewise for rows that travel together; a failure is announced. Raises `ValueError` for a row that no
        broker takes."""
    def send_oneway(
        self,
        message: Message | str,
        body: Body | None = None,
        *,
        to: tuple[str, str, int, bool] | None = None,
    ) -> NotSent | None:
        """Send and forget. Raises `ConnectError` when the message cannot even be queued."""
    def again(self, future: SendFuture, address: str, broker: str, queue_id: int) -> None:
        """After a failed attempt: send the same bytes elsewhere."""
    def flush(self, timeout: float | None = None) -> bool:
        """Until nothing is on its way; False when `timeout` seconds passed first."""
    def is_slow(self, broker: str) -> bool:
        """True while a broker of this name is passed over."""
    def region(self, broker: str) -> str | None:
        """The region of a broker of this name, where regions are learnt from replies; `None` where it wants no
        traces."""
    def learn_region(self, broker: str, region: str | None, wants_traces: bool) -> None:
        """What a reply that Python has read says about that."""
    def has_room(self, size: int) -> bool:
        """Whether a message of `size` bytes could start now."""
    @property
    def in_flight(self) -> int:
        """Messages under way."""
    def unasked_failures(self) -> tuple[int, tuple[str, _Attempt] | None]:
        """How many sends failed whose outcome nobody asked for, nor is told; topic and last attempt of the first."""

#: A failed attempt: broker, queue id, address, kind, response code, text, seconds. Kinds are those of `Call.failure`,
#: `broker` (it refused, see the code) and `malformed`.
_Attempt = tuple[str, int, str, str, int | None, str, float]

@final
class NotSent:
    """The reason why a send has not started; nothing was done."""

    @property
    def reason(self) -> Literal["no_route", "no_room"]:
        """No valid route of the topic was learnt, or the budget is used up."""
    @property
    def bytes(self) -> int:
        """Room that was missing."""

@final
class Rows:
    """An Arrow batch, or table, as messages to send, one for each row.

    Columns: `body` (binary) and `topic`, unless it is given; where they are there `tags`, `keys` (a text
    that separates them by spaces, or a list), `shardingKey`, `brokerName`, `msgId`, `identity` (string),
    `properties` (map of strings), `queueId`, `delayLevel`, `flag` (int), `deliverTimestamp` (bigint,
    milliseconds). Others are not looked at.
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
        """`id_seed`: ids are a hash of it and of the row's `identity`, else of its number, counted from `first_row`.
        `properties`: what every message gets. Raises `ValueError` for a column of another type."""
    def topics(self) -> list[str]:
        """Every topic that rows go to, sorted."""
    def send_batches(
        self,
        topic: str,
        *,
        queues: int,
        placement: Literal["turn", "hash", "column"] = "turn",
        messages_max: int = 64,
        bytes_max: int = ...,
    ) -> list[SendBatch]:
        """The rows of one topic, put together. A row with a `queueId` goes there, one with a `shardingKey` to the
        queue its hash points at among `queues`; the others anywhere, by the hash of their keys, or nowhere."""
    def __len__(self) -> int: ...

@final
class SendBatch:
    """Rows that go to one queue in one request."""

    @property
    def place(self) -> tuple[int | None, str | None, int | None]:
        """Where: a place among the topic's queues, or a broker and a queue id, of which `None` leaves the choice."""
    def __len__(self) -> int: ...

@final
class SendFuture:
    """A message on its way. Done when a broker has it, or when no further attempt will be made.

    `await` gives what `result` does, in any event loop; cancelling that ends the wait, not the send. Made by
    `Producer.submit`, any thread may use it.
    """

    def done(self) -> bool:
        """Whether the send has ended, stored or failed."""
    def result(self, timeout: float | None = None) -> SendResult:
        """Where the message was stored.

        Waits `timeout` seconds at most. Raises `SendError` with every attempt, `RequestTimeout` when it is still
        under way then.
        """
    def results(self, timeout: float | None = None) -> list[SendResult]:
        """Where the messages of a batch were stored, one result for each, in order. Raises as `result` does."""
    def exception(self, timeout: float | None = None) -> Exception | None:
        """Why it was not sent, or `None` when it was. Waits as `result` does."""
    def add_done_callback(self, callback: Callable[[SendFuture], object]) -> None:
        """Call `callback` with this future once the send has ended.

        It is called by the thread that makes all callbacks of the producer, one after the other, or at once where the
        send has ended already. What it raises is logged.
        """
    def as_future(self) -> Future[SendResult]:
        """A `concurrent.futures.Future` that ends as this does, for `concurrent.futures.wait` and its like.

        It cannot be cancelled: the message is on its way.
        """
    def __await__(self) -> Generator[Any, None, SendResult]: ...
    @property
    def topic(self) -> str:
        """Topic of the message."""
    @property
    def message_ids(self) -> list[str]:
        """The ids its messages travel under; known before they are sent."""
    def _settle(self) -> bool:
        """Until the attempt under way has an outcome. True when the send is done, False when a decision is due."""
    def _give_up(self) -> None:
        """After a failed attempt: that was the last one."""
    def _abandon(self) -> None:
        """That was the last attempt, even the one that is on its way."""
    def _announce_end(self, token: int) -> int | None:
        """Have its end announced under `token`, unless it is under another one; which, and `None` when it is done."""
    @property
    def _end_token(self) -> int | None:
        """The token its end is announced under."""
    @property
    def _is_batch(self) -> bool:
        """Whether it is asked for `results`."""
    @property
    def _is_pinned(self) -> bool:
        """Only the queue of the first attempt will do."""
    @property
    def _broker(self) -> str:
        """Broker of the current or last attempt."""
    @property
    def _queue_id(self) -> int:
        """Queue of the current or last attempt."""
    @property
    def _remaining(self) -> float:
        """Seconds left for all further attempts together."""
    @property
    def _attempts(self) -> list[_Attempt]:
        """Attempts that failed."""

@final
class Columns:
    """Pulled messages as Arrow columns of exactly Spark's types. For one thread at a time."""

    def __new__(
        cls,
        columns: Sequence[tuple[str, str | None]] | None = None,
        *,
        bad_text: Literal["fail", "null", "replace"] = "fail",
    ) -> Self:
        """Names with types (`None`: the usual one), in order; `None` for the usual columns. `bad_text`: what becomes
        of a body that was asked for as text and is none. Raises `ConfigError`."""
    @staticmethod
    def known() -> list[tuple[str, list[str], bool]]:
        """Every column: name, possible types (the usual one first), whether it is there unless others are chosen."""
    def append(
        self, call: Call, queue: MessageQueue, *, tags: str = "*", begin: int = 0, end: int = ...
    ) -> int:
        """Add the messages of a pull that have one of the tags and offsets in [begin, end); how many.

        Raises `DecodeError` naming the message that cannot be read; those before it are in."""
    @property
    def num_rows(self) -> int:
        """Rows so far."""
    @property
    def nbytes(self) -> int:
        """Bytes they take."""
    def take(self) -> ArrowBatch:
        """The rows so far; the columns are empty afterwards."""
    def stream(self, batches: Iterator[ArrowBatch]) -> object:
        """An `arrow_array_stream` capsule that takes its batches from an iterator."""
    def __arrow_c_schema__(self) -> object: ...

@final
class ArrowBatch:
    """Rows as Arrow data. Any Arrow library takes it without a copy: `pyarrow.record_batch(batch)`."""

    @property
    def num_rows(self) -> int:
        """Number of rows."""
    @property
    def nbytes(self) -> int:
        """Bytes of all columns."""
    @property
    def column_names(self) -> list[str]:
        """Names of the columns, in order."""
    def __arrow_c_array__(self, requested_schema: object | None = None) -> tuple[object, object]: ...
    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...
    def __arrow_c_schema__(self) -> object: ...
    def __len__(self) -> int: ...

# --------------------------------------------------------------------------------------------------------------
# Measuring brokers
# --------------------------------------------------------------------------------------------------------------

@final
class Load:
    """Load for any RocketMQ broker, on threads of its own; begun by the constructor.

    `work` is `produce` (sends, codes 310 and 320), `transact` (half messages, each committed when it is stored, codes
    310 and 37: one request with two answers) or `consume` (pulls, code 11). `targets` are brokers: address, name, and
    queues with the offsets their readers begin at. `messages_each` is the size of a client batch, or what one pull
    asks for. `connections` are dealt among brokers and `threads`; each has up to `window` requests under way: the
    closed loop, as fast as answers come. With `rate`, messages are due at fixed times instead, and latencies count
    from these. What happens within the first `warm_up` seconds is not measured. Ends after `duration_s` measured
    seconds or `count` messages. What is sent is due within the second from `due_ms` on, or at once. Without any answer
    for `timeout` seconds it fails. Seconds of processor time of `pids` are told. Requests are signed with
    `credentials`: access key, secret key, token; connections are encrypted with `tls`.

    Raises `ConfigError` for settings out of their bounds, and `ConnectError` when a broker cannot be reached.
    """

    def __new__(
        cls,
        work: Literal["produce", "transact", "consume"],
        topic: str,
        group: str,
        targets: Sequence[tuple[str, str, Sequence[tuple[int, int]]]],
        *,
        body_bytes: int = 128,
        messages_each: int = 1,
        binary: bool = False,
        connections: int = 1,
        window: int = 1,
        threads: int = 1,
        rate: float | None = None,
        warm_up: float = 0.0,
        duration_s: float = 10.0,
        count: int | None = None,
        due_ms: int | None = None,
        timeout: float = 5.0,
        pids: Sequence[int] = ...,
        credentials: tuple[str, str, str | None] | None = None,
        tls: ClientTls | None = None,
    ) -> Self: ...
    def wait(self, timeout: float | None = None) -> bool:
        """Until the end; False when `timeout` seconds passed first. Answers Ctrl-C."""

    @property
    def messages(self) -> int:
        """Messages accepted or received so far."""

    def stop(self) -> None:
        """Send nothing more. The end comes with the answers to what is under way."""

    def report(self) -> str | None:
        """What was measured, as a JSON object, once; None before the end.

        Raises `ConnectError` when a connection broke, `RequestTimeout` when a broker stopped answering.
        """
