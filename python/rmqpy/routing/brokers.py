"""Brokers as a name server knows them: their groups, their registrations, their signs of life. Pure; any thread."""

from dataclasses import dataclass, field
from typing import Final, NamedTuple

from rmqpy.protocol.requests.routes import BrokerData
from rmqpy.protocol.topics import DataVersion

#: Silence after which a broker is gone that registered without a timeout of its own.
HEARTBEAT_TIMEOUT_MS: Final = 120_000
#: The longest silence that a broker may ask for: it stays in every route meanwhile.
HEARTBEAT_TIMEOUT_MS_MAX: Final = 3_600_000
#: Brokers of one name server.
BROKERS_MAX: Final = 10_000
#: Characters of a broker's name, address, cluster or zone.
TEXT_CHARS_MAX: Final = 1_024


class BrokerKey(NamedTuple):
    """A broker. Those of two clusters may share an address behind different networks; of one cluster by mistake."""

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
        """Forget an address, whatever its id."""
        self.addresses = {known: where for known, where in self.addresses.items() if where != address}

    def data(self) -> BrokerData:
        """A copy for an answer."""
        return BrokerData(
            broker_name=self.name,
            cluster=self.cluster,
            broker_addrs=dict(sorted(self.addresses.items())),
            enable_acting_master=self.may_act_for_master,
            zone_name=self.zone,
        )


class BrokerInfo(NamedTuple):
    """A broker as it registers."""

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
        """Whether no text is longer than may be."""
        texts = (self.cluster, self.name, self.address, self.replica_address, self.zone or "")
        return max(map(len, texts)) <= TEXT_CHARS_MAX


@dataclass(slots=True)
class BrokerLiveInfo:
    """The last registration or heartbeat of one broker."""

    info: BrokerInfo
    data_version: DataVersion
    #: Of the table it sent last; `None` once our tables may differ from that.
    fingerprint: bytes | None
    last_seen: float

    def is_expired(self, now: float) -> bool:
        """Whether the broker was silent for too long."""
        given = min(self.info.timeout_ms or 0, HEARTBEAT_TIMEOUT_MS_MAX)
        return now > self.last_seen + (given if given > 0 else HEARTBEAT_TIMEOUT_MS) / 1000


class MinBrokerIdChange(NamedTuple):
    """The smallest id of a group is another, as one left or one came."""

    group: str
    #: Of the brokers there are now, by id.
    addresses: dict[int, str]
    #: The address of the broker that left; `None` where one came.
    gone: str | None = None
    #: Of a broker that came: the address its replicas are told.
    replica_address: str | None = None


class MasterAddresses(NamedTuple):
    """The answer to a registration: to a slave, where its master is."""

    master_address: str | None = None
    replica_address: str | None = None


class SingleTopicTooEarly(Exception):
    """One topic came before the broker's whole table: taken as the table, it would hide all others."""
