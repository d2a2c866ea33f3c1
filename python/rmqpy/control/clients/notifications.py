"""Notifications to members that their group changed, so that they rebalance. Threads: the event loop's."""

from __future__ import annotations

from collections.abc import Collection

from rmqpy._native import Server
from rmqpy.control.groups.table import Groups
from rmqpy.control.settings import LiveConfig
from rmqpy.protocol.declare import encode
from rmqpy.protocol.requests.clients import NotifyConsumerIdsChanged


class ClientNotifications:
    """One-way notifications of members. A closed connection needs none."""

    def __init__(self, config: LiveConfig, groups: Groups, server: Server) -> None:
        self._config = config
        self._groups = groups
        self._server = server

    def group_changed(self, group_name: str, connections: Collection[int]) -> None:
        """Notify these members, unless the broker or the group disables it."""
        group = self._groups.get(group_name)
        is_wanted = group is None or group.notify_consumer_ids_changed_enable
        if not (self._config.now.notifies_members and is_wanted):
            return
        ask = NotifyConsumerIdsChanged(consumer_group=group_name)
        ext = encode(ask).ext or {}
        for connection in connections:
            self._server.push(connection, ask.code, ext)
