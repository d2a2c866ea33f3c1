//! Topic names: prefixes and topics with a meaning of their own, and what a name may be.

/// Before a group's name: the topic of messages that the group returned.
pub(crate) const RETRY_PREFIX: &str = "%RETRY%";
/// Before a group's name: the topic of messages that the group gave up on.
pub(crate) const DEAD_LETTER_PREFIX: &str = "%DLQ%";

/// The template of topics that are made by their first message.
pub(crate) const AUTO_CREATE_TOPIC: &str = "TBW102";
/// The topic whose queues hold delayed messages, one queue a level: level `n` is queue `n - 1`.
pub(crate) const SCHEDULE_TOPIC: &str = "SCHEDULE_TOPIC_XXXX";
/// The topic of messages that wait for a time of their own.
pub(crate) const TIMER_TOPIC: &str = "rmq_sys_wheel_timer";
/// The topic of messages whose transactions are open.
pub(crate) const HALF_TOPIC: &str = "RMQ_SYS_TRANS_HALF_TOPIC";
/// The topic of marks on half messages whose transactions have ended.
pub(crate) const OP_HALF_TOPIC: &str = "RMQ_SYS_TRANS_OP_HALF_TOPIC";
/// The topic of half messages that were given up, because nobody has decided about them.
pub(crate) const UNDECIDED_TOPIC: &str = "TRANS_CHECK_MAX_TIME_TOPIC";
pub(crate) const SELF_TEST_TOPIC: &str = "SELF_TEST_TOPIC";
pub(crate) const OFFSET_MOVED_TOPIC: &str = "OFFSET_MOVED_EVENT";

/// Topics that only brokers write. `rmq_sys_wheel_timer` is among them although Apache's broker lets clients in: one
/// record without its due time stops every timer there for good.
pub(crate) const BROKER_TOPICS: [&str; 9] = [
    SCHEDULE_TOPIC,
    HALF_TOPIC,
    OP_HALF_TOPIC,
    "RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC",
    "RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC",
    UNDECIDED_TOPIC,
    SELF_TEST_TOPIC,
    OFFSET_MOVED_TOPIC,
    TIMER_TOPIC,
];

/// Before the names of topics of the system that come and go.
pub(crate) const SYSTEM_TOPIC_PREFIX: &str = "rmq_sys_";
/// Before the names of groups of the system.
pub(crate) const SYSTEM_GROUP_PREFIX: &str = "CID_RMQ_SYS_";
/// The group under which the broker saves how far its transactions are done, as the original does. The progress is the
/// broker's own: no client commits, resets, locks or deletes it.
pub(crate) const TRANSACTION_GROUP: &str = "CID_RMQ_SYS_TRANS";
/// Where clients write their traces, unless they are configured otherwise.
pub(crate) const TRACE_TOPIC: &str = "RMQ_SYS_TRACE_TOPIC";
pub(crate) const BENCHMARK_TOPIC: &str = "BenchmarkTest";
/// Topics of the system beside those that only brokers write.
pub(crate) const SYSTEM_TOPICS: [&str; 4] =
    [AUTO_CREATE_TOPIC, BENCHMARK_TOPIC, TRACE_TOPIC, "CHECKPOINT_TOPIC"];

/// Longest name of a topic: what one length byte of a record can say.
pub(crate) const TOPIC_BYTES_MAX: usize = 127;
/// Longest name of a retry or dead-letter topic.
pub(crate) const GROUP_TOPIC_BYTES_MAX: usize = 255;
/// Longest name of a group.
pub(crate) const GROUP_BYTES_MAX: usize = 120;

/// Whether a topic is the system's on every broker.
pub(crate) fn is_system(topic: &str) -> bool {
    topic.starts_with(SYSTEM_TOPIC_PREFIX) || SYSTEM_TOPICS.contains(&topic) || BROKER_TOPICS.contains(&topic)
}

/// Before the names of trace topics of the system, one for each region, which clients write.
pub(crate) const CLOUD_TRACE_PREFIX: &str = "rmq_sys_TRACE_DATA_";

/// Whether a topic is internal: messages of other topics wait there, or brokers keep their own records. No client has
/// business there.
pub(crate) fn is_internal(topic: &str) -> bool {
    (topic.starts_with(SYSTEM_TOPIC_PREFIX) && !topic.starts_with(CLOUD_TRACE_PREFIX))
        || BROKER_TOPICS.contains(&topic)
        || topic == "CHECKPOINT_TOPIC"
        || topic.strip_prefix(DEAD_LETTER_PREFIX).is_some_and(is_internal_group)
}

/// Whether a group is internal: brokers keep their own progress under its name.
pub(crate) fn is_internal_group(group: &str) -> bool {
    group.starts_with(SYSTEM_GROUP_PREFIX)
}

/// Whether a topic is one that every group has of its own: retry or dead letters.
pub(crate) fn is_of_group(topic: &str) -> bool {
    topic.starts_with(RETRY_PREFIX) || topic.starts_with(DEAD_LETTER_PREFIX)
}

/// Longest name of a topic of this kind.
pub(crate) fn bytes_max(topic: &str) -> usize {
    if is_of_group(topic) { GROUP_TOPIC_BYTES_MAX } else { TOPIC_BYTES_MAX }
}

/// Whether names of topics and groups may have this character.
pub(crate) fn is_name_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'%' | b'|' | b'_' | b'-')
}
