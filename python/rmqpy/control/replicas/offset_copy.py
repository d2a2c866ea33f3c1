"""Offset copy: the master's committed offsets, and those committed at the slave while the master was unreachable.

Owns the master's last table: a difference from it was committed here. When the master returns, it gets those offsets
unless its own are newer. Invariant: an offset of the master is applied only when the local log durably has what the
master's log had at that time. This includes the progress of transactions: a half message that ended at the master has
its mark here by then. Threads: the event loop's; tables are compared in a worker.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from rmqpy._native import Offsets
from rmqpy.control.groups import light_offsets
from rmqpy.control.groups.order_file import load_orders
from rmqpy.control.replicas.log_position import log_end_of
from rmqpy.errors import BrokerError
from rmqpy.protocol import fastjson, names
from rmqpy.protocol.codes import ResponseCode
from rmqpy.protocol.declare import json_tree
from rmqpy.protocol.orders import OrderTable
from rmqpy.protocol.requests.offsets import UpdateConsumerOffset
from rmqpy.protocol.requests.replicas import GetAllConsumerOffset
from rmqpy.protocol.topics import DataVersion
from rmqpy.remoting.client import Peer

log = logging.getLogger(__name__)

#: The default interval at which brokers write the file.
SECONDS: Final = 5.0
#: The interval while a topic is missing: a new slave gets topics at the same time.
SOON_SECONDS: Final = 1.0
SOON_ROUNDS_MAX: Final = 30
#: Timeout of a reply. A table of 100,000 entries takes a few MB.
ANSWER_SECONDS: Final = 30.0
#: The most offsets in flight to the master.
RETURNS_MAX: Final = 64

#: Offsets by `topic@group` and queue id.
Table = Mapping[str, Mapping[int, int]]


class Entry(NamedTuple):
    """One committed offset."""

    group: str
    topic: str
    queue_id: int
    offset: int


class _Pending(NamedTuple):
    """A table of the master that this log has not reached yet."""

    table: Table
    version: DataVersion
    #: The end of the master's log after its reply.
    log_end: int


class OffsetCopy:
    what = "offsets"

    def __init__(self, offsets: Offsets, log_end: Callable[[], int]) -> None:
        """`log_end` returns the durable end of this broker's log."""
        self._offsets = offsets
        self._log_end = log_end
        self._pending: _Pending | None = None
        self._version: DataVersion | None = None
        #: The master's batches popped in order, as copied last.
        self._orders: OrderTable = {}
        #: Remaining rounds at the short interval, because topics that the master has lost never appear.
        self._soon_left = SOON_ROUNDS_MAX
        #: The tables taken over so far, and whether all offsets of the last one could be.
        self.taken = 0
        self.is_whole = False
        #: The master's last table; at the start, the one found here.
        self._last: Table = offsets.snapshot()[1]

    async def copy(self, master: Peer) -> float:
        """Return offsets committed here to the master, and take over its offsets when the log has reached them."""
        if self._pending is not None and await self._exchange(master, self._pending) is None:
            await log_end_of(master)
            return min(SOON_SECONDS, SECONDS)
        self._pending = pending = await self._ask(master)
        is_whole = await self._exchange(master, pending)
        if is_whole is None:
            return min(SOON_SECONDS, SECONDS)
        if is_whole or self._soon_left == 0:
            return SECONDS
        self._soon_left -= 1
        return min(SOON_SECONDS, SECONDS)

    async def _ask(self, master: Peer) -> _Pending:
        known = None if self._version is None else fastjson.dumps(json_tree(self._version))
        ask = GetAllConsumerOffset(data_version=known, wants_orders=True)
        answer = await master.call(ask, timeout=ANSWER_SECONDS)
        body = answer.body
        if body.order_table is not None and body.order_table != self._orders:
            # Blocks end by time, so they need not wait for the log.
            await asyncio.to_thread(load_orders, self._offsets, body.order_table)
            self._orders = body.order_table
        theirs = light_offsets.joined(body.offset_table, body.lmq_offset_table or {})
        if self._version == body.data_version and not theirs:
            return _Pending(self._last, body.data_version, 0)
        return _Pending(theirs, body.data_version, await log_end_of(master))

    async def _exchange(self, master: Peer, pending: _Pending) -> bool | None:
        """Exchange offsets; return whether all could be taken over, or `None` if the log has not reached them."""
        theirs = pending.table
        returned, taken, gone = await asyncio.to_thread(self._compare, theirs)
        if returned and self._log_end() > await log_end_of(master):
            # The master lost the end of its log, so it must not get offsets of messages that it lacks.
            returned = []
        accepted: list[Entry] = []
        for first in range(0, len(returned), RETURNS_MAX):
            batch = returned[first : first + RETURNS_MAX]
            are_taken = await asyncio.gather(*(self._give_back(master, entry) for entry in batch))
            accepted += itertools.compress(batch, are_taken)
        if accepted:
            log.info("sent %d offsets committed here to the master", len(accepted))
        theirs = _with(theirs, accepted)
        if self._log_end() < pending.log_end:
            self._pending = pending._replace(table=theirs)
            return None
        self._pending = None
        self.is_whole = await asyncio.to_thread(self._take, taken, gone)
        self._last, self._version = theirs, pending.version
        self.taken += 1
        return self.is_whole

    def _compare(self, theirs: Table) -> tuple[list[Entry], list[Entry], list[str]]:
        """Return the offsets for the master, those from the master, and groups without offsets there."""
        ours = self._offsets.snapshot()[1]
        returned, taken = [], []
        for key, queues in ours.items():
            group, topic = _names(key)
            if group == names.TRANSACTION_GROUP:
                # The master knows the progress of its own transactions.
                continue
            last, now = self._last.get(key, {}), theirs.get(key, {})
            for queue_id, offset in queues.items():
                before = last.get(queue_id, -1)
                if offset != before and now.get(queue_id, -1) <= before and offset > now.get(queue_id, -1):
                    returned.append(Entry(group, topic, queue_id, offset))
        kept = {entry[:3] for entry in returned}
        for key, now in theirs.items():
            group, topic = _names(key)
            for queue_id, offset in now.items():
                place = (group, topic, queue_id)
                if offset >= 0 and place not in kept and ours.get(key, {}).get(queue_id) != offset:
                    taken.append(Entry(*place, offset))
        known = {_names(key)[0] for key in theirs} | {entry.group for entry in returned}
        # Only groups that the master once had; others are new here.
        gone = sorted({_names(key)[0] for key in self._last} - known)
        return returned, taken, gone

    async def _give_back(self, master: Peer, entry: Entry) -> bool:
        """Return an offset to the master; return whether that is settled. A group created here is new to the master
        until its members connect there."""
        try:
            await master.call(
                UpdateConsumerOffset(
                    consumer_group=entry.group,
                    topic=entry.topic,
                    queue_id=entry.queue_id,
                    commit_offset=entry.offset,
                )
            )
        except BrokerError as error:
            if error.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST:
                return False
            log.warning("the master refuses the offset of %s in %s: %s", entry.group, entry.topic, error)
        return True

    def _take(self, taken: Sequence[Entry], gone: Sequence[str]) -> bool:
        """Take over offsets; return whether all could be."""
        is_whole = True
        for group in gone:
            self._offsets.remove_group(group)
        # Half messages before their marks: the marks alone would open ended transactions again.
        for group, topic, queue_id, offset in sorted(taken):
            try:
                self._offsets.take_over(group, topic, queue_id, offset)
            except BrokerError:
                # The topic is not copied yet, or lost at the master: retried in the next round.
                is_whole = False
        return is_whole


def _with(table: Table, entries: Sequence[Entry]) -> Table:
    """Return the table with these entries, which the master has accepted."""
    changed = dict(table)
    for group, topic, queue_id, offset in entries:
        key = f"{topic}@{group}"
        changed[key] = {**changed.get(key, {}), queue_id: offset}
    return changed


def _names(key: str) -> tuple[str, str]:
    """Return group and topic."""
    topic, _, group = key.partition("@")
    return group, topic
