"""Configuration of replication: keys of `broker.conf` for masters and slaves.

A master is broker 0 and serves its log to slaves; a slave has a higher number and follows a master. `copies` decides
how many copies a SYNC_MASTER waits for. With `enableControllerMode` a controller assigns roles and ids instead.
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

#: The most brokers of one name, including the master.
REPLICAS_MAX: Final = 64
#: The most bytes of a transfer with header; Apache's slaves have room for twice as much.
TRANSFER_BYTES_MAX: Final = 2 << 20
_BY_ROLE: Final = 0
_AUTOMATIC: Final = 0


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReplicationConfig(Settings):
    """Role of the broker, address of its master, and copies that a reply waits for."""

    role: str = key(
        "brokerRole",
        ASYNC_MASTER,
        "ASYNC_MASTER replies without waiting for slaves, SYNC_MASTER waits for them, SLAVE copies its master.",
        choices=(ASYNC_MASTER, SYNC_MASTER, SLAVE),
    )
    broker_id: int = key(
        "brokerId",
        0,
        "Number of the broker in its group: 0 for a master, above 0 for a slave. With enableControllerMode the "
        "controller assigns it, and this is ignored, like brokerRole.",
        low=-1,
        high=(1 << 31) - 1,
    )
    advertised_address: str = key(
        "brokerIP2", "", "Address that slaves connect to, see haListenPort; empty: that of clients."
    )
    listen_address: str = key(
        "haListenAddress",
        "",
        "Address on which a master listens for slaves; empty: loopback, or any with brokerIP2. Apache's broker has "
        "no such key and listens on any.",
    )
    listen_port: int = key(
        "haListenPort",
        0,
        "Port on which a master listens for slaves; 0: one above the main port, or a free port if that is taken.",
        low=0,
        high=65_535,
    )
    master_address: str = key(
        "haMasterAddress",
        "",
        "Master of a slave as host:port; empty: the master known to the name servers.",
    )
    trusted: str = key(
        "haTrustedAddresses",
        "",
        "IP addresses, separated by commas, of slaves that a master with access control admits without a ticket, for "
        "Apache's slaves. Every client there can read the whole log. Apache's broker has no such key.",
    )
    heartbeat_interval_ms: int = key(
        "haSendHeartbeatInterval",
        5_000,
        "Interval between heartbeats of master and slave when there is nothing to copy.",
        unit="ms",
        low=100,
        high=600_000,
    )
    silence_ms_max: int = key(
        "haHousekeepingInterval",
        20_000,
        "Close connections between master and slave without traffic for this long.",
        unit="ms",
        low=500,
        high=3_600_000,
    )
    transfer_bytes_max: int = key(
        "haTransferBatchSize",
        32 << 10,
        "Maximum bytes of the log in one transfer to a slave.",
        unit="bytes",
        low=1 << 10,
        high=TRANSFER_BYTES_MAX,
    )
    gap_bytes_max: int = key(
        "haMaxGapNotInSync",
        256 << 20,
        "Maximum lag of a slave that counts as in sync.",
        unit="bytes",
        low=1,
        high=1 << 50,
    )
    slave_timeout_ms: int = key(
        "slaveTimeout",
        3_000,
        "Maximum time that a reply waits for slaves; after it the reply is FLUSH_SLAVE_TIMEOUT.",
        unit="ms",
        low=1,
        high=600_000,
    )
    replicas: int = key(
        "totalReplicas", 1, "Brokers of this name, including the master.", low=1, high=REPLICAS_MAX
    )
    copies_wanted: int = key(
        "inSyncReplicas",
        _BY_ROLE,
        "Copies of a message, including the master's, that replies of a SYNC_MASTER wait for; 0: 2. Apache's "
        "default is 1, which waits for no slave. With allAckInSyncStateSet it has no effect.",
        low=0,
        high=REPLICAS_MAX,
    )
    copies_min_wanted: int = key(
        "minInSyncReplicas",
        _AUTOMATIC,
        "A SYNC_MASTER with fewer replicas in sync refuses messages; 0: 1, or 2 with enableControllerMode once three "
        "brokers of this name are registered. Apache's default is 1.",
        low=0,
        high=REPLICAS_MAX,
    )
    serves_reads: bool = key(
        "slaveReadEnable",
        False,
        "Redirect consumers that lag far behind to a slave, and serve them as a slave.",
    )
    checks_offsets: bool = key(
        "offsetCheckInSlave",
        False,
        "A slave corrects offsets that it does not have; otherwise consumers wait for the messages.",
    )
    copies_last_file: bool = key(
        "syncFromLastFile",
        False,
        "A slave without a log starts with the last file of its master's log and never gets older messages.",
    )
    may_act: bool = key(
        "enableSlaveActingMaster",
        False,
        "Without a master, the slave with the smallest brokerId acts for it: consumers read, commit and lock queues "
        "there. Set it on all brokers of a name; name servers need supportActingMaster.",
    )
    may_escape: bool = key(
        "enableRemoteEscape",
        False,
        "An acting slave sends due delayed and timed messages, and open transactions, to another broker of the "
        "cluster with their topic; otherwise they wait for the master.",
    )
    skips_hand_over: bool = key(
        "skipPreOnline",
        False,
        "A starting master does not take over consumption and delivery progress from the slave that acted for it, so "
        "messages are delivered twice.",
    )
    beat_interval_ms: int = key(
        "brokerHeartbeatInterval",
        1_000,
        "With enableSlaveActingMaster: interval of heartbeats to name servers, and of requests for the list of "
        "live members.",
        unit="ms",
        low=100,
        high=10_000,
    )
    beat_timeout_ms: int = key(
        "sendHeartbeatTimeoutMillis",
        1_000,
        "With enableSlaveActingMaster: timeout of these heartbeats and requests.",
        unit="ms",
        low=100,
        high=10_000,
    )
    beat_silence_ms_max: int = key(
        "brokerNotActiveTimeoutMillis",
        10_000,
        "With enableSlaveActingMaster: name servers drop a broker without heartbeats for this long.",
        unit="ms",
        low=1_000,
        high=120_000,
    )

    is_controlled: bool = key(
        "enableControllerMode",
        False,
        "A controller assigns brokerId and role, and elects another master when this one is lost.",
    )
    controllers: str = key(
        "controllerAddr", "", "Addresses of the controllers as host:port, separated by semicolons."
    )
    acks_of_all_wanted: str = key(
        "allAckInSyncStateSet",
        "",
        "With enableControllerMode: replies wait for all replicas in sync, so that no election loses a message that "
        "was acknowledged; empty: true. Apache's default is false.",
        choices=("", "true", "false"),
    )
    election_priority: int = key(
        "brokerElectionPriority",
        (1 << 31) - 1,
        "With enableControllerMode: of equally suitable brokers, the one with the smallest number is elected.",
        low=0,
        high=(1 << 31) - 1,
    )
    election_timeout_ms: int = key(
        "controllerHeartBeatTimeoutMills",
        10_000,
        "With enableControllerMode: controllers take a broker without heartbeats for this long for dead.",
        unit="ms",
        low=1_000,
        high=120_000,
    )
    role_interval_ms: int = key(
        "syncBrokerMetadataPeriod",
        5_000,
        "With enableControllerMode: interval of asking for the current master, in addition to notifications.",
        unit="ms",
        low=100,
        high=60_000,
    )
    catch_up_ms_max: int = key(
        "haMaxTimeSlaveNotCatchup",
        15_000,
        "With enableControllerMode: a slave that has not caught up for this long leaves the replicas in sync.",
        unit="ms",
        low=1_000,
        high=600_000,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_controlled()
        if not self.is_controlled and self.is_slave != (self.broker_id > 0):
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
        # Parsed once here, so that a mistake fails the start.
        _ = self.trusted_addresses
        for wire, is_set in (
            ("enableRemoteEscape", self.may_escape),
            ("skipPreOnline", self.skips_hand_over),
        ):
            if is_set and not self.may_act:
                raise ConfigError(f"{wire}=true: has no effect without enableSlaveActingMaster=true")
        if self.beat_silence_ms_max < 2 * self.beat_interval_ms:
            raise ConfigError(
                f"brokerNotActiveTimeoutMillis={self.beat_silence_ms_max}: must be at least twice "
                f"brokerHeartbeatInterval={self.beat_interval_ms}, or live brokers count as gone"
            )
        if self.silence_ms_max <= self.heartbeat_interval_ms:
            raise ConfigError(
                f"haHousekeepingInterval={self.silence_ms_max}: must be above "
                f"haSendHeartbeatInterval={self.heartbeat_interval_ms}, or heartbeats come too late"
            )
        if self.copies_min > self.copies and self.role == SYNC_MASTER and not self.is_controlled:
            raise ConfigError(
                f"minInSyncReplicas={self.copies_min}: must be at most inSyncReplicas={self.copies}"
            )

    def _check_controlled(self) -> None:
        if not self.is_controlled:
            if self.broker_id < 0:
                raise ConfigError("brokerId=-1: must be from 0, except with enableControllerMode=true")
            if self.acks_of_all_wanted == "true":
                raise ConfigError(
                    "allAckInSyncStateSet=true: has no effect without enableControllerMode=true; use inSyncReplicas "
                    "for a fixed number of copies"
                )
            return
        if not self.controller_addresses:
            raise ConfigError(
                "enableControllerMode=true: needs the addresses of the controllers; set controllerAddr"
            )
        for address in self.controller_addresses:
            try:
                addresses.parse(address)
            except ConfigError as error:
                raise ConfigError(f"controllerAddr: {error}") from None
        if self.may_act:
            raise ConfigError(
                "enableControllerMode=true and enableSlaveActingMaster=true: a controller elects a master, so no slave "
                "acts for one; remove enableSlaveActingMaster"
            )

    @property
    def controller_addresses(self) -> tuple[str, ...]:
        """Addresses of the controllers."""
        written = (part.strip() for part in self.controllers.split(";"))
        return tuple(part for part in written if part)

    @property
    def acks_of_all(self) -> bool:
        """With a controller: whether replies wait for all replicas in sync."""
        return self.acks_of_all_wanted != "false"

    @property
    def copies_min(self) -> int:
        """The number of replicas in sync below which messages are refused, unless it is automatic."""
        return max(1, self.copies_min_wanted)

    @property
    def is_copies_min_automatic(self) -> bool:
        """Whether `copies_min` follows the number of registered brokers."""
        return self.is_controlled and self.copies_min_wanted == _AUTOMATIC

    @property
    def trusted_addresses(self) -> tuple[str, ...]:
        """IP addresses of slaves that need no ticket."""
        written = (part.strip() for part in self.trusted.split(","))
        return tuple(_address(part) for part in written if part)

    @property
    def listen_host(self) -> str:
        """The address on which a master listens for slaves: loopback by default."""
        if self.listen_address:
            return self.listen_address
        return LOOPBACK if self.advertised_address in ("", LOOPBACK, "localhost") else ANY_HOST

    @property
    def is_slave(self) -> bool:
        """Whether this broker copies another."""
        return self.role == SLAVE

    @property
    def copies(self) -> int:
        """Copies that a reply waits for, including the master's; 1 waits for no slave."""
        if self.role != SYNC_MASTER:
            return 1
        if self.is_controlled:
            # The replicas in sync decide how many; any number above 1 waits for them.
            return 2 if self.acks_of_all else max(1, self.copies_wanted)
        return 2 if self.copies_wanted == _BY_ROLE else self.copies_wanted

    @property
    def promise(self) -> str | None:
        """Return a warning for the start if no number of copies was configured, else None."""
        if self.is_controlled:
            return self._controlled_promise
        if self.role != SYNC_MASTER or self.copies_wanted != _BY_ROLE:
            return None
        return f"inSyncReplicas is not set: replies wait for {self.copies} copies; Apache's default is 1, for no slave"

    @property
    def _controlled_promise(self) -> str:
        if not self.acks_of_all:
            return (
                f"allAckInSyncStateSet=false: replies wait for {max(1, self.copies_wanted)} copies, the master's "
                "included, so an election may lose acknowledged messages"
            )
        fewest = (
            "2 of them are needed once three brokers are registered, 1 in a pair (minInSyncReplicas)"
            if self.is_copies_min_automatic
            else f"{self.copies_min} of them are needed (minInSyncReplicas)"
        )
        return f"replies wait for all replicas in sync; {fewest}; Apache's defaults: allAckInSyncStateSet=false, 1"


def _address(written: str) -> str:
    try:
        return str(ip_address(written))
    except ValueError:
        raise ConfigError(f"haTrustedAddresses: {written!r} is not an IP address") from None
