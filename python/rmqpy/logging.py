"""`rmqpy.logging.Handler`: sends log records to a topic, as the appenders for Java's logging libraries do.

Owns the queue of records between logging threads and a producer. Invariant: logging never blocks on a broker or a name
server; records that do not fit into the queue are dropped and counted. Records of rmqpy itself are not sent, since
each send could log again. Any thread; a forked process starts again.

Locks: sends log and take logging's own lock, so a caller that holds it must not wait for sends. `logging.config` closes
handlers under that lock: queued records are then sent in the background, and the program's exit waits for them. The
handler itself has no logging lock: a record only enters a queue.
"""

from __future__ import annotations

import atexit
import logging
import math
import os
import threading
import time
import weakref
from queue import SimpleQueue
from typing import Final, NamedTuple

from rmqpy.client.producer.producer import Producer
from rmqpy.config.client import Address, ClientConfig
from rmqpy.message import Message, SendResult

#: The most queued records.
WAITING_MAX: Final = 10_000
#: Time for `close` to send queued records, in seconds.
CLOSE_S: Final = 5.0


class _Waiting(NamedTuple):
    record: logging.LogRecord
    text: str


class Handler(logging.Handler):
    """Sends each log record to a topic: its formatted text as the body, its level as the tag, its logger as the
    property `logger`.

    ::

        logging.getLogger().addHandler(rmqpy.logging.Handler("logs", "127.0.0.1:9876"))

    For `logging.config`: `class: rmqpy.logging.Handler`, and these arguments. Records that cannot be sent are counted
    in `dropped`; the first one is reported like other handler errors of logging.
    """

    def __init__(
        self,
        topic: str,
        namesrv: Address | ClientConfig | None = None,
        *,
        level: int | str = logging.NOTSET,
        tag: str | None = None,
        group: str = "rmqpy-logging",
    ) -> None:
        """`tag`: for every message, instead of the record's level. `group`: the producer group."""
        super().__init__(level)
        # Fail here, and not at the first record, if no broker would accept it.
        Message(topic, b"x", tag=tag)
        self.topic = topic
        self.tag = tag
        #: Records that did not reach a broker.
        self.dropped = 0
        self._config = ClientConfig.of(namesrv)
        self._group = group
        self._pid = 0
        self._is_closed = False
        #: Events are set when their turn comes; `None` is the end. A finalizer or signal handler that logs may
        #: interrupt the insertion of a record.
        self._waiting: SimpleQueue[_Waiting | threading.Event | None]
        self._thread: threading.Thread | None = None
        #: Held while the thread is started.
        self._starting = threading.RLock()
        _OPEN.add(self)

    def createLock(self) -> None:  # noqa: N802 - the name is logging's
        """Create no lock: a flush under it would block every logging thread."""
        self.lock = None

    def handle(self, record: logging.LogRecord) -> bool:
        """As in `logging.Handler`, without a lock."""
        passed = self.filter(record)
        if isinstance(passed, logging.LogRecord):
            record = passed
        if passed:
            self.emit(record)
        return bool(passed)

    def emit(self, record: logging.LogRecord) -> None:
        """Queue a record. Never waits."""
        if record.name == "rmqpy" or record.name.startswith("rmqpy.") or self._is_closed:
            return
        try:
            if self._pid != os.getpid():
                with self._starting:
                    if self._pid != os.getpid():
                        self._start()
            if self._waiting.qsize() < WAITING_MAX:
                self._waiting.put(_Waiting(record, self.format(record)))
            else:
                self.dropped += 1
        except Exception:
            self.handleError(record)

    def flush(self) -> None:
        """Wait until every record is in flight, for at most `CLOSE_S`; not at all while logging is being configured."""
        if self._pid == os.getpid() and not self._is_closed and not _is_configuring():
            turn = threading.Event()
            self._waiting.put(turn)
            turn.wait(CLOSE_S)

    def close(self) -> None:
        """Send queued records for at most `CLOSE_S`, and end. Idempotent. While logging is being configured this
        continues in the background, and the program's exit waits for it."""
        if not self._is_closed:
            self._is_closed = True
            _OPEN.discard(self)
            if self._pid == os.getpid():
                self._end()
        super().close()

    def _end(self) -> None:
        self._waiting.put(None)
        if self._thread is not None and not _is_configuring():
            self._thread.join(CLOSE_S)

    def _start(self) -> None:
        # First: records logged meanwhile, also by this thread, wait there.
        self._waiting = SimpleQueue()
        self._pid = os.getpid()
        try:
            producer = Producer(self._config, group=self._group)
            producer.end_with_owner()
            self._thread = threading.Thread(
                target=self._send_on, args=(producer, self._waiting), name="rmqpy-logging", daemon=True
            )
            self._thread.start()
        except BaseException:
            self._pid = 0
            raise
        _SENDING.add(self._thread)

    def _send_on(self, producer: Producer, waiting: SimpleQueue[_Waiting | threading.Event | None]) -> None:
        until = math.inf
        try:
            while (taken := waiting.get()) is not None:
                if isinstance(taken, threading.Event):
                    taken.set()
                    continue
                if self._is_closed:
                    until = min(until, time.monotonic() + CLOSE_S)
                if time.monotonic() > until:
                    self.dropped += 1
                    continue
                try:
                    self._send(producer, taken)
                except Exception:
                    self._fail(taken.record)
        finally:
            producer.close()

    def _send(self, producer: Producer, taken: _Waiting) -> None:
        record, text = taken

        def end(outcome: SendResult | Exception) -> None:
            if isinstance(outcome, Exception):
                try:
                    raise outcome
                except Exception:
                    self._fail(record)

        message = Message(
            self.topic,
            # A body must not be empty.
            text.encode("utf-8", "backslashreplace") or b" ",
            tag=self.tag or record.levelname,
            properties={"logger": record.name},
        )
        producer.submit(message, callback=end)

    def _fail(self, record: logging.LogRecord) -> None:
        """Count it, within its exception handler."""
        self.dropped += 1
        if self.dropped == 1:
            self.handleError(record)


def _is_configuring() -> bool:
    """Whether the caller holds logging's lock, as `logging.config` does when it closes handlers."""
    is_owned = getattr(getattr(logging, "_lock", None), "_is_owned", None)
    return is_owned is None or bool(is_owned())


#: Handlers that are not closed yet. They send queued records before logging shuts down.
_OPEN: Final[weakref.WeakSet[Handler]] = weakref.WeakSet()
#: Threads of handlers, including closed ones with records left to send.
_SENDING: Final[weakref.WeakSet[threading.Thread]] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    for handler in list(_OPEN):
        handler.close()
    for thread in list(_SENDING):
        thread.join(CLOSE_S)


def _forget_parents_locks() -> None:
    # Another thread of the parent may have held one at the fork.
    for handler in list(_OPEN):
        handler._starting = threading.RLock()
    _SENDING.clear()


os.register_at_fork(after_in_child=_forget_parents_locks)
