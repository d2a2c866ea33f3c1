"""Registration at the start: name servers are told, and from now on whenever something changes."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Final

from rmqpy.config.broker import BrokerConfig
from rmqpy.control.registration import Registration, unregister
from rmqpy.control.startup.context import StartContext
from rmqpy.control.startup.recovery import Recovered, set_rules
from rmqpy.control.startup.replicas import Replicas
from rmqpy.control.store.retention import retain
from rmqpy.remoting.listener import Listener

#: Bound of a start's wait for its name servers; a broker serves without them.
FIRST_ROUND_SECONDS: Final = 3.0


async def register(
    context: StartContext, recovered: Recovered, replicas: Replicas, ended: Iterable[str]
) -> Registration:
    """Register, in the place of masters whose time has `ended` and of one that is still to be told; show signs of life
    where members are asked for."""
    config, name_servers = context.config, context.name_servers
    registration = Registration(
        context.identity(),
        recovered.topics,
        name_servers,
        permission=lambda: context.settings.now.permission,
        interval_seconds=config.register_interval_ms / 1_000,
        timeout_seconds=config.register_timeout_ms / 1_000,
        on_answer=recovered.role.registered,
    )
    recovered.topics.on_change = registration.changed
    recovered.role.on_loss = registration.everything_changed
    _follow_settings(context, recovered, registration)
    recovered.topics.on_remove = registration.removed
    context.undo.push_async_callback(registration.stop)
    ends = Listener(context.client, (), registration.lost)
    context.undo.callback(ends.close)
    ends.start()
    replicas.succession.leave = registration.abandon
    for address in {*ended, *([context.replaced] if context.replaced else ())}:
        before = dataclasses.replace(context.identity(), address=address)
        await unregister(before, name_servers.values())
    registration.start()
    await registration.first_round(FIRST_ROUND_SECONDS)
    if replicas.members is not None:
        replicas.members.on_forgotten = registration.everything_changed
        context.undo.push_async_callback(replicas.members.stop)
        replicas.members.start()
    return registration


def _follow_settings(context: StartContext, recovered: Recovered, registration: Registration) -> None:
    """Settings that are changed online hold in the native half and at the name servers."""

    def changed(before: BrokerConfig, after: BrokerConfig) -> None:
        retain(recovered.store, after.store, context.clock)
        set_rules(recovered.metadata, after)
        if before.permission != after.permission:
            recovered.metadata.set_permission(after.permission)
            recovered.topics.touch()
            registration.everything_changed()

    context.settings.on_change = changed
