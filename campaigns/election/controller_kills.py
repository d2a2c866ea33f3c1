"""Masters and controllers killed and paused under load: `make campaign NAME=controller-kills`.

One set of brokers elects its masters through controllers, ours, or Apache's with `--jars`. Each round hits the master,
the leading controller, or both, while senders send through one producer of ours. A round ends when messages are
accepted again and the broker that was hit is back among the replicas in sync, without an operator. In the end every
acknowledged message must be in the log of the last master, and all logs must be equal.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import signal
import statistics
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from campaigns.election import servers
from campaigns.election.senders import Senders
from campaigns.election.servers import BROKER_NAME, Server
from crash.traffic import read_queue
from rmqpy.protocol.requests.controller import GetControllerMetadata, GetSyncStateData, ReplicasInfo
from rmqpy.protocol.requests.leadership import GetBrokerEpochCache
from rmqpy.protocol.requests.topics import UpdateAndCreateTopic
from wire import Peer

TOPIC = "orders"
QUEUES = 4
SENDERS = 16
#: Accepted sends before a round.
SENDS_BEFORE = 200
ACCEPTED_SECONDS_MAX = 60.0
JOINED_SECONDS_MAX = 90.0
LEADER_AWAY_SECONDS = 1.0
_POLL_SECONDS = 0.1


class ElectedSet:
    """The servers of one run."""

    def __init__(
        self, folder: Path, replicas: int, count: int, jars: Path | None, **settings: object
    ) -> None:
        self.controllers = servers.controllers(folder, count, jars)
        self.namesrv = servers.name_server(folder)
        addresses = ";".join(each.address for each in self.controllers)
        self.brokers = [
            servers.broker(folder, number, self.namesrv.address, addresses, **settings)
            for number in range(1, replicas + 1)
        ]

    def start(self, undo: ExitStack) -> None:
        for server in (*self.controllers, self.namesrv):
            undo.callback(server.kill)
            server.start()
        for server in (*self.controllers, self.namesrv):
            server.wait()
        for server in self.brokers:
            undo.callback(server.kill)
            server.start()

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
        for controller in self.controllers:
            answer = await _ask(controller.address, GetControllerMetadata())
            if answer is not None and answer.controller_leader_address:
                return answer.controller_leader_address
        return None

    def leader(self) -> Server:
        """The leading controller."""
        address = _until(lambda: asyncio.run(self._leader()), ACCEPTED_SECONDS_MAX, "no controller leads")
        return next(each for each in self.controllers if each.address == address)

    def master(self) -> Server:
        """The master."""

        def found() -> Server | None:
            state = self.state()
            address = state.master_address if state is not None else None
            return next((each for each in self.brokers if each.address == address), None)

        return _until(found, ACCEPTED_SECONDS_MAX, "there is no master")

    def wait_in_sync(self) -> None:
        """Wait until all brokers are in sync."""

        def is_whole() -> bool:
            state = self.state()
            return state is not None and len(state.in_sync_replicas) == len(self.brokers)

        _until(is_whole, JOINED_SECONDS_MAX, "a replica does not come back")


async def _ask(address: str, ask: object) -> object:
    try:
        async with asyncio.timeout(1.0):
            async with await Peer.connect(address) as peer:
                return await peer.ask(ask)
    except Exception:
        return None


def _until(found: Callable[[], object], seconds: float, reason: str) -> object:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if result := found():
            return result
        time.sleep(_POLL_SECONDS)
    raise AssertionError(reason)


def kill(elected: ElectedSet) -> Callable[[], None]:
    """Kill the master; the returned function starts it again."""
    master = elected.master()
    master.kill()
    return master.start


def stop(elected: ElectedSet) -> Callable[[], None]:
    """Stop the master in order."""
    master = elected.master()
    master.stop()
    return master.start


def pause(elected: ElectedSet) -> Callable[[], None]:
    """Pause the master."""
    master = elected.master()
    master.send(signal.SIGSTOP)
    return lambda: master.send(signal.SIGCONT)


def leader(elected: ElectedSet) -> Callable[[], None]:
    """Kill the leading controller."""
    killed = elected.leader()
    killed.kill()
    time.sleep(LEADER_AWAY_SECONDS)
    return killed.start


def both(elected: ElectedSet) -> Callable[[], None]:
    """Kill the leading controller, and then the master, during the election of a controller."""
    master, killed = elected.master(), elected.leader()
    killed.kill()
    master.kill()

    def back() -> None:
        killed.start()
        master.start()

    return back


FAULTS = {each.__name__: each for each in (kill, stop, pause, leader, both)}


def run(elected: ElectedSet, faults: list[str], rounds: int) -> bool:
    """Run the rounds, print the table; return whether nothing was lost."""
    silences: dict[str, list[float]] = defaultdict(list)
    returns: dict[str, list[float]] = defaultdict(list)
    with ExitStack() as undo:
        elected.start(undo)
        elected.wait_in_sync()
        asyncio.run(_make_topic(elected.master().address))
        with Senders(elected.namesrv.address, TOPIC, SENDERS) as senders:
            for number in range(rounds):
                fault = faults[number % len(faults)]
                senders.wait_for(SENDS_BEFORE, ACCEPTED_SECONDS_MAX)
                began = time.monotonic()
                back = FAULTS[fault](elected)
                senders.wait_for(SENDS_BEFORE, ACCEPTED_SECONDS_MAX)
                accepted = time.monotonic()
                back()
                elected.wait_in_sync()
                joined = time.monotonic()
                senders.wait_for(SENDS_BEFORE, ACCEPTED_SECONDS_MAX)
                silence = senders.silence(began, time.monotonic())
                silences[fault].append(silence)
                returns[fault].append(joined - accepted)
                print(
                    f"round {number + 1}: {fault}: {silence:.2f} s without an accepted send, back in sync after "
                    f"{joined - accepted:.1f} s",
                    flush=True,
                )
        lost, repeats, total = _audit(elected, senders.acknowledged)
        is_equal = _until(lambda: asyncio.run(_are_equal(elected)), JOINED_SECONDS_MAX, "the logs differ")
    for fault, found in silences.items():
        found.sort()
        high = found[min(len(found) - 1, int(len(found) * 0.99))]
        middle, late = statistics.median(found), returns[fault]
        print(
            f"{fault}: {len(found)} rounds; seconds without an accepted send: median {middle:.2f}, p99 {high:.2f}, max "
            f"{found[-1]:.2f}; back in sync: median {statistics.median(late):.1f}, max {max(late):.1f}"
        )
    kinds = Counter(each.split()[1] for each in senders.failures)
    print(
        f"{len(senders.acknowledged)} acknowledged, {lost} lost, {repeats} repeated, {total} stored; failed sends: "
        f"{dict(kinds)}; logs equal: {bool(is_equal)}"
    )
    return not lost


async def _make_topic(address: str) -> None:
    async with await Peer.connect(address) as peer:
        ask = UpdateAndCreateTopic(
            topic=TOPIC, default_topic="TBW102", read_queue_nums=QUEUES, write_queue_nums=QUEUES, perm=6
        )
        await peer.ask(ask)


def _audit(elected: ElectedSet, acknowledged: list[bytes]) -> tuple[int, int, int]:
    async def read(address: str) -> list[bytes]:
        async with await Peer.connect(address) as peer:
            return [body for queue in range(QUEUES) for body in await read_queue(peer, TOPIC, queue)]

    stored = Counter(asyncio.run(read(elected.master().address)))
    lost = [body for body in acknowledged if body not in stored]
    for body in lost[:10]:
        print(f"lost: {body!r}")
    return len(lost), sum(count - 1 for count in stored.values()), sum(stored.values())


async def _are_equal(elected: ElectedSet) -> bool:
    """Whether all logs have one end, and one digest before it."""
    states = []
    for server in elected.brokers:
        async with await Peer.connect(server.address) as peer:
            cache = (await peer.ask(GetBrokerEpochCache())).body
            begin = max(cache.min_offset or 0, cache.max_offset - (1 << 20))
            answer = await peer.ask(GetBrokerEpochCache(digest_begin=begin, digest_end=cache.max_offset))
            epochs = [(each.epoch, each.start_offset) for each in cache.epoch_list]
            states.append((cache.max_offset, answer.digest, epochs))
    return all(state == states[0] for state in states)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--faults", default=",".join(FAULTS))
    parser.add_argument("--replicas", type=int, default=3)
    parser.add_argument("--controllers", type=int, default=3)
    parser.add_argument(
        "--jars", type=Path, help="the folder of Apache's server: its controllers instead of ours"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--dead-after", type=int, default=3_000, help="controllerHeartBeatTimeoutMills")
    given = parser.parse_args()
    random.seed(given.seed)
    with tempfile.TemporaryDirectory(prefix="rmqpy-election-") as name:
        settings = {"controllerHeartBeatTimeoutMills": given.dead_after}
        elected = ElectedSet(Path(name), given.replicas, given.controllers, given.jars, **settings)
        try:
            is_whole = run(elected, given.faults.split(","), given.rounds)
        except BaseException:
            for server in (*elected.brokers, *elected.controllers):
                print(f"---- {server.name}")
                print(server.log.read_text(errors="replace")[-12_000:] if server.log.exists() else "no log")
            raise
    raise SystemExit(not is_whole)


if __name__ == "__main__":
    main()
