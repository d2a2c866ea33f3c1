"""Checks of transactions: producers are asked about half messages that they have not decided about.

The data plane says which are due; each has a time and a count of its own, so that none waits for another's producer.
Each check of a half goes to the next member of its producer group, and counts when it was sent. A half whose producers
were asked often enough, or whose file of the log is about to expire, is given up.

Threads: the event loop's; what may wait for the disk is done in a worker.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final, NamedTuple

from rmqpy._native import Server, Transactions
from rmqpy.clock import Clock
from rmqpy.config.broker import BrokerConfig
from rmqpy.control.clients.registry import Producers
from rmqpy.control.settings import LiveConfig
from rmqpy.control.topics.table import Topics
from rmqpy.errors import StoreError
from rmqpy.protocol import names
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
    checks: int
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
            found = await asyncio.to_thread(self._transactions.due, _BATCH, interval_ms)
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
        if half.checks >= config.transaction_check_max:
            return True
        # With its file it would be gone without a trace, maybe before it is looked at again.
        age_ms = self._clock.wall_ms() - half.stored_ms
        return age_ms + config.transaction_check_interval_ms > config.store.reserved_hours * _HOUR_MS

    def _ask(self, half: _Half, broker_name: str) -> bool:
        """Whether a member of the half's group was sent the question."""
        members = list(self._producers.groups.get(half.group, {}))
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
        first = half.offset + half.checks
        return any(
            self._server.push(members[number % len(members)], ask.code, sent.ext or {}, sent.body)
            for number in range(first, first + min(len(members), _MEMBERS_MAX))
        )

    def _miss(self, group: str) -> None:
        if group not in self._absent and len(self._absent) < _ABSENT_MAX:
            self._absent.add(group)
            log.warning("no producer of the group %s is connected, and half messages of it wait", group)

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
