"""Configuration of the broker: all parts of `broker.conf`, the keys of topics and messages, and the reading of it.

One file holds the settings of broker, access control, TLS, replication, telemetry, plug-ins and store. Each key is
supported; known and harmless to ignore (reported); known and dangerous to ignore (refused); or unknown (reported with
the nearest name).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Self

from rmqpy.config import known
from rmqpy.config.access import AccessConfig
from rmqpy.config.consumption import ConsumptionConfig
from rmqpy.config.keys import NO_HTTP, LoadedConfig, ProtectedKey, Settings, key, protects, read_file
from rmqpy.config.network import NetworkConfig
from rmqpy.config.plugins import PluginsConfig
from rmqpy.config.replication import ReplicationConfig
from rmqpy.config.server_tls import TlsConfig, with_file
from rmqpy.config.store import RENAMED, WRITE_PATH, StoreConfig, with_new_names
from rmqpy.config.telemetry import TelemetryConfig
from rmqpy.config.tiered import TieredConfig
from rmqpy.errors import ConfigError

#: The parts of a `BrokerConfig`, by its field.
_PARTS: Final[Mapping[str, type[Settings]]] = {
    "access": AccessConfig,
    "tls": TlsConfig,
    "replication": ReplicationConfig,
    "telemetry": TelemetryConfig,
    "plugins": PluginsConfig,
    "store": StoreConfig,
    "tiered": TieredConfig,
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class BrokerConfig(ConsumptionConfig, NetworkConfig):
    """All settings of a broker; those of topics and messages are declared here."""

    # Topics.
    auto_create_topics: bool = key("autoCreateTopicEnable", True, "Create unknown topics on the first send.")
    creations_per_minute: int = key(
        "autoCreateTopicsPerMinute",
        1_000,
        "Maximum topics and groups that one connection may create in a minute; beyond that, its sends and pulls that "
        "need a new one are refused for now. Apache's broker has no such key.",
        low=1,
        high=1_000_000,
    )
    default_queues: int = key(
        "defaultTopicQueueNums",
        8,
        "Maximum queues of a topic created by a send; producers commonly ask for 4.",
        low=1,
        high=1_024,
    )
    is_cluster_topic_open: bool = key(
        "clusterTopicEnable", True, "Allow use of the topic named like the cluster."
    )
    is_broker_topic_open: bool = key(
        "brokerTopicEnable", True, "Allow use of the topic named like the broker."
    )
    has_trace_topic: bool = key(
        "traceTopicEnable",
        False,
        "Create the topic for message traces at the start; otherwise the first trace creates it if "
        "autoCreateTopicEnable is set.",
    )
    trace_topic: str = key("msgTraceTopicName", "RMQ_SYS_TRACE_TOPIC", "Topic for message traces.")
    trace_on: bool = key("traceOn", True, "Whether replies to senders ask for traces.")
    guards_system_topics: bool = key(
        "validateSystemTopicWhenUpdateTopic",
        True,
        "Refuse changes of system topics, also by administrators.",
        changeable=True,
    )
    allows_mixed_topics: bool = key(
        "enableMixedMessageType", False, "Allow topics of type MIXED.", changeable=True
    )
    checks_message_types: bool = key(
        "enableTopicMessageTypeCheck",
        False,
        "Refuse messages whose type differs from the topic's `message.type`, with code 13; MIXED accepts all types. "
        "RocketMQ's proxy has this key; its broker refuses no type.",
        changeable=True,
    )
    clears_retry_topics: bool = key(
        "clearRetryTopicWhenDeleteTopic",
        True,
        "Deleting a topic also deletes its POP retry topics.",
        changeable=True,
    )
    pages_metadata: bool = key("enableSplitMetadata", True, "Send long topic and group lists in pages.")
    metadata_page: int = key(
        "splitMetadataSize", 2_000, "Entries per page.", low=1, high=100_000, changeable=True
    )

    # Transactions.
    rejects_transactions: bool = key(
        "rejectTransactionMessage", False, "Refuse half messages of transactions.", changeable=True
    )
    transaction_timeout_ms: int = key(
        "transactionTimeOut",
        6_000,
        "Time until a producer is asked about an undecided half message, unless the message names its own time. For "
        "half messages stored from then on.",
        unit="ms",
        low=1,
        high=86_400_000,
        changeable=True,
    )
    transaction_check_interval_ms: int = key(
        "transactionCheckInterval",
        30_000,
        "Interval between checks of a half message.",
        unit="ms",
        low=1_000,
        high=86_400_000,
        changeable=True,
    )
    transaction_check_max: int = key(
        "transactionCheckMax",
        15,
        "Number of checks without a decision after which a half message moves to TRANS_CHECK_MAX_TIME_TOPIC.",
        low=1,
        high=1_000_000,
        changeable=True,
    )

    # Sends with a deduplication key.
    deduplication_window_ms: int = key(
        "deduplicationWindow",
        600_000,
        "Time for which a message with a deduplication key (`dedup=` of rmqpy's producers) is stored once.",
        unit="ms",
        low=1_000,
        high=86_400_000,
        changeable=True,
    )

    # Timed messages.
    serves_recall: bool = key(
        "recallMessageEnable",
        False,
        "Allow recall of timed messages before delivery. `rmqpy standalone` turns it on.",
    )
    serves_recall_unwritable: bool = key(
        "allowRecallWhenBrokerNotWriteable",
        True,
        "Allow recalls on a broker without write permission, too.",
    )
    is_topic_in_recall_key: bool = key(
        "appendTopicForTimerDeleteKey",
        False,
        "Recall records also name the topic, as Apache's brokers up to 5.3 expect. Later versions and rmqpy read "
        "both forms.",
    )

    # Requests and replies.
    stores_replies: bool = key(
        "storeReplyMessageEnable",
        True,
        "Also store replies to requests in CLUSTER_REPLY_TOPIC.",
        changeable=True,
    )

    access: AccessConfig = dataclasses.field(default_factory=AccessConfig)
    tls: TlsConfig = dataclasses.field(default_factory=TlsConfig)
    replication: ReplicationConfig = dataclasses.field(default_factory=ReplicationConfig)
    telemetry: TelemetryConfig = dataclasses.field(default_factory=TelemetryConfig)
    plugins: PluginsConfig = dataclasses.field(default_factory=PluginsConfig)
    store: StoreConfig = dataclasses.field(default_factory=StoreConfig)
    tiered: TieredConfig = dataclasses.field(default_factory=TieredConfig)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.access.check_certificates(is_encrypted=self.tls.is_served, asks_clients=self.tls.asks_clients)
        if self.http_port != NO_HTTP and self.tls.is_served:
            # Parsed once here, so that a mistake fails the start.
            _ = self.tls.http_suites
        if self.replication.may_act and not self.name_servers:
            raise ConfigError("enableSlaveActingMaster=true needs name servers: set namesrvAddr")

    def change(self, given: Mapping[str, str]) -> Self:
        """Like `Settings.change`, for every key of the file. Other keys and protected ones are refused."""
        for wire in given:
            if protects(self.protected, wire):
                raise ProtectedKey(f"Can not update config in black list: {wire}")
            if wire not in served():
                raise ConfigError(f"{wire} cannot be changed online")
        parts = {name: getattr(self, name).change(given) for name in _PARTS}
        return dataclasses.replace(super().change(given), **parts)

    def write(self) -> dict[str, str]:
        """Return every key of the file with its value."""
        written = super().write()
        for name in _PARTS:
            written |= getattr(self, name).write()
        return written


def load(
    path: str | Path | None = None, overrides: Mapping[str, str] | None = None
) -> LoadedConfig[BrokerConfig]:
    """Read `broker.conf`; entries of `overrides` (wire names) win over the file.

    Raises `ConfigError`, which names all of them, for an unreadable file, a value out of bounds, an unknown override,
    and a setting that is dangerous to ignore.
    """
    given = read_file(path)
    refuse_unknown(overrides or {})
    return read(with_file(given | dict(overrides or {})))


def refuse_unknown(overrides: Mapping[str, str]) -> None:
    """Raise `ConfigError` for unknown settings, for instance from a command line."""
    known.refuse_unknown(overrides, served() | RENAMED)


def served() -> set[str]:
    """Every supported key."""
    return {wire for kind in _kinds() for wire in kind.declared()}


def _kinds() -> tuple[type[Settings], ...]:
    return (BrokerConfig, *_PARTS.values())


def needs_restart(settings: Mapping[str, str]) -> list[str]:
    """Return the settings of a running broker that only its file may change, for its next start. Empty for Apache's
    brokers, which accept a change of any setting, with or without an effect."""
    if WRITE_PATH not in settings:
        return []
    fixed = {
        wire for kind in _kinds() for wire, (_, each) in kind.declared().items() if not each.is_changeable
    }
    protected, changeable = settings.get("configBlackList", ""), served() - fixed
    return [wire for wire in settings if wire not in changeable or protects(protected, wire)]


def read(given: Mapping[str, str]) -> LoadedConfig[BrokerConfig]:
    """Return a configuration from the served entries of a file, and a sentence for each of the others."""
    supported = served()
    given, renamed = with_new_names(given)
    # Refusals come first: a value such as brokerRole=SLAVE deserves its reason, not only the list of choices.
    refusals = [sentence for wire in given if (sentence := known.refusal(wire, given[wire]))]
    if refusals:
        raise ConfigError("cannot start with these settings:\n  " + "\n  ".join(refusals))
    parts: dict[str, Any] = {name: kind.read(given) for name, kind in _PARTS.items()}
    config = dataclasses.replace(BrokerConfig.read(given), **parts)
    warnings = [
        sentence
        for wire, value in given.items()
        if (sentence := known.warning(wire, value, config.store.folder, supported)) is not None
    ]
    return LoadedConfig(config, renamed + warnings)
