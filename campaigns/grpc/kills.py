"""Broker and proxy, killed under the load of 5.x clients: `make campaign NAME=grpc-kills`, KILLS (100).

Goal: no acknowledged message is lost, and clients go on without help. Method: two Python producers and a simple
consumer at the gRPC port of the broker, as many at `rmqpy proxy`, and a Java push consumer at the proxy. Broker and
proxy get SIGKILL in a random order and are started again at the same ports; the next kill waits until sends are
accepted again at either port. Clients are never restarted. In the end both groups must have received every
acknowledged message.
"""

import argparse
import json
import random
import shutil
import socket
import statistics
import sys
import tempfile
import threading
import time
from bisect import bisect
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import rmqpy
from benchmarks.processes import Child, free_ports
from benchmarks.waiting import until
from interop import servers, wire
from interop.servers import SMALL_JVM
from interop.toolchain import grpc_client

TOPIC, SIMPLE, PUSH = "kills", "simple", "push"
PORTS = ("broker", "proxy")
#: Seconds for a server to start, for clients to go on, and for the rest of the messages after the last kill.
START_S, GO_ON_S, DRAIN_S = 30.0, 120.0, 300.0
#: Pause between the first accepted sends after a kill and the next kill, in seconds.
REST_S = (0.3, 1.5)
#: The longest time of an answer after the kill of its server.
IN_FLIGHT_S = 0.2


@dataclass
class Client:
    """A client process and the part of its output that was read."""

    child: Child
    port: str
    output: Path
    _read: int = 0

    def lines(self) -> Iterator[tuple[str, float, str]]:
        """Word, time and text of each new line."""
        with self.output.open("rb") as output:
            output.seek(self._read)
            for line in output:
                if not line.endswith(b"\n"):
                    break
                self._read += len(line)
                yield from _parsed(line.decode(errors="replace"))


def _parsed(line: str) -> Iterator[tuple[str, float, str]]:
    """A line of `campaigns.grpc.clients`, or of a Java scenario."""
    if line.startswith("{"):
        with suppress(ValueError):
            seen = json.loads(line)
            if "got" in seen:
                yield "got", time.time(), seen["got"]
            elif "ready" in seen:
                yield "ready", time.time(), ""
        return
    word, _, rest = line.partition(" ")
    if word in ("ready", "sent", "failed", "got"):
        at, _, text = rest.strip().partition(" ")
        yield word, float(at), text


@dataclass
class Ledger:
    """What clients were answered."""

    #: Times of accepted sends, and the latest one, by port.
    latest: dict[str, float] = field(default_factory=lambda: dict.fromkeys(PORTS, 0.0))
    accepted: dict[str, list[float]] = field(default_factory=lambda: {port: [] for port in PORTS})
    sent: set[str] = field(default_factory=set)
    #: Deliveries of each body, by group.
    got: dict[str, Counter[str]] = field(default_factory=lambda: {SIMPLE: Counter(), PUSH: Counter()})
    failed: Counter[str] = field(default_factory=Counter)
    ready: set[str] = field(default_factory=set)


