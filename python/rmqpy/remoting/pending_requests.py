"""Pending requests of an endpoint, limited by number and size.

Owns the counts per connection and in all. A request beyond the limit of its connection is refused; at the limit of
all the endpoint takes no more until half of them are answered.

Threads: the event loop's.
"""

from dataclasses import dataclass
from typing import Final

#: The most requests of all connections, and of one. A client may ask for the offsets of 256 queues concurrently.
REQUESTS_MAX: Final = 4_096
REQUESTS_PER_CONNECTION_MAX: Final = 512
#: The most bytes of their fields and bodies. One request is always taken, however large.
BYTES_MAX: Final = 64 << 20
BYTES_PER_CONNECTION_MAX: Final = 16 << 20


@dataclass(slots=True)
class _Load:
    requests: int = 0
    bytes: int = 0


class PendingRequests:
    def __init__(self) -> None:
        self._all = _Load()
        self._of: dict[int, _Load] = {}

    def admit(self, connection: int, size: int) -> bool:
        """Count a request of this size; False at the limit of its connection."""
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
        """Remove an answered request that `admit` has counted."""
        load = self._of[connection]
        for each in (load, self._all):
            each.requests -= 1
            each.bytes -= size
        if load.requests == 0:
            del self._of[connection]

    @property
    def is_full(self) -> bool:
        """Whether the limit is reached."""
        return self._all.requests >= REQUESTS_MAX or self._all.bytes >= BYTES_MAX

    @property
    def has_room(self) -> bool:
        """Whether enough are answered to take more."""
        return self._all.requests < REQUESTS_MAX // 2 and self._all.bytes < BYTES_MAX // 2
