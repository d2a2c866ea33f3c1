"""Trace dispatcher: notes about messages on their way to the topic of traces.

Owns the notes of one producer or consumer that have not left, and the thread `rmqpy-trace` that sends them, many in one
message, with a producer of its own. Whoever has something to note never waits: a note that finds no room is dropped
and counted, as are those that no broker took. Invariant: at most `NOTES_MAX` notes wait. `put` is for any thread.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from rmqpy import errors
from rmqpy.config.client import ClientConfig
from rmqpy.message import Message
from rmqpy.protocol.names import TRACE_TOPIC, is_trace_topic
from rmqpy.protocol.traces import PRODUCER_GROUP_PREFIX

if TYPE_CHECKING:
    from rmqpy.client.producer import Producer

log = logging.getLogger(__name__)

#: Notes that wait, some 250 bytes each.
NOTES_MAX: Final = 16_384
#: A note leaves after so long at the latest, and so many do at once.
INTERVAL_S: Final = 1.0
_PROMPT_COUNT: Final = 256
#: Characters of notes, and of keys, in one message: Java's clients have the same.
_BODY_CHARS_MAX: Final = 118_000
_KEYS_CHARS_MAX: Final = 22_767
#: At the end, what waits has so long to leave.
CLOSE_S: Final = 3.0
#: Brokers take no longer names of groups.
_GROUP_CHARS_MAX: Final = 120


class _Waiting(NamedTuple):
    text: str
    keys: tuple[str, ...]


class TraceDispatcher:
    """Sends the notes of one client."""

    def __init__(self, config: ClientConfig, trace: bool | str, group: str, kind: str) -> None:
        """`trace` is the topic, where it is not the system's; `kind` is PRODUCE or CONSUME."""
        self.topic = trace if isinstance(trace, str) else TRACE_TOPIC
        #: Notes that were dropped: for want of room, or because no broker took them.
        self.dropped = 0
        self._config = config
        self._group = f"{PRODUCER_GROUP_PREFIX}-{group}"[: _GROUP_CHARS_MAX - len(kind) - 1] + f"-{kind}"
        self._waiting: deque[_Waiting] = deque()
        self._prompt = threading.Event()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._is_over = False
        self._is_failing = False
        self._reported = 0

    def is_traced(self, topic: str) -> bool:
        """Whether messages of a topic are: notes about notes would have no end."""
        return topic != self.topic and not is_trace_topic(topic)

    def put(self, note: str, message_id: str, keys: Iterable[str] = ()) -> None:
        """Have a note sent, which the message's id and keys find. Never waits."""
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
        """Let what waits leave, and end; wait `timeout_s` for that, or as long as it may take. Idempotent."""
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
        from rmqpy.client.producer import Producer

        try:
            with Producer(self._config, group=self._group) as producer:
                producer.end_with_owner()
                until = None
                while until is None or (self._waiting and time.monotonic() < until):
                    self._prompt.wait(0.0 if self._is_over else INTERVAL_S)
                    self._prompt.clear()
                    if self._is_over and until is None:
                        until = time.monotonic() + CLOSE_S
                    self._send(producer, until)
        except Exception:
            log.exception("what %s traces is sent no longer", self._group)
        with self._lock:
            self._is_over = True
            self.dropped += len(self._waiting)
            self._waiting.clear()
        self._is_failing = False
        self._report()

    def _send(self, producer: Producer, until: float | None) -> None:
        """Send what waits, in as few messages as it takes."""
        while self._waiting and (until is None or time.monotonic() < until):
            batch, keys = self._batch()
            try:
                producer.send(self._message(batch, keys))
            except (errors.RocketMQError, ValueError) as error:
                with self._lock:
                    self.dropped += len(batch)
                if not self._is_failing:
                    log.warning("what %s traces cannot be sent, and is dropped: %s", self._group, error)
                self._is_failing = True
            else:
                self._is_failing = False
        self._report()

    def _message(self, batch: Sequence[_Waiting], keys: Iterable[str]) -> Message:
        """The notes in a message. Its keys are those of traced messages; where other programs wrote some that no
        message of ours may have, ids alone find it."""
        text = "".join(note.text for note in batch)
        try:
            return Message(self.topic, text, keys=sorted(keys))
        except ValueError:
            return Message(self.topic, text, keys=sorted({note.keys[0] for note in batch}))

    def _batch(self) -> tuple[list[_Waiting], set[str]]:
        """Notes for one message, the oldest that wait, and its keys."""
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
            # A message with more keys than fit is found by its id.
            keys.update(new if keys_chars <= _KEYS_CHARS_MAX else note.keys[:1])
        return batch, keys

    def _report(self) -> None:
        """Say how many were dropped since the last time."""
        if (count := self.dropped - self._reported) and not self._is_failing:
            log.warning("%d notes of %s were dropped: traces lack them", count, self._group)
            self._reported = self.dropped
