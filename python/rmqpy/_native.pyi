"""The seam between Python's control plane and the native half.

Only `rmqpy` imports this module. Anything that may block releases the interpreter; no native thread ever
attaches to it. Native classes are frozen. Errors raised here are the classes of `rmqpy.errors`.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal, final

__version__: str

def attach_count() -> int:
    """Times that control crossed from Python into a server object since the process began.

    Hot requests are served without any: the figure stands still while messages are sent and pulled.
    """

# --------------------------------------------------------------------------------------------------------------
# Broker: store, metadata, offsets, server
# --------------------------------------------------------------------------------------------------------------

@final
class Store:
    """A message store directory, opened by one process.

    The constructor only remembers its arguments. `open` takes the lock, recovers and starts the store's threads.
    Sizes are bytes, times are milliseconds since the epoch, offsets are queue offsets unless called `physical`.
    """

    def __init__(
        self,
        root: str,
        *,
        segment_bytes: int = 1 << 30,
        queue_file_bytes: int = 6_000_000,
        index_slots: int = 5_000_000,
        index_entries: int = 20_000_000,
        message_bytes_max: int = 4 << 20,
        sync_flush: bool = False,
        flush_interval_ms: int = 50,
        index_enabled: bool = True,
    ) -> None: ...
    def open(self) -> None:
        """Lock, recover and start. Blocks with the interpreter released.

        Raises `StoreError` naming the file and what was expected.
        """
    def progress(self) -> tuple[str, int, int]:
        """What `open` is doing in another thread: phase, bytes done, bytes in all."""
    def close(self) -> None:
        """Flush everything, write the checkpoint, remove the abort file. Idempotent."""
    def abandon(self) -> None:
        """Stop the threads and leave the store as a crash would: the abort file stays."""
    def queues(self) -> list[tuple[str, list[int]]]:
        """Topics that have queue files, with their queue ids."""
    def min_offset(self, topic: str, queue_id: int) -> int: ...
    def max_offset(self, topic: str, queue_id: int) -> int:
        """The position after the last visible entry; 0 for a queue that does not exist."""
    def offset_by_time(self, topic: str, queue_id: int, timestamp_ms: int, *, upper: bool = False) -> int: ...
    def store_time(self, topic: str, queue_id: int, offset: int) -> int:
        """Store timestamp of the message at `offset`; -1 when it is not there."""
    def earliest_store_time(self, topic: str, queue_id: int) -> int:
        """Store timestamp of the oldest message of the queue; -1 when it has none."""
    def is_hot(self, topic: str, queue_id: int, offset: int) -> bool:
        """Whether there is a message at `offset` and it is within memory reach of the log's end."""
    def message(self, physical: int) -> bytes | None:
        """The record that starts at this position of the log."""
    def query(self, topic: str, key: str, maximum: int, begin_ms: int, end_ms: int) -> tuple[list[bytes], int, int]:
        """Records whose key hash matches, newest first; the index's last update time and physical offset."""
    def delete_topic(self, topic: str) -> None:
        """Remove the topic's queues; bytes in the log stay until their segment expires."""
    def statistics(self) -> dict[str, int]:
        """Counters and positions: min_physical, max_physical, durable, visible, puts, put_bytes, put_failures, gets, ..."""
    @property
    def failure(self) -> str | None:
        """Why the store refuses writes, or None while it accepts them."""

@final
class Metadata:
    """What the data plane may know: topics, groups, subscriptions and the broker's own settings.

    Every change is published whole before the call returns; requests in flight see the old or the new value.
    """

    def __init__(
        self,
        *,
        cluster: str,
        broker: str,
        broker_id: int = 0,
        store_host: str,
        region: str = "DefaultRegion",
        trace_on: bool = True,
        permission: int = 6,
        message_bytes_max: int = 4 << 20,
        pull_messages_max: int = 1024,
        pull_bytes_max: int = 4 << 20,
        long_polling: bool = True,
        short_polling_ms: int = 1000,
        auto_create_topics: bool = True,
    ) -> None:
        """`store_host` is `ip:port` as written into records and message ids."""
    def put_topic(
        self,
        name: str,
        *,
        read_queues: int,
        write_queues: int,
        permission: int,
        sys_flag: int = 0,
        is_ordered: bool = False,
        multi_tag: bool = False,
        message_type: str = "",
    ) -> None: ...
    def remove_topic(self, name: str) -> None: ...
    def put_group(
        self,
        name: str,
        *,
        consume_enabled: bool = True,
        broadcast_enabled: bool = True,
        retry_max: int = 16,
        sys_flag: int = 0,
        broker_id: int = 0,
        broker_id_when_slow: int = 1,
    ) -> None: ...
    def remove_group(self, name: str) -> None: ...
    def put_subscriptions(
        self, group: str, *, is_broadcast: bool, subscriptions: Iterable[tuple[str, str, str, int]]
    ) -> None:
        """What the registered members of `group` consume: (topic, expression type, expression, version)."""
    def remove_subscriptions(self, group: str) -> None: ...
    def forbid(self, group: str, topic: str, is_forbidden: bool) -> None: ...
    def set_permission(self, permission: int) -> None: ...

