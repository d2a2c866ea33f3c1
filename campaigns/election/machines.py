"""Machines of an election, as far as the network is concerned: namespaces around a router. Needs root and `ip`.

Each machine has an address for its broker and one for its controller, so that the way to the controllers can be cut
alone. The router drops packets silently, as a broken cable does. Everything is created here, and removed at the end.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from campaigns.election.servers import Place

_PREFIX: Final = "rmqpy-elect"
_ROUTER: Final = f"{_PREFIX}-router"
# Addresses for tests of networks (RFC 2544), which nothing else has.
_GATEWAY: Final = "198.18.1.254"
#: The rules that drop packets have this preference.
_DROPPED: Final = "100"
#: The address of this machine.
HOST: Final = Place("198.18.1.1")


@dataclass(frozen=True)
class Machine:
    """One machine: the places of its broker and its controller, and its device at the router."""

    broker: Place
    controller: Place
    device: str


class Network:
    """The machines and the router between them."""

    def __init__(self, machines: list[Machine]) -> None:
        self.machines = machines

    def isolate(self, machine: Machine) -> None:
        """Drop all packets from and to a machine."""
        self.silence(machine)
        self.deafen(machine)

    def silence(self, machine: Machine) -> None:
        """Drop the packets that a machine sends."""
        self._drop("iif", machine.device)

    def deafen(self, machine: Machine) -> None:
        """Drop the packets that are sent to a machine."""
        for place in (machine.broker, machine.controller):
            self._drop("to", f"{place.host}/32")

    def hide_controllers(self, machine: Machine) -> None:
        """Drop the packets that a machine sends to the controllers of the others."""
        for other in self.machines:
            if other is not machine:
                self._drop("iif", machine.device, "to", f"{other.controller.host}/32")

    def mend(self) -> None:
        """Drop nothing any more."""
        while (
            subprocess.run(
                ("ip", "-n", _ROUTER, "rule", "del", "pref", _DROPPED), check=False, capture_output=True
            ).returncode
            == 0
        ):
            pass

    @staticmethod
    def _drop(*which: str) -> None:
        _run("ip", "-n", _ROUTER, "rule", "add", "pref", _DROPPED, *which, "blackhole")


@contextmanager
def network(count: int) -> Iterator[Network]:
    """This many machines. This one takes part as `HOST`."""
    spaces = [f"{_PREFIX}-{number}" for number in range(count)]
    try:
        for space in (_ROUTER, *spaces):
            _run("ip", "netns", "add", space)
            _run("ip", "-n", space, "link", "set", "lo", "up")
        _run("ip", "netns", "exec", _ROUTER, "sysctl", "-qw", "net.ipv4.ip_forward=1")
        # A packet comes back on another way than its answer took, once one way is cut.
        _run("ip", "netns", "exec", _ROUTER, "sysctl", "-qw", "net.ipv4.conf.all.rp_filter=0")
        machines = []
        for number, space in enumerate(spaces):
            broker, controller = f"198.18.1.{10 + number}", f"198.18.1.{20 + number}"
            device = f"rm{number}"
            _connect(("-n", space), device, broker, controller)
            _run("ip", "-n", space, "route", "add", "default", "via", _GATEWAY, "src", broker)
            inside = ("nsenter", f"--net=/var/run/netns/{space}", "--")
            machines.append(Machine(Place(broker, inside), Place(controller, inside), device))
        _connect((), "rmhost", HOST.host)
        _run("ip", "route", "add", "198.18.1.0/24", "via", _GATEWAY, "src", HOST.host)
        yield Network(machines)
    finally:
        for space in (_ROUTER, *spaces):
            subprocess.run(("ip", "netns", "del", space), check=False, capture_output=True)


def _connect(where: tuple[str, ...], device: str, *addresses: str) -> None:
    """A cable from the router's `device` to a machine with these addresses."""
    own = f"{device}-m"
    _run("ip", "-n", _ROUTER, "link", "add", device, "type", "veth", "peer", "name", own)
    target = where[1] if where else str(os.getpid())
    _run("ip", "-n", _ROUTER, "link", "set", own, "netns", target)
    for address in addresses:
        _run("ip", *where, "addr", "add", f"{address}/32", "dev", own)
    _run("ip", *where, "link", "set", own, "up")
    _run("ip", "-n", _ROUTER, "link", "set", device, "up")
    if f"{_GATEWAY}/32" not in _run("ip", "-n", _ROUTER, "addr", "show", "dev", device):
        _run("ip", "-n", _ROUTER, "addr", "add", f"{_GATEWAY}/32", "dev", device)
    for address in addresses:
        _run("ip", "-n", _ROUTER, "route", "add", f"{address}/32", "dev", device)
    _run("ip", *where, "route", "add", _GATEWAY, "dev", own, "scope", "link", "src", addresses[0])


def _run(*words: str) -> str:
    done = subprocess.run(words, check=False, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{' '.join(words)}: {done.stderr.strip()}")
    return done.stdout
