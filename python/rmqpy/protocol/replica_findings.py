"""Replica findings: what is wrong with the replicas of one name, of what a broker says of them.

The broker itself asks here what belongs into its log, the administration what `cluster replicas`, `doctor` and the
console show: the facts cross the wire, and the sentences are made of them in one place. Pure; any thread.
"""

import time
from collections.abc import Iterator
from typing import Final

from rmqpy import findings
from rmqpy.findings import Trouble
from rmqpy.protocol.requests.replicas import HaStatus, MasterConnection

#: As brokers count it unless configured otherwise: `haMaxGapNotInSync` and `haHousekeepingInterval`.
GAP_BYTES_MAX: Final = 256 << 20
SILENCE_SECONDS_MAX: Final = 20.0
#: A slave that lacks something for longer than this is slower than its master, however little it lacks.
BEHIND_SECONDS_MAX: Final = 60.0
#: So long a slave that was started may take to find its master and to compare the two logs.
START_SECONDS: Final = 10.0


def of_master(name: str, told: HaStatus) -> Iterator[Trouble]:
    """What a master says of its slaves."""
    replicas, wanted = 1 + told.in_sync_slave_nums, told.copies_wanted or 1
    slaves, expected = len(told.ha_connection_info), told.slaves_expected or 0
    is_short = replicas < wanted
    refuses = is_short and replicas < (told.copies_min or 1)
    lack = None
    if is_short:
        lack = findings.few_copies(replicas, wanted, refuses=refuses)
    elif slaves < expected:
        lack = findings.few_slaves(slaves, expected)
    if lack is not None:
        if told.replaced and not slaves:
            lack = findings.not_back(name, told.replaced, told.led_since or 0, lack)
        yield Trouble(f"replicas of {name}", "bad" if is_short else "warn", lack, refuses)
    if told.copies_before is not None:
        yield Trouble(f"promise of {name}", "warn", findings.weaker_promise(name, wanted, told.copies_before))
    for slave in told.refused_slaves or ():
        if slave.lacks_ticket:
            yield Trouble(f"port for slaves of {name}", "warn", findings.no_ticket(slave.addr))
        else:
            yield Trouble(f"log of {name}", "bad", findings.diverged(f"{slave.addr}: {slave.reason}"))


def of_slave(
    name: str,
    broker_id: int,
    told: HaStatus,
    *,
    behind_bytes: int | None = None,
    is_gone: bool | None = None,
) -> Iterator[Trouble]:
    """What a slave says of its master. `is_gone`: whether the master is, where others were asked, too."""
    own = told.ha_client_runtime_info
    behind = own.behind_bytes if behind_bytes is None else behind_bytes
    lacks = f"{behind} bytes behind" if behind is not None else "how far is unknown"
    check = f"slave {broker_id} of {name}"
    if own.is_diverged:
        yield Trouble(f"log of {name}, slave {broker_id}", "bad", findings.diverged(own.fault or "no reason"))
    elif is_in_sync(own, behind):
        if (seconds := (own.behind_millis or 0) / 1_000) > BEHIND_SECONDS_MAX:
            yield Trouble(check, "warn", findings.slow(lacks, seconds))
    elif told.is_acting or (is_lost(own) if is_gone is None else is_gone):
        finding = findings.no_master(
            name, broker_id, own.broker_addr, silence(own), acts=bool(told.is_acting)
        )
        yield Trouble(f"master of {name}", "warn" if told.is_acting else "bad", finding)
    elif not is_starting(own):
        yield Trouble(check, "bad", findings.not_following(name, lacks, own.fault))


def is_in_sync(own: MasterConnection, behind: int | None) -> bool:
    """Whether a slave hears its master and lacks little."""
    heard = silence(own)
    hears = own.is_connected is not False and heard is not None and heard <= SILENCE_SECONDS_MAX
    return hears and behind is not None and behind < GAP_BYTES_MAX


def is_lost(own: MasterConnection) -> bool:
    """Whether a slave, asked alone, knows that its master is gone: it does not answer, and name servers know none."""
    return own.is_connected is False and own.answers is False and own.is_registered is False


def is_starting(own: MasterConnection) -> bool:
    """Whether a slave has just been started: it has not heard its master yet, and looks for it or is connected."""
    apart_ms = own.apart_millis or 0
    return own.is_connected is not None and own.silent_millis is None and apart_ms < START_SECONDS * 1_000


def silence(own: MasterConnection) -> float | None:
    """Seconds since a slave heard its master. Apache's says when, by its own clock."""
    if own.silent_millis is not None:
        return own.silent_millis / 1_000
    if own.last_read_timestamp <= 0:
        return None
    return max(0.0, time.time() - own.last_read_timestamp / 1_000)
