"""Checks of transactions: brokers ask a producer's group about half messages without a decision.

Owns the checkers of the producers that share one native client, by group, and the thread `rmqpy-transactions`, which
reads checks while such a producer is open. Each checker has its own thread, `rmqpy-checks`, from its first check on, so
that a checker that hangs delays no other. A decision goes to the broker that asked. A checker that raises, or returns
anything else, decides nothing: the broker asks again.

Invariants: the reply to a check names the group of its message, and no check is answered for a group without a checker
here; a checker is called for one message at a time.
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
from rmqpy.client.cluster import ClusterConnection
from rmqpy.client.producer.transactions.decisions import PRODUCER_GROUP, decision
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
    """Records a decision that a broker has asked for."""

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


#: The most pending checks of a checker; brokers repeat the dropped ones.
QUESTIONS_MAX: Final = 1_024
#: The bytes of the queue id in a record.
_QUEUE_ID: Final = slice(12, 16)


@dataclass(eq=False)
class GroupChecker:
    """The checker of one producer."""

    group: str
    checker: TransactionChecker
    #: Records decisions, if the producer traces.
    note: NoteDecision | None = None
    #: The loop for a checker that is a coroutine function.
    loop: asyncio.AbstractEventLoop | None = None
    #: The coroutine in progress.
    running: Future[Decision] | None = None
    is_cancelled: bool = False
    #: Pending checks, created with the first one; `None` ends the thread.
    _waiting: SimpleQueue[Callable[[], None] | None] | None = None
    _is_full: bool = False

    def call_later(self, question: Callable[[], None]) -> None:
        """Run a check in this checker's thread, after the earlier ones."""
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
                "the transaction_checker of %s has not returned, %d checks are pending: dropping more until it returns",
                self.group,
                QUESTIONS_MAX,
            )
        self._is_full = is_full

    def _serve(self, waiting: SimpleQueue[Callable[[], None] | None]) -> None:
        while (question := waiting.get()) is not None and not self.is_cancelled:
            question()

    def decide(self, message: ReceivedMessage) -> TransactionState:
        """Return the checker's decision. Raises the checker's exceptions."""
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
            f"a transaction_checker must return a TransactionState, True, False or None, not {decided!r}"
        )

    def cancel(self) -> None:
        """Cancel the coroutine in progress, and end the thread after its current check."""
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

    def __init__(self, cluster: ClusterConnection) -> None:
        self._client = cluster.client
        self._timeout_s = cluster.config.request_timeout
        self._caller = BlockingCaller(cluster.client)
        #: Reentrant, because a finalizer may close a producer.
        self._lock = threading.RLock()
        #: By the group's name at the brokers. Of several producers in one group, the newest is asked.
        self._checkers: dict[str, list[GroupChecker]] = {}
        self._listener: ThreadListener | None = None

    def join(self, checker: GroupChecker) -> None:
        """Add a checker for its group."""
        with self._lock:
            self._checkers.setdefault(self._caller.wire_name(checker.group), []).append(checker)
            if self._listener is None:
                self._listener = ThreadListener(self._client, [self], "rmqpy-transactions")
                self._listener.start()

    def leave(self, checker: GroupChecker) -> None:
        """Remove a checker. A check in progress may finish later, and its decision may be lost."""
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
        """Have the checker of the message's group decide, and send the decision to the broker."""
        message = self._message(ask)
        group = message.properties.get(PRODUCER_GROUP, "")
        with self._lock:
            checkers = self._checkers.get(group)
            checker = checkers[-1] if checkers else None
        if checker is None:
            log.debug("ignoring a check of %s: group %s has no checker in this process", address, group)
            return
        checker.call_later(partial(self._decide, checker, ask, message, address))

    def _decide(
        self, checker: GroupChecker, ask: CheckTransactionState, message: ReceivedMessage, address: str
    ) -> None:
        """Run the checker and send its decision, in the checker's thread."""
        state = TransactionState.UNKNOWN
        try:
            state = checker.decide(message)
        except CancelledError:
            return  # Its producer was closed.
        except BaseException:
            # An exception must not end the thread, which lives as long as its producer.
            log.exception(
                "the transaction_checker of %s failed: transaction of %s stays open",
                checker.group,
                message.message_id,
            )
        try:
            self._tell(checker.group, ask, message, state, address)
        except Exception:
            log.exception(
                "cannot send %s the decision about %s: the broker will ask again", address, message.message_id
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
        """Decode the message of a check. Raises `DecodeError`."""
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
                # One-way, because brokers do not reply.
                sent = self._caller.encode(decided)
                self._client.call_oneway(address, decided.code, sent.ext, sent.body)
            else:
                run(self._caller.ask(address, decided, timeout=self._timeout_s))
        except errors.RocketMQError as error:
            log.warning(
                "broker %s did not accept the decision about %s: %s", address, message.message_id, error
            )
