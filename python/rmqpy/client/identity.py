"""Client ids: the names by which brokers and other members know a client.

Pure, except for a look at the routing table and the names in use in this process. Any thread.
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

#: The instance of an unnamed broadcast consumer, fixed so that a restart finds its offsets.
STABLE_INSTANCE: Final = "DEFAULT"


def client_id(namesrv: Sequence[str], instance: str | None, unit: str = "") -> str:
    """Return `ip@instance`, with `@unit` appended, as in other RocketMQ clients. Without an instance, one is chosen
    that no other consumer uses."""
    instance = instance or f"{os.getpid()}#{time.time_ns()}#{next(_numbers)}"
    return "@".join([_own_address(namesrv), instance, *([unit] if unit else [])])


class Claim:
    """The claim of a client id in a group of this process: two members with one id would get the same queues, and
    handle each message twice."""

    def __init__(self, config: ClientConfig, group: str, client_id: str, instance: str) -> None:
        """Raises `ConfigError` if the id is taken."""
        self._key = (os.getpid(), tuple(sorted(config.namesrv)), config.namespace, group, client_id)
        # A single call, so that two threads cannot both succeed.
        if _CLAIMS.setdefault(self._key, self) is not self:
            raise ConfigError(
                f"a consumer of group {group} with instance {instance!r} already runs in this process, and "
                "both would get the same messages",
                hint="give each a different instance: PushConsumer(..., instance='NAME')",
            )

    def release(self) -> None:
        """End the claim. Idempotent."""
        if _CLAIMS.get(self._key) is self:
            del _CLAIMS[self._key]


_CLAIMS: Final[dict[tuple[int, tuple[str, ...], str, str, str], Claim]] = {}


def _own_address(namesrv: Sequence[str]) -> str:
    """Return the local address of a route to the first name server that resolves. Sends nothing."""
    for address in namesrv:
        with suppress(OSError, ConfigError):
            for family, kind, _, _, place in socket.getaddrinfo(*_place(address), type=socket.SOCK_DGRAM):
                with socket.socket(family, kind) as probe:
                    probe.connect(place)
                    return str(probe.getsockname()[0])
    return "127.0.0.1"


def _place(address: str) -> tuple[str, int]:
    """Return host and port of a name server, or of the address server that lists them."""
    if "://" not in address:
        host, port = parse(address)
        return host, port
    url = urlsplit(address)
    return url.hostname or "", url.port or 80
