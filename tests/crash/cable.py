"""A second machine for the network: a namespace and a virtual cable to it. Needs root."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import pytest

#: Number of this process among those that run tests side by side: each has its own machine and network.
_WORKER: Final = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
SPACE: Final = f"rmqpy-slave-{_WORKER}"
_MASTER_DEVICE: Final = f"rmqpy-m{_WORKER}"
#: The prefix of a command that runs on the other machine.
INSIDE: Final = ("ip", "netns", "exec", SPACE)
#: Addresses for tests of networks (RFC 2544), which nothing else has: this machine reaches its registries meanwhile.
MASTER_HOST: Final = f"198.18.0.{16 * _WORKER + 1}"
SLAVE_HOST: Final = f"198.18.0.{16 * _WORKER + 2}"

needs_networks = pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("ip") is None, reason="namespaces of networks take root and ip"
)


class Cable:
    """Between the machines of master and slave."""

    def cut(self, how: str) -> None:
        """Cut `both` directions, or only the slave's packets."""
        if how == "both":
            run("ip", "link", "set", _MASTER_DEVICE, "down")
        else:
            self._inside("route", "replace", "blackhole", f"{MASTER_HOST}/32")

    def mend(self) -> None:
        run("ip", "link", "set", _MASTER_DEVICE, "up")
        subprocess.run(
            ["ip", "-n", SPACE, "route", "del", "blackhole", f"{MASTER_HOST}/32"],
            check=False,
            capture_output=True,
        )

    @staticmethod
    def _inside(*words: str) -> None:
        run("ip", "-n", SPACE, *words)


def run(*words: str) -> None:
    subprocess.run(words, check=True, capture_output=True)


@contextmanager
def cable() -> Iterator[Cable]:
    """A second machine, as far as the network is concerned, and the cable to it."""
    try:
        run("ip", "netns", "add", SPACE)
        run("ip", "link", "add", _MASTER_DEVICE, "type", "veth", "peer", "name", "rmqpy-s", "netns", SPACE)
        run("ip", "addr", "add", f"{MASTER_HOST}/28", "dev", _MASTER_DEVICE)
        run("ip", "-n", SPACE, "addr", "add", f"{SLAVE_HOST}/28", "dev", "rmqpy-s")
        run("ip", "link", "set", _MASTER_DEVICE, "up")
        for device in ("rmqpy-s", "lo"):
            run("ip", "-n", SPACE, "link", "set", device, "up")
        yield Cable()
    finally:
        subprocess.run(["ip", "netns", "del", SPACE], check=False, capture_output=True)
