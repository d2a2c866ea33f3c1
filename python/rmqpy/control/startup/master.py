"""The start as a master: wait for slaves, take over from the one that acted meanwhile, deliver.

Invariants: requests are taken once open transactions are known, and nothing is delivered before it is known how far a
slave has delivered.
"""

from __future__ import annotations

from rmqpy._native import Server
from rmqpy.control.periodic import PeriodicTasks
from rmqpy.control.replicas.hand_over import HandOver
from rmqpy.control.startup.context import StartContext
from rmqpy.control.startup.recovery import Recovered
from rmqpy.control.startup.replicas import Replicas
from rmqpy.control.startup.services import Services
from rmqpy.control.topics.adoption import adopt
from rmqpy.protocol.requests.leadership import next_epoch
from rmqpy.protocol.requests.routes import MASTER_ID
from rmqpy.remoting.endpoint import Endpoint


async def start_as_master(
    context: StartContext,
    recovered: Recovered,
    services: Services,
    replicas: Replicas,
    endpoint: Endpoint,
    periodic: PeriodicTasks,
) -> None:
    """Lead, begin to take requests, deliver.

    Raises `AddressError` for a port in use, `StoreError`.
    """
    leadership = context.leadership
    # It takes over from another master, now and not at an earlier start.
    if leadership.has_followed or (leadership.epoch or 0) > replicas.stream.epoch():
        await adopt(recovered.topics, recovered.store)
    await _listen(context, replicas, services.server)
    if replicas.members is not None and not context.config.replication.skips_hand_over:
        hand_over = HandOver(
            context.identity(),
            replicas.members,
            context.peer,
            lambda: len(replicas.stream.slaves()),
            recovered.log_end,
        )
        await hand_over.run(recovered.offsets, recovered.delay_file, recovered.timer_file)
    await services.duties.recover()
    endpoint.start()
    await services.duties.deliver()
    services.duties.repeat(context.config, periodic)
    replicas.succession.start(str(context.addresses))


async def _listen(context: StartContext, replicas: Replicas, server: Server) -> None:
    """Wait for slaves, in the epoch that this broker leads."""
    leadership, stream, addresses = context.leadership, replicas.stream, context.addresses
    chosen = context.config.replication.listen_port
    addresses.replica_port = stream.listen(
        chosen or addresses.port + 1,
        takes_any_port=not chosen,
        broker_id=context.given_broker_id,
        epoch=next_epoch(stream.epoch(), MASTER_ID) if leadership.has_followed else leadership.epoch,
        server=server,
    )
    await leadership.lead()
