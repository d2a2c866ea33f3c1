"""Configuration of the broker: the keys of `broker.conf` that this broker supports, and how the file is read.

One file holds the settings of broker, access control, TLS, replication, telemetry and store. Reading it sorts every key
into one of four: supported, known and harmless to ignore (reported), known and dangerous to ignore (refused), unknown
(reported with the nearest name).
"""

from __future__ import annotations

import dataclasses
import os
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Self

from rmqpy.config import addresses, known
from rmqpy.config.access import AccessConfig
from rmqpy.config.addresses import ANY_HOST, LOOPBACK
from rmqpy.config.keys import (
    CONNECTIONS_MAX,
    NO_HTTP,
    LoadedConfig,
    ProtectedKey,
    Settings,
    key,
    protects,
    read_file,
)
from rmqpy.config.replication import ReplicationConfig
from rmqpy.config.server_tls import TlsConfig, with_file
from rmqpy.config.store import BODY_BYTES_MAX, StoreConfig
from rmqpy.config.telemetry import TelemetryConfig
from rmqpy.errors import ConfigError

#: Name servers forget a broker after 120 s; less than 10 s only makes traffic. Apache's bounds.
REGISTER_PERIOD_MS_MIN = 10_000
REGISTER_PERIOD_MS_MAX = 60_000

#: Clients find the VIP port below the main one.
VIP_BELOW = 2


def _host_name() -> str:
    return socket.gethostname() or "DEFAULT_BROKER"


def _zone_of_environment() -> str:
    return os.environ.get("ROCKETMQ_ZONE", "")


def _name_servers_of_environment() -> str:
    return os.environ.get("NAMESRV_ADDR", "")


