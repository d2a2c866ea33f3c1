"""Replicas: master and slaves of each name, and the lag of each slave."""

from typing import NamedTuple

from rmqpy.admin.connection import Part
from rmqpy.admin.duplicates import duplicates_of
from rmqpy.errors import ConnectError, RequestTimeout, RocketMQError
from rmqpy.findings import Finding, Trouble, diverged, silent_slave
from rmqpy.protocol.replica_findings import is_in_sync, is_starting, of_master, of_slave, silence
from rmqpy.protocol.requests.brokers import GetBrokerRuntimeInfo
from rmqpy.protocol.requests.replicas import GetBrokerHaStatus, HaStatus
from rmqpy.protocol.requests.routes import MASTER_ID
from rmqpy.protocol.troubles import read as read_troubles


class ReplicaState(NamedTuple):
    """One broker of a name. Unreported values are None."""

    cluster: str
    broker: str
    broker_id: int
    address: str
    #: The end of its log.
    log_end: int | None
    #: Slave: its lag behind the master's log in bytes, and how long it has lasted.
    behind_bytes: int | None
    behind_seconds: float | None
    #: Slave: whether it is connected and lags less than 256 MiB. Master whose replies promise copies: whether enough
    #: are in sync.
    in_sync: bool | None
    #: Slave: seconds since its last contact with the master.
    silent_seconds: float | None
    #: Master: connected slaves.
    slaves: int | None
    #: Slave: whether it acts for its master. Not reported by Apache's.
    acting: bool | None
    #: The reason for no answer, or the problem that `doctor` reports.
    fault: str | None
    #: Slave, or one refused by its master: whether the two logs diverge.
    is_diverged: bool = False
    #: Slave: whether it was just started and is connecting to its master.
    is_starting: bool = False
    #: Master: whether it refuses messages.
    refuses: bool = False
    #: Elected master: seconds for which it may acknowledge without another heartbeat to the controller.
    lease_seconds: float | None = None
    #: The newest epoch of its log: each election begins one. Not reported by Apache's, and None before the first.
    epoch: int | None = None

    @property
    def is_master(self) -> bool:
        """Whether it accepts messages."""
        return self.broker_id == MASTER_ID


class Found(NamedTuple):
    """One broker of a name, and its problems."""

    state: ReplicaState
    troubles: list[Trouble]


class Replicas(Part):
    """The brokers of each name."""

    async def states(self, broker: str | None = None) -> list[ReplicaState]:
        """List every master with its slaves by cluster, name and id, or those of the name `broker`."""
        return [each.state for each in await self.survey(broker)]

    async def survey(self, broker: str | None = None) -> list[Found]:
        """The same with the problems of each."""
        info = await self._cluster.cluster_info()
        found: list[Found] = []
        for cluster, names in sorted(info.cluster_addr_table.items()):
            for name in sorted(names):
                if broker not in (None, name):
                    continue
                known = info.broker_addr_table[name].broker_addrs
                rows = await self._of(cluster, name, known)
                for broker_id, address, finding in duplicates_of(info, name):
                    if address not in known.values():
                        rows += await self._of(cluster, name, {broker_id: address})
                    rows = [_with_duplicate(each, address, finding) for each in rows]
                found += rows
        return found

    async def _of(self, cluster: str, name: str, addresses: dict[int, str]) -> list[Found]:
        status: dict[int, HaStatus | str] = {}
        away: set[int] = set()
        # The master last: its log is then at least as long as when a slave was asked.
        for broker_id, address in sorted(addresses.items(), reverse=True):
            try:
                status[broker_id] = await self._cluster.ask(address, GetBrokerHaStatus())
            except RocketMQError as error:
                is_away = isinstance(error, ConnectError | RequestTimeout)
                status[broker_id] = str(error) if is_away else f"it does not report its state: {error}"
                if is_away:
                    away.add(broker_id)
        known = status.get(MASTER_ID)
        master = known if isinstance(known, HaStatus) else None
        master_end = None if master is None else master.master_commit_log_max_offset
        is_gone = master is None and not any(_follows(each) for each in status.values())
        found = [
            _found((cluster, name, broker_id, address), status[broker_id], master_end, is_gone=is_gone)
            for broker_id, address in sorted(addresses.items())
        ]
        if master is not None:
            found = [
                _of_silent(each.state, master) if each.state.broker_id in away else each for each in found
            ]
        return _with_strays(_with_successor([await self._with_refusal(each) for each in found]))

    async def _with_refusal(self, found: Found) -> Found:
        """Add what else makes a master refuse messages, such as a full disk."""
        state = found.state
        if not state.is_master or state.log_end is None or any(each.refuses for each in found.troubles):
            return found
        try:
            table = (await self._cluster.ask(state.address, GetBrokerRuntimeInfo())).table
        except RocketMQError:
            return found
        refusals = [each for each in read_troubles(table) if each.refuses]
        if not refusals:
            return found
        every = [*refusals, *found.troubles]
        return Found(state._replace(fault=_fault(every), refuses=True), every)


