"""Replicas: the master and the slaves of each name, and how far each slave is behind."""

import time
from typing import NamedTuple

from rmqpy.admin.connection import Part
from rmqpy.errors import ConnectError, RequestTimeout, RocketMQError
from rmqpy.protocol.requests.replicas import GetBrokerHaStatus, HaStatus, MasterConnection
from rmqpy.protocol.requests.routes import MASTER_ID

#: As brokers count it unless configured otherwise: `haMaxGapNotInSync` and `haHousekeepingInterval`.
GAP_BYTES_MAX = 256 << 20
SILENCE_SECONDS_MAX = 20.0


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
    #: Why it did not answer, or does not follow; of a master, what it lacks, and why it refused slaves.
    fault: str | None
    #: Of a slave, or of one that its master has refused: whether the two logs do not fit together.
    is_diverged: bool = False

    @property
    def is_master(self) -> bool:
        """Whether it takes messages."""
        return self.broker_id == MASTER_ID


class Replicas(Part):
    """The brokers of each name."""

    async def states(self, broker: str | None = None) -> list[ReplicaState]:
        """Every master with its slaves, by cluster, name and id; with `broker` those of that name."""
        info = await self._cluster.cluster_info()
        found: list[ReplicaState] = []
        for cluster, names in sorted(info.cluster_addr_table.items()):
            for name in sorted(names):
                if broker in (None, name):
                    found += await self._of(cluster, name, info.broker_addr_table[name].broker_addrs)
        return found

    async def _of(self, cluster: str, name: str, addresses: dict[int, str]) -> list[ReplicaState]:
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
        states = [
            _state(cluster, name, broker_id, address, told[broker_id], master_end)
            for broker_id, address in sorted(addresses.items())
        ]
        return _with_strays(states)


def _state(
    cluster: str, name: str, broker_id: int, address: str, told: HaStatus | str, master_end: int | None
) -> ReplicaState:
    place = (cluster, name, broker_id, address)
    if isinstance(told, str):
        return ReplicaState(*place, None, None, None, None, None, None, None, told)
    if told.master:
        slaves = len(told.ha_connection_info)
        refused = [f"{slave.addr}: {slave.reason}" for slave in told.refused_slaves or ()]
        replicas, wanted = 1 + told.in_sync_slave_nums, told.copies_wanted or 1
        lacks = _lacks(told, replicas, wanted, slaves)
        fault = "; ".join(([lacks] if lacks else []) + refused) or None
        in_sync = replicas >= wanted if wanted > 1 else None
        end = told.master_commit_log_max_offset
        return ReplicaState(*place, end, None, None, in_sync, None, slaves, None, fault, bool(refused))
    own = told.ha_client_runtime_info
    behind = own.behind_bytes if master_end is None else max(0, master_end - own.max_offset)
    silent = _silence(own)
    hears = own.is_connected is not False and silent is not None and silent <= SILENCE_SECONDS_MAX
    return ReplicaState(
        *place,
        own.max_offset,
        behind,
        None if own.behind_millis is None else own.behind_millis / 1_000,
        None if behind is None else hears and behind < GAP_BYTES_MAX,
        silent,
        None,
        told.is_acting,
        own.fault,
        bool(own.is_diverged),
    )


def _lacks(told: HaStatus, replicas: int, wanted: int, slaves: int) -> str | None:
    """What a master of ours lacks of copies, and what that means for senders."""
    if replicas < wanted:
        refuses = replicas < (told.copies_min or 1)
        means = "messages are refused" if refuses else "messages are stored, and answered with 11 or 12"
        return f"{replicas} of {wanted} replicas are in sync: {means}"
    expected = told.slaves_expected or 0
    return f"{slaves} of {expected} slaves are connected" if slaves < expected else None


def _with_strays(states: list[ReplicaState]) -> list[ReplicaState]:
    """Slaves that follow a log which is not that of their master: this has fewer connections than slaves say."""
    # Ours alone say whether they are connected now.
    following = [state for state in states if state.in_sync and state.acting is not None]
    slaves = next((state.slaves for state in states if state.is_master), None)
    if slaves is None or slaves >= len(following):
        return states
    fault = (
        f"{len(following)} slaves say that they follow their master, and it has {slaves}: the haMasterAddress of one "
        "leads to another master"
    )
    return [
        state._replace(in_sync=False, is_diverged=True, fault=fault) if state in following else state
        for state in states
    ]


def _silence(own: MasterConnection) -> float | None:
    """Seconds since the slave heard its master. Apache's says when, by its own clock."""
    if own.silent_millis is not None:
        return own.silent_millis / 1_000
    if own.last_read_timestamp <= 0:
        return None
    return max(0.0, time.time() - own.last_read_timestamp / 1_000)
