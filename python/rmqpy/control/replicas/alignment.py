"""Alignment: a slave compares its log with its master's before it follows, and cuts what a newer epoch overruled.

The master returns its epochs and the digest of the last common bytes. Apache's masters return no digest, and epochs
only if a controller elected them. Otherwise they return the end of their log, so a slave with a longer log does not
follow one. Invariants: no log is followed before it was compared; the log is never cut while the store is open; a
failed comparison is retried, and a mismatch waits for an operator.
Threads: the event loop's.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from rmqpy._native import Replication
from rmqpy.control.replicas.master_search import MasterSearch, MasterUnknown
from rmqpy.errors import BrokerError, DecodeError, RocketMQError, Unsupported
from rmqpy.protocol.requests.brokers import GetBrokerRuntimeInfo
from rmqpy.protocol.requests.leadership import BrokerEpochs, GetBrokerEpochCache
from rmqpy.protocol.requests.replicas import ExchangeBrokerHaInfo
from rmqpy.remoting.client import Peer

log = logging.getLogger(__name__)

#: The interval at which the native module is polled for a question.
LOOK_SECONDS: Final = 0.05
#: Timeout of a digest, which covers at most 1 MiB.
ANSWER_SECONDS: Final = 5.0
#: The bytes compared as soon as a log has them that was empty when its connection began.
FIRST_BYTES_MAX: Final = 1 << 20


class LogAlignment:
    """The comparisons of one slave."""

    def __init__(
        self,
        native: Replication,
        search: MasterSearch,
        on_cut: Callable[[int], None],
        *,
        broker_id: int | None = None,
        confirmed: int = 0,
        is_observer: bool = False,
        observer_name: str | None = None,
    ) -> None:
        """`on_cut` gets the position at which the log must be cut before the broker restarts. `broker_id` is
        the id from a controller. Nothing before `confirmed` is cut. An observer must not count as a slave;
        `observer_name` is the folder of a backup."""
        self._observer_name = observer_name
        self._is_observer = is_observer
        self._broker_id = broker_id
        self._confirmed = confirmed
        self._native = native
        self._search = search
        self._on_cut = on_cut
        self._task: asyncio.Task[None] | None = None
        #: True if the connection was accepted before there were bytes to compare.
        self._is_uncompared = False
        #: The end of this log when Apache's master had a shorter one.
        self._ahead_at: int | None = None

    def start(self) -> None:
        """Start on the running loop."""
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        """Stop comparing. Idempotent."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait({task})

    async def _run(self) -> None:
        while True:
            question = self._native.wanted()
            if question is None:
                await asyncio.sleep(LOOK_SECONDS)
                try:
                    if self._is_uncompared:
                        await self._compare_first_bytes()
                except Exception:
                    log.exception("cannot compare the start of the log, retrying")
                continue
            self._is_uncompared = False
            try:
                await self._align(question)
            except MasterUnknown as unknown:
                self._native.refuse(question, str(unknown))
            except (RocketMQError, OSError) as error:
                self._native.refuse(question, f"the master did not describe its log: {error}")
            except Exception as error:
                log.exception("cannot compare the log with the master's")
                self._native.refuse(question, f"{type(error).__name__}: {error}")

    async def _align(self, question: int) -> None:
        master = await self._search.find()
        # Requested first, so that the comparison covers the process that issued the ticket.
        ask = ExchangeBrokerHaInfo(
            wants_ticket=True,
            slave_id=self._broker_id,
            is_observer=self._is_observer or None,
            observer_name=self._observer_name,
        )
        ticket = await _ticket(master, ask)
        reply = await _epochs(master)
        is_apache = reply is None or reply.body.min_offset is None
        if reply is None or (is_apache and self._broker_id is None):
            await self._align_with_apache(question, master)
            return
        epochs = [(entry.epoch, entry.start_offset) for entry in reply.body.epoch_list]
        begin, end = reply.body.min_offset or 0, reply.body.max_offset
        shared, mismatch = await asyncio.to_thread(self._native.propose, epochs, begin, end, self._confirmed)
        if shared is None:
            self._native.refuse(
                question, mismatch or "the connection has ended", is_diverged=mismatch is not None
            )
            return
        if shared.begin < shared.end and not is_apache:
            theirs = await master.call(
                GetBrokerEpochCache(digest_begin=shared.begin, digest_end=shared.end), timeout=ANSWER_SECONDS
            )
            if theirs.digest != shared.digest:
                reason = (
                    f"this log and the master's differ before {shared.end}: one of them lost data; find the place "
                    "with `rmqpy store compare`, and restart one of them with an empty folder"
                )
                self._native.refuse(question, reason, is_diverged=True)
                return
        if (cut := shared.cut) is None:
            # A ticket is valid only at the master that issued it.
            self._is_uncompared = shared.begin == shared.end and ticket is None and not is_apache
            self._native.accept(question, epochs, ticket, elected_as=self._broker_id if is_apache else None)
            return
        own_end = self._native.range()[1]
        log.warning(
            "cutting %d bytes from position %d: the master of epoch %d never had them",
            own_end - cut,
            cut,
            reply.body.epoch,
        )
        self._native.refuse(question, f"this log is cut at {cut} first")
        self._on_cut(cut)

    async def _compare_first_bytes(self) -> None:
        """Compare the start of a log that was empty, which fits any other log: `haMasterAddress` may have led to
        another master. On a mismatch the connection restarts, and is refused."""
        first, end = self._native.range()
        followed = self._native.master()
        if first == end or followed is None:
            return
        begin = max(first, end - FIRST_BYTES_MAX)
        own = await asyncio.to_thread(self._native.digest, begin, end)
        try:
            master = await self._search.find()
            theirs = await master.call(
                GetBrokerEpochCache(digest_begin=begin, digest_end=end), timeout=ANSWER_SECONDS
            )
        except (MasterUnknown, RocketMQError, OSError):
            return
        self._is_uncompared = False
        if own is not None and theirs.digest != own:
            self._native.set_master_address(None)
            self._native.set_master_address(followed.address)

    async def _align_with_apache(self, question: int, master: Peer) -> None:
        own_end = self._native.range()[1]
        info = await master.call(GetBrokerRuntimeInfo(), timeout=ANSWER_SECONDS)
        end = info.table.get("commitLogMaxOffset", "")
        if not end.isdecimal():
            raise DecodeError(f"{master.address} did not return the end of its log: {end[:40]!r}")
        if int(end) < own_end:
            reason = (
                f"this log ends at {own_end}, the master's at {end}: the master has lost its end; promote this slave, "
                "or let it begin with an empty folder"
            )
            self._ahead_at = own_end
            self._native.refuse(question, reason, is_diverged=True)
            return
        if self._ahead_at == own_end:
            reason = (
                f"the master's log ended before {own_end}, where this one ends, and goes beyond it now: it has other "
                "bytes there; promote this slave, or let it begin with an empty folder"
            )
            self._native.refuse(question, reason, is_diverged=True)
            return
        self._native.accept(question, [])


async def _ticket(master: Peer, ask: ExchangeBrokerHaInfo) -> bytes | None:
    """Return the ticket for this slave; `None` from Apache's master, or an older release. Raises `Unsupported` if an
    observer would count as a slave."""
    try:
        reply = await master.call(ask, timeout=ANSWER_SECONDS)
    except Unsupported:
        if ask.is_observer:
            raise
        return None
    if ask.is_observer and not (reply.is_observer and reply.ticket):
        raise Unsupported(f"{master.address} cannot send its log without counting the reader as a slave")
    return None if reply.ticket is None else bytes.fromhex(reply.ticket)


async def _epochs(master: Peer) -> BrokerEpochs | None:
    """Return the master's epochs; `None` from Apache's master without a controller, or an older release."""
    try:
        reply = await master.call(GetBrokerEpochCache(), timeout=ANSWER_SECONDS)
    except Unsupported:
        return None
    except BrokerError as error:
        # Apache's brokers without a controller answer with such an error.
        if "epoch" in str(error).lower() or "controller" in str(error).lower():
            return None
        raise
    return reply if reply.body.min_offset is not None or reply.body.epoch_list else None
