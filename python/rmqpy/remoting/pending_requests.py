"""Pending requests: those an endpoint has taken and cannot answer at once, by number and by size.

Owns the counts, of each connection and of all. A request of a connection that has its share is refused; where all
together have theirs, the endpoint takes no more until half of them have been answered.

Threads: the event loop's.
"""

from dataclasses import dataclass
from typing import Final

#: Requests of all connections, and of one. A client may ask for the offsets of 256 queues at once.
REQUESTS_MAX: Final = 4_096
REQUESTS_PER_CONNECTION_MAX: Final = 512
#: Bytes of their fields and bodies. One is always taken, however large.
BYTES_MAX: Final = 64 << 20
BYTES_PER_CONNECTION_MAX: Final = 16 << 20


@dataclass(slots=True)
class _Load:
    requests: int = 0
    bytes: int = 0


class PendingRequests:
    """What is waited for."""

    def __init__(self) -> None:
        self._all = _Load()
        self._of: dict[int, _Load] = {}

    def admit(self, connection: int, size: int) -> bool:
        """Count a request of so many bytes; False where its connection has its share already."""
        load = self._of.get(connection)
        if load is None:
            load = self._of[connection] = _Load()
        elif load.requests >= REQUESTS_PER_CONNECTION_MAX or load.bytes + size > BYTES_PER_CONNECTION_MAX:
            return False
        for each in (load, self._all):
            each.requests += 1
            each.bytes += size
        return True

    def release(self, connection: int, size: int) -> None:
        """A request that `admit` has counted is answered."""
        load = self._of[connection]
        for each in (load, self._all):
            each.requests -= 1
            each.bytes -= size
        if load.requests == 0:
            del self._of[connection]

    @property
    def is_full(self) -> bool:
        """Whether no more may be taken."""
        return self._all.requests >= REQUESTS_MAX or self._all.bytes >= BYTES_MAX

    @property
    def has_room(self) -> bool:
        """Whether so many have been answered that taking may go on."""
        return self._all.requests < REQUESTS_MAX // 2 and self._all.bytes < BYTES_MAX // 2
