"""Built-in topics, which exist after the first start, as in Apache's broker. Pure; any thread."""

from __future__ import annotations

from rmqpy.config.broker import BrokerConfig
from rmqpy.protocol import names
from rmqpy.protocol.topics import Permission, TopicConfig


def built_in_topics(config: BrokerConfig) -> list[TopicConfig]:
    def topic(name: str, queues: int, perm: int = Permission.READ_WRITE) -> TopicConfig:
        return TopicConfig(topic_name=name, read_queue_nums=queues, write_queue_nums=queues, perm=perm)

    built_in = [
        topic(names.SELF_TEST_TOPIC, 1),
        topic(names.BENCHMARK_TOPIC, 1_024),
        topic(
            config.cluster,
            16,
            Permission.INHERIT | (Permission.READ_WRITE if config.is_cluster_topic_open else 0),
        ),
        topic(
            config.name, 1, Permission.INHERIT | (Permission.READ_WRITE if config.is_broker_topic_open else 0)
        ),
        topic(names.OFFSET_MOVED_TOPIC, 1),
        topic(names.SCHEDULE_TOPIC, 18),
        topic(f"{config.cluster}_REPLY_TOPIC", 1),
        topic(f"{names.SYSTEM_TOPIC_PREFIX}REVIVE_LOG_{config.cluster}", config.revive_queues),
        topic(f"{names.BROKER_MEMBER_PREFIX}{config.name}", 1, Permission.INHERIT),
        topic(names.HALF_TOPIC, 1),
        topic(names.OP_HALF_TOPIC, 1),
    ]
    if config.auto_create_topics:
        built_in.append(
            topic(names.AUTO_CREATE_TOPIC, config.default_queues, Permission.READ_WRITE | Permission.INHERIT)
        )
    if config.store.has_timers:
        built_in.append(topic(f"{names.SYSTEM_TOPIC_PREFIX}wheel_timer", 1))
    if config.has_trace_topic:
        built_in.append(topic(config.trace_topic, 1))
    return built_in
