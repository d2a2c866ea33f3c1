//! Topic names: prefixes and topics with a meaning of their own, and what a name may be.

/// Before a group's name: the topic of messages that the group returned.
pub(crate) const RETRY_PREFIX: &str = "%RETRY%";
/// Before a group's name: the topic of messages that the group gave up on.
pub(crate) const DEAD_LETTER_PREFIX: &str = "%DLQ%";

/// The template of topics that are made by their first message.
pub(crate) const AUTO_CREATE_TOPIC: &str = "TBW102";
/// The topic whose queues hold delayed messages, one queue a level: level `n` is queue `n - 1`.
pub(crate) const SCHEDULE_TOPIC: &str = "SCHEDULE_TOPIC_XXXX";
/// The topic of messages whose transactions are open.
pub(crate) const HALF_TOPIC: &str = "RMQ_SYS_TRANS_HALF_TOPIC";
/// The topic of marks on half messages whose transactions have ended.
pub(crate) const OP_HALF_TOPIC: &str = "RMQ_SYS_TRANS_OP_HALF_TOPIC";
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
    "TRANS_CHECK_MAX_TIME_TOPIC",
    SELF_TEST_TOPIC,
    OFFSET_MOVED_TOPIC,
    "rmq_sys_wheel_timer",
];

/// Longest name of a topic: what one length byte of a record can say.
pub(crate) const TOPIC_BYTES_MAX: usize = 127;
/// Longest name of a retry or dead-letter topic.
pub(crate) const GROUP_TOPIC_BYTES_MAX: usize = 255;
/// Longest name of a group.
pub(crate) const GROUP_BYTES_MAX: usize = 120;

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
