"""Brokers in a name server: groups, registrations, heartbeats. Pure; any thread."""

from dataclasses import dataclass, field
from typing import Final, NamedTuple

from rmqpy.protocol.requests.routes import BrokerData
from rmqpy.protocol.topics import DataVersion

#: The default timeout of a broker without heartbeats.
HEARTBEAT_TIMEOUT_MS: Final = 120_000
#: The longest timeout that a broker may ask for: it stays in routes meanwhile.
HEARTBEAT_TIMEOUT_MS_MAX: Final = 3_600_000
#: The most brokers of a name server.
BROKERS_MAX: Final = 10_000
#: The most characters of a broker's name, address, cluster or zone.
TEXT_CHARS_MAX: Final = 1_024


class BrokerKey(NamedTuple):
    """A broker. Brokers of two clusters may share an address behind different networks; within one cluster it is a
    mistake."""

    cluster: str
    name: str
    address: str


@dataclass(slots=True)
class BrokerGroup:
    """Brokers of one name: a master and its slaves."""

    cluster: str
    name: str
    addresses: dict[int, str] = field(default_factory=dict)
    may_act_for_master: bool = False
    zone: str | None = None

    def drop(self, address: str) -> None:
        """Remove an address, whatever its id."""
        self.addresses = {known: where for known, where in self.addresses.items() if where != address}

    def data(self) -> BrokerData:
        """A copy for a response."""
        return BrokerData(
            broker_name=self.name,
            cluster=self.cluster,
            broker_addrs=dict(sorted(self.addresses.items())),
            enable_acting_master=self.may_act_for_master,
            zone_name=self.zone,
        )


class BrokerInfo(NamedTuple):
    """A broker's registration data."""

    cluster: str
    name: str
    broker_id: int
    address: str
    replica_address: str
    connection: int
    #: `None`: too old to act for its master.
    may_act_for_master: bool | None = None
    timeout_ms: int | None = None
    zone: str | None = None

    @property
    def key(self) -> BrokerKey:
        return BrokerKey(self.cluster, self.name, self.address)

    @property
    def is_bounded(self) -> bool:
        """Whether all texts are within the limit."""
        texts = (self.cluster, self.name, self.address, self.replica_address, self.zone or "")
        return max(map(len, texts)) <= TEXT_CHARS_MAX


@dataclass(slots=True)
class BrokerLiveInfo:
    """The last registration or heartbeat of one broker."""

    info: BrokerInfo
    data_version: DataVersion
    #: The version of its last table; `None` once our tables may differ from it.
    fingerprint: bytes | None
    last_seen: float

    def is_expired(self, now: float) -> bool:
        """Whether the broker has timed out."""
        given = min(self.info.timeout_ms or 0, HEARTBEAT_TIMEOUT_MS_MAX)
        return now > self.last_seen + (given if given > 0 else HEARTBEAT_TIMEOUT_MS) / 1000


class MinBrokerIdChange(NamedTuple):
    """A change of the smallest id of a group."""

    group: str
    #: The current brokers by id.
    addresses: dict[int, str]
    #: The address of the broker that left; `None` if one joined.
    gone: str | None = None
    #: For a broker that joined: the address for its replicas.
    replica_address: str | None = None


class MasterAddresses(NamedTuple):
    """The reply to a registration: for a slave, the address of its master."""

    master_address: str | None = None
    replica_address: str | None = None


class SingleTopicTooEarly(Exception):
    """One topic arrived before the broker's whole table: as a table it would hide all others."""
