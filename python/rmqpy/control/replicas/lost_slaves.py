"""Lost slaves: the last reports of disconnected slaves, so that their lag stays known.

A slave that connects again, from any port of its machine, is not lost any more. Threads: the event loop's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from rmqpy._native import ConnectedSlave

#: The most lost slaves that are kept, the latest ones.
LOST_MAX: Final = 16


class LostSlave(NamedTuple):
    """A slave that has disconnected."""

    address: str
    #: The end of its log, as it last reported.
    end: int
    #: The time of its last report.
    reported_at: float


class LostSlaves:
    """The disconnected slaves of one master."""

    def __init__(self, elapsed: Callable[[], float]) -> None:
        self._elapsed = elapsed
        self._connected: dict[str, LostSlave] = {}
        self._lost: list[LostSlave] = []

    def look(self, connected: Iterable[ConnectedSlave]) -> None:
        """Note the connected slaves, once a second."""
        now = self._elapsed()
        present = {
            slave.address: LostSlave(slave.address, slave.end, now - slave.silent_ms / 1_000)
            for slave in connected
        }
        self._lost += [slave for address, slave in self._connected.items() if address not in present]
        for address in present.keys() - self._connected.keys():
            self._found(_host(address))
        self._connected = present
        del self._lost[:-LOST_MAX]

    def now(self) -> list[tuple[LostSlave, int]]:
        """Return the lost slaves, and for how many milliseconds each has been silent."""
        now = self._elapsed()
        return [(slave, round(1_000 * (now - slave.reported_at))) for slave in self._lost]

    def _found(self, host: str) -> None:
        """Forget the slave that was lost last on a machine: it has connected again."""
        for at in range(len(self._lost) - 1, -1, -1):
            if _host(self._lost[at].address) == host:
                del self._lost[at]
                return


def _host(address: str) -> str:
    return address.rpartition(":")[0]
