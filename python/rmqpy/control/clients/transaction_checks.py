"""Checks of transactions: asks producers about half messages without a decision.

The data plane reports the due ones. Each has its own time and count, so that none waits for another's producer.
Membership of a producer group is only a client's claim, so a check goes to a member that may publish to the topic of
the message: to the connection that sent it while that answers, then to the others in turn. A half message is discarded
after the maximum number of answers without a decision, or when its file of the log is about to expire; unanswered
checks do not count.

Threads: the event loop's; what may block on the disk runs in a worker.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from rmqpy._native import DueHalf, Server, Transactions, record_topic
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

#: The interval of the checks.
CHECKS_SECONDS: Final = 1.0
#: Half messages of one batch, and batches of one round.
_BATCH: Final = 256
_BATCHES_MAX: Final = 64
#: The most members of a group that are tried for one check, in case some do not read.
_MEMBERS_MAX: Final = 16
#: The most groups without members that are remembered, so that each is logged once.
_ABSENT_MAX: Final = 1_000
_HOUR_MS: Final = 3_600_000


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
        """Check all due half messages, within bounds; the rest waits for the next round."""
        given_up = 0
        for _ in range(_BATCHES_MAX):
            config = self._config.now
            interval_ms = config.transaction_check_interval_ms
            expiry_ms = max(0, config.store.reserved_hours * _HOUR_MS - interval_ms)
            found = await asyncio.to_thread(self._transactions.due, _BATCH, interval_ms, expiry_ms)
            if not found:
                break
            checked = []
            for half in found:
                if self._is_hopeless(half, config):
                    given_up += await self._give_up(half)
                elif self._ask(half, config.name):
                    checked.append((half.offset, half.physical))
            self._transactions.count_checks(checked)
        if given_up:
            log.warning(
                "gave up %d half messages without a decision: they are in %s",
                given_up,
                names.UNDECIDED_TOPIC,
            )

    def _is_hopeless(self, half: DueHalf, config: BrokerConfig) -> bool:
        if half.answers >= config.transaction_check_max:
            return True
        # When its log file expires it would be lost, perhaps before the next check.
        age_ms = self._clock.wall_ms() - half.stored_ms
        return age_ms + config.transaction_check_interval_ms > config.store.reserved_hours * _HOUR_MS

    def _ask(self, half: DueHalf, broker_name: str) -> bool:
        """Send a check to a member of the message's producer group; return whether one was sent."""
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

    def _members(self, half: DueHalf) -> list[int]:
        """Return connections of members to try, in order."""
        needs = [(ResourceKind.TOPIC.value, record_topic(half.record), [Action.PUB.value])]
        group = self._producers.groups.get(half.group, {})
        members = [
            connection
            for connection, member in group.items()
            if not member.is_guarded or self._server.might(member.user, member.address, needs)
        ]
        if half.sender not in members:
            return _rotated(members, half.offset + half.checks)
        members.remove(half.sender)
        silent = half.checks - half.answers
        others = _rotated(members, half.offset + silent // 2)
        return [half.sender, *others] if silent % 2 == 0 else [*others, half.sender]

    def _miss(self, group: str) -> None:
        if group not in self._absent and len(self._absent) < _ABSENT_MAX:
            self._absent.add(group)
            log.warning(
                "half messages of group %s wait: no connected producer of the group may publish to their topic",
                group,
            )

    async def _give_up(self, half: DueHalf) -> bool:
        """Give a half message up; return whether it worked. A refusal, such as on a full disk, is retried later."""
        try:
            await self._topics.ensure_derived(names.UNDECIDED_TOPIC, 1)
            return await asyncio.to_thread(self._transactions.discard, half.offset, half.physical)
        except StoreError as error:
            log.warning("cannot give up the half message at offset %d, retrying: %s", half.offset, error)
            return False


def _rotated(members: list[int], first: int) -> list[int]:
    """Rotate the members to begin with number `first`."""
    begin = first % len(members) if members else 0
    return members[begin:] + members[:begin]
