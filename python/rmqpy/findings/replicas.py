"""Findings about masters, slaves and brokers of one name."""

from collections.abc import Iterable

from rmqpy.findings.finding import Finding

#: The lowest digit of an epoch is the brokerId of the broker that began it.
_IDS = 16


def replaced(name: str, successor: str | None, epoch: int, *, address: str | None = None) -> Finding:
    """A master that was replaced by a promoted slave; `address` is its own, if another server reports it.

    >>> print(replaced("broker-a", "10.0.0.3:10911", 33).found)
    this broker was replaced as master of broker-a by the one at 10.0.0.3:10911, epoch 33
    """
    broker = "this broker" if address is None else f"the broker at {address}"
    leader = f"the one at {successor}" if successor else "one that does not answer"
    return Finding(
        f"{broker} was replaced as master of {name} by {leader}, epoch {epoch}", _way_back(name, epoch)
    )


def _way_back(name: str, epoch: int) -> str:
    # The leading broker has its own brokerId in its file.
    free = 2 if epoch % _IDS == 1 else 1
    return (
        f"start it as a slave with its folder: brokerRole=SLAVE brokerId={free}, or any other free brokerId above 0; "
        "it then follows, and drops the part of its log that the master lacks. To lead again once it is in sync: "
        f"rmqpy cluster promote {name} --id {free}"
    )


def empty_master(name: str, broker_id: int, address: str) -> Finding:
    """A master without a log, next to a slave that has one."""
    return Finding(
        f"slave {broker_id} of {name} at {address} has a log, and this master has none, so it cannot be followed",
        f"promote the slave, and start this one as its slave: rmqpy cluster promote {name} --id {broker_id}; if "
        "the two are unrelated, give this one another brokerName",
    )


def duplicate(name: str, addresses: Iterable[str], broker_id: int = 0) -> Finding:
    """Live brokers of one name and id that have not replaced each other.

    >>> print(duplicate("broker-a", ["10.0.0.3:10911", "10.0.0.2:10911"]).found)
    two brokers are called broker-a: 10.0.0.2:10911 and 10.0.0.3:10911 take each other's place, and clients see the \
messages of one or the other
    """
    key = "brokerId" if broker_id else "brokerName"
    number = f" with brokerId {broker_id}" if broker_id else ""
    return Finding(
        f"two brokers are called {name}{number}: {' and '.join(sorted(addresses))} take each other's place, and "
        "clients see the messages of one or the other",
        "if one is the former master of the other, start it as its slave; otherwise give one of them another "
        f"{key}",
    )


_MISSING = (
    "start the missing slave, or read in its log why it does not follow; if it was removed permanently, correct "
    "totalReplicas and restart the master"
)


def few_copies(in_sync: int, wanted: int, *, refuses: bool) -> Finding:
    """A master that lacks the copies its replies promise."""
    means = "messages are refused" if refuses else "messages are stored, and answered with 11 or 12"
    return Finding(f"{in_sync} of {wanted} replicas are in sync: {means}", _MISSING)


def few_slaves(slaves: int, expected: int) -> Finding:
    """A master without promised copies that lacks slaves."""
    return Finding(f"{slaves} of {expected} slaves are connected", _MISSING)


def not_back(name: str, replaced: str, epoch: int, lack: Finding) -> Finding:
    """The same for a promoted master whose former master is missing."""
    return Finding(
        f"{lack.found}; the replaced master, at {replaced}, does not follow yet",
        _way_back(name, epoch),
    )


def weaker_promise(name: str, copies: int, before: int) -> Finding:
    """A master that promises fewer copies than its predecessor.

    >>> print(weaker_promise("broker-a", 1, 2).found)
    replies of broker-a promise 1 copy of a message, and promised 2 before its master was replaced
    """
    promise = f"{copies} cop{'y' if copies == 1 else 'ies'}"
    number = f" inSyncReplicas={before}" if before > 2 else ""
    return Finding(
        f"replies of {name} promise {promise} of a message, and promised {before} before its master was replaced",
        f"set brokerRole=SYNC_MASTER brokerId=0{number} in the file of the leading broker, and restart it; if this "
        f"is intended, set inSyncReplicas={copies} there",
    )


