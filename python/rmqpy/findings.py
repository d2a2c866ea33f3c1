"""Findings: what is wrong with a server or a pair of brokers, and what to do, in one sentence for every surface.

A server writes it to its log, refuses to start with it, or answers `/readyz` with it; the command line, `doctor` and
the console show the same words. Each function takes facts that both sides of the wire have. Pure; any thread.
"""

import errno
import os
from collections.abc import Iterable
from typing import Literal, NamedTuple

#: The lowest digit of an epoch is the brokerId of the broker that began it.
_IDS = 16


class Finding(NamedTuple):
    """One thing that is wrong, and what to do."""

    found: str
    advice: str

    def __str__(self) -> str:
        return f"{self.found}; {self.advice}"


class Trouble(NamedTuple):
    """A finding with the name under which `doctor` lists it, and how bad it is."""

    check: str
    level: Literal["warn", "bad"]
    finding: Finding
    #: No message is taken until it ends: clients are better served elsewhere.
    refuses: bool = False


def replaced(name: str, successor: str | None, epoch: int, *, address: str | None = None) -> Finding:
    """A master that was replaced by a promoted slave; `address` is its own, where another server says this.

    >>> print(replaced("broker-a", "10.0.0.3:10911", 33).found)
    this broker was replaced as master of broker-a by the one at 10.0.0.3:10911, epoch 33
    """
    broker = "this broker" if address is None else f"the broker at {address}"
    leader = f"the one at {successor}" if successor else "one that does not answer now"
    return Finding(
        f"{broker} was replaced as master of {name} by {leader}, epoch {epoch}", _way_back(name, epoch)
    )


