"""`rmqpy.logging.Handler`: sends log records to a topic, as the appenders for Java's logging libraries do.

Owns the way of a record from the thread that logs to a producer. Invariant: logging waits for nothing, neither a broker
nor a name server; what does not fit into the queue is dropped and counted. Records of rmqpy itself are not sent, for
each send could make another one. Any thread; a forked process begins anew.
"""

from __future__ import annotations

import atexit
import logging
import os
import queue
import threading
import weakref
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
        self._waiting: queue.Queue[_Waiting | None]
        self._thread: threading.Thread
        _OPEN.add(self)

    def emit(self, record: logging.LogRecord) -> None:
        """Put a record on its way. Never waits."""
        if record.name == "rmqpy" or record.name.startswith("rmqpy.") or self._is_closed:
            return
        try:
            if self._pid != os.getpid():
                self._start()
            self._waiting.put_nowait(_Waiting(record, self.format(record)))
        except queue.Full:
            self.dropped += 1
        except Exception:
            self.handleError(record)

    def flush(self) -> None:
        """Wait until every record is on its way, for `CLOSE_S` at most."""
        if self._pid == os.getpid() and not self._is_closed:
            done = threading.Thread(target=self._waiting.join, daemon=True)
            done.start()
            done.join(CLOSE_S)

    def close(self) -> None:
        """Send what waits, for `CLOSE_S` at most, and end. Idempotent."""
        if not self._is_closed:
            self._is_closed = True
            _OPEN.discard(self)
            if self._pid == os.getpid():
                try:
                    self._waiting.put(None, timeout=CLOSE_S)
                except queue.Full:
                    self.dropped += self._waiting.qsize()
                self._thread.join(CLOSE_S)
        super().close()

    def _start(self) -> None:
        """Under the handler's lock."""
        producer = Producer(self._config, group=self._group)
        self._pid = os.getpid()
        self._waiting = queue.Queue(WAITING_MAX)
        self._thread = threading.Thread(
            target=self._send_on, args=(producer, self._waiting), name="rmqpy-logging", daemon=True
        )
        self._thread.start()

    def _send_on(self, producer: Producer, waiting: queue.Queue[_Waiting | None]) -> None:
        with producer:
            while (taken := waiting.get()) is not None:
                try:
                    self._send(producer, taken)
                except Exception:
                    self._fail(taken.record)
                finally:
                    waiting.task_done()

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


#: Handlers not closed yet. They send what waits before the producers close, which logging's own end comes after.
_OPEN: Final[weakref.WeakSet[Handler]] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    for handler in list(_OPEN):
        handler.close()
