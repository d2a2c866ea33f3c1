"""Findings: problems of a server or a pair of brokers, with a remedy, in the same words everywhere.

Used by server logs, refused starts, `/readyz`, the command line, `doctor` and the console. Each function takes facts
that both sides of the wire have. Pure; any thread.
"""

import errno
import os
import re
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Final, Literal, NamedTuple

#: The lowest digit of an epoch is the brokerId of the broker that began it.
_IDS = 16


class Finding(NamedTuple):
    """One problem and its remedy."""

    found: str
    advice: str

    def __str__(self) -> str:
        return f"{self.found}; {self.advice}"


class Step(NamedTuple):
    """What a tool can offer for a finding: a change, or the place that shows more."""

    kind: Literal["promote", "replicas", "broker", "brokers", "group", "dead-letters"]
    #: A broker or a group.
    name: str
    broker_id: int = 0


class Trouble(NamedTuple):
    """A finding with its name and severity in `doctor`."""

    check: str
    level: Literal["warn", "bad"]
    finding: Finding
    #: Messages are refused until it ends: clients should use other brokers.
    refuses: bool = False


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


def no_room(name: str, folder: str, used_percent: float, free_bytes: int) -> Finding:
    """A disk so full that messages are refused; the store's own event has the same words.

    >>> print(no_room("broker-a", "/data", 96.2, 12 << 20).found)
    /data: 96 % of its disk is in use, 12 MiB are free: messages are refused
    """
    return Finding(
        f"{folder}: {used_percent:.0f} % of its disk is in use, {free_bytes >> 20} MiB are free: messages are refused",
        f"free space, or shorten retention: rmqpy config set {name} fileReservedTime=24; messages are accepted again "
        "as soon as there is room",
    )


def undelivered(count: int) -> Finding:
    """Delayed, timed and half messages dropped without delivery since the start.

    >>> print(undelivered(2).found)
    2 messages were not delivered when their time came
    """
    subject, whose = ("1 message was", "its") if count == 1 else (f"{count} messages were", "their")
    return Finding(
        f"{subject} not delivered when {whose} time came",
        "read its log for their ids and reasons; send them again, and restart it to reset the count",
    )


def read_only(reason: str) -> Finding:
    """A store that accepts no more writes until it is opened again."""
    return Finding(
        f"messages are refused, stored ones are served: {reason}",
        "check its disk and log, then restart the broker",
    )


def not_writable(name: str, permission: int) -> Finding:
    """A broker that an operator closed for messages, or for consumers.

    >>> print(not_writable("broker-a", 4))
    it refuses sends: brokerPermission=4; if this is not intended: rmqpy config set broker-a brokerPermission=6
    """
    verbs = [verb for bit, verb in ((2, "sends"), (4, "reads")) if not permission & bit]
    return Finding(
        f"it refuses {' and '.join(verbs)}: brokerPermission={permission}",
        f"if this is not intended: rmqpy config set {name} brokerPermission=6",
    )


def gone(address: str, since: datetime, *, is_stopped: bool) -> Finding:
    """A broker that left the name servers and did not come back.

    >>> print(gone("10.0.0.7:10911", datetime(2026, 1, 31, 12, 3, tzinfo=UTC), is_stopped=False).found)
    gone since 2026-01-31 12:03 UTC, last at 10.0.0.7:10911
    """
    verb = "stopped at" if is_stopped else "gone since"
    return Finding(
        f"{verb} {since.astimezone(UTC):%Y-%m-%d %H:%M} UTC, last at {address}",
        "start it; if it was removed permanently, name servers forget it after a day, or with their restart",
    )


def no_consumer(group: str, lag: int) -> Finding:
    """A group with pending messages and no member.

    >>> print(no_consumer("billing", 12))
    12 messages are pending and no member is online; start a consumer of billing
    """
    verb = "1 message is" if lag == 1 else f"{lag} messages are"
    return Finding(f"{verb} pending and no member is online", f"start a consumer of {group}")


def consumption_disabled(group: str) -> Finding:
    """A group whose members may not consume."""
    return Finding("consumption is disabled for the group", f"rmqpy group alter {group} --consume")


