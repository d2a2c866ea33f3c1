"""Other servers: the connections to name servers and brokers, and the registration of this broker."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterable
from typing import Final

from rmqpy.control.registration import Registration, unregister
from rmqpy.control.startup.local import LocalBroker
from rmqpy.control.topics.static_topics import StaticTopics
from rmqpy.control.topics.table import Topics
from rmqpy.remoting.client import LoopCaller
from rmqpy.remoting.listener import Listener

#: The longest wait for name servers at the start; a broker also serves without them.
FIRST_ROUND_SECONDS: Final = 3.0


class Servers:
    """The name servers and other brokers of one start."""

    def __init__(self, local: LocalBroker, caller: LoopCaller) -> None:
        config = local.config
        self._local = local
        self._client = caller.client
        self.peer = caller.peer
        self.name_servers = {address: caller.peer(address) for address in config.name_servers}
        self.registration = Registration(
            local.identity,
            self.name_servers,
            permission=lambda: local.settings.now.permission,
            interval_seconds=config.register_interval_ms / 1_000,
            timeout_seconds=config.register_timeout_ms / 1_000,
            on_answer=local.role.registered,
            state_version=local.leadership.state_version,
        )

    async def register(
        self,
        topics: Topics,
        static: StaticTopics,
        ended: Iterable[str],
        undo: contextlib.AsyncExitStack,
    ) -> None:
        """Register, and unregister the replaced masters: those in `ended`, and one that was not notified yet."""
        replaced, registration = self._local.replaced, self.registration
        undo.push_async_callback(registration.stop)
        ends = Listener(self._client, (), registration.lost)
        undo.callback(ends.close)
        ends.start()
        for address in {*ended, *([replaced] if replaced else ())}:
            before = dataclasses.replace(self._local.identity(), address=address)
            await unregister(before, self.name_servers.values())
        registration.start(topics, static)
        await registration.first_round(FIRST_ROUND_SECONDS)
