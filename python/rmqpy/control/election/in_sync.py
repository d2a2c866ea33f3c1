"""Replicas in sync: the set that a master keeps and reports to the controller.

A slave joins once it has the whole log, the topics and the groups. It leaves when it is gone, or has not caught up with
one of them for `haMaxTimeSlaveNotCatchup`.
Invariants: a message is acknowledged only when every replica of the set has it, before and after a change, and so is a
change of a topic or a group; a slave that joins has everything that was acknowledged without it before the controller
learns of it; a change whose outcome is unknown counts as both made and not made. Until a new master has reported a set,
the controller may elect any replica of the set before, so it acknowledges nothing.
Threads: the event loop's.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Final

from rmqpy.control.election.assignment import InSync
from rmqpy.control.election.confirmed_file import ConfirmedFile
from rmqpy.control.election.controllers import Controllers, NoLeader
from rmqpy.control.election.running_broker import RunningBroker
from rmqpy.errors import RocketMQError
from rmqpy.protocol.codes import ResponseCode
from rmqpy.protocol.requests.controller import AlterSyncStateSet, SyncStateSet

log = logging.getLogger(__name__)

LOOK_SECONDS: Final = 0.1
#: The interval while the master is alone in the set, and so perhaps refuses messages.
ALONE_LOOK_SECONDS: Final = 0.02
#: The time after which a reply that did not wait for a joining slave has left.
SETTLE_SECONDS: Final = 0.05
#: The time in which a joining slave must reach the end of the log, and the pause before another attempt.
JOIN_SECONDS: Final = 3.0
JOIN_LOOK_SECONDS: Final = 0.02
RETRY_SECONDS: Final = 1.0
#: The time for the slaves of the set to connect to a restarted master.
CONNECT_SECONDS: Final = 3.0
#: The longest time for which a controller may still make a change that it did not answer.
DOUBT_SECONDS: Final = 15.0
#: Codes after which the controller has certainly changed nothing.
_REFUSED: Final = frozenset(range(2000, 2015))


class InSyncReplicas:
    """The set of one master in one epoch."""

    def __init__(
        self,
        name: str,
        own_id: int,
        epoch: int,
        known: InSync,
        broker: RunningBroker,
        controllers: Controllers,
        *,
        catch_up_seconds: float,
        waits_for_all: bool,
        confirmed_file: ConfirmedFile,
        on_known: Callable[[InSync], None],
        on_refused: Callable[[], None],
    ) -> None:
        """`known` is the set in the controller. `on_known` takes each newer one. `on_refused` is called when the
        controller knows another state."""
        self._name = name
        self._own_id = own_id
        self._epoch = epoch
        self._known = known
        self._broker = broker
        self._controllers = controllers
        self._catch_up = catch_up_seconds
        self._waits_for_all = waits_for_all
        self._confirmed_file = confirmed_file
        self._on_known = on_known
        self._on_refused = on_refused
        #: Replicas that may be in the set, too, because the outcome of a change is unknown.
        self._doubtful: frozenset[int] = frozenset()
        self._doubt_at = 0.0
        self._caught_up_at: dict[int, float] = {}
        #: Apache's slaves, which copy topics and groups every few seconds. No change waits for them.
        self._apaches: frozenset[int] = frozenset()
        #: The slaves that do not follow topics and groups, and since when, or since the last warning.
        self._without_tables: dict[int, float] = {}
        #: The slaves that were connected since the start.
        self._seen: set[int] = set()
        #: The last known end of the log: a slave with that much has caught up at that time.
        self._end_before = self._epoch_start = 0
        self._began = time.monotonic()
        self._retry_at = 0.0
        #: The controller has a set that this master reported, or needs none.
        self.is_reported = False
        self._task: asyncio.Task[None] | None = None

    @property
    def now(self) -> InSync:
        """The set that the controller is known to have."""
        return self._known

    def start(self) -> None:
        """Start on the running loop."""
        self._epoch_start = self._broker.stream.epoch_start()
        self._require(self._known.ids)
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        """Stop. Idempotent."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait({task})
            if self._waits_for_all:
                await self._confirmed_file.note(self._broker.stream.confirmed(), time.monotonic())
                await self._confirmed_file.save()

    def learn(self, known: InSync) -> None:
        """Take the controller's set, if it is newer. If it is not, long after a change of unknown outcome, that change
        was not made."""
        if known.epoch > self._known.epoch:
            self._take(known)
        elif self._doubtful and time.monotonic() - self._doubt_at > DOUBT_SECONDS:
            self._doubtful = frozenset()
            self._require(self._known.ids)

    def _take(self, known: InSync) -> None:
        joined, left = known.ids - self._known.ids, self._known.ids - known.ids
        if joined or left:
            log.info(
                "replicas in sync: %s%s%s",
                ", ".join(map(str, sorted(known.ids))),
                f"; {', '.join(map(str, sorted(joined)))} joined" if joined else "",
                f"; {', '.join(map(str, sorted(left)))} left" if left else "",
            )
        self._known, self._doubtful, self.is_reported = known, frozenset(), True
        self._on_known(known)
        self._require(known.ids)

    def _require(self, ids: frozenset[int], more: frozenset[int] = frozenset()) -> None:
        """Make replies wait for these replicas."""
        both = ids | more
        count = max(len(ids), len(both))
        slaves = both - {self._own_id}
        self._broker.stream.require(sorted(slaves) if self._waits_for_all else None, count)
        for table in self._broker.electable:
            table.require(slaves - self._apaches, is_reported=self.is_reported)

    async def _run(self) -> None:
        while True:
            is_alone = len(self._known.ids) < 2
            await asyncio.sleep(ALONE_LOOK_SECONDS if is_alone else LOOK_SECONDS)
            try:
                await self._look()
            except Exception:
                log.exception("cannot keep the replicas in sync, retrying")
                self._retry_at = time.monotonic() + RETRY_SECONDS

    async def _look(self) -> None:
        now, end = time.monotonic(), self._broker.stream.range()[1]
        has: dict[int, int] = {}
        for slave in self._broker.stream.slaves():
            if slave.broker_id is not None:
                has[slave.broker_id] = slave.end
                if slave.is_apache and slave.broker_id not in self._apaches:
                    self._apaches |= {slave.broker_id}
                    self._require(self._known.ids, self._doubtful)
        for broker_id, reached in has.items():
            if reached >= self._end_before:
                self._caught_up_at[broker_id] = now
        self._seen |= has.keys()
        for gone in self._caught_up_at.keys() - has.keys():
            del self._caught_up_at[gone]
        self._end_before = end
        if self._waits_for_all:
            await self._confirmed_file.note(self._broker.stream.confirmed(), now)
        if now < self._retry_at:
            return
        ids = self._known.ids
        gone_ids = frozenset(one for one in ids - {self._own_id} if self._is_out(one, has, now))
        joining = frozenset(
            one
            for one, reached in has.items()
            if one not in ids
            and reached >= self._epoch_start
            and self._caught_up_at.get(one) == now
            and self._reads_tables(one, now)
        )
        wanted = (ids - gone_ids) | joining
        if wanted != ids or not self.is_reported:
            await self._change(wanted)

    def _is_out(self, broker_id: int, has: dict[int, int], now: float) -> bool:
        if broker_id not in has:
            return broker_id in self._seen or now - self._began > CONNECT_SECONDS
        behind = now - self._caught_up_at.get(broker_id, self._began)
        late = max((table.late_seconds(broker_id) for table in self._broker.electable), default=0.0)
        return max(behind, late) > self._catch_up

    def _reads_tables(self, broker_id: int, now: float) -> bool:
        """Return whether a slave follows topics and groups, without which it cannot join."""
        if broker_id in self._apaches or all(table.is_read_by(broker_id) for table in self._broker.electable):
            self._without_tables.pop(broker_id, None)
            return True
        since = self._without_tables.setdefault(broker_id, now)
        if now - since > self._catch_up:
            log.warning(
                "broker %d has the log, but does not copy topics and groups: it does not join", broker_id
            )
            self._without_tables[broker_id] = now
        return False

    def _has_tables(self, broker_id: int) -> bool:
        return broker_id in self._apaches or all(table.follows(broker_id) for table in self._broker.electable)

    async def _change(self, wanted: frozenset[int]) -> None:
        """Report a wanted set, and take it when the controller has it."""
        ids = self._known.ids
        self._require(ids, wanted | self._doubtful)
        joining = wanted - ids
        if joining and not await self._have_caught_up(joining):
            self._require(ids, self._doubtful)
            self._retry_at = time.monotonic() + RETRY_SECONDS
            return
        ask = AlterSyncStateSet(
            broker_name=self._name,
            master_broker_id=self._own_id,
            master_epoch=self._epoch,
            invoke_time=round(time.time() * 1_000),
            all_ack_in_sync_state_set=self._waits_for_all or None,
            body=SyncStateSet(sync_state_set=sorted(wanted), sync_state_set_epoch=self._known.epoch),
        )
        try:
            answer = await self._controllers.ask(ask)
        except NoLeader as none:
            self._failed(ids, frozenset(), str(none))
            return
        except RocketMQError as error:
            if error.code == ResponseCode.CONTROLLER_ALTER_SYNC_STATE_SET_FAILED and wanted == ids:
                # It has this set, and waits for no report.
                self._take(self._known)
                return
            self._failed(ids, frozenset() if error.code in _REFUSED else wanted, str(error))
            if error.code in _REFUSED and error.code != ResponseCode.CONTROLLER_BROKER_NOT_ALIVE:
                self._on_refused()
            return
        epoch = answer.new_sync_state_set_epoch
        if answer.body is not None and answer.body.sync_state_set:
            self._take(InSync(frozenset(answer.body.sync_state_set), answer.body.sync_state_set_epoch))
        else:
            self._take(InSync(wanted, self._known.epoch + 1 if epoch is None else epoch))

    def _failed(self, ids: frozenset[int], doubtful: frozenset[int], reason: str) -> None:
        log.warning("cannot change the replicas in sync, retrying: %s", reason)
        if doubtful:
            self._doubtful |= doubtful
            self._doubt_at = time.monotonic()
        self._require(ids, self._doubtful)
        self._retry_at = time.monotonic() + RETRY_SECONDS

    async def _have_caught_up(self, joining: frozenset[int]) -> bool:
        """Wait until joining slaves have everything that was acknowledged without them."""
        stream, end = self._broker.stream, 0
        if self._waits_for_all:
            await asyncio.sleep(SETTLE_SECONDS)
            end = stream.range()[1]
        deadline = time.monotonic() + JOIN_SECONDS
        while time.monotonic() < deadline:
            has = {slave.broker_id: slave.end for slave in stream.slaves()}
            if all(has.get(one, -1) >= end and self._has_tables(one) for one in joining):
                return True
            await asyncio.sleep(JOIN_LOOK_SECONDS)
        return False
