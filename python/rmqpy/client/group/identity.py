"""Client ids: the name that brokers and the other members of its groups know a client by.

Pure but for one look at the routing table, and for the names that are taken in this process. Any thread.
"""

import itertools
import os
import socket
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Final
from urllib.parse import urlsplit

from rmqpy.config.addresses import parse
from rmqpy.config.client import ClientConfig
from rmqpy.errors import ConfigError

_numbers = itertools.count()

#: The instance of a broadcast consumer without a name: its offsets are found again after a restart.
STABLE_INSTANCE: Final = "DEFAULT"


def client_id(namesrv: Sequence[str], instance: str | None, unit: str = "") -> str:
    """`ip@instance`, as every client of RocketMQ, and `@unit` behind it. Without an instance, one that no other
    consumer has."""
    instance = instance or f"{os.getpid()}#{time.time_ns()}#{next(_numbers)}"
    return "@".join([_own_address(namesrv), instance, *([unit] if unit else [])])


class Claim:
    """The place of one member in its group, in this process: two of one client id would get the same queues, and handle
    each message twice."""

    def __init__(self, config: ClientConfig, group: str, client_id: str, instance: str) -> None:
        """Raises `ConfigError` where it is taken."""
        self._key = (os.getpid(), tuple(sorted(config.namesrv)), config.namespace, group, client_id)
        # One call: two threads cannot both be first.
        if _CLAIMS.setdefault(self._key, self) is not self:
            raise ConfigError(
                f"a consumer of group {group} with instance {instance!r} runs in this process already, and "
                "would get the same messages",
                hint="give each an instance of its own: PushConsumer(..., instance='NAME')",
            )

    def release(self) -> None:
        """Idempotent."""
        if _CLAIMS.get(self._key) is self:
            del _CLAIMS[self._key]


_CLAIMS: Final[dict[tuple[int, tuple[str, ...], str, str, str], Claim]] = {}


def _own_address(namesrv: Sequence[str]) -> str:
    """The address this machine has towards the first name server that can be resolved; nothing is sent."""
    for address in namesrv:
        with suppress(OSError, ConfigError):
            for family, kind, _, _, place in socket.getaddrinfo(*_place(address), type=socket.SOCK_DGRAM):
                with socket.socket(family, kind) as probe:
                    probe.connect(place)
                    return str(probe.getsockname()[0])
    return "127.0.0.1"


def _place(address: str) -> tuple[str, int]:
    """Host and port of a name server, or of the address server that is asked for them."""
    if "://" not in address:
        host, port = parse(address)
        return host, port
    url = urlsplit(address)
    return url.hostname or "", url.port or 80
