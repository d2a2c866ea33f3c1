"""Replicas in sync: the set that a master keeps and reports to the controller.

A slave joins once it has the whole log and leaves when it is gone or has not caught up for `haMaxTimeSlaveNotCatchup`.
Invariants: a message is acknowledged only when every replica of the set has it, before and after a change; a slave that
joins has every message that was acknowledged without it before the controller learns of it; a change whose outcome is
unknown counts as both made and not made.
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
        #: The slaves that were connected since the start.
        self._seen: set[int] = set()
        #: The last known end of the log: a slave with that much has caught up at that time.
        self._end_before = self._epoch_start = 0
        self._began = time.monotonic()
        self._retry_at = 0.0
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
        self._known, self._doubtful = known, frozenset()
        self._on_known(known)
        self._require(known.ids)

    def _require(self, ids: frozenset[int], more: frozenset[int] = frozenset()) -> None:
        """Make replies wait for these replicas."""
        both = ids | more
        count = max(len(ids), len(both))
        slaves = sorted(both - {self._own_id}) if self._waits_for_all else None
        self._broker.stream.require(slaves, count)

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
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
            if one not in ids and reached >= self._epoch_start and self._caught_up_at.get(one) == now
        )
        wanted = (ids - gone_ids) | joining
        if wanted != ids:
            await self._change(wanted)

    def _is_out(self, broker_id: int, has: dict[int, int], now: float) -> bool:
        if broker_id not in has:
            return broker_id in self._seen or now - self._began > CONNECT_SECONDS
        return now - self._caught_up_at.get(broker_id, self._began) > self._catch_up

    async def _change(self, wanted: frozenset[int]) -> None:
        """Report a wanted set, and take it when the controller has it."""
        ids = self._known.ids
        self._require(ids, wanted | self._doubtful)
        joining = wanted - ids
        if joining and self._waits_for_all and not await self._have_caught_up(joining):
            self._require(ids, self._doubtful)
            self._retry_at = time.monotonic() + RETRY_SECONDS
            return
        ask = AlterSyncStateSet(
            broker_name=self._name,
            master_broker_id=self._own_id,
            master_epoch=self._epoch,
            invoke_time=round(time.time() * 1_000),
            body=SyncStateSet(sync_state_set=sorted(wanted), sync_state_set_epoch=self._known.epoch),
        )
        try:
            answer = await self._controllers.ask(ask)
        except NoLeader as none:
            self._failed(ids, frozenset(), str(none))
            return
        except RocketMQError as error:
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
        await asyncio.sleep(SETTLE_SECONDS)
        stream = self._broker.stream
        end, deadline = stream.range()[1], time.monotonic() + JOIN_SECONDS
        while time.monotonic() < deadline:
            has = {slave.broker_id: slave.end for slave in stream.slaves()}
            if all(has.get(one, -1) >= end for one in joining):
                return True
            await asyncio.sleep(JOIN_LOOK_SECONDS)
        return False
