"""Two networks with a router between them, as namespaces of this machine: inside, and outside behind NAT. Needs root.

Owns the namespaces; the machine's own network is unchanged. Outside has no route to addresses inside, except
the ports that the router forwards.
"""

import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

import pytest

from crash.cable import run

_INNER, _ROUTER, _OUTER = "rmqpy-inner", "rmqpy-router", "rmqpy-outer"
#: Commands that run another one in a network.
INSIDE: Final = ("ip", "netns", "exec", _INNER)
OUTSIDE: Final = ("ip", "netns", "exec", _OUTER)
#: The server's address inside, and the router's outside, from the addresses of documentation.
INNER_HOST: Final = "192.0.2.2"
OUTER_HOST: Final = "203.0.113.7"

needs_nat = pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("ip") is None or shutil.which("nft") is None,
    reason="networks with NAT take root, ip and nft",
)


@contextmanager
def nat(forwarded: Mapping[int, int]) -> Iterator[None]:
    """The networks; `forwarded` has the router's ports outside, and the server's ports inside."""
    try:
        for name in (_INNER, _ROUTER, _OUTER):
            run("ip", "netns", "add", name)
            run("ip", "-n", name, "link", "set", "lo", "up")
        _connect(_INNER, f"{INNER_HOST}/24", "192.0.2.1/24")
        _connect(_OUTER, "203.0.113.9/24", f"{OUTER_HOST}/24")
        run("ip", "-n", _INNER, "route", "add", "default", "via", "192.0.2.1")
        router = ("ip", "netns", "exec", _ROUTER)
        run(*router, "sysctl", "-q", "-w", "net.ipv4.ip_forward=1")
        run(*router, "nft", "add table ip nat")
        run(*router, "nft", "add chain ip nat pre { type nat hook prerouting priority -100; }")
        for outer, inner in forwarded.items():
            run(*router, "nft", f"add rule ip nat pre tcp dport {outer} dnat to {INNER_HOST}:{inner}")
        yield
    finally:
        for name in (_INNER, _ROUTER, _OUTER):
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)


def _connect(name: str, address: str, router: str) -> None:
    """Lay a cable from a network to the router."""
    end, other = f"{name}-0", f"{name}-1"
    run("ip", "-n", _ROUTER, "link", "add", other, "type", "veth", "peer", "name", end, "netns", name)
    for space, device, given in ((_ROUTER, other, router), (name, end, address)):
        run("ip", "-n", space, "addr", "add", given, "dev", device)
        run("ip", "-n", space, "link", "set", device, "up")
