"""Checks of transactions: brokers ask a producer's group about halves that nobody has decided.

Owns the checkers of the producers that share one native client, by group, and the thread `rmqpy-transactions` that
takes the questions, from the first producer with a checker to the end of the last one. Each checker has its own thread,
`rmqpy-checks`, from its first question on, so that one that hangs holds up no other. Each answer goes to the broker
that asked. What raises, and what returns something else than a decision, decides nothing: the broker asks again.

Invariants: a broker is answered with the group its message names, and never for one without a checker here; a checker
is called for one message at a time.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass
from functools import partial
from queue import SimpleQueue
from typing import Final, Protocol

from rmqpy import errors
from rmqpy._native import Client
from rmqpy.client.half_messages import PRODUCER_GROUP, decision
from rmqpy.message import MessageQueue, ReceivedMessage, TransactionState
from rmqpy.protocol.requests.transactions import CheckTransactionState
from rmqpy.remoting.client import BlockingCaller, run
from rmqpy.remoting.listener import ThreadListener
from rmqpy.remoting.server import handles

log = logging.getLogger(__name__)

#: `True` commits, `False` rolls back, `None` is unknown.
Decision = TransactionState | bool | None
TransactionChecker = Callable[[ReceivedMessage], Decision | Awaitable[Decision]]


class NoteDecision(Protocol):
    """Notes a decision that a broker has asked for."""

    def __call__(
        self,
        message: ReceivedMessage,
        *,
        message_id: str,
        transaction_id: str | None,
        broker: str,
        address: str | None,
        state: TransactionState,
        is_asked: bool,
    ) -> None: ...


#: Questions that wait for a checker; a broker comes again with others.
QUESTIONS_MAX: Final = 1_024
#: Where the queue is in a record.
_QUEUE_ID: Final = slice(12, 16)


@dataclass(eq=False)
class GroupChecker:
    """The checker of one producer."""

    group: str
    checker: TransactionChecker
    #: Notes the decision, where the producer traces.
    note: NoteDecision | None = None
    #: Of a coroutine function.
    loop: asyncio.AbstractEventLoop | None = None
    #: What is awaited there.
    running: Future[Decision] | None = None
    is_cancelled: bool = False
    #: The questions that wait, where it has been asked before; None ends its thread.
    _waiting: SimpleQueue[Callable[[], None] | None] | None = None
    _is_full: bool = False

    def call_later(self, question: Callable[[], None]) -> None:
        """Have a question answered in this checker's own thread, after those before it."""
        if self._waiting is None:
            self._waiting = SimpleQueue()
            threading.Thread(
                target=self._serve, args=(self._waiting,), name="rmqpy-checks", daemon=True
            ).start()
        is_full = self._waiting.qsize() >= QUESTIONS_MAX
        if not is_full:
            self._waiting.put(question)
        elif not self._is_full:
            log.warning(
                "the transaction_checker of %s has not returned, and %d checks wait for it: brokers will ask again",
                self.group,
                QUESTIONS_MAX,
            )
        self._is_full = is_full

    def _serve(self, waiting: SimpleQueue[Callable[[], None] | None]) -> None:
        while (question := waiting.get()) is not None and not self.is_cancelled:
            question()

    def decide(self, message: ReceivedMessage) -> TransactionState:
        """The decision, awaited where it has to be. Raises what the checker does."""
        decided = self.checker(message)
        if inspect.isawaitable(decided):
            decided = self._awaited(decided)
        match decided:
            case TransactionState():
                return decided
            case True:
                return TransactionState.COMMIT
            case False:
                return TransactionState.ROLLBACK
            case None:
                return TransactionState.UNKNOWN
        raise TypeError(
            f"a transaction_checker returns a TransactionState, True, False or None, not {decided!r}"
        )

    def cancel(self) -> None:
        """Wait for no coroutine any more, and end its thread after the question that it is at."""
        self.is_cancelled = True
        if self._waiting is not None:
            self._waiting.put(None)
        if self.running is not None:
            self.running.cancel()

    def _awaited(self, decided: Awaitable[Decision]) -> Decision:
        async def finish() -> Decision:
            return await decided

        if self.loop is None:
            if inspect.iscoroutine(decided):
                decided.close()
            raise RuntimeError("the producer has not been used in an event loop yet")
        self.running = running = asyncio.run_coroutine_threadsafe(finish(), self.loop)
        if self.is_cancelled:
            running.cancel()
        try:
            return running.result()
        finally:
            self.running = None


