"""Configuration of consumption: POP, groups, their members, pulls and filters."""

from __future__ import annotations

import dataclasses

from rmqpy.config.keys import Settings, key
from rmqpy.config.store import BODY_BYTES_MAX


@dataclasses.dataclass(frozen=True, kw_only=True)
class ConsumptionConfig(Settings):
    """Rules for groups and their consumers."""

    # POP.
    revive_queues: int = key(
        "reviveQueueNum", 8, "Queues of the topic in which deliveries by POP are recorded.", low=1, high=64
    )
    pop_polls_per_group_max: int = key(
        "popPollingSize",
        1_024,
        "Maximum pops of one group and topic that wait for a message; further ones get code 209.",
        low=1,
        high=100_000,
    )
    pop_polls_max: int = key(
        "maxPopPollingSize", 100_000, "Maximum pops that wait for a message, in total.", low=1, high=1_000_000
    )
    pop_retry_first_percent: int = key(
        "popFromRetryProbability",
        20,
        "Share of pops that read messages to redeliver before new ones.",
        unit="%",
        low=0,
        high=100,
    )
    pop_retry_first_percent_by_priority: int = key(
        "popFromRetryProbabilityForPriority",
        0,
        "The same of pops that read a topic of the type PRIORITY by priority.",
        unit="%",
        low=0,
        high=100,
    )
    is_larger_priority_more_urgent: bool = key(
        "priorityOrderAsc", True, "Deliver larger priorities first; otherwise smaller ones."
    )
    pop_keeps_retry_queues: bool = key(
        "useSeparateRetryQueue",
        False,
        "Give POP retry topics as many queues as their topics, so that redelivered messages keep their priority.",
    )
    pop_retry_v2: bool = key(
        "enableRetryTopicV2",
        False,
        "Name POP retry topics `%RETRY%<group>+<topic>` instead of `%RETRY%<group>_<topic>`.",
    )
    pop_reads_retry_v1: bool = key(
        "retrieveMessageFromPopRetryTopicV1",
        True,
        "With enableRetryTopicV2 also read the older retry topics.",
    )
    pop_shows_retry_topic: bool = key(
        "popResponseReturnActualRetryTopic",
        False,
        "Return redelivered messages under the name of the retry topic instead of the requested one.",
    )
    pop_limits_in_flight: bool = key("enablePopMessageThreshold", False, "Apply popInflightMessageThreshold.")
    pop_in_flight_max: int = key(
        "popInflightMessageThreshold",
        10_000,
        "Maximum messages in flight of one queue and group; beyond it, the group gets no more from the queue.",
        low=1,
        high=10_000_000,
    )
    pop_has_dead_letters: bool = key(
        "popDeadLetterEnable",
        True,
        "Move a popped message to the dead letters of its group after retryMaxTimes redeliveries; otherwise it is "
        "redelivered indefinitely, as by Apache's broker, which has no such key.",
    )

    # Lite topics.
    lite_subscriptions_max: int = key(
        "maxLiteSubscriptionCount",
        100_000,
        "Maximum subscriptions to lite topics, of all clients; further ones get code 2018.",
        low=1,
        high=10_000_000,
    )
    lite_subscription_timeout_ms: int = key(
        "liteSubscriptionCheckTimeoutMills",
        180_000,
        "Drop the subscriptions of a client that has not repeated them for this long.",
        unit="ms",
        low=1_000,
    )
    lite_subscription_interval_ms: int = key(
        "liteSubscriptionCheckInterval",
        120_000,
        "Interval between checks for such clients.",
        unit="ms",
        low=100,
    )
    lite_ttl_min_ms: int = key(
        "minLiteTTl",
        900_000,
        "Keep a lite topic at least this long after its last message, whatever `lite.topic.expiration` of its parent "
        "says.",
        unit="ms",
        low=0,
    )
    lite_ttl_interval_ms: int = key(
        "liteTtlCheckInterval",
        120_000,
        "Interval between checks for lite topics to delete.",
        unit="ms",
        low=100,
    )

    # Groups and consumers.
    auto_create_groups: bool = key(
        "autoCreateSubscriptionGroup",
        True,
        "Create unknown consumer groups on first use.",
        changeable=True,
    )
    creates_system_groups: bool = key(
        "enableCreateSysGroup",
        True,
        "Create groups named CID_RMQ_SYS_… on first use even with autoCreateSubscriptionGroup=false.",
        changeable=True,
    )
    notifies_members: bool = key(
        "notifyConsumerIdsChangedEnable", True, "Notify members when others join or leave.", changeable=True
    )
    balances_queues: bool = key(
        "serverLoadBalancerEnable",
        True,
        "Divide queues among consumers that let the broker assign them; otherwise each gets all queues.",
        changeable=True,
    )
    request_mode: str = key(
        "defaultMessageRequestMode",
        "PULL",
        "How such consumers receive messages, if no mode is set for group and topic.",
        choices=("PULL", "POP"),
        changeable=True,
    )
    pop_share_queues: int = key(
        "defaultPopShareQueueNum",
        -1,
        "With defaultMessageRequestMode=POP: number of other members that share the queues of a member; 0 or less: all "
        "members share all queues.",
        low=-1,
        high=1_000_000,
        changeable=True,
    )
    client_expiry_ms: int = key(
        "channelExpiredTimeout",
        120_000,
        "Drop clients without a heartbeat for this long.",
        unit="ms",
        low=1_000,
    )
    resets_offsets_itself: bool = key(
        "useServerSideResetOffset",
        True,
        "Reset offsets on the broker, whether members are online or not; otherwise members are asked to move.",
        changeable=True,
    )
    offsets_interval_ms: int = key(
        "flushConsumerOffsetInterval",
        5_000,
        "Interval between saves of committed offsets.",
        unit="ms",
        low=100,
    )
    long_polling: bool = key("longPollingEnable", True, "Pulls without a message wait for one.")
    short_polling_ms: int = key(
        "shortPollingTimeMills",
        1_000,
        "Wait of pulls without a message if long polling is off.",
        unit="ms",
        low=1,
        high=60_000,
    )
    pull_messages_max: int = key(
        "pullMessagesMax",
        4_096,
        "Maximum messages in one pull. Apache's broker has no such key.",
        low=1,
        high=32_768,
    )
    pull_bytes_max: int = key(
        "pullBytesMax",
        4 << 20,
        "Maximum bytes in one pull. Apache's broker has no such key.",
        unit="bytes",
        low=1_024,
        high=BODY_BYTES_MAX,
    )

    serves_sql: bool = key(
        "enablePropertyFilter",
        False,
        "Allow SQL92 filters on message properties. `rmqpy standalone` turns it on.",
    )
    is_sql_strict: bool = key(
        "sqlStrict",
        True,
        "Refuse text after a complete SQL92 expression. Apache's broker, which has no such key, ignores it: there "
        "`a LIKE 'x%'` means `a` and matches nothing.",
    )
