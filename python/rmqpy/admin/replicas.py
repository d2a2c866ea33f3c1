"""Replicas: the master and the slaves of each name, and how far each slave is behind."""

from typing import NamedTuple

from rmqpy.admin.connection import Part
from rmqpy.errors import ConnectError, RequestTimeout, RocketMQError
from rmqpy.findings import Trouble, diverged
from rmqpy.protocol.replica_findings import is_in_sync, is_starting, of_master, of_slave, silence
from rmqpy.protocol.requests.replicas import GetBrokerHaStatus, HaStatus
from rmqpy.protocol.requests.routes import MASTER_ID


class ReplicaState(NamedTuple):
    """One broker of a name. What it or its master did not say is None."""

    cluster: str
    broker: str
    broker_id: int
    address: str
    #: End of its log.
    log_end: int | None
    #: Of a slave: what it lacks of its master's log, and for how long that has been there.
    behind_bytes: int | None
    behind_seconds: float | None
    #: Of a slave: whether it hears its master and lacks less than 256 MiB. Of a master whose answers promise copies:
    #: whether as many are in sync.
    in_sync: bool | None
    #: Of a slave: seconds since it heard its master.
    silent_seconds: float | None
    #: Of a master: slaves that are connected.
    slaves: int | None
    #: Of a slave: whether it acts for its master. Apache's does not say.
    acting: bool | None
    #: Why it did not answer, or what is wrong with it, as `doctor` says.
    fault: str | None
    #: Of a slave, or of one that its master has refused: whether the two logs do not fit together.
    is_diverged: bool = False
    #: Of a slave: whether it was just started, and connects to its master.
    is_starting: bool = False

    @property
    def is_master(self) -> bool:
        """Whether it takes messages."""
        return self.broker_id == MASTER_ID


class Found(NamedTuple):
    """One broker of a name, and what is wrong with it."""

    state: ReplicaState
    troubles: list[Trouble]


class Replicas(Part):
    """The brokers of each name."""

    async def states(self, broker: str | None = None) -> list[ReplicaState]:
        """Every master with its slaves, by cluster, name and id; with `broker` those of that name."""
        return [each.state for each in await self.survey(broker)]

    async def survey(self, broker: str | None = None) -> list[Found]:
        """The same with what is wrong with each."""
        info = await self._cluster.cluster_info()
        found: list[Found] = []
        for cluster, names in sorted(info.cluster_addr_table.items()):
            for name in sorted(names):
                if broker in (None, name):
                    found += await self._of(cluster, name, info.broker_addr_table[name].broker_addrs)
        return found

    async def _of(self, cluster: str, name: str, addresses: dict[int, str]) -> list[Found]:
        told: dict[int, HaStatus | str] = {}
        # The master last: its log is no shorter than when a slave was asked.
        for broker_id, address in sorted(addresses.items(), reverse=True):
            try:
                told[broker_id] = await self._cluster.ask(address, GetBrokerHaStatus())
            except RocketMQError as error:
                is_away = isinstance(error, ConnectError | RequestTimeout)
                told[broker_id] = str(error) if is_away else f"it does not say: {error}"
        master = told.get(MASTER_ID)
        master_end = master.master_commit_log_max_offset if isinstance(master, HaStatus) else None
        is_gone = master_end is None and not any(_follows(each) for each in told.values())
        found = [
            _found((cluster, name, broker_id, address), told[broker_id], master_end, is_gone=is_gone)
            for broker_id, address in sorted(addresses.items())
        ]
        return _with_strays(_with_successor(found))


def _follows(told: HaStatus | str) -> bool:
    """Whether a slave follows a master."""
    return isinstance(told, HaStatus) and not told.master and bool(told.ha_client_runtime_info.is_connected)


def _found(
    place: tuple[str, str, int, str], told: HaStatus | str, master_end: int | None, *, is_gone: bool
) -> Found:
    _, name, broker_id, _ = place
    if isinstance(told, str):
        return Found(ReplicaState(*place, None, None, None, None, None, None, None, told), [])
    if told.master:
        troubles = list(of_master(name, told))
        replicas, wanted = 1 + told.in_sync_slave_nums, told.copies_wanted or 1
        in_sync = replicas >= wanted if wanted > 1 else None
        end, slaves = told.master_commit_log_max_offset, len(told.ha_connection_info)
        is_diverged = any(not slave.lacks_ticket for slave in told.refused_slaves or ())
        state = ReplicaState(*place, end, None, None, in_sync, None, slaves, None, None, is_diverged)
        return Found(state._replace(fault=_fault(troubles)), troubles)
    own = told.ha_client_runtime_info
    behind = own.behind_bytes if master_end is None else max(0, master_end - own.max_offset)
    troubles = list(of_slave(name, broker_id, told, behind_bytes=behind, is_gone=is_gone))
    state = ReplicaState(
        *place,
        own.max_offset,
        behind,
        None if own.behind_millis is None else own.behind_millis / 1_000,
        None if behind is None else is_in_sync(own, behind),
        silence(own),
        None,
        told.is_acting,
        _fault(troubles),
        bool(own.is_diverged),
        is_starting(own),
    )
    return Found(state, troubles)


def _fault(troubles: list[Trouble]) -> str | None:
    return "; ".join(each.finding.found for each in troubles) or None


def _with_successor(found: list[Found]) -> list[Found]:
    """Of several slaves that lack their master, the one with the most of its log is to lead: it speaks for all."""
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
    """Slaves that follow a log which is not that of their master: this has fewer connections than slaves say."""
    states = [each.state for each in found]
    # Ours alone say whether they are connected now.
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
