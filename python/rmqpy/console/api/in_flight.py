"""Endpoints for popped messages in flight: list those of a group, make one visible."""

from rmqpy.admin.client import AsyncAdmin
from rmqpy.admin.connection import note_missing
from rmqpy.admin.in_flight import InFlightMessages
from rmqpy.console.endpoints import change, value


@value("/groups/{group}/in-flight")
async def in_flight(admin: AsyncAdmin, group: str) -> InFlightMessages:
    """List the messages that members of a group have received one by one and not acknowledged."""
    # The page of the group names unreachable brokers.
    note_missing()
    return await admin.in_flight(group)


@change("POST", "/groups/{group}/in-flight/visible")
async def show_now(admin: AsyncAdmin, group: str, topic: str, handle: str) -> None:
    """Make a message in flight visible now."""
    await admin.show_now(group, topic, handle)
