"""Admission: the limit of connections within the process's descriptors, and a log of refusals.

Connections and files share the descriptors of a process. A quarter is reserved for files, so that connections can
never make the store fail.

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

#: Descriptors reserved for files: the store opens up to 512 for queues, and one per GiB of log that is read.
_RESERVE_SHARE: Final = 4
#: The minimum, if that leaves as many to connections.
_RESERVE_MIN: Final = 256
#: Seconds between two log rounds.
REFUSALS_SECONDS: Final = 10.0

log = logging.getLogger(__name__)


class ConnectionLimits(NamedTuple):
    """Limits of a server."""

    connections_max: int
    connections_per_address_max: int
    #: Open descriptors of the process above which connections are refused.
    descriptors_max: int


def connection_limits(wanted: int, per_address: int) -> ConnectionLimits:
    """The effective limits of `maxConnections` and `maxConnectionsPerAddress` in this process.

    Raises the soft limit of descriptors to the hard one first, like the runtimes of Java and Go.
    """
    limit = _raised_descriptor_limit()
    descriptors_max = limit - max(limit // _RESERVE_SHARE, min(_RESERVE_MIN, limit // 2))
    connections_max = min(wanted, descriptors_max)
    if connections_max < wanted:
        log.warning(
            "maxConnections=%d is reduced to %d: the process may open %d descriptors, with %d of them reserved "
            "for files; raise the limit with ulimit -n, or LimitNOFILE= of the service",
            wanted,
            connections_max,
            limit,
            limit - descriptors_max,
        )
    _make_room(min(limit - 1, 2 * connections_max))
    return ConnectionLimits(connections_max, per_address or max(1, connections_max // 2), descriptors_max)


class Refusals:
    """Logs refused connections, once for each change of their count, and closed clients of other protocols."""

    def __init__(
        self,
        limits: ConnectionLimits,
        statistics: Callable[[], Mapping[str, int]],
        foreign_clients: Callable[[], Iterable[tuple[str, str]]],
    ) -> None:
        self._statistics = statistics
        self._foreign_clients = foreign_clients
        self._reasons = {
            "refused_connections": f"{limits.connections_max} are open, the limit (maxConnections)",
            "refused_of_address": f"their address has {limits.connections_per_address_max} open "
            "(maxConnectionsPerAddress)",
            "refused_for_descriptors": f"the process has {limits.descriptors_max} descriptors open, "
            "and reserves the rest for files (ulimit -n)",
        }
        self._seen = dict.fromkeys(self._reasons, 0)

    def log(self) -> None:
        """Log those since the last call."""
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
        # Some systems do not allow as many as they report.
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
            soft = hard
    return soft if soft != resource.RLIM_INFINITY else 1 << 20


def _make_room(descriptors: int) -> None:
    """Grow the process's descriptor table now, for connections and as many files or another server's.

    Linux doubles a full table, which blocks a threaded process for some ten milliseconds each time, and delays accepts,
    opened files and replies. An entry takes eight bytes of kernel memory.
    """
    with suppress(OSError):
        null = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.close(fcntl.fcntl(null, fcntl.F_DUPFD_CLOEXEC, descriptors))
        finally:
            os.close(null)
