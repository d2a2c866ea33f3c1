"""Admission: how many connections a server may have, within what the system gives the process, and who was refused.

Connections and files share the descriptors of a process. A quarter of them is kept for files, so that no number of
connections can make the store fail.

Threads: the event loop's.
"""

from __future__ import annotations

import fcntl
import logging
import os
import resource
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Final, NamedTuple

#: Descriptors kept for files: the store opens up to 512 of queues, and its log has one for each GiB that is read.
_RESERVE_SHARE: Final = 4
#: At least so many, where that leaves as many to connections.
_RESERVE_MIN: Final = 256
#: Seconds between two looks at who was refused.
REFUSALS_SECONDS: Final = 10.0

log = logging.getLogger(__name__)


class ConnectionLimits(NamedTuple):
    """What a server is told."""

    connections_max: int
    connections_per_address_max: int
    #: Open descriptors of the process above which no connection is taken.
    descriptors_max: int


def connection_limits(wanted: int, per_address: int) -> ConnectionLimits:
    """The limits that `maxConnections` and `maxConnectionsPerAddress` mean in this process.

    The soft limit of descriptors is raised to the hard one first, as the runtimes of Java and Go do.
    """
    limit = _raised_descriptor_limit()
    descriptors_max = limit - max(limit // _RESERVE_SHARE, min(_RESERVE_MIN, limit // 2))
    connections_max = min(wanted, descriptors_max)
    if connections_max < wanted:
        log.warning(
            "maxConnections=%d is cut to %d: the system lets this process open %d descriptors, and %d of them are kept "
            "for files; raise the limit with ulimit -n, or LimitNOFILE= of the service",
            wanted,
            connections_max,
            limit,
            limit - descriptors_max,
        )
    _make_room(min(limit - 1, 2 * connections_max))
    return ConnectionLimits(connections_max, per_address or max(1, connections_max // 2), descriptors_max)


class Refusals:
    """Connections that were refused, written down once for each change of their count, and clients of other protocols
    that were closed."""

    def __init__(
        self,
        limits: ConnectionLimits,
        statistics: Callable[[], Mapping[str, int]],
        foreign_clients: Callable[[], Iterable[tuple[str, str]]],
    ) -> None:
        self._statistics = statistics
        self._foreign_clients = foreign_clients
        self._reasons = {
            "refused_connections": f"{limits.connections_max} are open, which is the most (maxConnections)",
            "refused_of_address": f"their address has {limits.connections_per_address_max} open "
            "(maxConnectionsPerAddress)",
            "refused_for_descriptors": f"the process has {limits.descriptors_max} descriptors open, and keeps the rest "
            "for files (ulimit -n)",
        }
        self._seen = dict.fromkeys(self._reasons, 0)

    def log(self) -> None:
        """Write down those since the last call."""
        statistics = self._statistics()
        for counter, reason in self._reasons.items():
            count = statistics.get(counter, 0)
            if count > self._seen[counter]:
                log.warning("%d connections were refused: %s", count - self._seen[counter], reason)
                self._seen[counter] = count
        for peer, protocol in self._foreign_clients():
            log.warning("closed the connection of %s, which speaks %s", peer, protocol)


def _raised_descriptor_limit() -> int:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        # Some systems do not let a process have as many as they say.
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
            soft = hard
    return soft if soft != resource.RLIM_INFINITY else 1 << 20


def _make_room(descriptors: int) -> None:
    """Have the process's table of descriptors grow to so many now: connections, and as many files or another server's.

    Linux doubles it otherwise whenever it is full, and lets a process with threads wait some ten milliseconds each
    time: whoever accepts, opens or answers just then stands still. A place takes eight bytes of the kernel's.
    """
    with suppress(OSError):
        null = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.close(fcntl.fcntl(null, fcntl.F_DUPFD_CLOEXEC, descriptors))
        finally:
            os.close(null)
