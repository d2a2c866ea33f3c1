"""Trace dispatcher: sends trace records to the topic of traces.

Owns the unsent records of one producer or consumer, and the thread `rmqpy-trace`, which sends many in one message.
`put` never blocks: a record is dropped and counted when the queue is full or no broker accepts it.
Invariant: at most `NOTES_MAX` records are queued. `put` is for any thread.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Final, NamedTuple

from rmqpy import errors
from rmqpy.config.client import ClientConfig
from rmqpy.message import Message
from rmqpy.protocol.names import TRACE_TOPIC, is_trace_topic
from rmqpy.protocol.traces import PRODUCER_GROUP_PREFIX

log = logging.getLogger(__name__)

#: The most queued records, some 250 bytes each.
NOTES_MAX: Final = 16_384
#: The longest time a record is queued, and the number that is sent immediately.
INTERVAL_S: Final = 1.0
_PROMPT_COUNT: Final = 256
#: Characters of records, and of keys, in one message, as in Java's clients.
_BODY_CHARS_MAX: Final = 118_000
_KEYS_CHARS_MAX: Final = 22_767
#: The time for sending queued records at close.
CLOSE_S: Final = 3.0
#: The longest group name that brokers accept.
_GROUP_CHARS_MAX: Final = 120


#: Sends a message and waits for the broker.
Send = Callable[[Message], object]
#: Opens a `Send` for a configuration and a producer group.
OpenSend = Callable[[ClientConfig, str], AbstractContextManager[Send]]


class _Waiting(NamedTuple):
    text: str
    keys: tuple[str, ...]


class TraceDispatcher:
    """Sends the records of one client."""

    def __init__(
        self, config: ClientConfig, trace: bool | str, group: str, kind: str, open_send: OpenSend
    ) -> None:
        """`trace` is the topic, or true for the system's; `kind` is PRODUCE or CONSUME. The dispatcher's thread
        enters `open_send` before the first send, and exits it after the last."""
        self.topic = trace if isinstance(trace, str) else TRACE_TOPIC
        #: Records that were dropped: the queue was full, or no broker accepted them.
        self.dropped = 0
        self._config = config
        self._open_send = open_send
        self._group = f"{PRODUCER_GROUP_PREFIX}-{group}"[: _GROUP_CHARS_MAX - len(kind) - 1] + f"-{kind}"
        self._waiting: deque[_Waiting] = deque()
        self._prompt = threading.Event()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._is_over = False
        self._is_failing = False
        self._reported = 0

    def is_traced(self, topic: str) -> bool:
        """Return whether messages of a topic are traced. The trace topics are not, or traces would cause traces."""
        return topic != self.topic and not is_trace_topic(topic)

    def put(self, note: str, message_id: str, keys: Iterable[str] = ()) -> None:
        """Queue a record, to be found by the message's id and keys. Never waits."""
        if len(self._waiting) >= NOTES_MAX or self._is_over:
            with self._lock:
                self.dropped += 1
            return
        self._waiting.append(_Waiting(note, (message_id, *keys)))
        if self._thread is None:
            self._begin()
        elif len(self._waiting) == _PROMPT_COUNT:
            self._prompt.set()

    def close(self, timeout_s: float | None = None) -> None:
        """Send the queued records and end; wait at most `timeout_s`, or indefinitely. Idempotent."""
        with self._lock:
            self._is_over = True
        self._prompt.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(2 * CLOSE_S if timeout_s is None else timeout_s)

    def _begin(self) -> None:
        with self._lock:
            if self._thread is None and not self._is_over:
                thread = threading.Thread(target=self._run, name="rmqpy-trace", daemon=True)
                thread.start()
                self._thread = thread

    def _run(self) -> None:
        try:
            with self._open_send(self._config, self._group) as send:
                until = None
                while until is None or (self._waiting and time.monotonic() < until):
                    self._prompt.wait(0.0 if self._is_over else INTERVAL_S)
                    self._prompt.clear()
                    if self._is_over and until is None:
                        until = time.monotonic() + CLOSE_S
                    self._send(send, until)
        except Exception:
            log.exception("tracing of %s stopped", self._group)
        with self._lock:
            self._is_over = True
            self.dropped += len(self._waiting)
            self._waiting.clear()
        self._is_failing = False
        self._report()

    def _send(self, send: Send, until: float | None) -> None:
        """Send the queued records, in as few messages as possible."""
        while self._waiting and (until is None or time.monotonic() < until):
            batch, keys = self._batch()
            try:
                send(self._message(batch, keys))
            except (errors.RocketMQError, ValueError) as error:
                with self._lock:
                    self.dropped += len(batch)
                if not self._is_failing:
                    log.warning("traces of %s dropped, cannot send them: %s", self._group, error)
                self._is_failing = True
            else:
                self._is_failing = False
        self._report()

    def _message(self, batch: Sequence[_Waiting], keys: Iterable[str]) -> Message:
        """Return a message with the records. Its keys are those of the traced messages; if other programs wrote keys
        that are invalid here, it has only the ids."""
        text = "".join(note.text for note in batch)
        try:
            return Message(self.topic, text, keys=sorted(keys))
        except ValueError:
            return Message(self.topic, text, keys=sorted({note.keys[0] for note in batch}))

    def _batch(self) -> tuple[list[_Waiting], set[str]]:
        """Return the oldest records for one message, and its keys."""
        batch: list[_Waiting] = []
        keys: set[str] = set()
        chars = keys_chars = 0
        while self._waiting:
            note = self._waiting[0]
            new = [key for key in note.keys if key not in keys]
            chars += len(note.text)
            keys_chars += sum(map(len, new)) + len(new)
            if batch and (chars > _BODY_CHARS_MAX or keys_chars > _KEYS_CHARS_MAX):
                break
            batch.append(self._waiting.popleft())
            # If the keys do not fit, the record is found by message id only.
            keys.update(new if keys_chars <= _KEYS_CHARS_MAX else note.keys[:1])
        return batch, keys

    def _report(self) -> None:
        """Log the number of records dropped since the last report."""
        if (count := self.dropped - self._reported) and not self._is_failing:
            log.warning("%d trace records of %s were dropped", count, self._group)
            self._reported = self.dropped
