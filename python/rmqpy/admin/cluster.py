"""Members of a cluster: its brokers with their state, and the clients that are connected to them."""

import re
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from rmqpy.admin.connection import Part
from rmqpy.admin.groups import Groups
from rmqpy.errors import ConnectError, RequestTimeout
from rmqpy.findings import Trouble, no_room
from rmqpy.protocol import troubles
from rmqpy.protocol.requests.brokers import GetBrokerRuntimeInfo, StringTable
from rmqpy.protocol.requests.clients import Connection, GetAllProducerInfo, ProducerInfo
from rmqpy.protocol.requests.routes import MASTER_ID

#: With less room a broker of ours takes no messages, whatever its settings say.
FREE_BYTES_MIN: Final = 64 << 20

_FREE: Final = re.compile(r"Free\s*:\s*([\d.]+)\s*([KMGTP]?)i?B")


class BrokerState(NamedTuple):
    """One registered broker. Its own state is None where it did not answer."""

    cluster: str
    broker: str
    broker_id: int
    address: str
    version: str | None
    #: Messages in and out in each of the last seconds.
    in_per_second: float | None
    out_per_second: float | None
    #: Used part of the disk that holds the log.
    disk_used: float | None
    #: Why it did not answer, or what is wrong with it, as `doctor` says.
    fault: str | None
    #: Whether it answers, and takes no messages.
    refuses: bool = False

    @property
    def is_master(self) -> bool:
        """Whether it leads the brokers of its name."""
        return self.broker_id == MASTER_ID

    @property
    def answers(self) -> bool:
        """Whether it told its state."""
        return self.disk_used is not None or self.version is not None


class ClientState(NamedTuple):
    """One client in one group."""

    client_id: str
    role: str
    group: str
    address: str
    language: str
    version: int
    brokers: tuple[str, ...]


class Cluster(Part):
    """The brokers that name servers know, and the clients connected to them."""

    async def brokers(self) -> list[BrokerState]:
        """Every registered broker, by cluster, name and id; one that does not answer is listed, too."""
        info = await self._cluster.cluster_info()
        places = [
            (cluster, name, broker_id, address)
            for cluster, names in sorted(info.cluster_addr_table.items())
            for name in sorted(names)
            for broker_id, address in sorted(info.broker_addr_table[name].broker_addrs.items())
        ]
        servers = ((name, address) for _, name, _, address in places)
        told = await self._cluster.outcomes(servers, GetBrokerRuntimeInfo())
        return [_state(place, outcome) for place, (_, _, outcome) in zip(places, told, strict=True)]

    async def clients(self, group: str | None = None) -> list[ClientState]:
        """Connected producers and consumers, by group; with `group` the members of that one.

        A client that is in several groups is in the list once for each. Masters of the original are asked about
        every consumer group by itself.
        """
        found: dict[tuple[str, str, str], ClientState] = {}

        def note(role: str, name: str, client: Connection | ProducerInfo, address: str, broker: str) -> None:
            known = found.get((role, name, client.client_id))
            brokers = (*(known.brokers if known else ()), broker)
            found[role, name, client.client_id] = ClientState(
                client.client_id, role, name, address, client.language, client.version, brokers
            )

        for broker, address, told in await self._cluster.ask_masters(
            GetAllProducerInfo(wants_consumers=True)
        ):
            for name, producers in told.data.items():
                if group in (None, name):
                    for producer in producers:
                        note("producer", name, producer, producer.remote_ip, broker)
            consumers: Mapping[str, Sequence[Connection]] | None = told.consumers
            if consumers is None:
                consumers = await self._consumers(address, group)
            for name, members in consumers.items():
                if group in (None, name):
                    for consumer in members:
                        note("consumer", name, consumer, consumer.client_addr, broker)
        return sorted(found.values(), key=lambda client: (client.group, client.role, client.client_id))

    async def _consumers(self, address: str, group: str | None) -> Mapping[str, Sequence[Connection]]:
        """Members of groups at a broker that does not tell them all together."""
        groups = Groups(self._cluster)
        names = [group] if group is not None else await groups.names(with_system=True)
        return {name: await groups.online(address, name) for name in names}


def _state(
    place: tuple[str, str, int, str], told: StringTable | ConnectError | RequestTimeout
) -> BrokerState:
    if isinstance(told, ConnectError | RequestTimeout):
        return BrokerState(*place, None, None, None, None, str(told))
    table = told.table
    found = troubles.read(table)
    free = free_bytes(table)
    if not found and free is not None and free < FREE_BYTES_MIN:
        # Another release's.
        found = [Trouble("", "bad", no_room(place[1], "its log", 100.0, free), refuses=True)]
    return BrokerState(
        *place,
        table.get("brokerVersionDesc"),
        _first(table.get("putTps")),
        _first(table.get("getTransferredTps") or table.get("getTransferedTps")),
        _first(table.get("commitLogDiskRatio")),
        "; ".join(each.finding.found for each in found) or None,
        any(each.refuses for each in found),
    )


def free_bytes(runtime: Mapping[str, str]) -> int | None:
    """The room where a broker's log lies, of what it tells of itself."""
    found = _FREE.search(runtime.get("commitLogDirCapacity", ""))
    if found is None:
        return None
    return int(float(found[1]) * 1_024 ** " KMGTP".index(found[2] or " "))


def _first(numbers: str | None) -> float | None:
    """The first of several numbers: brokers report rates over 10 s, a minute and ten minutes."""
    try:
        return float((numbers or "").split()[0])
    except (ValueError, IndexError):
        return None