class Servers:
    """The name server, which lives, and broker and proxy, which are killed."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self._folder, self._stack = folder, stack
        self.namesrv, _ = stack.enter_context(servers.rmqpy_name_server(folder))
        self.addresses = {port: f"127.0.0.1:{free_ports(1)}" for port in PORTS}
        home = folder / "broker"
        home.mkdir()
        grpc = self.addresses["broker"].rpartition(":")[2]
        servers.write_broker_conf(
            home / "broker.conf", servers.broker_port(), self.namesrv, grpcServerPort=grpc
        )
        grpc = self.addresses["proxy"].rpartition(":")[2]
        proxy = ["proxy", "-n", self.namesrv, f"grpcServerPort={grpc}", "httpPort=-1"]
        self._commands = {
            "broker": servers.rmqpy_broker_command(),
            "proxy": [sys.executable, "-m", "rmqpy", *proxy],
        }
        self._running: dict[str, Child] = {}
        self._starts = 0

    def start(self, name: str) -> None:
        """Start one of them, and wait until it listens."""
        self._starts += 1
        child = Child(f"{name}-{self._starts}", self._commands[name], self._folder / "broker")
        self._stack.callback(child.kill)
        self._running[name] = child
        child.wait_until(lambda: _accepts(self.addresses[name]), START_S)

    def kill(self, name: str) -> float:
        """SIGKILL; return its time."""
        at = time.time()
        self._running[name].kill()
        return at


def _accepts(address: str) -> bool:
    host, _, port = address.rpartition(":")
    with suppress(OSError), socket.create_connection((host, int(port)), timeout=1):
        return True
    return False


def _copy(child: Child, output: Path) -> None:
    """Copy the output of a client with pipes to a file."""
    with output.open("ab", buffering=0) as file:
        for line in child.stdout:
            file.write(line)


class Campaign:
    """The clients, and what they were answered."""

    def __init__(self, folder: Path, servers: Servers, stack: ExitStack, java: Path) -> None:
        self.ledger = Ledger()
        self._clients: dict[str, Client] = {}
        for port, address in servers.addresses.items():
            for number in (1, 2):
                self._start(folder, stack, f"{port}-{number}", port, "produce", address)
            self._start(folder, stack, f"{port}-consumer", port, "consume", address)
        classes = f"{java / 'classes'}:{java / 'lib'}/*"
        command = [
            "java",
            *SMALL_JVM,
            "-Xmx128m",
            f"-Duser.home={folder}",
            "-cp",
            classes,
            "interop.Scenarios",
        ]
        command += ["push", servers.addresses["proxy"], TOPIC, PUSH]
        # The scenario ends with its input.
        child = Child("push", command, folder, is_piped=True)
        stack.callback(child.kill)
        output = folder / "push.out"
        output.touch()
        threading.Thread(target=_copy, args=(child, output), daemon=True).start()
        self._clients["push"] = Client(child, "proxy", output)

    def _start(self, folder: Path, stack: ExitStack, name: str, port: str, work: str, address: str) -> None:
        given = name if work == "produce" else SIMPLE
        command = [sys.executable, str(Path(__file__).with_name("clients.py")), work, address, TOPIC, given]
        child = Child(name, command, folder)
        stack.callback(child.kill)
        self._clients[name] = Client(child, port, child.log)

    def read(self) -> Ledger:
        """Read what is new."""
        for name, client in self._clients.items():
            for word, at, text in client.lines():
                if word == "sent":
                    self.ledger.accepted[client.port].append(at)
                    self.ledger.latest[client.port] = max(at, self.ledger.latest[client.port])
                    self.ledger.sent.add(text)
                elif word == "got":
                    self.ledger.got[PUSH if name == "push" else SIMPLE][text] += 1
                elif word == "failed":
                    self.ledger.failed[name] += 1
                else:
                    self.ledger.ready.add(name)
        return self.ledger

    def wait_for_all(self) -> None:
        """Wait until every client is connected and every port accepts."""
        until(lambda: len(self.read().ready) == len(self._clients), START_S * 2)
        self.wait_for_sends(time.time())

    def wait_for_sends(self, since: float) -> None:
        """Wait until both ports have accepted a send after this time."""

        until(lambda: min(self.read().latest.values()) > since, GO_ON_S, pause=0.05)

    def stop_producers(self) -> None:
        for name, client in self._clients.items():
            if name.removeprefix(f"{client.port}-").isdecimal():
                client.child.kill()

    def missing(self, group: str) -> set[str]:
        """Acknowledged messages that a group has not received."""
        return self.ledger.sent - self.ledger.got[group].keys()


def pauses(kills: Sequence[float], accepted: Sequence[float]) -> list[float]:
    """The longest time without an accepted send around each kill, in seconds."""
    times = sorted(accepted)
    found = []
    for at in kills:
        # An answer may have been in flight when its server was killed.
        first, last = bisect(times, at) - 1, bisect(times, at + IN_FLIGHT_S)
        found.append(max(after - before for before, after in pairwise(times[max(first, 0) : last + 1])))
    return found


def run(folder: Path, count: int, seed: int) -> bool:
    """Kill, and report; return whether nothing was lost."""
    chance, began = random.Random(seed), time.monotonic()
    kills: list[tuple[float, str]] = []
    java = grpc_client("java")
    with ExitStack() as stack:
        running = Servers(folder, stack)
        running.start("broker")
        until(lambda: wire.knows(running.namesrv, servers.BROKER_NAME), START_S)
        with rmqpy.Admin(running.namesrv) as admin:
            admin.create_topic(TOPIC, write_queues=4, read_queues=4)
            for group in (SIMPLE, PUSH):
                admin.create_group(group)
        for group in (SIMPLE, PUSH):
            # The offsets of the group begin at the first message, whenever its members come.
            with rmqpy.SimpleConsumer(group, running.namesrv, start_from="earliest") as first:
                first.subscribe(TOPIC)
                first.receive(wait=0.1)
        running.start("proxy")
        campaign = Campaign(folder, running, stack, java)
        campaign.wait_for_all()
        for number in range(count):
            time.sleep(chance.uniform(*REST_S))
            victim = chance.choice(PORTS)
            kills.append((running.kill(victim), victim))
            running.start(victim)
            campaign.wait_for_sends(time.time())
            if number % 10 == 9:
                ledger = campaign.read()
                print(
                    f"{number + 1} kills, {len(ledger.sent):,} sent, {time.monotonic() - began:.0f} s",
                    flush=True,
                )
        campaign.stop_producers()
        with suppress(TimeoutError, AssertionError):
            until(
                lambda: campaign.read() is not None and not any(map(campaign.missing, (SIMPLE, PUSH))),
                DRAIN_S,
            )
        return report(campaign, kills, time.monotonic() - began)


def report(campaign: Campaign, kills: Sequence[tuple[float, str]], seconds: float) -> bool:
    """Print the result; return whether nothing was lost."""
    ledger = campaign.read()
    counted = Counter(name for _, name in kills)
    print(f"{counted['broker']} kills of the broker, {counted['proxy']} of the proxy, in {seconds:.0f} s")
    print(f"{len(ledger.sent):,} messages acknowledged")
    print(f"{sum(ledger.failed.values()):,} calls failed: {dict(ledger.failed)}")
    for group, got in ledger.got.items():
        repeats = sum(got.values()) - len(got)
        unacknowledged = len(got.keys() - ledger.sent)
        print(
            f"group {group}: {len(campaign.missing(group))} lost, {repeats:,} repeats, "
            f"{unacknowledged:,} received whose send was not acknowledged"
        )
    for victim, port in (("broker", "broker"), ("broker", "proxy"), ("proxy", "proxy")):
        if times := [at for at, name in kills if name == victim]:
            found = pauses(times, ledger.accepted[port])
            print(
                f"kills of the {victim}, sends at the port of the {port}: none accepted for "
                f"{statistics.median(found):.2f} s (median), {max(found):.2f} s (max)"
            )
    return not any(map(campaign.missing, (SIMPLE, PUSH)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    parser.add_argument("--folder", type=Path, help="keeps the files")
    asked = parser.parse_args()
    print(f"seed {asked.seed}", flush=True)
    folder = asked.folder or Path(tempfile.mkdtemp(prefix="rmqpy-grpc-kills-"))
    folder.mkdir(parents=True, exist_ok=True)
    is_whole = run(folder, asked.kills, asked.seed)
    if asked.folder is None:
        shutil.rmtree(folder)
    sys.exit(0 if is_whole else 1)


if __name__ == "__main__":
    main()
