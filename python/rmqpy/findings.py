"""Findings: what is wrong with a server or a pair of brokers, and what to do, in one sentence for every surface.

A server writes it to its log, refuses to start with it, or answers `/readyz` with it; the command line, `doctor` and
the console show the same words. Each function takes facts that both sides of the wire have. Pure; any thread.
"""

from collections.abc import Iterable
from typing import NamedTuple

#: The lowest digit of an epoch is the brokerId of the broker that began it.
_IDS = 16


class Finding(NamedTuple):
    """One thing that is wrong, and what to do."""

    found: str
    advice: str

    def __str__(self) -> str:
        return f"{self.found}; {self.advice}"


def replaced(name: str, successor: str | None, epoch: int, *, address: str | None = None) -> Finding:
    """A master that was replaced by a promoted slave; `address` is its own, where another server says this.

    >>> print(replaced("broker-a", "10.0.0.3:10911", 33).found)
    this broker was replaced as master of broker-a by the one at 10.0.0.3:10911, epoch 33
    """
    broker = "this broker" if address is None else f"the broker at {address}"
    leader = f"the one at {successor}" if successor else "one that does not answer now"
    # The broker that leads has its own brokerId in its file.
    free = 2 if epoch % _IDS == 1 else 1
    return Finding(
        f"{broker} was replaced as master of {name} by {leader}, epoch {epoch}",
        f"start it as a slave, on the folder it has: brokerRole=SLAVE brokerId={free}, or any other brokerId above 0 "
        "that is free; it follows then, and gives up what only its own log has. To lead again once it is in sync: "
        f"rmqpy cluster promote {name} --id {free}",
    )


def empty_master(name: str, broker_id: int, address: str) -> Finding:
    """A master without a log beside a slave that has one."""
    return Finding(
        f"slave {broker_id} of {name} at {address} has a log, and this master has none: it could never be followed",
        f"promote the slave, and start this one as a slave of it: rmqpy cluster promote {name} --id {broker_id}; where "
        "the two do not belong together, give this one another brokerName",
    )


def duplicate(name: str, addresses: Iterable[str], broker_id: int = 0) -> Finding:
    """Living brokers of one name and id that have not replaced each other.

    >>> print(duplicate("broker-a", ["10.0.0.3:10911", "10.0.0.2:10911"]).found)
    two brokers are called broker-a: 10.0.0.2:10911 and 10.0.0.3:10911 take each other's place, and clients see the \
messages of one or the other
    """
    key = "brokerId" if broker_id else "brokerName"
    number = f" with brokerId {broker_id}" if broker_id else ""
    return Finding(
        f"two brokers are called {name}{number}: {' and '.join(sorted(addresses))} take each other's place, and "
        "clients see the messages of one or the other",
        "if one is the former master of the other, start it as a slave of that; otherwise give one of them another "
        f"{key}",
    )
