"""Elected set: a name server, controllers, and the brokers of one set, which elect their master."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import MappingProxyType
from typing import TypeVar

from benchmarks.processes import free_ports
from campaigns.election import servers
from campaigns.election.machines import HOST, Network
from campaigns.election.servers import BROKER_NAME, Place, Server
from crash.traffic import read_queue
from rmqpy.protocol.declare import Request
from rmqpy.protocol.requests.controller import GetControllerMetadata, GetSyncStateData, ReplicasInfo
from rmqpy.protocol.requests.leadership import GetBrokerEpochCache
from rmqpy.protocol.requests.topics import UpdateAndCreateTopic
from wire import Peer

R = TypeVar("R")

ACCEPTED_SECONDS_MAX = 60.0
JOINED_SECONDS_MAX = 90.0
#: The part of the logs that is compared, at their end.
COMPARED_BYTES = 1 << 20
_ANSWER_SECONDS = 1.0
_POLL_SECONDS = 0.05


class ElectedSet:
    """The servers of one run."""

    def __init__(
        self,
        folder: Path,
        replicas: int,
        count: int = 1,
        jars: Path | None = None,
        *,
        is_embedded: bool = False,
        is_jraft: bool = False,
        network: Network | None = None,
        stores: Sequence[Path] = (),
        controller_settings: Mapping[str, object] = MappingProxyType({}),
        **settings: object,
    ) -> None:
        """`count` is the number of controllers, which are Apache's with its `jars`, of the kind jRaft with `is_jraft`.
        With `is_embedded` there is one, in the name server. With a `network` each of its machines has a broker and a
        controller. The brokers have the `settings`, and keep their messages in `stores`."""
        machines = [] if network is None else network.machines
        host = Place() if network is None else HOST
        if is_embedded:
            port = free_ports(1)
            self.namesrv = servers.name_server(folder, controller_port=port)
            self.controllers = [self.namesrv]
            self.controller_addresses = [f"127.0.0.1:{port}"]
        else:
            self.namesrv = servers.name_server(folder, place=host)
            if is_jraft:
                assert jars is not None, "only Apache's controllers have this kind"
                self.controllers = servers.jraft_controllers(folder, count, jars, **controller_settings)
            else:
                self.controllers = servers.controllers(
                    folder, count, jars, [each.controller for each in machines], **controller_settings
                )
            self.controller_addresses = [each.address for each in self.controllers]
        self.brokers = [
            servers.broker(
                folder,
                number + 1,
                self.namesrv.address,
                ";".join(self.controller_addresses),
                machines[number].broker if machines else Place(),
                store=stores[number] if stores else None,
                **settings,
            )
            for number in range(replicas)
        ]

    def start(self, undo: ExitStack, *, leader_first: bool = False) -> None:
        """Start the servers; `undo` kills them. With `leader_first` one broker leads before the others start."""
        first = dict.fromkeys((*self.controllers, self.namesrv))
        for server in first:
            undo.callback(server.kill)
            server.start()
        for server in first:
            server.wait()
        for server in self.brokers:
            undo.callback(server.kill)
            server.start()
            if leader_first:
                self.master()

    def state(self) -> ReplicasInfo | None:
        """The set, as a controller reports it; `None` while none answers."""
        return asyncio.run(self._state())

    async def _state(self) -> ReplicasInfo | None:
        leader = await self._leader()
        if leader is None:
            return None
        answer = await _ask(leader, GetSyncStateData(body=[BROKER_NAME]))
        if answer is None or answer.body is None:
            return None
        return answer.body.replicas_info_table.get(BROKER_NAME)

    async def _leader(self) -> str | None:
        # The others name a lost leader until they notice.
        for address in self.controller_addresses:
            answer = await _ask(address, GetControllerMetadata())
            if answer is not None and answer.is_leader:
                return address
        return None

    def leader(self) -> Server:
        """The leading controller."""
        address = until(lambda: asyncio.run(self._leader()), ACCEPTED_SECONDS_MAX, "no controller leads")
        return self.controllers[self.controller_addresses.index(address)]

    def master(self) -> Server:
        """The master."""

        def found() -> Server | None:
            state = self.state()
            address = state.master_address if state is not None else None
            return next((each for each in self.brokers if each.address == address), None)

        return until(found, ACCEPTED_SECONDS_MAX, "there is no master")

    def in_sync(self) -> set[str]:
        """The addresses of the brokers in sync."""
        state = self.state()
        return set() if state is None else {each.broker_address for each in state.in_sync_replicas}

    def wait_in_sync(self) -> None:
        """Wait until all brokers are in sync."""
        everyone = {each.address for each in self.brokers}
        until(lambda: self.in_sync() == everyone, JOINED_SECONDS_MAX, "a replica does not come back")

    def make_topic(self, topic: str, queues: int) -> None:
        """Create a topic at the master."""
        ask = UpdateAndCreateTopic(
            topic=topic, default_topic="TBW102", read_queue_nums=queues, write_queue_nums=queues, perm=6
        )
        address = self.master().address

        async def make() -> None:
            async with await Peer.connect(address) as peer:
                await peer.ask(ask)

        asyncio.run(make())

    def stored(self, topic: str, queues: int) -> Counter[bytes]:
        """The bodies that the master has."""
        address = self.master().address

        async def read() -> list[bytes]:
            async with await Peer.connect(address) as peer:
                return [body for queue in range(queues) for body in await read_queue(peer, topic, queue)]

        return Counter(asyncio.run(read()))

    def wait_equal(self) -> None:
        """Wait until the logs of all brokers have the same end, epochs and bytes."""
        until(lambda: asyncio.run(self._are_equal()), JOINED_SECONDS_MAX, "the logs differ")

    async def _are_equal(self) -> bool:
        states = []
        for server in self.brokers:
            async with await Peer.connect(server.address) as peer:
                cache = (await peer.ask(GetBrokerEpochCache())).body
                begin = max(cache.min_offset or 0, cache.max_offset - COMPARED_BYTES)
                answer = await peer.ask(GetBrokerEpochCache(digest_begin=begin, digest_end=cache.max_offset))
                epochs = [(each.epoch, each.start_offset) for each in cache.epoch_list]
                states.append((cache.max_offset, answer.digest, epochs))
        return all(state == states[0] for state in states)


async def _ask(address: str, ask: Request[R]) -> R | None:
    try:
        async with asyncio.timeout(_ANSWER_SECONDS):
            async with await Peer.connect(address) as peer:
                return await peer.ask(ask)
    except Exception:
        return None


def until(found: Callable[[], R | None], seconds: float, reason: str) -> R:
    """Wait for a true result; `reason` says what is missing."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if result := found():
            return result
        time.sleep(_POLL_SECONDS)
    raise AssertionError(reason)
