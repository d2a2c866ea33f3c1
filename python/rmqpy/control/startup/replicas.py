"""Replicas: this broker's relation to the others of its name.

Builds the log stream to slaves or from a master, the role of the broker, registration and succession, and, where
configured, acting for an unreachable master. Nothing runs before the role starts.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

from rmqpy.control.replicas.acting import ActingMaster
from rmqpy.control.replicas.acting_duties import ActingDuties
from rmqpy.control.replicas.escape_bridge import EscapeBridge
from rmqpy.control.replicas.hand_over import HandOver
from rmqpy.control.replicas.lag import Lag
from rmqpy.control.replicas.log_stream import LogStream
from rmqpy.control.replicas.members import Members
from rmqpy.control.replicas.mode_copy import ModeCopy
from rmqpy.control.replicas.offset_copy import OffsetCopy
from rmqpy.control.replicas.progress_copy import ProgressCopy
from rmqpy.control.replicas.promise_copy import PromiseCopy
from rmqpy.control.replicas.schedule_copy import ScheduleCopy
from rmqpy.control.replicas.status import ReplicaStatus
from rmqpy.control.replicas.succession import Succession
from rmqpy.control.replicas.table_copy import GroupCopy, TopicCopy
from rmqpy.control.standing import Standing
from rmqpy.control.startup.local import LocalBroker
from rmqpy.control.startup.master import MasterRole
from rmqpy.control.startup.servers import Servers
from rmqpy.control.startup.service import ClientService
from rmqpy.control.startup.slave import SlaveRole
from rmqpy.control.startup.storage import BrokerStorage
from rmqpy.control.store.oldest_file import oldest_file
from rmqpy.control.topics.adoption import adopt


class Replicas(NamedTuple):
    """The replication parts of one start."""

    stream: LogStream
    role: MasterRole | SlaveRole
    succession: Succession
    status: ReplicaStatus
    standing: Standing
    #: Set if a slave may act for its master.
    members: Members | None
    #: Set on a slave that may act.
    acting: ActingMaster | None


def copied_end(local: LocalBroker, storage: BrokerStorage, stream: LogStream) -> int:
    """Return the position before which the log is durable, and has been copied by the slaves that are in sync."""
    durable = storage.durable_end()
    if local.config.replication.is_controlled:
        return min(durable, stream.confirmed())
    return min([durable, *(slave.end for slave in stream.slaves() if slave.is_in_sync)])


def make_replicas(
    local: LocalBroker, servers: Servers, storage: BrokerStorage, service: ClientService
) -> Replicas:
    """Build the parts."""
    config, clock, role, store = local.config, local.clock, local.role, storage.store
    stream = LogStream(
        config.replication,
        store,
        local.certificates,
        needs_ticket=config.access.is_on,
        slaves_min=0 if local.leadership.replaced is None else 1,
        elapsed=clock.elapsed,
    )
    lag = Lag(clock.elapsed, storage.log_end)
    status = ReplicaStatus(
        config,
        stream,
        store,
        lag,
        clock,
        role,
        local.leadership,
        local.master,
        role_fault=lambda: None if local.election is None else local.election.fault,
        lease_left_ms=lambda: None if local.election is None else local.election.lease_left_ms,
        backups=storage.backups.known,
    )
    standing = Standing(
        lambda: local.settings.now,
        store,
        lambda: [
            *status.troubles(),
            *local.plugins.troubles(),
            *(() if storage.tier is None else storage.tier.troubles()),
        ],
        lambda: oldest_file(local.settings.now.store, store, storage.log_end(), clock.wall_ms()),
    )
    may_act = config.replication.may_act
    acting = _acting(local, servers, storage, service, stream) if may_act and local.is_slave else None
    members = _members(local, servers, storage, acting) if may_act else None
    slave = _slave(local, servers, storage, service, stream, lag, acting) if local.is_slave else None
    succession = Succession(
        config,
        local.given_broker_id,
        local.leadership,
        role,
        local.master,
        store,
        servers.peer,
        local.restart,
        epoch=stream.epoch,
        on_end=partial(standing.look, looks_min=1),
        leave=servers.registration.abandon,
        finish_copies=None if slave is None else slave.finish_copies,
    )
    return Replicas(
        stream=stream,
        role=slave or _master(local, servers, storage, service, stream, members, succession),
        succession=succession,
        status=status,
        standing=standing,
        members=members,
        acting=acting,
    )


def _members(
    local: LocalBroker, servers: Servers, storage: BrokerStorage, acting: ActingMaster | None
) -> Members:
    replication = local.config.replication
    return Members(
        local.identity(),
        servers.name_servers,
        lambda: storage.topics.version,
        interval_seconds=replication.beat_interval_ms / 1_000,
        timeout_seconds=replication.beat_timeout_ms / 1_000,
        on_round=None if acting is None else acting.consider,
        on_forgotten=servers.registration.everything_changed,
    )


def _acting(
    local: LocalBroker, servers: Servers, storage: BrokerStorage, service: ClientService, stream: LogStream
) -> ActingMaster:
    replication, elapsed = local.config.replication, local.clock.elapsed
    duties = None
    if replication.may_escape:
        bridge = EscapeBridge(local.identity(), tuple(servers.name_servers.values()), servers.peer, elapsed)
        duties = ActingDuties(
            service.due,
            service.transactions,
            storage.delay_file,
            bridge,
            storage.offset_file.save,
        )

    def has_log() -> bool:
        master = stream.master()
        return master is not None and master.is_connected

    return ActingMaster(
        replication.broker_id, local.role, duties, has_log, elapsed, service.server.wake_pulls
    )


def _slave(
    local: LocalBroker,
    servers: Servers,
    storage: BrokerStorage,
    service: ClientService,
    stream: LogStream,
    lag: Lag,
    acting: ActingMaster | None,
) -> SlaveRole:
    def master_answers(has_master: bool) -> None:
        local.role.master_answers(has_master)
        if has_master:
            service.server.wake_pulls()
        else:
            servers.registration.everything_changed()

    broker_id = local.config.replication.broker_id
    elected_id = broker_id if local.election and broker_id > 0 else None
    return SlaveRole(
        local.config.name,
        local.leadership,
        local.master,
        servers.peer,
        stream=stream,
        table_copies=(
            TopicCopy(storage.topics, storage.static_topics, service.deletion.delete, slave_id=elected_id),
            GroupCopy(storage.groups, slave_id=elected_id),
            # With a controller, each broker has its own settings.
            *(() if local.election else (PromiseCopy(local.leadership),)),
        ),
        progress_copies=(
            ModeCopy(storage.request_modes),
            ScheduleCopy(storage.schedules, storage.schedule_progress, storage.durable_end),
            OffsetCopy(storage.offsets, storage.durable_end),
            ProgressCopy(storage.delay_file, storage.timer_file, storage.durable_end, lag),
        ),
        acting=acting,
        on_master=master_answers,
        restart=local.restart,
    )


def _master(
    local: LocalBroker,
    servers: Servers,
    storage: BrokerStorage,
    service: ClientService,
    stream: LogStream,
    members: Members | None,
    succession: Succession,
) -> MasterRole:
    async def take_over() -> None:
        assert members is not None, "hand-over requires members"
        # The identity names the port for slaves, which is open now.
        hand_over = HandOver(
            local.identity(), members, servers.peer, lambda: len(stream.slaves()), storage.log_end
        )
        await hand_over.run(storage.offsets, storage.delay_file, storage.timer_file)

    has_hand_over = members is not None and not local.config.replication.skips_hand_over
    return MasterRole(
        local.config,
        local.given_broker_id,
        local.addresses,
        local.leadership,
        stream=stream,
        server=service.server,
        duties=service.duties,
        succession=succession,
        adopt=partial(adopt, storage.topics, storage.store),
        take_over=take_over if has_hand_over else None,
    )