@dataclasses.dataclass(frozen=True, kw_only=True)
class BrokerConfig(Settings):
    """Identity of the broker, its addresses, and the rights of its clients."""

    # Identity and network.
    cluster: str = key("brokerClusterName", "DefaultCluster", "The cluster this broker belongs to.")
    name: str = key("brokerName", _host_name, "Its name in routes; clients address queues by it.")
    region: str = key("regionId", "DefaultRegion", "Region written into messages and told to senders.")
    zone: str = key(
        "zoneName",
        _zone_of_environment,
        "Clients that keep to another zone do not see this broker. Apache's broker has the variable alone.",
    )
    bind_address: str = key(
        "bindAddress", "", "Address to listen on; empty: loopback, or any with brokerIP1."
    )
    advertised_address: str = key("brokerIP1", "", "Address clients are told; empty: the one listened on.")
    listen_port: int = key(
        "listenPort", 10911, "Main port; 0 takes a free one. The VIP port is two below.", low=0, high=65_535
    )
    namesrv: str = key(
        "namesrvAddr", _name_servers_of_environment, "Name servers as host:port, separated by semicolons."
    )
    http_port: int = key(
        "httpPort",
        NO_HTTP,
        "HTTP port of the console, /metrics, /livez, /healthz and /readyz; 0 takes a free one, -1: off. "
        "Apache's broker has no such key.",
        low=NO_HTTP,
        high=65_535,
    )
    http_allows_changes: bool = key(
        "httpAllowChanges",
        False,
        "Users of the console may change what it shows; otherwise it only reads. Apache's broker has no such key.",
    )
    http_bodies: str = key(
        "httpBodies",
        "shown",
        "What users of the console see of messages unless they are super users: shown, masked or hidden. Apache's "
        "broker has no such key.",
        choices=("shown", "masked", "hidden"),
    )
    idle_seconds: int = key(
        "serverChannelMaxIdleTimeSeconds",
        120,
        "A connection with no traffic for so long is closed.",
        unit="seconds",
        low=1,
        high=86_400,
    )
    connections_max: int = key(
        "maxConnections",
        CONNECTIONS_MAX,
        "Connections at once; fewer where the system gives the process few descriptors, three quarters of which "
        "connections may use. Apache's broker has no such key.",
        low=1,
        high=1_000_000,
    )
    connections_per_address_max: int = key(
        "maxConnectionsPerAddress",
        0,
        "Connections of one address at once, loopback excepted; 0: half of all. Apache's broker has no such key.",
        low=0,
        high=1_000_000,
    )
    permission: int = key(
        "brokerPermission",
        6,
        "2 lets clients write, 4 read; registered with every topic.",
        low=0,
        high=7,
        changeable=True,
    )

    protected: str = key(
        "configBlackList",
        "configBlackList;brokerConfigPath",
        "Keys that no administrator can change online.",
    )

    # Registration.
    register_period_ms: int = key(
        "registerNameServerPeriod",
        30_000,
        "How often the broker tells name servers it lives; kept within 10 s and 60 s.",
        unit="ms",
        low=1,
    )
    register_timeout_ms: int = key(
        "registerBrokerTimeoutMills",
        24_000,
        "How long one name server may take.",
        unit="ms",
        low=100,
        high=120_000,
    )

    # Topics.
    auto_create_topics: bool = key("autoCreateTopicEnable", True, "A send to an unknown topic creates it.")
    creations_per_minute: int = key(
        "autoCreateTopicsPerMinute",
        1_000,
        "Topics and groups that requests of one connection may create within a minute; sends and pulls that need more "
        "are refused for now. Apache's broker has no such key.",
        low=1,
        high=1_000_000,
    )
    default_queues: int = key(
        "defaultTopicQueueNums",
        8,
        "Most queues of a topic that a send creates; it gets as many as its producer asks for, commonly 4.",
        low=1,
        high=1_024,
    )
    is_cluster_topic_open: bool = key(
        "clusterTopicEnable", True, "Clients may use the topic named as the cluster."
    )
    is_broker_topic_open: bool = key(
        "brokerTopicEnable", True, "Clients may use the topic named as the broker."
    )
    has_trace_topic: bool = key(
        "traceTopicEnable",
        False,
        "Create the topic clients write message traces to at the start; else the first trace does so, where "
        "autoCreateTopicEnable is set.",
    )
    trace_topic: str = key(
        "msgTraceTopicName", "RMQ_SYS_TRACE_TOPIC", "Name of the topic for message traces."
    )
    trace_on: bool = key("traceOn", True, "What senders are told about tracing.")
    guards_system_topics: bool = key(
        "validateSystemTopicWhenUpdateTopic",
        True,
        "Administrators cannot change system topics.",
        changeable=True,
    )
    allows_mixed_topics: bool = key(
        "enableMixedMessageType", False, "Topics may be of the type MIXED.", changeable=True
    )
    checks_message_types: bool = key(
        "enableTopicMessageTypeCheck",
        False,
        "Sends to a topic whose `message.type` was set are refused with code 13 unless the message is of that type; "
        "MIXED takes all. RocketMQ's proxy has this key, its broker never refuses a type.",
        changeable=True,
    )
    clears_retry_topics: bool = key(
        "clearRetryTopicWhenDeleteTopic",
        True,
        "Deleting a topic deletes the POP retry topics made from it.",
        changeable=True,
    )
    revive_queues: int = key(
        "reviveQueueNum", 8, "Queues of the topic that POP checkpoints use.", low=1, high=64
    )
    pages_metadata: bool = key(
        "enableSplitMetadata", True, "Long topic and group lists are answered in pages."
    )
    metadata_page: int = key(
        "splitMetadataSize", 2_000, "Entries of one page.", low=1, high=100_000, changeable=True
    )

    # Transactions.
    rejects_transactions: bool = key(
        "rejectTransactionMessage", False, "Half messages of transactions are refused.", changeable=True
    )
    transaction_timeout_ms: int = key(
        "transactionTimeOut",
        6_000,
        "How long a producer has to decide about a half message that names no time of its own, before it is asked. Of "
        "half messages stored from then on.",
        unit="ms",
        low=1,
        high=86_400_000,
        changeable=True,
    )
    transaction_check_interval_ms: int = key(
        "transactionCheckInterval",
        30_000,
        "How long until a producer is asked again about a half message.",
        unit="ms",
        low=1_000,
        high=86_400_000,
        changeable=True,
    )
    transaction_check_max: int = key(
        "transactionCheckMax",
        15,
        "After how many checks that producers answered without a decision a half message goes to "
        "TRANS_CHECK_MAX_TIME_TOPIC.",
        low=1,
        high=1_000_000,
        changeable=True,
    )

    # Timed messages.
    serves_recall: bool = key(
        "recallMessageEnable",
        False,
        "Producers may take timed messages back before their time. `rmqpy standalone` has it on.",
    )
    serves_recall_unwritable: bool = key(
        "allowRecallWhenBrokerNotWriteable",
        True,
        "Timed messages are taken back also by a broker without the permission to write.",
    )
    is_topic_in_recall_key: bool = key(
        "appendTopicForTimerDeleteKey",
        False,
        "What takes a message back names its topic, too, as Apache's brokers up to 5.3 look for it. Later ones, and "
        "ours, know both kinds.",
    )

    # Requests and replies.
    stores_replies: bool = key(
        "storeReplyMessageEnable",
        True,
        "Replies to requests are stored in CLUSTER_REPLY_TOPIC, after they were sent to their requesters.",
        changeable=True,
    )

    # Groups and consumers.
    auto_create_groups: bool = key(
        "autoCreateSubscriptionGroup",
        True,
        "An unknown consumer group is created on first use.",
        changeable=True,
    )
    creates_system_groups: bool = key(
        "enableCreateSysGroup",
        True,
        "Groups named CID_RMQ_SYS_… are created on first use even with autoCreateSubscriptionGroup=false.",
        changeable=True,
    )
    notifies_members: bool = key(
        "notifyConsumerIdsChangedEnable", True, "Members are told when others join or leave.", changeable=True
    )
    client_expiry_ms: int = key(
        "channelExpiredTimeout", 120_000, "A client silent for so long is dropped.", unit="ms", low=1_000
    )
    resets_offsets_itself: bool = key(
        "useServerSideResetOffset",
        True,
        "A reset of offsets takes effect at the broker, online or not; otherwise members are told to move.",
        changeable=True,
    )
    offsets_interval_ms: int = key(
        "flushConsumerOffsetInterval", 5_000, "How often committed offsets are saved.", unit="ms", low=100
    )
    long_polling: bool = key("longPollingEnable", True, "Pulls that find nothing wait for a message.")
    short_polling_ms: int = key(
        "shortPollingTimeMills",
        1_000,
        "How long pulls that find nothing wait without long polling.",
        unit="ms",
        low=1,
        high=60_000,
    )
    pull_messages_max: int = key(
        "pullMessagesMax",
        4_096,
        "Most messages one pull may ask for. Apache's broker has no such key.",
        low=1,
        high=32_768,
    )
    pull_bytes_max: int = key(
        "pullBytesMax",
        4 << 20,
        "Most bytes one pull may ask for. Apache's broker has no such key.",
        unit="bytes",
        low=1_024,
        high=BODY_BYTES_MAX,
    )

    serves_sql: bool = key(
        "enablePropertyFilter",
        False,
        "Consumers may filter by SQL92 expressions over the properties of messages. `rmqpy standalone` has it on.",
    )
    is_sql_strict: bool = key(
        "sqlStrict",
        True,
        "Text behind a complete SQL92 expression is an error; otherwise it is ignored, as Apache's broker does: there "
        "`a LIKE 'x%'` is taken for `a`, and matches nothing. Apache's broker has no such key.",
    )

    access: AccessConfig = dataclasses.field(default_factory=AccessConfig)
    tls: TlsConfig = dataclasses.field(default_factory=TlsConfig)
    replication: ReplicationConfig = dataclasses.field(default_factory=ReplicationConfig)
    telemetry: TelemetryConfig = dataclasses.field(default_factory=TelemetryConfig)
    store: StoreConfig = dataclasses.field(default_factory=StoreConfig)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.name or not self.cluster:
            raise ConfigError("brokerName and brokerClusterName must not be empty")
        self.access.check_certificates(is_encrypted=self.tls.is_served, asks_clients=self.tls.asks_clients)
        if self.http_port != NO_HTTP and self.tls.is_served:
            # Read once, so that a mistake stops the start.
            _ = self.tls.http_suites
        if 0 < self.listen_port <= VIP_BELOW:
            raise ConfigError(f"listenPort={self.listen_port}: there is no port {VIP_BELOW} below it")
        for address in self.name_servers:
            try:
                addresses.parse(address)
            except ConfigError as error:
                raise ConfigError(f"namesrvAddr: {error}") from None
        if self.replication.may_act and not self.name_servers:
            raise ConfigError(
                "enableSlaveActingMaster=true: name servers say who acts, and namesrvAddr names none"
            )

    @property
    def name_servers(self) -> tuple[str, ...]:
        """Addresses of all name servers."""
        return tuple(part.strip() for part in self.namesrv.split(";") if part.strip())

    @property
    def listen_host(self) -> str:
        """The address to listen on: loopback until the configuration names another one."""
        if self.bind_address:
            return self.bind_address
        if self.advertised_address in ("", LOOPBACK, "localhost"):
            return LOOPBACK
        # The advertised address may belong to a router in front, so it cannot be bound itself.
        return ANY_HOST

    @property
    def is_open(self) -> bool:
        """Whether other machines can connect."""
        return not (self.listen_host.startswith("127.") or self.listen_host in ("localhost", "::1"))

    @property
    def advertised_host(self) -> str:
        """The address clients are told to connect to."""
        if self.advertised_address:
            return self.advertised_address
        return _first_address() if self.listen_host == ANY_HOST else self.listen_host

    @property
    def register_interval_ms(self) -> int:
        """The registration period within its bounds."""
        return min(max(self.register_period_ms, REGISTER_PERIOD_MS_MIN), REGISTER_PERIOD_MS_MAX)

    def change(self, given: Mapping[str, str]) -> Self:
        """As `Settings.change`, for every key of the file; any other key and a protected one is refused."""
        for wire in given:
            if protects(self.protected, wire):
                raise ProtectedKey(f"Can not update config in black list: {wire}")
            if wire not in served():
                raise ConfigError(f"{wire} is not a setting that can be changed here")
        return dataclasses.replace(
            super().change(given),
            access=self.access.change(given),
            tls=self.tls.change(given),
            replication=self.replication.change(given),
            telemetry=self.telemetry.change(given),
            store=self.store.change(given),
        )

    def write(self) -> dict[str, str]:
        """Every key of the file with its value."""
        parts = (self.access, self.tls, self.replication, self.telemetry, self.store)
        return super().write() | {wire: value for part in parts for wire, value in part.write().items()}


