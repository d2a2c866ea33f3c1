"""Election: asks the controllers for this broker's id and role, and changes the role in the running process.

Owns the assignment, the heartbeats, the lease, and, on a master, the replicas in sync. It outlives the parts of the
broker, which restart when the broker begins to lead or stops leading; a slave changes its master without a restart.

Invariants: an assignment is replaced only by a newer epoch; a master that learns of a newer epoch refuses messages
before anything else; without an assignment the broker is fenced: it accepts no messages and is not registered at name
servers.
Threads: the event loop's.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Final

from rmqpy._native import Server
from rmqpy.config.broker import BrokerConfig
from rmqpy.control.election.assignment import Assignment, InSync
from rmqpy.control.election.controllers import Controllers, NoLeader
from rmqpy.control.election.copies_min import CopiesMin
from rmqpy.control.election.following import Following
from rmqpy.control.election.heartbeats import BEATS_PER_LEASE, Heartbeats
from rmqpy.control.election.identity_file import IdentityFile
from rmqpy.control.election.in_sync import InSyncReplicas
from rmqpy.control.election.leadership import ElectedLeadership
from rmqpy.control.election.lease import Lease
from rmqpy.control.election.membership import Membership
from rmqpy.control.election.running_broker import RunningBroker
from rmqpy.errors import RocketMQError
from rmqpy.protocol.requests.leadership import NotifyBrokerRoleChanged, RoleChanged
from rmqpy.protocol.requests.registration import BrokerHeartbeat, HeartbeatTaken
from rmqpy.remoting.client import Peer
from rmqpy.remoting.waiting import wait_at_most

log = logging.getLogger(__name__)

#: The interval of asking for the role without a master, or while a slave is not connected to it.
SEARCH_SECONDS: Final = 0.5
#: The interval of checking that the running parts have the assigned role.
RECONCILE_SECONDS: Final = 0.1
#: The end of a lease that has not begun.
NO_LEASE: Final = 0.0
#: The time for the last copies of progress before leading; a lost master does not answer.
FINISH_SECONDS: Final = 0.15
#: The time for the replicas in sync to confirm the last messages of a master that stops.
RESIGN_SECONDS: Final = 0.5
RESIGN_LOOK_SECONDS: Final = 0.01


class Election:
    """The role of one broker."""

    def __init__(self, config: BrokerConfig, identity: IdentityFile, restart: Callable[[], None]) -> None:
        """`restart` restarts the broker's parts, with the role of `leadership`."""
        self._config = config
        self._replication = config.replication
        self._identity = identity
        self._restart = restart
        self.leadership = ElectedLeadership(config, identity)
        self._lease = Lease()
        self._running: RunningBroker | None = None
        self._in_sync: InSyncReplicas | None = None
        self._controllers: Controllers | None = None
        self._membership: Membership | None = None
        self._heartbeats: Heartbeats | None = None
        self._address = ""
        self._is_enrolled = False
        self._copies_min = CopiesMin(is_automatic=self._replication.is_copies_min_automatic)
        #: The state that heartbeats report while the parts restart.
        self._last_beat: BrokerHeartbeat | None = None
        self._woken = asyncio.Event()
        self._changed = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._following = Following(self._is_current)
        #: The parts that have the wrong role and restart.
        self._replaced: RunningBroker | None = None
        self._fault: str | None = None

    # ---- life ------------------------------------------------------------------------------------------

    def start(self, address: str, peer: Callable[[str], Peer]) -> None:
        """Begin to ask the controllers. `address` is the broker's; `peer` connects to them, and its connections outlive
        restarts of the broker's parts."""
        self._address, self._last_beat = address, None
        self._controllers = Controllers(self._replication.controller_addresses, peer)
        self._membership = Membership(
            self._config, self._identity, self.leadership, self._controllers, address
        )
        self._heartbeats = Heartbeats(
            self._controllers.all(),
            self._beat,
            self._answered,
            interval=self._beat_interval,
            timeout_seconds=self._replication.beat_timeout_ms / 1_000,
        )
        self._heartbeats.start()
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(self._ask()), loop.create_task(self._keep_role())]

    async def stop(self) -> None:
        """Stop acknowledging, release the lease, and stop asking. Idempotent."""
        tasks, self._tasks = self._tasks, []
        if self._following.search is not None:
            tasks.append(self._following.search)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if tasks:
            await self._resign()
        await self._stop_in_sync()
        if self._heartbeats is not None:
            last = self._beat(releases=True) if self._release() else None
            await self._heartbeats.stop(last)

    async def _resign(self) -> None:
        """Refuse messages, and let the replicas in sync confirm the last ones, so that the next master has them."""
        running = self._running
        if running is None or running.led_epoch is None:
            return
        running.store.fence()
        running.role.lead_no_more(None)
        deadline = time.monotonic() + RESIGN_SECONDS
        while (  # noqa: ASYNC110 - the native module has no event for it
            running.stream.confirmed() < running.stream.range()[1] and time.monotonic() < deadline
        ):
            await asyncio.sleep(RESIGN_LOOK_SECONDS)

    def prepare(self, server: Server) -> None:
        """Let a master acknowledge nothing before `attach`."""
        if self.leadership.leads:
            server.set_lease(NO_LEASE)

    async def attach(self, running: RunningBroker) -> None:
        """Take the parts of a start."""
        self._running, self._is_enrolled = running, False
        assignment = self.leadership.assignment
        if running.led_epoch is not None and assignment is not None and self._controllers is not None:
            self._copies_min.apply(running)
            self._in_sync = InSyncReplicas(
                self._config.name,
                self.leadership.own_id,
                running.led_epoch,
                assignment.in_sync,
                running,
                self._controllers,
                catch_up_seconds=self._replication.catch_up_ms_max / 1_000,
                waits_for_all=self._replication.acks_of_all,
                confirmed_file=self.leadership.confirmed_file,
                on_known=self._in_sync_changed,
                on_refused=self.wake,
            )
            self._in_sync.start()
        self._limit(running)
        if self._heartbeats is not None:
            self._heartbeats.wake()
        self._changed.set()

    async def detach(self) -> None:
        """Let go of the parts, because they stop."""
        await self._stop_in_sync()
        if self._running is not None:
            self._beat()
        self._running = None

    async def _stop_in_sync(self) -> None:
        if self._in_sync is not None:
            await self._in_sync.stop()
            self._in_sync = None

    @property
    def fault(self) -> str | None:
        """The reason why the controllers assign no role at the moment; `None` if they do."""
        return self._fault

    @property
    def lease_left_ms(self) -> int | None:
        """The time for which this broker may acknowledge without another heartbeat; `None` if no lease is needed."""
        end = self._lease.end
        return None if end is None else max(0, round((end - time.monotonic()) * 1_000))

    # ---- notifications ---------------------------------------------------------------------------------

    def wake(self) -> None:
        """Ask for the role now."""
        self._woken.set()

    async def change(self, ask: NotifyBrokerRoleChanged) -> RoleChanged:
        """Take a controller's notification as a reason to ask it."""
        known = self.leadership.assignment
        if known is None or ask.master_epoch > known.epoch:
            self.wake()
        return RoleChanged()

    # ---- heartbeats and lease --------------------------------------------------------------------------

    def _beat_interval(self) -> float:
        own = self._replication.beat_interval_ms / 1_000
        millis = self._lease.millis
        return min(own, millis / 1_000 / BEATS_PER_LEASE) if millis else own

    def _beat(self, *, releases: bool = False) -> BrokerHeartbeat | None:
        broker_id, running = self._identity.broker_id, self._running
        if broker_id is None:
            return None
        if running is not None:
            epoch, end = running.stream.epoch(), running.stream.range()[1]
            confirmed = running.stream.confirmed() if self._in_sync is not None else 0
        elif self._last_beat is None:
            return None
        else:
            last = self._last_beat
            epoch, end, confirmed = last.epoch or 0, last.max_offset or 0, last.confirm_offset or 0
        beat = BrokerHeartbeat(
            cluster_name=self._config.cluster,
            broker_name=self._config.name,
            broker_addr=self._address,
            broker_id=broker_id,
            # Without an epoch Apache's brokers report -1.
            epoch=epoch or -1,
            max_offset=end,
            confirm_offset=confirmed,
            heartbeat_timeout_mills=self._replication.election_timeout_ms,
            election_priority=self._replication.election_priority,
            release_lease=True if releases else None,
        )
        self._last_beat = beat
        return beat

    def _answered(self, sent_at: float, answer: HeartbeatTaken) -> None:
        epoch, millis = answer.master_epoch, answer.lease_millis
        known = self.leadership.assignment
        if epoch is None:
            return
        if known is None or epoch > known.epoch:
            self.wake()
            return
        running = self._running
        if running is None or running.led_epoch != epoch or known.epoch != epoch or millis is None:
            return
        if millis == 0:
            self._lease.withdrawn()
            self._limit(running)
            log.warning("the controller has withdrawn the lease of epoch %d: another broker may lead", epoch)
            if self._heartbeats is not None and self._release():
                asyncio.get_running_loop().create_task(self._tell_release())
            self.wake()
        elif self._lease.granted(sent_at, millis):
            self._limit(running)

    def _release(self) -> bool:
        """Stop acknowledging; return whether there is a lease to release."""
        if not self._lease.is_needed:
            return False
        self._lease.released(time.monotonic())
        if self._running is not None:
            self._limit(self._running)
        return True

    def _limit(self, running: RunningBroker) -> None:
        """Let the running parts acknowledge until the end of the lease, and not before the replicas in sync are
        reported."""
        is_reported = self._in_sync is None or self._in_sync.is_reported
        running.server.set_lease(self._lease.end if is_reported else NO_LEASE)

    async def _tell_release(self) -> None:
        if self._heartbeats is not None and (beat := self._beat(releases=True)) is not None:
            await self._heartbeats.tell(beat)

    # ---- asking ----------------------------------------------------------------------------------------

    async def _ask(self) -> None:
        while True:
            self._woken.clear()
            try:
                await self._ask_once()
                self._report(None)
            except NoLeader as none:
                self._report(str(none))
            except (RocketMQError, OSError) as error:
                self._report(f"the controllers did not assign a role: {error}")
            except Exception as error:
                log.exception("cannot ask the controllers, retrying")
                self._fault = str(error)
            await self._rest()

    async def _rest(self) -> None:
        """Wait until the next question is due. A slave that loses its master meanwhile asks soon."""
        began = time.monotonic()
        while not self._woken.is_set() and (left := began + self._pause() - time.monotonic()) > 0:
            await wait_at_most(self._woken, min(left, SEARCH_SECONDS))

    def _pause(self) -> float:
        """Return the time until the next question."""
        if self._fault is not None or self.leadership.assignment is None:
            return SEARCH_SECONDS
        running = self._running
        if running is not None and running.led_epoch is None:
            master = running.stream.master()
            if master is not None and not master.is_connected:
                return SEARCH_SECONDS
        return self._replication.role_interval_ms / 1_000

    def _report(self, fault: str | None) -> None:
        if fault is not None and self._fault is None:
            log.warning("broker %s: %s", self._config.name, fault)
        elif fault is None and self._fault is not None:
            log.info("broker %s has a role again", self._config.name)
        self._fault = fault

    async def _ask_once(self) -> None:
        membership = self._membership
        assert membership is not None, "start() connects"
        info = await membership.replica_info()
        registered = await membership.replicas()
        if registered is not None:
            self._copies_min.registered(registered)
        self._copies_min.apply(self._running)
        found = Assignment.read(info)
        if found is None:
            await self._without_master(membership, info.master_epoch)
        else:
            self._assign(found)

    async def _without_master(self, membership: Membership, epoch: int) -> None:
        """Ask for an election, because the set has no master."""
        known, running = self.leadership.assignment, self._running
        if (
            known is not None
            and epoch > known.epoch
            and running is not None
            and running.led_epoch is not None
        ):
            # Another election has failed since; no broker leads until the next one.
            log.warning("epoch %d has no master: this broker stops acknowledging", epoch)
            self._lease.withdrawn()
            self._limit(running)
        if self._heartbeats is not None:
            # An elected broker must be alive at the controller.
            self._heartbeats.wake()
        await membership.elect()
        self.wake()

    def _in_sync_changed(self, known: InSync) -> None:
        self._copies_min.in_sync(len(known.ids))
        self._copies_min.apply(self._running)
        if self._running is not None:
            self._limit(self._running)

    def _assign(self, found: Assignment) -> None:
        known = self.leadership.assignment
        if known is not None and found.epoch < known.epoch:
            return
        if known is None or found.epoch > known.epoch:
            log.info(
                "epoch %d: broker %d at %s leads %s",
                *(found.epoch, found.master_id, found.master_address, self._config.name),
            )
        self.leadership.assignment = found
        if self._in_sync is not None and known is not None and found.epoch == known.epoch:
            self._in_sync.learn(found.in_sync)
        self._changed.set()

    # ---- roles -----------------------------------------------------------------------------------------

    async def _keep_role(self) -> None:
        while True:
            self._changed.clear()
            try:
                await self._reconcile()
            except Exception:
                log.exception("cannot change the role, retrying")
            await wait_at_most(self._changed, RECONCILE_SECONDS)

    async def _reconcile(self) -> None:
        """Make the running parts have the assigned role."""
        running, assignment = self._running, self.leadership.assignment
        if running is None or assignment is None or self._identity.broker_id is None:
            return
        if running is self._replaced:
            # An earlier restart may not have ended yet.
            self._restart()
        elif self.leadership.leads:
            if running.led_epoch != assignment.epoch:
                await self._lead(running, assignment)
            else:
                await self._enroll(running)
        elif running.led_epoch is not None:
            await self._step_down(running, assignment)
        elif running.broker_id != self._identity.broker_id:
            # Its first start had no id.
            self._replace(running)
        else:
            self._following.follow(running, assignment)
            await self._enroll(running)

    async def _lead(self, running: RunningBroker, assignment: Assignment) -> None:
        if running.led_epoch is None and running.finish_copies is not None:
            try:
                async with asyncio.timeout(FINISH_SECONDS):
                    await running.finish_copies()
            except TimeoutError:
                log.warning(
                    "cannot copy the master's progress a last time: some messages are delivered twice"
                )
        log.warning("elected: leading %s in epoch %d", self._config.name, assignment.epoch)
        self._replace(running)

    def _replace(self, running: RunningBroker) -> None:
        self._replaced = running
        self._restart()

    async def _step_down(self, running: RunningBroker, assignment: Assignment) -> None:
        running.store.fence()
        running.role.lead_no_more(assignment.master_address)
        log.warning(
            "epoch %d: the broker at %s leads %s, this one follows",
            *(assignment.epoch, assignment.master_address, self._config.name),
        )
        if self._release():
            await self._tell_release()
        await running.abandon()
        self._replace(running)

    async def _enroll(self, running: RunningBroker) -> None:
        if not self._is_enrolled:
            self._is_enrolled = True
            await running.register()

    def _is_current(self, running: RunningBroker, epoch: int) -> bool:
        assignment = self.leadership.assignment
        return self._running is running and assignment is not None and assignment.epoch == epoch
