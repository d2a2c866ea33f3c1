"""Replicas: the log on its way to slaves or from a master, changes of the leadership, and, where the configuration has
it, the brokers of this name and acting for a master that is gone. Nothing of it runs before `master` or `slave` begins.
"""

from __future__ import annotations

from typing import NamedTuple

from rmqpy.control.replicas.acting import ActingMaster
from rmqpy.control.replicas.acting_duties import ActingDuties
from rmqpy.control.replicas.escape_bridge import EscapeBridge
from rmqpy.control.replicas.lag import Lag
from rmqpy.control.replicas.log_stream import LogStream
from rmqpy.control.replicas.members import Members
from rmqpy.control.replicas.status import ReplicaStatus
from rmqpy.control.replicas.succession import Succession
from rmqpy.control.standing import Standing
from rmqpy.control.startup.context import StartContext
from rmqpy.control.startup.recovery import Recovered
from rmqpy.control.startup.services import Services


class Replicas(NamedTuple):
    """This broker among the others of its name."""

    stream: LogStream
    succession: Succession
    lag: Lag
    status: ReplicaStatus
    standing: Standing
    #: Where a slave may act for its master.
    members: Members | None
    #: Of a slave that may.
    acting: ActingMaster | None


def make_replicas(context: StartContext, recovered: Recovered, services: Services) -> Replicas:
    """Build them."""
    config, clock, role, store = context.config, context.clock, recovered.role, recovered.store
    stream = LogStream(config.replication, store, context.certificates, needs_ticket=config.access.is_on)
    succession = Succession(
        config,
        context.given_broker_id,
        context.leadership,
        role,
        context.master,
        store,
        context.peer,
        context.restart,
    )
    succession.epoch = stream.epoch
    stream.slaves_min = 0 if context.leadership.replaced is None else 1
    lag = Lag(clock.elapsed, recovered.log_end)
    members = _members(context, recovered) if config.replication.may_act else None
    status = ReplicaStatus(config, stream, store, lag, clock, role, context.leadership, context.master)
    standing = Standing(config, store, status.troubles)
    succession.on_end = lambda: standing.look(looks_min=1)
    return Replicas(
        stream=stream,
        succession=succession,
        lag=lag,
        status=status,
        standing=standing,
        members=members,
        acting=_acting(context, recovered, services, stream, members)
        if members is not None and context.is_slave
        else None,
    )


def _members(context: StartContext, recovered: Recovered) -> Members:
    replication = context.config.replication
    return Members(
        context.identity(),
        context.name_servers,
        lambda: recovered.topics.version,
        interval_seconds=replication.beat_interval_ms / 1_000,
        timeout_seconds=replication.beat_timeout_ms / 1_000,
    )


def _acting(
    context: StartContext, recovered: Recovered, services: Services, stream: LogStream, members: Members
) -> ActingMaster:
    """What this slave does while its master is gone."""
    replication, elapsed = context.config.replication, context.clock.elapsed
    duties = None
    if replication.may_escape:
        bridge = EscapeBridge(context.identity(), tuple(context.name_servers.values()), context.peer, elapsed)
        duties = ActingDuties(
            services.due,
            services.transactions,
            recovered.delay_file,
            bridge,
            recovered.offset_file.save,
        )

    def has_log() -> bool:
        master = stream.master()
        return master is not None and master[1]

    acting = ActingMaster(replication.broker_id, recovered.role, duties, has_log, elapsed)
    members.on_round = lambda: acting.consider(members.now)
    return acting