def _way_back(name: str, epoch: int) -> str:
    # The broker that leads has its own brokerId in its file.
    free = 2 if epoch % _IDS == 1 else 1
    return (
        f"start it as a slave, on the folder it has: brokerRole=SLAVE brokerId={free}, or any other brokerId above 0 "
        "that is free; it follows then, and gives up what only its own log has. To lead again once it is in sync: "
        f"rmqpy cluster promote {name} --id {free}"
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


_MISSING = (
    "start the slave that is gone, or see why it does not follow: its log; where it went for good, correct "
    "totalReplicas and restart the master, which forgets it"
)


def few_copies(in_sync: int, wanted: int, *, refuses: bool) -> Finding:
    """A master that cannot keep what its answers promise."""
    means = "messages are refused" if refuses else "messages are stored, and answered with 11 or 12"
    return Finding(f"{in_sync} of {wanted} replicas are in sync: {means}", _MISSING)


def few_slaves(slaves: int, expected: int) -> Finding:
    """A master that promises no copies, and lacks slaves."""
    return Finding(f"{slaves} of {expected} slaves are connected", _MISSING)


def not_back(name: str, replaced: str, epoch: int, lack: Finding) -> Finding:
    """The same of one that was promoted, where it is its former master that is missing."""
    return Finding(
        f"{lack.found}; the master that was replaced, at {replaced}, does not follow yet",
        _way_back(name, epoch),
    )


def weaker_promise(name: str, copies: int, before: int) -> Finding:
    """A master that promises fewer copies than the one before it.

    >>> print(weaker_promise("broker-a", 1, 2).found)
    answers of broker-a promise 1 copy of a message, and promised 2 before its master was replaced
    """
    promise = f"{copies} cop{'y' if copies == 1 else 'ies'}"
    number = f" inSyncReplicas={before}" if before > 2 else ""
    return Finding(
        f"answers of {name} promise {promise} of a message, and promised {before} before its master was replaced",
        f"set brokerRole=SYNC_MASTER brokerId=0{number} in the file of the broker that leads, and restart it; where it "
        f"is meant, set inSyncReplicas={copies} there",
    )


def no_master(
    name: str, broker_id: int, address: str | None, heard_s: float | None, *, acts: bool
) -> Finding:
    """A name whose master is gone, as slave `broker_id` has it, which is the one to lead.

    >>> print(no_master("broker-a", 1, "10.0.0.2:10911", 35.2, acts=False))
    broker-a has no master: the one at 10.0.0.2:10911 is gone, slave 1 heard it 35 s ago; broker-a takes no messages; \
start it again, or let the slave lead: rmqpy cluster promote broker-a --id 1
    """
    where = f"the one at {address}" if address else "it"
    heard = (
        f"heard it {heard_s:.0f} s ago" if heard_s is not None else "has not heard it since it was started"
    )
    served = ", consumers are served by the slave, which acts for it" if acts else ""
    return Finding(
        f"{name} has no master: {where} is gone, slave {broker_id} {heard}; {name} takes no messages{served}",
        f"start it again, or let the slave lead: rmqpy cluster promote {name} --id {broker_id}",
    )


def not_following(name: str, behind: str, fault: str | None) -> Finding:
    """A slave that has lost its master, which lives."""
    return Finding(
        f"does not follow its master, {behind}" + (f": {fault}" if fault else ""),
        f"its log says more; can it connect to the haListenPort of its master, has its disk room? "
        f"rmqpy cluster replicas {name}",
    )


def slow(behind: str, seconds: float) -> Finding:
    """A slave that lacks something for a long time."""
    return Finding(
        f"{behind} for {seconds:.0f} s: it is slower than its master",
        "look at its disk and at the network between the two; what it lacks is lost with the master",
    )


def diverged(fault: str) -> Finding:
    """Two logs that do not fit together."""
    return Finding(
        f"master and slave do not fit together: {fault}",
        "stop both and compare them: rmqpy store compare MASTER SLAVE; then promote one, or empty the other",
    )


def no_ticket(address: str) -> Finding:
    """What spoke as a slave to a master with access control, and did not show who it is."""
    return Finding(
        f"something at {address} asked for the log without a ticket, and was refused",
        "a slave of an older release: upgrade it; an Apache slave: name its address in haTrustedAddresses of the "
        "master; neither: keep it from the haListenPort",
    )


def no_room(name: str, folder: str, used_percent: float, free_bytes: int) -> Finding:
    """A disk with so little room that messages are refused; the store's own event has the same words.

    >>> print(no_room("broker-a", "/data", 96.2, 12 << 20).found)
    /data: 96 % of its disk is in use, 12 MiB are free: messages are refused
    """
    return Finding(
        f"{folder}: {used_percent:.0f} % of its disk is in use, {free_bytes >> 20} MiB are free: messages are refused",
        f"make room, or keep messages for less time: rmqpy config set {name} fileReservedTime=24; they are taken again "
        "as soon as there is room",
    )


def undelivered(count: int) -> Finding:
    """Delayed, timed and half messages that left the queue they waited in and went nowhere, since the start.

    >>> print(undelivered(2).found)
    2 messages were not delivered when their time came
    """
    subject, whose = ("1 message was", "its") if count == 1 else (f"{count} messages were", "their")
    return Finding(
        f"{subject} not delivered when {whose} time came",
        "its log says which, and why; send them again, and restart it to count from 0",
    )


def read_only(reason: str) -> Finding:
    """A store that takes no more writes until it is opened again."""
    return Finding(
        f"messages are refused, and what is stored is served: {reason}",
        "see what is wrong with its disk: its log; then restart the broker",
    )


def headless(names: Iterable[str]) -> Finding:
    """Brokers of which a slave is registered, and no master.

    >>> print(headless(["broker-b", "broker-a"]))
    broker-a and broker-b have no master; start it, or let a slave lead: rmqpy doctor says which
    """
    brokers = sorted(names)
    return Finding(
        f"{' and '.join(brokers)} {'has' if len(brokers) == 1 else 'have'} no master",
        "start it, or let a slave lead: rmqpy doctor says which",
    )


def cannot_listen(key: str, port: int, address: str, number: int | None, text: str = "") -> Finding:
    """A server that cannot listen where a setting says, for the reason of an `errno`, or in the words of another error.

    >>> print(cannot_listen("httpPort", 8082, "127.0.0.1:8082", errno.EADDRINUSE))
    httpPort=8082: cannot listen on 127.0.0.1:8082: it is in use; take another port there, or see who has it: ss -ltnp \
'sport = :8082'
    """
    bound = address.rpartition(":")[2]
    reason, advice = {
        errno.EADDRINUSE: (
            "it is in use",
            f"take another port there, or see who has it: ss -ltnp 'sport = :{bound}'",
        ),
        errno.EACCES: ("this user may not use that port", "take a port above 1023"),
        errno.EADDRNOTAVAIL: ("this machine has no such address", "correct bindAddress"),
    }.get(number or 0, (text or os.strerror(number or 0), f"correct {key} or bindAddress"))
    return Finding(f"{key}={port}: cannot listen on {address}: {reason}", advice)