def no_master(
    name: str,
    broker_id: int,
    address: str | None,
    silent_s: float | None,
    *,
    acts: bool,
    is_elected: bool = False,
) -> Finding:
    """A broker name without a master, seen by slave `broker_id`, which should lead. `is_elected`: controllers elect the
    master.

    >>> print(no_master("broker-a", 1, "10.0.0.2:10911", 35.2, acts=False))
    broker-a has no master: the one at 10.0.0.2:10911 is unreachable, slave 1 lost it 35 s ago; broker-a refuses \
messages; start it, or promote the slave: rmqpy cluster promote broker-a --id 1
    """
    where = f"the one at {address}" if address else "it"
    contact = (
        f"lost it {silent_s:.0f} s ago" if silent_s is not None else "has had no contact since its start"
    )
    served = ", and the slave serves consumers in its place" if acts else ""
    return Finding(
        f"{name} has no master: {where} is unreachable, slave {broker_id} {contact}; {name} refuses messages{served}",
        "the controllers elect another one if a replica in sync is alive; otherwise start it"
        if is_elected
        else f"start it, or promote the slave: rmqpy cluster promote {name} --id {broker_id}",
    )


def without_role(name: str, fault: str) -> Finding:
    """A broker to which the controllers give no role, or no new one.

    >>> print(without_role("broker-a", "no controller knows a leader"))
    broker-a does not reach its controllers: no controller knows a leader; start a majority of the controllers, and \
check controllerAddr
    """
    return Finding(
        f"{name} does not reach its controllers: {fault}",
        "start a majority of the controllers, and check controllerAddr",
    )


def not_following(name: str, behind: str, fault: str | None) -> Finding:
    """A slave that has lost contact with its live master."""
    return Finding(
        f"does not follow its master, {behind}" + (f": {fault}" if fault else ""),
        f"read its log; check its connection to the haListenPort of the master, and its disk space: "
        f"rmqpy cluster replicas {name}",
    )


def silent_slave(name: str, address: str, silent_s: float | None, behind_bytes: int | None) -> Finding:
    """A registered slave that does not answer, while its master does. The master reports silence and lag of a slave
    that was connected since its start.

    >>> print(silent_slave("broker-a", "10.0.0.3:10911", 40.2, 10).found)
    does not answer at 10.0.0.3:10911, silent for 40 s, at least 10 bytes behind its master
    >>> print(silent_slave("broker-a", "10.0.0.3:10911", None, None).found)
    does not answer at 10.0.0.3:10911, not connected to its master
    """
    silence = "" if silent_s is None else f", silent for {silent_s:.0f} s"
    lag = (
        "not connected to its master"
        if behind_bytes is None
        else f"at least {behind_bytes} bytes behind its master"
    )
    return Finding(
        f"does not answer at {address}{silence}, {lag}",
        f"resume or restart it, and check its network: rmqpy cluster replicas {name}; the missing part would be lost "
        "with the master",
    )


def slow(behind: str, seconds: float) -> Finding:
    """A slave that has lagged for a long time."""
    return Finding(
        f"{behind} for {seconds:.0f} s: it is slower than its master",
        "check its disk and the network between the two; the missing part would be lost with the master",
    )


def diverged(fault: str) -> Finding:
    """Two diverged logs."""
    return Finding(
        f"the logs of master and slave have diverged: {fault}",
        "stop both and compare them: rmqpy store compare MASTER SLAVE; then promote one, or empty the other's folder",
    )


def no_ticket(address: str) -> Finding:
    """A client that asked a master with access control for the log without identifying itself."""
    return Finding(
        f"a connection from {address} asked for the log without a ticket, and was refused",
        "a slave of an older release: upgrade it; an Apache slave: add its address to haTrustedAddresses of the "
        "master; otherwise block its access to the haListenPort",
    )


def headless(names: Iterable[str]) -> Finding:
    """Broker names with a registered slave and no master.

    >>> print(headless(["broker-b", "broker-a"]))
    broker-a and broker-b have no master; start it, or promote a slave: rmqpy doctor names the one
    """
    brokers = sorted(names)
    return Finding(
        f"{' and '.join(brokers)} {'has' if len(brokers) == 1 else 'have'} no master",
        "start it, or promote a slave: rmqpy doctor names the one",
    )