@final
class Offsets:
    """Committed consumer offsets, owned by the data plane."""

    def __init__(self) -> None: ...
    def load(self, table: Mapping[str, Mapping[int, int]]) -> None:
        """Replace everything: `topic@group` to queue id to offset."""
    def snapshot(self) -> tuple[int, dict[str, dict[int, int]]]:
        """Number of commits so far, and the whole table."""
    @property
    def commits(self) -> int:
        """Number of commits so far: equal figures mean an equal table."""
    def commit(self, group: str, topic: str, queue_id: int, offset: int) -> None: ...
    def query(self, group: str, topic: str, queue_id: int) -> int | None: ...
    def groups_of(self, topic: str) -> list[str]: ...
    def topics_of(self, group: str) -> list[str]: ...
    def remove_topic(self, topic: str) -> None: ...
    def remove_group(self, group: str) -> None: ...
    def clamp(self, topic: str, queue_id: int, maximum: int) -> int:
        """Lower every commit beyond `maximum`; how many there were."""
    def reset(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Let the next pull of this queue answer 21 with `offset`; commits are ignored until then."""

@final
class Request:
    """One cold request, or one event, that went up to Python."""

    @property
    def kind(self) -> Literal["request", "closed", "create_topic", "create_group"]:
        """`closed`: the connection is gone. `create_topic`, `create_group`: the first send to a topic, or pull of a
        group, that does not exist; such requests are parked until `Server.release` for `name`, for 3 s at most."""
    @property
    def token(self) -> int:
        """Names this request in `Server.answer`; 0 for events."""
    @property
    def connection(self) -> int: ...
    @property
    def peer(self) -> str:
        """`ip:port` of the other side."""
    @property
    def is_vip(self) -> bool: ...
    @property
    def code(self) -> int: ...
    @property
    def version(self) -> int:
        """Ordinal of the sender's release."""
    @property
    def language(self) -> str: ...
    @property
    def is_oneway(self) -> bool:
        """Nobody waits: do not answer."""
    @property
    def ext(self) -> dict[str, str]: ...
    @property
    def body(self) -> bytes: ...
    @property
    def name(self) -> str:
        """What is to be created; empty for requests. `code` and `ext` are those of the first parked request."""

#: token, response code, remark, header fields, body
Answer = tuple[int, int, str | None, Mapping[str, str] | None, bytes | None]

@final
class Server:
    """A remoting server. With a store it is a broker's: hot requests end there, everything else comes up.

    `fileno` becomes readable when `take` has something. One thread drains it.
    """

    def __init__(
        self,
        *,
        store: Store | None = None,
        metadata: Metadata | None = None,
        offsets: Offsets | None = None,
        io_threads: int = 0,
        idle_ms: int = 120_000,
        connections_max: int = 10_000,
        frame_bytes_max: int = 16 << 20,
    ) -> None: ...
    def listen(self, host: str, port: int, *, vip: bool = False) -> tuple[str, int]:
        """Bind and serve; port 0 picks a free one. Returns the bound address. Raises `OSError`."""
    def fileno(self) -> int: ...
    def take(self, limit: int = 256) -> list[Request]:
        """Requests and events that wait, oldest first; clears `fileno` when it took the last one."""
    def answer(self, answers: Sequence[Answer]) -> None:
        """Send replies. A reply to a connection that is gone is dropped. A HEART_BEAT answered with code 0 is
        remembered: equal bytes on that connection are answered natively from then on, until `forget_heartbeats`."""
    def push(self, connection: int, code: int, ext: Mapping[str, str], body: bytes = b"") -> bool:
        """Send a one-way request to a client; False when its connection is gone."""
    def release(
        self, kind: Literal["create_topic", "create_group"], name: str, code: int = 0, remark: str | None = None
    ) -> None:
        """Let requests parked for `name` run again (code 0, its metadata published before), or refuse them."""
    def forget_heartbeats(self) -> None:
        """Make every client's next heartbeat come up again."""
    def heartbeat_age_ms(self, connection: int) -> int | None:
        """Time since the last accepted heartbeat of the connection; None when it is gone or never sent one."""
    def close_connection(self, connection: int) -> None: ...
    def statistics(self) -> dict[str, int]:
        """connections, requests, upcalls, sends, pulls, parked_pulls, rejected, ..."""
    def stop(self, grace_ms: int = 2_000) -> None:
        """Stop accepting, let replies drain, close every connection, join the threads. Idempotent."""

# --------------------------------------------------------------------------------------------------------------
# Client: messages, connections, columns
# --------------------------------------------------------------------------------------------------------------