def load(
    path: str | Path | None = None, overrides: Mapping[str, str] | None = None
) -> LoadedConfig[BrokerConfig]:
    """Read `broker.conf`; entries of `overrides` (wire names) win over the file.

    Raises `ConfigError` for a file that cannot be read, a value out of bounds, an override that no broker knows, and a
    setting that is dangerous to ignore; its text names them all.
    """
    given = read_file(path)
    refuse_unknown(overrides or {})
    return read(with_file(given | dict(overrides or {})))


def refuse_unknown(overrides: Mapping[str, str]) -> None:
    """Raise `ConfigError` for settings that no broker knows, such as those of a command line."""
    known.refuse_unknown(overrides, served())


def served() -> set[str]:
    """Every key that is supported."""
    kinds = (BrokerConfig, AccessConfig, TlsConfig, ReplicationConfig, TelemetryConfig, StoreConfig)
    return {wire for kind in kinds for wire in kind.declared()}


def read(given: Mapping[str, str]) -> LoadedConfig[BrokerConfig]:
    """Sort the entries of a file: a configuration from those served, a sentence for each of the others."""
    supported = served()
    # Refusals come first: a value such as brokerRole=SLAVE deserves its reason, not only the list of choices.
    refusals = [sentence for wire in given if (sentence := known.refusal(wire, given[wire]))]
    if refusals:
        raise ConfigError("cannot start with these settings:\n  " + "\n  ".join(refusals))
    access, tls = AccessConfig.read(given), TlsConfig.read(given)
    replication, store = ReplicationConfig.read(given), StoreConfig.read(given)
    config = dataclasses.replace(
        BrokerConfig.read(given),
        access=access,
        tls=tls,
        replication=replication,
        telemetry=TelemetryConfig.read(given),
        store=store,
    )
    warnings = [
        sentence
        for wire, value in given.items()
        if (sentence := known.warning(wire, value, store.folder, supported)) is not None
    ]
    return LoadedConfig(config, warnings)


def _first_address() -> str:
    """This machine's address on the way to the outside; asking for a route sends nothing."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # an address reserved for documentation
            return str(probe.getsockname()[0])
        except OSError:
            return LOOPBACK
