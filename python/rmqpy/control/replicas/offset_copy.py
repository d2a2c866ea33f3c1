"""The copy of the committed offsets, and those that consumers committed at the slave while its master was away.

Owns the table as the master told it last: what differs from that was committed here. When the master is back it gets
those offsets, unless its own has moved on meanwhile, as newer ones win over older. Invariant: an offset of the master
is taken over only when this log has on its disk what the master's had when it was told. That goes for the progress of
transactions, too, which is among them: a half that has ended at the master has its mark here by then.
Threads: the event loop's; tables are compared in a worker.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from rmqpy._native import Offsets
from rmqpy.control.replicas.log_position import log_end_of
from rmqpy.errors import BrokerError
from rmqpy.protocol import fastjson, names
from rmqpy.protocol.codes import ResponseCode
from rmqpy.protocol.declare import json_tree
from rmqpy.protocol.requests.offsets import UpdateConsumerOffset
from rmqpy.protocol.requests.replicas import GetAllConsumerOffset
from rmqpy.protocol.topics import DataVersion
from rmqpy.remoting.client import Peer

log = logging.getLogger(__name__)

#: As often as a broker writes the file by default.
SECONDS: Final = 5.0
#: The same where a topic was missing: of a slave that is new they come at the same time.
SOON_SECONDS: Final = 1.0
SOON_ROUNDS_MAX: Final = 30
#: A table of 100,000 entries takes a few MB.
ANSWER_SECONDS: Final = 30.0
#: Offsets on their way back together.
RETURNS_MAX: Final = 64

#: `topic@group` to queue id to offset.
Table = Mapping[str, Mapping[int, int]]


class Entry(NamedTuple):
    """One committed offset."""

    group: str
    topic: str
    queue_id: int
    offset: int


class _Pending(NamedTuple):
    """What the master has told and this log does not have yet."""

    table: Table
    version: DataVersion
    #: End of the master's log after that.
    log_end: int


class OffsetCopy:
    """The copy of the offsets."""

    what = "offsets"

    def __init__(self, offsets: Offsets, log_end: Callable[[], int]) -> None:
        """`log_end`: of this broker's log, as far as it is on the disk."""
        self._offsets = offsets
        self._log_end = log_end
        self._pending: _Pending | None = None
        self._version: DataVersion | None = None
        #: Rounds that still come soon; offsets of topics that the master has lost never find theirs.
        self._soon_left = SOON_ROUNDS_MAX
        #: As the master told it; what was found at the start is taken for that.
        self._told: Table = offsets.snapshot()[1]

    async def copy(self, master: Peer) -> float:
        """Give back what was committed here, and take over the rest, once the log has got there."""
        if self._pending is not None and await self._exchange(master, self._pending) is None:
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
        answer = await master.call(GetAllConsumerOffset(data_version=known), timeout=ANSWER_SECONDS)
        body = answer.body
        if self._version == body.data_version and not body.offset_table:
            return _Pending(self._told, body.data_version, 0)
        return _Pending(body.offset_table, body.data_version, await log_end_of(master))

    async def _exchange(self, master: Peer, pending: _Pending) -> bool | None:
        """Whether all of it could be taken over; None where the log has not got there."""
        theirs = pending.table
        returned, taken, gone = await asyncio.to_thread(self._compare, theirs)
        accepted: list[Entry] = []
        for first in range(0, len(returned), RETURNS_MAX):
            batch = returned[first : first + RETURNS_MAX]
            are_taken = await asyncio.gather(*(self._give_back(master, entry) for entry in batch))
            accepted += itertools.compress(batch, are_taken)
        if accepted:
            log.info("%d offsets that were committed here went back to the master", len(accepted))
        theirs = _with(theirs, accepted)
        if self._log_end() < pending.log_end:
            self._pending = pending._replace(table=theirs)
            return None
        self._pending = None
        is_whole = await asyncio.to_thread(self._take, taken, gone)
        self._told, self._version = theirs, pending.version
        return is_whole

    def _compare(self, theirs: Table) -> tuple[list[Entry], list[Entry], list[str]]:
        """Offsets that go back to the master, those that come from it, and groups that it has no offset of."""
        ours = self._offsets.snapshot()[1]
        returned, taken = [], []
        for key, queues in ours.items():
            group, topic = _names(key)
            if group == names.TRANSACTION_GROUP:
                # A master knows by itself how far its transactions are done.
                continue
            told, now = self._told.get(key, {}), theirs.get(key, {})
            for queue_id, offset in queues.items():
                before = told.get(queue_id, -1)
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
        # Only what the master once had: a group of which nothing was told is one that is new here.
        gone = sorted({_names(key)[0] for key in self._told} - known)
        return returned, taken, gone

    async def _give_back(self, master: Peer, entry: Entry) -> bool:
        """Whether that is done with: a group that was made here is new to the master until its members come there."""
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
            log.warning(
                "the master does not take the offset of %s in %s: %s", entry.group, entry.topic, error
            )
        return True

    def _take(self, taken: Sequence[Entry], gone: Sequence[str]) -> bool:
        """Whether all of them could be."""
        is_whole = True
        for group in gone:
            self._offsets.remove_group(group)
        # Of transactions the halves come before the marks: a file with the marks alone would open halves again.
        for group, topic, queue_id, offset in sorted(taken):
            try:
                self._offsets.take_over(group, topic, queue_id, offset)
            except BrokerError:
                # Of a topic that is not copied yet, or that the master has lost: the next round tries again.
                is_whole = False
        return is_whole


def _with(table: Table, entries: Sequence[Entry]) -> Table:
    """The table with these, too: what went back to the master is what it has now."""
    changed = dict(table)
    for group, topic, queue_id, offset in entries:
        key = f"{topic}@{group}"
        changed[key] = {**changed.get(key, {}), queue_id: offset}
    return changed


def _names(key: str) -> tuple[str, str]:
    """Group and topic."""
    topic, _, group = key.partition("@")
    return group, topic
