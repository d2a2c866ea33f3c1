"""Endpoint for elections: controllers, and the replicas of the sets they elect masters for."""

from typing import NamedTuple

from rmqpy.admin.client import AsyncAdmin
from rmqpy.admin.connection import Missing, note_missing
from rmqpy.admin.elections import ControllerState, ElectedReplica
from rmqpy.console.endpoints import value


class Elections(NamedTuple):
    """The elections of the cluster."""

    controllers: list[ControllerState]
    replicas: list[ElectedReplica]
    #: Broker sets in controller mode that no controller reports.
    unknown: list[str]
    #: Unreachable brokers, whose settings may name other controllers.
    missing: list[Missing]


@value("/elections")
async def elections(admin: AsyncAdmin) -> Elections:
    """Return controllers, and for each replica its role, epoch, whether it is in sync, and the rest of its lease."""
    missing = note_missing()
    found = await admin.elections()
    return Elections(*found, list({each.broker: each for each in missing}.values()))
