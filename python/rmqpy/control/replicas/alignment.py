"""Alignment: a slave compares its log with its master's before it follows, and gives up what a younger epoch decided
against.

The master says its epochs and the digest of the end of what both should have. Apache's masters say neither: of them it
is known only where their log ends, and a slave whose log is longer does not follow. Invariants: no log is followed
that was not compared; the log is not cut while the store is open; what cannot be found out is a fault and is tried
again, and what does not fit waits for an operator.
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

#: How often the native half is asked whether a question waits.
LOOK_SECONDS: Final = 0.05
#: A digest is of 1 MiB at most.
ANSWER_SECONDS: Final = 5.0
#: Of a log that was empty when its connection began, as much is compared as soon as it has something.
FIRST_BYTES_MAX: Final = 1 << 20


class LogAlignment:
    """The comparisons of one slave."""

    def __init__(
        self,
        native: Replication,
        search: MasterSearch,
        on_cut: Callable[[int], None],
    ) -> None:
        """`on_cut` is called with where the log has to be cut first; the broker then starts again."""
        self._native = native
        self._search = search
        self._on_cut = on_cut
        self._task: asyncio.Task[None] | None = None
        #: The connection was let follow before there was anything to compare.
        self._is_uncompared = False
        #: Where this log ended when Apache's master had less.
        self._ahead_at: int | None = None

    def start(self) -> None:
        """Begin on the running loop."""
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        """Compare no more. Idempotent."""
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
                    log.exception("the first bytes of the log cannot be compared, which is tried again")
                continue
            self._is_uncompared = False
            try:
                await self._align(question)
            except MasterUnknown as unknown:
                self._native.refuse(question, str(unknown))
            except (RocketMQError, OSError) as error:
                self._native.refuse(question, f"the master does not say what is in its log: {error}")
            except Exception as error:
                log.exception("the log cannot be compared with the master's")
                self._native.refuse(question, f"{type(error).__name__}: {error}")

    async def _align(self, question: int) -> None:
        master = await self._search.find()
        # First, so that what is compared is of the process that gave it.
        ticket = await _ticket(master)
        told = await _epochs(master)
        if told is None:
            await self._align_with_apache(question, master)
            return
        epochs = [(entry.epoch, entry.start_offset) for entry in told.body.epoch_list]
        begin, end = told.body.min_offset or 0, told.body.max_offset
        proposal, mismatch = await asyncio.to_thread(self._native.propose, epochs, begin, end)
        if proposal is None:
            self._native.refuse(
                question, mismatch or "the connection has ended", is_diverged=mismatch is not None
            )
            return
        cut, begin, end, digest = proposal
        if begin < end:
            theirs = await master.call(
                GetBrokerEpochCache(digest_begin=begin, digest_end=end), timeout=ANSWER_SECONDS
            )
            if theirs.digest != digest:
                reason = (
                    f"this log and the master's have other bytes before {end}: one of the two has lost something; "
                    "rmqpy store compare says where, and one of them has to begin with an empty folder"
                )
                self._native.refuse(question, reason, is_diverged=True)
                return
        if cut is None:
            # A ticket leads to the master that was asked, and to no other.
            self._is_uncompared = begin == end and ticket is None
            self._native.accept(question, epochs, ticket)
            return
        own_end = self._native.range()[1]
        log.warning(
            "this log has %d bytes from %d on that the master of epoch %d never had: they are given up",
            own_end - cut,
            cut,
            told.body.epoch,
        )
        self._native.refuse(question, f"this log is cut at {cut} first")
        self._on_cut(cut)

    async def _compare_first_bytes(self) -> None:
        """A log that was empty fits any other, and may have become another master's where `haMasterAddress` leads to
        that. The connection then begins again, and is refused."""
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
            self._native.set_master_address(followed[0])

    async def _align_with_apache(self, question: int, master: Peer) -> None:
        own_end = self._native.range()[1]
        info = await master.call(GetBrokerRuntimeInfo(), timeout=ANSWER_SECONDS)
        end = info.table.get("commitLogMaxOffset", "")
        if not end.isdecimal():
            raise DecodeError(f"{master.address} does not say where its log ends: {end[:40]!r}")
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


async def _ticket(master: Peer) -> bytes | None:
    """What lets this slave in; None where the master is Apache's, or of an older release."""
    try:
        told = await master.call(ExchangeBrokerHaInfo(wants_ticket=True), timeout=ANSWER_SECONDS)
    except Unsupported:
        return None
    return None if told.ticket is None else bytes.fromhex(told.ticket)


async def _epochs(master: Peer) -> BrokerEpochs | None:
    """What the master says; None where it is Apache's, or of an older release."""
    try:
        told = await master.call(GetBrokerEpochCache(), timeout=ANSWER_SECONDS)
    except Unsupported:
        return None
    except BrokerError as error:
        # Apache's answers so without a controller.
        if "epoch" in str(error).lower() or "controller" in str(error).lower():
            return None
        raise
    return told if told.body.min_offset is not None else None
