"""Checks of transactions: producers are asked about half messages that they have not decided about.

The data plane says which are due; each has a time and a count of its own, so that none waits for another's producer.
That a client is a member of a producer group is its own claim. So a check goes to a member that may publish to the
topic of the half: to the connection that sent it, as long as that answers; where it does not, in turn to it and to the
others. A half is given up when so many checks were answered without a decision, or when its file of the log is about to
expire: a check that no member answers is no reason.

Threads: the event loop's; what may wait for the disk is done in a worker.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final, NamedTuple

from rmqpy._native import Server, Transactions, record_topic
from rmqpy.clock import Clock
from rmqpy.config.broker import BrokerConfig
from rmqpy.control.clients.registry import Producers
from rmqpy.control.settings import LiveConfig
from rmqpy.control.topics.table import Topics
from rmqpy.errors import StoreError
from rmqpy.protocol import names
from rmqpy.protocol.access import Action, ResourceKind
from rmqpy.protocol.declare import encode
from rmqpy.protocol.requests.transactions import CheckTransactionState

log = logging.getLogger(__name__)

#: Seconds between two rounds.
CHECKS_SECONDS: Final = 1.0
#: Half messages of one batch, and batches of one round.
_BATCH: Final = 256
_BATCHES_MAX: Final = 64
#: Members of a group that are tried for one check: those before do not read.
_MEMBERS_MAX: Final = 16
#: Groups without a member that are remembered, so that each is logged once.
_ABSENT_MAX: Final = 1_000
_HOUR_MS: Final = 3_600_000


class _Half(NamedTuple):
    """A half message that is due, as the data plane gives it."""

    offset: int
    physical: int
    #: How often a producer was asked, and answered that it does not know.
    checks: tuple[int, int]
    #: The connection it came on; None after a restart.
    sender: int | None
    stored_ms: int
    group: str
    unique_key: str
    message_id: str
    record: bytes


class TransactionChecks:
    """The checks of one broker."""

    def __init__(
        self,
        config: LiveConfig,
        topics: Topics,
        producers: Producers,
        server: Server,
        transactions: Transactions,
        clock: Clock,
    ) -> None:
        self._config = config
        self._topics = topics
        self._producers = producers
        self._server = server
        self._transactions = transactions
        self._clock = clock
        self._absent: set[str] = set()

    async def round(self) -> None:
        """Ask about everything that is due, within bounds; the rest waits for the next round."""
        given_up = 0
        for _ in range(_BATCHES_MAX):
            config = self._config.now
            interval_ms = config.transaction_check_interval_ms
            expiry_ms = max(0, config.store.reserved_hours * _HOUR_MS - interval_ms)
            found = await asyncio.to_thread(self._transactions.due, _BATCH, interval_ms, expiry_ms)
            if not found:
                break
            checked = []
            for half in (_Half(*row) for row in found):
                if self._is_hopeless(half, config):
                    given_up += await self._give_up(half)
                elif self._ask(half, config.name):
                    checked.append((half.offset, half.physical))
            self._transactions.count_checks(checked)
        if given_up:
            log.warning(
                "%d half messages were given up: nobody has decided about them; they are in %s",
                given_up,
                names.UNDECIDED_TOPIC,
            )

    def _is_hopeless(self, half: _Half, config: BrokerConfig) -> bool:
        _, answers = half.checks
        if answers >= config.transaction_check_max:
            return True
        # With its file it would be gone without a trace, maybe before it is looked at again.
        age_ms = self._clock.wall_ms() - half.stored_ms
        return age_ms + config.transaction_check_interval_ms > config.store.reserved_hours * _HOUR_MS

    def _ask(self, half: _Half, broker_name: str) -> bool:
        """Whether a member of the half's group was sent the question."""
        members = self._members(half)
        if not members:
            self._miss(half.group)
            return False
        self._absent.discard(half.group)
        ask = CheckTransactionState(
            topic=names.HALF_TOPIC,
            tran_state_table_offset=half.offset,
            commit_log_offset=half.physical,
            msg_id=half.unique_key,
            transaction_id=half.unique_key,
            offset_msg_id=half.message_id,
            bname=broker_name,
            body=half.record,
        )
        sent = encode(ask)
        return any(
            self._server.push(member, ask.code, sent.ext or {}, sent.body)
            for member in members[:_MEMBERS_MAX]
        )

    def _members(self, half: _Half) -> list[int]:
        """Connections of members that may be asked, in the order in which they are tried."""
        needs = [(ResourceKind.TOPIC.value, record_topic(half.record), [Action.PUB.value])]
        group = self._producers.groups.get(half.group, {})
        members = [
            connection
            for connection, member in group.items()
            if not member.is_guarded or self._server.might(member.user, member.address, needs)
        ]
        checks, answers = half.checks
        if half.sender not in members:
            return _rotated(members, half.offset + checks)
        members.remove(half.sender)
        silent = checks - answers
        others = _rotated(members, half.offset + silent // 2)
        return [half.sender, *others] if silent % 2 == 0 else [*others, half.sender]

    def _miss(self, group: str) -> None:
        if group not in self._absent and len(self._absent) < _ABSENT_MAX:
            self._absent.add(group)
            log.warning(
                "half messages of the group %s wait: no producer of it is connected that may publish to their topic",
                group,
            )

    async def _give_up(self, half: _Half) -> bool:
        """Whether it was; a store that refuses, such as one whose disk is full, is asked again later."""
        try:
            await self._topics.ensure_derived(names.UNDECIDED_TOPIC, 1)
            return await asyncio.to_thread(self._transactions.discard, half.offset, half.physical)
        except StoreError as error:
            log.warning(
                "the half message at offset %d was not given up, which is tried again: %s", half.offset, error
            )
            return False


def _rotated(members: list[int], first: int) -> list[int]:
    """The members in turn, from the one with this number on."""
    begin = first % len(members) if members else 0
    return members[begin:] + members[:begin]