class TransactionChecks:
    """Checkers of the producers that share one native client."""

    def __init__(self, client: Client, *, timeout: float) -> None:
        self._client = client
        self._timeout_s = timeout
        self._caller = BlockingCaller(client)
        #: May be taken again by the thread that has it: a producer may end in a finalizer.
        self._lock = threading.RLock()
        #: By the group as brokers know it. Of several producers in one group, the newest is asked.
        self._checkers: dict[str, list[GroupChecker]] = {}
        self._listener: ThreadListener | None = None

    def join(self, checker: GroupChecker) -> None:
        """Ask this checker about its group from now on."""
        with self._lock:
            self._checkers.setdefault(self._caller.wire_name(checker.group), []).append(checker)
            if self._listener is None:
                self._listener = ThreadListener(self._client, [self], "rmqpy-transactions")
                self._listener.start()

    def leave(self, checker: GroupChecker) -> None:
        """Ask it no more. A check under way is not waited for, and its decision may be lost."""
        group = self._caller.wire_name(checker.group)
        with self._lock:
            left = [each for each in self._checkers.get(group, ()) if each is not checker]
            if left:
                self._checkers[group] = left
            else:
                self._checkers.pop(group, None)
            if not self._checkers and self._listener is not None:
                self._listener.close()
                self._listener = None
        checker.cancel()

    @handles(CheckTransactionState)
    def check(self, ask: CheckTransactionState, address: str) -> None:
        """Have the checker of the message's group decide, and tell the broker."""
        message = self._message(ask)
        group = message.properties.get(PRODUCER_GROUP, "")
        with self._lock:
            checkers = self._checkers.get(group)
            checker = checkers[-1] if checkers else None
        if checker is None:
            log.debug("%s asks about a transaction of %s, which has no checker here", address, group)
            return
        checker.call_later(partial(self._decide, checker, ask, message, address))

    def _decide(
        self, checker: GroupChecker, ask: CheckTransactionState, message: ReceivedMessage, address: str
    ) -> None:
        """Ask the checker, and tell the broker. In the checker's thread."""
        state = TransactionState.UNKNOWN
        try:
            state = checker.decide(message)
        except CancelledError:
            return  # Its producer was closed.
        except BaseException:
            # The thread lives as long as its producer.
            log.exception(
                "the transaction_checker of %s failed: %s stays undecided", checker.group, message.message_id
            )
        try:
            self._tell(checker.group, ask, message, state, address)
        except Exception:
            log.exception(
                "%s was not told the decision about %s, and will ask again", address, message.message_id
            )
            return
        if checker.note is not None:
            checker.note(
                message,
                message_id=ask.msg_id or message.message_id,
                transaction_id=ask.msg_id or message.message_id,
                broker=ask.bname or "",
                address=address,
                state=state,
                is_asked=True,
            )

    def _message(self, ask: CheckTransactionState) -> ReceivedMessage:
        """Raises `DecodeError` for what is no message."""
        namespace = self._client.namespace
        found = ReceivedMessage(ask.body, None, MessageQueue("", "", 0), namespace)
        queue_id = int.from_bytes(ask.body[_QUEUE_ID])
        queue = MessageQueue(found.topic, ask.bname or "", queue_id)
        return ReceivedMessage(ask.body, None, queue, namespace)

    def _tell(
        self,
        group: str,
        ask: CheckTransactionState,
        message: ReceivedMessage,
        state: TransactionState,
        address: str,
    ) -> None:
        decided = decision(
            group,
            message.topic,
            ask.msg_id or message.message_id,
            queue_offset=ask.tran_state_table_offset,
            position=ask.commit_log_offset,
            state=state,
            broker=ask.bname,
            is_asked=True,
        )
        try:
            if state is TransactionState.UNKNOWN:
                # Brokers answer none.
                sent = self._caller.encode(decided)
                self._client.call_oneway(address, decided.code, sent.ext, sent.body)
            else:
                run(self._caller.ask(address, decided, timeout=self._timeout_s))
        except errors.RocketMQError as error:
            log.warning("%s did not take the decision about %s: %s", address, message.message_id, error)
