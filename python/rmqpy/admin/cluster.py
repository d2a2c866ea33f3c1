"""Members of a cluster: brokers with their state, and connected clients."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

from rmqpy.admin.checks import CheckResult
from rmqpy.admin.connection import Part
from rmqpy.admin.duplicates import duplicates_of
from rmqpy.admin.groups import Groups
from rmqpy.errors import ConnectError, RequestTimeout
from rmqpy.findings import FREE_BYTES_MIN, Finding, OldestFile, Trouble, gone, no_room
from rmqpy.protocol import troubles
from rmqpy.protocol.releases import release
from rmqpy.protocol.requests.brokers import GetBrokerRuntimeInfo, StringTable
from rmqpy.protocol.requests.clients import Connection, GetAllProducerInfo, ProducerInfo
from rmqpy.protocol.requests.routes import MASTER_ID, ClusterInfo, GoneBroker

_FREE: Final = re.compile(r"Free\s*:\s*([\d.]+)\s*([KMGTP]?)i?B")


class BrokerState(NamedTuple):
    """One registered broker. Its state is None if it did not answer."""

    cluster: str
    broker: str
    broker_id: int
    address: str
    version: str | None
    #: Messages in and out per second, averaged over recent seconds.
    in_per_second: float | None
    out_per_second: float | None
    #: The used share of the disk of the log.
    disk_used: float | None
    #: The reason for no answer, or the problem that `doctor` reports.
    fault: str | None
    #: Whether it answers but refuses messages.
    refuses: bool = False
    #: When it left the name servers, if it did not come back.
    gone_since: datetime | None = None

    @property
    def is_master(self) -> bool:
        return self.broker_id == MASTER_ID

    @property
    def answers(self) -> bool:
        """Whether it reported its state."""
        return self.disk_used is not None or self.version is not None


class ClientState(NamedTuple):
    """One client in one group."""

    client_id: str
    role: str
    group: str
    address: str
    language: str
    version: int
    #: The release of RocketMQ with that number.
    release: str
    brokers: tuple[str, ...]


class Cluster(Part):
    """Brokers known to the name servers, and clients connected to them."""

    async def brokers(self, *, with_gone: bool = False) -> list[BrokerState]:
        """List every registered broker by cluster, name and id, including those that do not answer; on request also
        those that left within a day, as far as the name server knows."""
        info = await self._cluster.cluster_info()
        places = [
            (cluster, name, broker_id, address)
            for cluster, names in sorted(info.cluster_addr_table.items())
            for name in sorted(names)
            for broker_id, address in sorted(info.broker_addr_table[name].broker_addrs.items())
        ]
        places += _duplicates(info, {address for _, _, _, address in places})
        servers = ((name, address) for _, name, _, address in places)
        outcomes = await self._cluster.outcomes(servers, GetBrokerRuntimeInfo())
        states = [_state(place, outcome) for place, (_, _, outcome) in zip(places, outcomes, strict=True)]
        for name in info.duplicate_broker_addrs or {}:
            for _, address, finding in duplicates_of(info, name):
                states = [_with_duplicate(each, address, finding) for each in states]
        if with_gone:
            states += map(_gone_state, info.gone_brokers or ())
        return sorted(states, key=lambda each: (each.cluster, each.broker, each.broker_id))

    async def clients(self, group: str | None = None) -> list[ClientState]:
        """List connected producers and consumers by group, or only the members of `group`.

        A client in several groups appears once for each. Apache's masters are asked about each consumer group
        separately.
        """
        found: dict[tuple[str, str, str], ClientState] = {}

        def note(role: str, name: str, client: Connection | ProducerInfo, address: str, broker: str) -> None:
            known = found.get((role, name, client.client_id))
            brokers = (*(known.brokers if known else ()), broker)
            found[role, name, client.client_id] = ClientState(
                client.client_id,
                role,
                name,
                address,
                client.language,
                client.version,
                release(client.version),
                brokers,
            )

        for broker, address, reply in await self._cluster.ask_masters(
            GetAllProducerInfo(wants_consumers=True)
        ):
            for name, producers in reply.data.items():
                if group in (None, name):
                    for producer in producers:
                        note("producer", name, producer, producer.remote_ip, broker)
            consumers: Mapping[str, Sequence[Connection]] | None = reply.consumers
            if consumers is None:
                consumers = await self._consumers(address, group)
            for name, members in consumers.items():
                if group in (None, name):
                    for consumer in members:
                        note("consumer", name, consumer, consumer.client_addr, broker)
        return sorted(found.values(), key=lambda client: (client.group, client.role, client.client_id))

    async def _consumers(self, address: str, group: str | None) -> Mapping[str, Sequence[Connection]]:
        """Members of groups on a broker that does not report them together."""
        groups = Groups(self._cluster)
        names = [group] if group is not None else await groups.names(with_system=True)
        return {name: await groups.online(address, name) for name in names}


def _state(
    place: tuple[str, str, int, str], outcome: StringTable | ConnectError | RequestTimeout
) -> BrokerState:
    if isinstance(outcome, ConnectError | RequestTimeout):
        return BrokerState(*place, None, None, None, None, str(outcome))
    table = outcome.table
    found = troubles.read(table)
    free = free_bytes(table)
    if not found and free is not None and free < FREE_BYTES_MIN:
        # From another release.
        found = [Trouble("", "bad", no_room(place[1], "its log", 100.0, free), refuses=True)]
    return BrokerState(
        *place,
        table.get("brokerVersionDesc"),
        first_number(table.get("putTps")),
        first_number(table.get("getTransferredTps") or table.get("getTransferedTps")),
        first_number(table.get("commitLogDiskRatio")),
        "; ".join(each.finding.found for each in found) or None,
        any(each.refuses for each in found),
    )


def _duplicates(info: ClusterInfo, known: set[str]) -> list[tuple[str, str, int, str]]:
    """The places of brokers whose name and id another broker has."""
    return [
        (info.broker_addr_table[name].cluster, name, broker_id, address)
        for name in info.duplicate_broker_addrs or {}
        if name in info.broker_addr_table
        for broker_id, address, _ in duplicates_of(info, name)
        if address not in known
    ]


def _with_duplicate(state: BrokerState, address: str, finding: Finding) -> BrokerState:
    return state if state.address != address or state.fault else state._replace(fault=finding.found)


def gone_checks(views: Iterable[ClusterInfo]) -> Iterator[CheckResult]:
    """Brokers that were lost, and that no name server knows any more. To stop one is an operator's decision."""
    known = list(views)
    live = {
        (name, broker_id)
        for view in known
        for name, broker in view.broker_addr_table.items()
        for broker_id in broker.broker_addrs
    }
    found: dict[tuple[str, int], GoneBroker] = {}
    for view in known:
        for each in view.gone_brokers or ():
            place = (each.broker_name, each.broker_id)
            # Name servers may have noticed at different times: the last one still had it.
            if (
                place not in live
                and not each.is_stopped
                and (place not in found or each.gone_millis < found[place].gone_millis)
            ):
                found[place] = each
    for (name, broker_id), each in sorted(found.items()):
        check = f"broker {name}" if broker_id == MASTER_ID else f"slave {broker_id} of {name}"
        yield CheckResult(check, "bad", *_gone_finding(each))


