"""Brokers with what they count and how they are set, and the clients that are connected to them."""

from collections.abc import Mapping
from typing import NamedTuple

from rmqpy.admin.client import AsyncAdmin
from rmqpy.admin.cluster import BrokerState, ClientState
from rmqpy.admin.replicas import ReplicaState
from rmqpy.console.endpoints import change, rows, value


class BrokerDetail(NamedTuple):
    """One broker."""

    runtime: Mapping[str, str]
    settings: Mapping[str, str]


@rows("/clients", sort="group")
async def clients(admin: AsyncAdmin, group: str | None = None) -> list[ClientState]:
    """Connected producers and consumers, once for each group they are in."""
    return await admin.clients(group)


@rows("/brokers", sort="broker")
async def brokers(admin: AsyncAdmin) -> list[BrokerState]:
    """Every registered broker, also one that does not answer."""
    return await admin.brokers()


@value("/brokers/{broker}")
async def broker(admin: AsyncAdmin, broker: str) -> BrokerDetail:
    """What one broker counts, by RocketMQ's names, and its settings. Values of secret settings are left out."""
    return BrokerDetail(
        await admin.broker_runtime(broker),
        {name: _shown(name, text) for name, text in (await admin.broker_config(broker)).items()},
    )


@change("POST", "/brokers/{broker}/settings")
async def update_settings(admin: AsyncAdmin, broker: str, settings: dict[str, str]) -> None:
    """Change settings of a running broker; it refuses those that only its file may hold."""
    await admin.update_broker_config(broker, settings)


@rows("/replicas", sort="broker")
async def replicas(admin: AsyncAdmin) -> list[ReplicaState]:
    """Masters and slaves: how far each slave is behind in bytes and seconds, and whether it is in sync."""
    return await admin.replicas()


def _shown(name: str, text: str) -> str:
    is_secret = any(word in name.lower() for word in ("password", "secret", "credential", "token"))
    return "(not shown)" if is_secret and text else text
