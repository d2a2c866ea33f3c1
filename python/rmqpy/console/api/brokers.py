"""Endpoints for brokers, their counters and settings, and connected clients."""

from collections.abc import Mapping
from typing import NamedTuple

from rmqpy.admin.client import AsyncAdmin
from rmqpy.admin.cluster import BrokerState, ClientState
from rmqpy.admin.replicas import ReplicaState
from rmqpy.config.broker import needs_restart
from rmqpy.console.endpoints import change, rows, value


class BrokerDetail(NamedTuple):
    """One broker."""

    runtime: Mapping[str, str]
    settings: Mapping[str, str]
    #: The settings that only its file may change, for its next start.
    fixed: list[str]


@rows("/clients", sort="group")
async def clients(admin: AsyncAdmin, group: str | None = None) -> list[ClientState]:
    """List connected producers and consumers, once for each of their groups."""
    return await admin.clients(group)


@rows("/brokers", sort="broker")
async def brokers(admin: AsyncAdmin) -> list[BrokerState]:
    """List every registered broker, including those that do not answer, and those that left within a day."""
    return await admin.brokers(with_gone=True)


@value("/brokers/{broker}")
async def broker(admin: AsyncAdmin, broker: str) -> BrokerDetail:
    """Return one broker's counters, by RocketMQ's names, and its settings without secrets."""
    runtime, settings = await admin.broker_runtime(broker), await admin.broker_config(broker)
    shown = {name: _shown(name, text) for name, text in settings.items()}
    return BrokerDetail(runtime, shown, needs_restart(settings))


@change("POST", "/brokers/{broker}/settings")
async def update_settings(admin: AsyncAdmin, broker: str, settings: dict[str, str]) -> None:
    """Change settings of a running broker, except those that only its file may contain."""
    await admin.update_broker_config(broker, settings)


@rows("/replicas", sort="broker")
async def replicas(admin: AsyncAdmin) -> list[ReplicaState]:
    """List masters and slaves: lag of each slave in bytes and seconds, and whether it is in sync."""
    return await admin.replicas()


def _shown(name: str, text: str) -> str:
    is_secret = any(word in name.lower() for word in ("password", "secret", "credential", "token"))
    return "(not shown)" if is_secret and text else text