def _gone_state(each: GoneBroker) -> BrokerState:
    return BrokerState(
        *(each.cluster, each.broker_name, each.broker_id, each.broker_addr),
        *(None, None, None, None),
        fault=_gone_finding(each).found,
        gone_since=_since(each),
    )


def _gone_finding(each: GoneBroker) -> Finding:
    return gone(each.broker_addr, _since(each), is_stopped=each.is_stopped)


def _since(each: GoneBroker) -> datetime:
    """The name server reports a time span, since clocks differ."""
    return datetime.now(UTC) - timedelta(milliseconds=each.gone_millis)


def free_bytes(runtime: Mapping[str, str]) -> int | None:
    """The free space for a broker's log, from its runtime information."""
    found = _FREE.search(runtime.get("commitLogDirCapacity", ""))
    if found is None:
        return None
    return int(float(found[1]) * 1_024 ** " KMGTP".index(found[2] or " "))


def oldest_file(runtime: Mapping[str, str], settings: Mapping[str, str], now_s: float) -> OldestFile | None:
    """The oldest file of a broker's log, from its runtime information and settings; `None` if they do not report it."""
    try:
        oldest_ms = int(runtime["earliestMessageTimeStamp"])
        log_bytes = int(runtime["commitLogMaxOffset"]) - int(runtime["commitLogMinOffset"])
        file_bytes = int(settings["mappedFileSizeCommitLog"])
        oldest = OldestFile(
            None,
            int(settings["fileReservedTime"]),
            int(settings["diskMaxUsedSpaceRatio"]),
            int(settings["diskSpaceCleanForciblyRatio"]),
            int(settings["diskSpaceWarningLevelRatio"]),
            file_bytes,
        )
    except (KeyError, ValueError):
        return None
    if log_bytes <= file_bytes:
        return oldest
    # The age of its oldest message, which is close to that of its newest one.
    return None if oldest_ms <= 0 else oldest._replace(age_s=max(0.0, now_s - oldest_ms / 1_000))


def first_number(numbers: str | None) -> float | None:
    """The first of several numbers: brokers report rates over 10 s, a minute and ten minutes."""
    try:
        return float((numbers or "").split()[0])
    except (ValueError, IndexError):
        return None
