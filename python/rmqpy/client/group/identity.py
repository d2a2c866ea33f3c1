"""Client ids: the name that brokers and the other members of its groups know a client by.

Pure but for one look at the routing table. Any thread.
"""

import itertools
import os
import socket
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

_numbers = itertools.count()

#: The instance of a broadcast consumer without a name: its offsets are found again after a restart.
STABLE_INSTANCE: Final = "DEFAULT"


def client_id(namesrv: Sequence[str], instance: str | None) -> str:
    """`ip@instance`, as every client of RocketMQ. Without an instance, one that no other consumer has."""
    return f"{_own_address(namesrv)}@{instance or f'{os.getpid()}#{time.time_ns()}#{next(_numbers)}'}"


def _own_address(namesrv: Sequence[str]) -> str:
    """The address this machine has towards the first name server that can be resolved; nothing is sent."""
    for address in namesrv:
        host, _, port = address.rpartition(":")
        with suppress(OSError):
            for family, kind, _, _, place in socket.getaddrinfo(
                host.strip("[]"), int(port), type=socket.SOCK_DGRAM
            ):
                with socket.socket(family, kind) as probe:
                    probe.connect(place)
                    return str(probe.getsockname()[0])
    return "127.0.0.1"
