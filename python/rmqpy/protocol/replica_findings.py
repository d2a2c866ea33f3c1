"""Replica findings: problems of the replicas of one name, derived from a broker's report.

Used by the broker for its log, and by the administration for `cluster replicas`, `doctor` and the console: facts
cross the wire, and the texts are made in one place. Pure; any thread.
"""

import time
from collections.abc import Iterator
from typing import Final

from rmqpy import findings
from rmqpy.findings import Trouble
from rmqpy.protocol.requests.replicas import HaStatus, MasterConnection

#: Defaults of brokers: `haMaxGapNotInSync` and `haHousekeepingInterval`.
GAP_BYTES_MAX: Final = 256 << 20
SILENCE_SECONDS_MAX: Final = 20.0
#: A slave that lags longer than this is slower than its master, however small the lag.
BEHIND_SECONDS_MAX: Final = 60.0
#: How long a started broker may take to find its master and compare the logs, or its slaves.
START_SECONDS: Final = 10.0


def of_master(name: str, status: HaStatus) -> Iterator[Trouble]:
    """Problems of a master's slaves."""
    replicas, wanted = 1 + status.in_sync_slave_nums, status.copies_wanted or 1
    slaves, expected = len(status.ha_connection_info), status.slaves_expected or 0
    is_short = replicas < wanted
    refuses = is_short and replicas < (status.copies_min or 1)
    lack = None
    # Its slaves are about to connect, except the former master, which an operator has to start.
    age = status.started_millis
    is_fresh = age is not None and age < START_SECONDS * 1_000 and not status.replaced
    if is_fresh and not refuses:
        pass
    elif is_short:
        lack = findings.few_copies(replicas, wanted, refuses=refuses)
    elif slaves < expected:
        lack = findings.few_slaves(slaves, expected)
    if lack is not None:
        if status.replaced and not slaves:
            lack = findings.not_back(name, status.replaced, status.led_since or 0, lack)
        yield Trouble(f"replicas of {name}", "bad" if is_short else "warn", lack, refuses)
    if status.copies_before is not None:
        yield Trouble(
            f"promise of {name}", "warn", findings.weaker_promise(name, wanted, status.copies_before)
        )
    for slave in status.refused_slaves or ():
        if slave.lacks_ticket:
            yield Trouble(f"port for slaves of {name}", "warn", findings.no_ticket(slave.addr))
        else:
            yield Trouble(f"log of {name}", "bad", findings.diverged(f"{slave.addr}: {slave.reason}"))


def of_slave(
    name: str,
    broker_id: int,
    status: HaStatus,
    *,
    behind_bytes: int | None = None,
    is_gone: bool | None = None,
) -> Iterator[Trouble]:
    """Problems of a slave. `is_gone`: whether the master is down, if others were asked, too."""
    own = status.ha_client_runtime_info
    behind = own.behind_bytes if behind_bytes is None else behind_bytes
    lacks = f"{behind} bytes behind" if behind is not None else "unknown lag"
    check = f"slave {broker_id} of {name}"
    if own.is_diverged:
        yield Trouble(f"log of {name}, slave {broker_id}", "bad", findings.diverged(own.fault or "no reason"))
    elif is_in_sync(own, behind):
        if (seconds := (own.behind_millis or 0) / 1_000) > BEHIND_SECONDS_MAX:
            yield Trouble(check, "warn", findings.slow(lacks, seconds))
    elif status.is_acting or (is_lost(own) if is_gone is None else is_gone):
        finding = findings.no_master(
            name,
            broker_id,
            own.broker_addr,
            silence(own),
            acts=bool(status.is_acting),
            is_elected=bool(status.is_elected),
        )
        yield Trouble(f"master of {name}", "warn" if status.is_acting else "bad", finding)
    elif not is_starting(own):
        yield Trouble(check, "bad", findings.not_following(name, lacks, own.fault))


def is_in_sync(own: MasterConnection, behind: int | None) -> bool:
    """Whether a slave is connected to its master with a small lag."""
    silent_s = silence(own)
    is_live = own.is_connected is not False and silent_s is not None and silent_s <= SILENCE_SECONDS_MAX
    return is_live and behind is not None and behind < GAP_BYTES_MAX


def is_lost(own: MasterConnection) -> bool:
    """Whether a slave knows by itself that its master is down: it does not answer, and name servers know none."""
    return own.is_connected is False and own.answers is False and own.is_registered is False


def is_starting(own: MasterConnection) -> bool:
    """Whether a slave was just started: it is looking for its master, or connecting."""
    apart_ms = own.apart_millis or 0
    return own.is_connected is not None and own.silent_millis is None and apart_ms < START_SECONDS * 1_000


def silence(own: MasterConnection) -> float | None:
    """Seconds since a slave's last contact with its master. Apache's report the time, by their own clock."""
    if own.silent_millis is not None:
        return own.silent_millis / 1_000
    if own.last_read_timestamp <= 0:
        return None
    return max(0.0, time.time() - own.last_read_timestamp / 1_000)