def _follows(status: HaStatus | str) -> bool:
    """Whether a slave follows a master."""
    return (
        isinstance(status, HaStatus)
        and not status.master
        and bool(status.ha_client_runtime_info.is_connected)
    )


def _found(
    place: tuple[str, str, int, str], status: HaStatus | str, master_end: int | None, *, is_gone: bool
) -> Found:
    _, name, broker_id, _ = place
    if isinstance(status, str):
        return Found(ReplicaState(*place, None, None, None, None, None, None, None, status), [])
    if status.master:
        troubles = list(of_master(name, status))
        replicas, wanted = 1 + status.in_sync_slave_nums, status.copies_wanted or 1
        in_sync = replicas >= wanted if wanted > 1 else None
        end, slaves = status.master_commit_log_max_offset, len(status.ha_connection_info)
        is_diverged = any(not slave.lacks_ticket for slave in status.refused_slaves or ())
        state = ReplicaState(*place, end, None, None, in_sync, None, slaves, None, None, is_diverged)
        lease_ms = status.lease_left_millis
        lease = None if lease_ms is None else lease_ms / 1_000
        state = state._replace(fault=_fault(troubles), lease_seconds=lease, epoch=status.epoch)
        return Found(state, troubles)
    own = status.ha_client_runtime_info
    behind = own.behind_bytes if master_end is None else max(0, master_end - own.max_offset)
    troubles = list(of_slave(name, broker_id, status, behind_bytes=behind, is_gone=is_gone))
    state = ReplicaState(
        *place,
        own.max_offset,
        behind,
        None if own.behind_millis is None else own.behind_millis / 1_000,
        None if behind is None else is_in_sync(own, behind),
        silence(own),
        None,
        status.is_acting,
        _fault(troubles),
        bool(own.is_diverged),
        is_starting(own),
        epoch=status.epoch,
    )
    return Found(state, troubles)


def _of_silent(state: ReplicaState, master: HaStatus) -> Found:
    """A slave that does not answer, with its silence and lag if its master reports them, also after the connection."""
    host = state.address.rpartition(":")[0]
    known = [*master.ha_connection_info, *(master.lost_slaves or ())]
    # Of several on one machine, the longest silent.
    last = max(
        (each for each in known if each.addr.rpartition(":")[0] == host),
        key=lambda each: each.silent_millis or 0,
        default=None,
    )
    silent_s = None if last is None or last.silent_millis is None else last.silent_millis / 1_000
    behind = None if last is None else last.diff
    finding = silent_slave(state.broker, state.address, silent_s, behind)
    return Found(
        state._replace(behind_bytes=behind, silent_seconds=silent_s, in_sync=False, fault=finding.found),
        [Trouble(f"slave {state.broker_id} of {state.broker}", "bad", finding)],
    )


def _with_duplicate(found: Found, address: str, finding: Finding) -> Found:
    """Add the problem of several brokers of one name, which `doctor` reports once for all of them."""
    state = found.state
    if state.address != address or found.troubles:
        return found
    return found._replace(state=state._replace(fault=finding.found))


def _fault(troubles: list[Trouble]) -> str | None:
    return "; ".join(each.finding.found for each in troubles) or None


def _with_successor(found: list[Found]) -> list[Found]:
    """Of several slaves without a master, the one with the longest log should lead: it speaks for all."""
    lost = [
        each for each in found if any(it.check == f"master of {each.state.broker}" for it in each.troubles)
    ]
    if len(lost) < 2:
        return found
    best = max(lost, key=lambda each: each.state.log_end or 0)
    return [
        Found(each.state._replace(fault=_fault(best.troubles)), best.troubles) if each in lost else each
        for each in found
    ]


def _with_strays(found: list[Found]) -> list[Found]:
    """Slaves that follow another master's log: their master has fewer connections than slaves that follow."""
    states = [each.state for each in found]
    # Only rmqpy's report whether they are connected now.
    following = [state for state in states if state.in_sync and state.acting is not None]
    slaves = next((state.slaves for state in states if state.is_master), None)
    if slaves is None or slaves >= len(following):
        return found
    finding = diverged(
        f"{len(following)} slaves say that they follow their master, and it has {slaves}: the haMasterAddress of one "
        "leads to another master"
    )
    return [
        Found(
            state._replace(in_sync=False, is_diverged=True, fault=finding.found),
            [Trouble(f"log of {state.broker}, slave {state.broker_id}", "bad", finding)],
        )
        if state in following
        else each
        for each, state in zip(found, states, strict=True)
    ]
