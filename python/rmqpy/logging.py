"""`rmqpy.logging.Handler`: sends log records to a topic, as the appenders for Java's logging libraries do.

Owns the way of a record from the thread that logs to a producer. Invariant: logging waits for nothing, neither a broker
nor a name server; what does not fit into the queue is dropped and counted. Records of rmqpy itself are not sent, for
each send could make another one. Any thread; a forked process begins anew.

Locks: sending logs, which takes logging's own lock, so that a caller that holds that lock must not wait for what is
sent. `logging.config` closes handlers under it: what waits then leaves in the background, and the end of the program
waits for it. The handler has no lock of logging's: a record only enters a queue.
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

from rmqpy.client.producer import Producer
from rmqpy.config.client import Address, ClientConfig
from rmqpy.message import Message, SendResult

#: Records that wait for the handler's thread.
WAITING_MAX: Final = 10_000
#: Time that `close` gives what waits, in seconds.
CLOSE_S: Final = 5.0


class _Waiting(NamedTuple):
    record: logging.LogRecord
    text: str


class Handler(logging.Handler):
    """Sends each log record to a topic: its formatted text as the body, its level as the tag, its logger as the
    property `logger`.

    ::

        logging.getLogger().addHandler(rmqpy.logging.Handler("logs", "127.0.0.1:9876"))

    For `logging.config`: `class: rmqpy.logging.Handler`, and these arguments. A record that cannot be sent is counted
    in `dropped`, and the first one told as logging tells errors of its handlers.
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
        """`tag`: of every message, instead of the record's level. `group`: the producers' group."""
        super().__init__(level)
        # Refuses what no broker takes now, and not with the first record.
        Message(topic, b"x", tag=tag)
        self.topic = topic
        self.tag = tag
        #: Records that did not get to a broker.
        self.dropped = 0
        self._config = ClientConfig.of(namesrv)
        self._group = group
        self._pid = 0
        self._is_closed = False
        #: Events are set when their turn comes; `None` is the end. A finalizer or a signal handler that logs may
        #: interrupt a record that is being put in.
        self._waiting: SimpleQueue[_Waiting | threading.Event | None]
        self._thread: threading.Thread | None = None
        #: Held while the thread is started.
        self._starting = threading.RLock()
        _OPEN.add(self)

    def createLock(self) -> None:  # noqa: N802 - the name is logging's
        """Have none: who flushes a handler under it would stop every thread that logs."""
        self.lock = None

    def handle(self, record: logging.LogRecord) -> bool:
        """As of `logging.Handler`, without a lock."""
        passed = self.filter(record)
        if isinstance(passed, logging.LogRecord):
            record = passed
        if passed:
            self.emit(record)
        return bool(passed)

    def emit(self, record: logging.LogRecord) -> None:
        """Put a record on its way. Never waits."""
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
        """Wait until every record is in flight, for `CLOSE_S` at most; not at all while logging is being configured."""
        if self._pid == os.getpid() and not self._is_closed and not _is_configuring():
            turn = threading.Event()
            self._waiting.put(turn)
            turn.wait(CLOSE_S)

    def close(self) -> None:
        """Send what waits, for `CLOSE_S` at most, and end. Idempotent. While logging is being configured it goes on in
        the background, and the end of the program waits for it."""
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
        # First: what is logged meanwhile, by this thread as well, waits there.
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
            # A body has to have something in it.
            text.encode("utf-8", "backslashreplace") or b" ",
            tag=self.tag or record.levelname,
            properties={"logger": record.name},
        )
        producer.submit(message, callback=end)

    def _fail(self, record: logging.LogRecord) -> None:
        """Count it, in the middle of its exception."""
        self.dropped += 1
        if self.dropped == 1:
            self.handleError(record)


def _is_configuring() -> bool:
    """Whether the caller holds logging's lock, as `logging.config` does when it closes handlers."""
    is_owned = getattr(getattr(logging, "_lock", None), "_is_owned", None)
    return is_owned is None or bool(is_owned())


#: Handlers not closed yet. They send what waits before logging's own end.
_OPEN: Final[weakref.WeakSet[Handler]] = weakref.WeakSet()
#: Threads of handlers, also of those that were closed and have something left to send.
_SENDING: Final[weakref.WeakSet[threading.Thread]] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    for handler in list(_OPEN):
        handler.close()
    for thread in list(_SENDING):
        thread.join(CLOSE_S)


def _forget_parents_locks() -> None:
    # Another thread of the parent may have held one at the moment of the fork.
    for handler in list(_OPEN):
        handler._starting = threading.RLock()
    _SENDING.clear()


os.register_at_fork(after_in_child=_forget_parents_locks)