def subscriptions_differ() -> Finding:
    """A group whose members subscribe to different topics or tags."""
    return Finding(
        "members have different subscriptions, so some messages reach no member",
        "use the same subscriptions in all of them",
    )


def hot_queue(queue: str, share: float) -> Finding:
    """A group whose backlog is in one queue of several.

    >>> print(hot_queue("broker-a:3", 0.95).found)
    95 % of the pending messages are in one queue, broker-a:3
    """
    return Finding(
        f"{100 * share:.0f} % of the pending messages are in one queue, {queue}",
        "look at the thread stacks of its member; if one message key gets most of the traffic, spread it over queues",
    )


def waiting_queue(queue: str, offset: int, behind_s: float) -> Finding:
    """A queue that waits at one message while the group's other queues are current.

    >>> print(waiting_queue("broker-a:3", 42, 600).found)
    queue broker-a:3 waits at offset 42, whose message is 10 min old; the other queues are current
    """
    return Finding(
        f"queue {queue} waits at offset {offset}, whose message is {behind_s / 60:.0f} min old; the other queues are "
        "current",
        "look at the message and at the thread stacks of the queue's member: its handler blocks, or fails again and "
        "again in order",
    )


def slow_members(lag: int, members: int, behind_s: float) -> Finding:
    """A group whose members are online and behind.

    >>> print(slow_members(900, 2, 125).found)
    900 messages are pending, the oldest for 2 min, and 2 members are online
    """
    online = "1 member is" if members == 1 else f"{members} members are"
    return Finding(
        f"{lag} messages are pending, the oldest for {behind_s / 60:.0f} min, and {online} online",
        "look at their thread stacks; add members, at most one for each queue",
    )


_PROMOTION: Final = re.compile(r"rmqpy cluster promote (\S+) --id (\d+)")
_OF_REPLICAS: Final = re.compile(
    r"(?:replicas|promise|port for slaves|log|slave \d+) of (\S+?)(?:, slave \d+)?$"
)
_OF_BROKER: Final = re.compile(
    r"(?:disk|store|permission|waiting messages|clock|exposure|cluster) of (\S+)$|broker (\S+)"
)


def steps(check: str, finding: Finding) -> list[Step]:
    """Return what a tool can offer for a finding, the remedy first.

    >>> lost = no_master("broker-a", 1, None, 3.0, acts=False)
    >>> [step.kind for step in steps("master of broker-a", lost)]
    ['promote', 'replicas']
    >>> steps("disk of broker-a", no_room("broker-a", "/data", 96.2, 0))
    [Step(kind='broker', name='broker-a', broker_id=0)]
    """
    found = []
    # A former master first has to follow.
    if check.startswith("master of ") and (named := _PROMOTION.search(finding.advice)):
        found.append(Step("promote", named[1], int(named[2])))
    if check.startswith("master of "):
        found.append(Step("replicas", check.removeprefix("master of ")))
    elif replicas := _OF_REPLICAS.match(check):
        found.append(Step("replicas", replicas[1]))
    elif broker := _OF_BROKER.match(check):
        found.append(Step("broker", broker[1] or broker[2]))
    elif check.startswith("certificate of "):
        found.append(Step("brokers", ""))
    elif check.startswith("group "):
        found.append(Step("group", check.removeprefix("group ")))
    return found


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


def cannot_listen(key: str, port: int, address: str, number: int | None, text: str = "") -> Finding:
    """A server that cannot listen where a setting says, with the reason of an `errno` or another error's text.

    >>> print(cannot_listen("httpPort", 8082, "127.0.0.1:8082", errno.EADDRINUSE))
    httpPort=8082: cannot listen on 127.0.0.1:8082: it is in use; choose another port, or find its user: ss -ltnp \
'sport = :8082'
    """
    bound = address.rpartition(":")[2]
    reason, advice = {
        errno.EADDRINUSE: (
            "it is in use",
            f"choose another port, or find its user: ss -ltnp 'sport = :{bound}'",
        ),
        errno.EACCES: ("this user may not use that port", "choose a port above 1023"),
        errno.EADDRNOTAVAIL: ("this machine has no such address", "correct bindAddress"),
    }.get(number or 0, (text or os.strerror(number or 0), f"correct {key} or bindAddress"))
    return Finding(f"{key}={port}: cannot listen on {address}: {reason}", advice)
