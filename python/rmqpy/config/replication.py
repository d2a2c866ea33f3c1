"""Configuration of replication: the keys of `broker.conf` that say what a broker is to others of its name.

A master is broker 0 and lets slaves copy its log; a slave has another number and a master to follow. How many copies a
master of the role SYNC_MASTER waits for is decided here, too, see `copies`.
"""

from __future__ import annotations

import dataclasses
from ipaddress import ip_address
from typing import Final

from rmqpy.config import addresses
from rmqpy.config.addresses import ANY_HOST, LOOPBACK
from rmqpy.config.keys import Settings, key
from rmqpy.errors import ConfigError

ASYNC_MASTER: Final = "ASYNC_MASTER"
SYNC_MASTER: Final = "SYNC_MASTER"
SLAVE: Final = "SLAVE"

#: Brokers of one name at most, the master among them.
REPLICAS_MAX: Final = 64
#: Of a transfer, header included, there is room for twice as much at Apache's slaves.
TRANSFER_BYTES_MAX: Final = 2 << 20
_BY_ROLE: Final = 0


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReplicationConfig(Settings):
    """Role of the broker, where replicas find their master, and how many copies a reply promises."""

    role: str = key(
        "brokerRole",
        ASYNC_MASTER,
        "A master whose replies wait for no slave, one whose replies do, or a slave, which copies its master.",
        choices=(ASYNC_MASTER, SYNC_MASTER, SLAVE),
    )
    broker_id: int = key(
        "brokerId",
        0,
        "Number of the broker among those of its name: 0 of a master, above 0 of a slave.",
        low=0,
        high=(1 << 31) - 1,
    )
    advertised_address: str = key(
        "brokerIP2", "", "Address slaves are told, see haListenPort; empty: that of the clients."
    )
    listen_address: str = key(
        "haListenAddress",
        "",
        "Address on which a master waits for slaves; empty: loopback, or any with brokerIP2. Apache's broker has no "
        "such key and takes any.",
    )
    listen_port: int = key(
        "haListenPort",
        0,
        "Port on which a master waits for slaves; 0: one above the main port, or where that is taken, a free one.",
        low=0,
        high=65_535,
    )
    master_address: str = key(
        "haMasterAddress",
        "",
        "Where a slave copies from, as host:port; empty: from where the name servers say that its master is.",
    )
    trusted: str = key(
        "haTrustedAddresses",
        "",
        "IP addresses of slaves that a master with access control lets in without a ticket, separated by commas: "
        "Apache's slaves have none. Whoever connects from there gets the whole log. Apache's has no such key.",
    )
    heartbeat_interval_ms: int = key(
        "haSendHeartbeatInterval",
        5_000,
        "How often master and slave give a sign of life where there is nothing to copy.",
        unit="ms",
        low=100,
        high=600_000,
    )
    silence_ms_max: int = key(
        "haHousekeepingInterval",
        20_000,
        "A connection between master and slave on which nothing came for so long is closed.",
        unit="ms",
        low=500,
        high=3_600_000,
    )
    transfer_bytes_max: int = key(
        "haTransferBatchSize",
        32 << 10,
        "Most bytes of the log that go to a slave in one piece.",
        unit="bytes",
        low=1 << 10,
        high=TRANSFER_BYTES_MAX,
    )
    gap_bytes_max: int = key(
        "haMaxGapNotInSync",
        256 << 20,
        "A slave that lacks less of the log than this counts as in sync.",
        unit="bytes",
        low=1,
        high=1 << 50,
    )
    slave_timeout_ms: int = key(
        "slaveTimeout",
        3_000,
        "How long a reply waits for slaves before it says that they were late.",
        unit="ms",
        low=1,
        high=600_000,
    )
    replicas: int = key(
        "totalReplicas", 1, "Brokers of this name, the master among them.", low=1, high=REPLICAS_MAX
    )
    copies_wanted: int = key(
        "inSyncReplicas",
        _BY_ROLE,
        "Copies of a message, the master's own among them, that a reply of a SYNC_MASTER waits for; 0: 2. Apache's "
        "default is 1, which waits for no slave.",
        low=0,
        high=REPLICAS_MAX,
    )
    copies_min: int = key(
        "minInSyncReplicas",
        1,
        "With fewer replicas in sync than this a SYNC_MASTER refuses messages.",
        low=1,
        high=REPLICAS_MAX,
    )
    serves_reads: bool = key(
        "slaveReadEnable",
        False,
        "Consumers that are far behind are sent to a slave, and a slave answers them.",
    )
    checks_offsets: bool = key(
        "offsetCheckInSlave",
        False,
        "A slave corrects consumers that ask for what it does not have; otherwise they wait for it.",
    )
    copies_last_file: bool = key(
        "syncFromLastFile",
        False,
        "A slave without a log begins with the last file of its master's, and will never have what is older.",
    )
    may_act: bool = key(
        "enableSlaveActingMaster",
        False,
        "While the master is gone, the slave with the smallest brokerId acts for it: consumers read, commit and lock "
        "queues there. For all brokers of a name, whose name servers have supportActingMaster.",
    )
    may_escape: bool = key(
        "enableRemoteEscape",
        False,
        "An acting slave sends delayed and timed messages that are due, and open transactions, to another broker of "
        "the cluster that has their topic; otherwise they wait for the master.",
    )
    skips_hand_over: bool = key(
        "skipPreOnline",
        False,
        "A master that starts does not take over what was consumed and delivered at the slave that acted for it, which "
        "then happens twice.",
    )
    beat_interval_ms: int = key(
        "brokerHeartbeatInterval",
        1_000,
        "With enableSlaveActingMaster: how often a broker gives its name servers a sign of life, and asks who else "
        "lives.",
        unit="ms",
        low=100,
        high=10_000,
    )
    beat_timeout_ms: int = key(
        "sendHeartbeatTimeoutMillis",
        1_000,
        "How long it waits for the answers.",
        unit="ms",
        low=100,
        high=10_000,
    )
    beat_silence_ms_max: int = key(
        "brokerNotActiveTimeoutMillis",
        10_000,
        "With enableSlaveActingMaster: a broker of which the name servers hear nothing for so long is gone.",
        unit="ms",
        low=1_000,
        high=120_000,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.is_slave != (self.broker_id > 0):
            raise ConfigError(
                f"brokerId={self.broker_id} with brokerRole={self.role}: "
                + (
                    "a slave has a brokerId above 0"
                    if self.is_slave
                    else "a master has brokerId=0; brokerRole=SLAVE makes a slave"
                )
            )
        if self.master_address:
            try:
                addresses.parse(self.master_address)
            except ConfigError as error:
                raise ConfigError(f"haMasterAddress: {error}") from None
        # Read once, so that a mistake stops the start.
        _ = self.trusted_addresses
        for wire, is_set in (
            ("enableRemoteEscape", self.may_escape),
            ("skipPreOnline", self.skips_hand_over),
        ):
            if is_set and not self.may_act:
                raise ConfigError(f"{wire}=true: has no effect without enableSlaveActingMaster=true")
        if self.beat_silence_ms_max < 2 * self.beat_interval_ms:
            raise ConfigError(
                f"brokerNotActiveTimeoutMillis={self.beat_silence_ms_max}: must be twice "
                f"brokerHeartbeatInterval={self.beat_interval_ms} at least, or living brokers count as gone"
            )
        if self.silence_ms_max <= self.heartbeat_interval_ms:
            raise ConfigError(
                f"haHousekeepingInterval={self.silence_ms_max}: must be above "
                f"haSendHeartbeatInterval={self.heartbeat_interval_ms}, or signs of life come too late"
            )
        if self.copies_min > self.copies and self.role == SYNC_MASTER:
            raise ConfigError(
                f"minInSyncReplicas={self.copies_min}: no more than inSyncReplicas={self.copies} are waited for"
            )

    @property
    def trusted_addresses(self) -> tuple[str, ...]:
        """The IP addresses from which slaves need no ticket."""
        written = (part.strip() for part in self.trusted.split(","))
        return tuple(_address(part) for part in written if part)

    @property
    def listen_host(self) -> str:
        """The address on which a master waits for slaves: loopback until the configuration names another one."""
        if self.listen_address:
            return self.listen_address
        return LOOPBACK if self.advertised_address in ("", LOOPBACK, "localhost") else ANY_HOST

    @property
    def is_slave(self) -> bool:
        """Whether this broker copies another."""
        return self.role == SLAVE

    @property
    def copies(self) -> int:
        """Copies that a reply waits for, the master's own among them; 1 waits for nobody."""
        if self.role != SYNC_MASTER:
            return 1
        return 2 if self.copies_wanted == _BY_ROLE else self.copies_wanted

    @property
    def promise(self) -> str | None:
        """What is to be said at the start where nobody asked for a number of copies; None where there is nothing."""
        if self.role != SYNC_MASTER or self.copies_wanted != _BY_ROLE:
            return None
        return f"replies wait for a slave, as if inSyncReplicas={self.copies} were set; Apache's default is 1, for none"


def _address(written: str) -> str:
    try:
        return str(ip_address(written))
    except ValueError:
        raise ConfigError(f"haTrustedAddresses: {written!r} is no IP address") from None
