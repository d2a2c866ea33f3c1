//! Topic names: reserved prefixes and topics, and the rules for names.

/// Prefix of a group's retry topic, which holds messages sent back by the group.
pub(crate) const RETRY_PREFIX: &str = "%RETRY%";
/// Prefix of a group's dead-letter topic.
pub(crate) const DEAD_LETTER_PREFIX: &str = "%DLQ%";
/// Prefix of light queues, which hold messages of other topics, and of the groups that only read such queues.
pub(crate) const LIGHT_PREFIX: &str = "%LMQ%";

/// The template for topics created by their first message.
pub(crate) const AUTO_CREATE_TOPIC: &str = "TBW102";
/// The topic of delayed messages, one queue per level: level `n` is queue `n - 1`.
pub(crate) const SCHEDULE_TOPIC: &str = "SCHEDULE_TOPIC_XXXX";
/// The topic of timed messages.
pub(crate) const TIMER_TOPIC: &str = "rmq_sys_wheel_timer";
/// The topic of half messages with open transactions.
pub(crate) const HALF_TOPIC: &str = "RMQ_SYS_TRANS_HALF_TOPIC";
/// The topic of the marks that end half messages.
pub(crate) const OP_HALF_TOPIC: &str = "RMQ_SYS_TRANS_OP_HALF_TOPIC";
/// The topic of half messages that were given up undecided.
pub(crate) const UNDECIDED_TOPIC: &str = "TRANS_CHECK_MAX_TIME_TOPIC";
pub(crate) const SELF_TEST_TOPIC: &str = "SELF_TEST_TOPIC";
pub(crate) const OFFSET_MOVED_TOPIC: &str = "OFFSET_MOVED_EVENT";

/// Topics that only brokers write. `rmq_sys_wheel_timer` is included although Apache's broker admits clients: one
/// record without its due time stops all timers there permanently.
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

/// Prefix of temporary system topics.
pub(crate) const SYSTEM_TOPIC_PREFIX: &str = "rmq_sys_";
/// Prefix of system groups.
pub(crate) const SYSTEM_GROUP_PREFIX: &str = "CID_RMQ_SYS_";
/// The group under which the broker saves the progress of its transactions, as in Apache. Only the broker may commit,
/// reset, lock or delete it.
pub(crate) const TRANSACTION_GROUP: &str = "CID_RMQ_SYS_TRANS";
/// The group under which the broker saves its progress with popped messages, likewise reserved.
pub(crate) const REVIVE_TOPIC_PREFIX: &str = "rmq_sys_REVIVE_LOG_";
pub(crate) const REVIVE_GROUP: &str = "CID_RMQ_SYS_REVIVE_GROUP";
/// The default topic of client traces.
pub(crate) const TRACE_TOPIC: &str = "RMQ_SYS_TRACE_TOPIC";
pub(crate) const BENCHMARK_TOPIC: &str = "BenchmarkTest";
/// System topics that clients may write.
pub(crate) const SYSTEM_TOPICS: [&str; 4] =
    [AUTO_CREATE_TOPIC, BENCHMARK_TOPIC, TRACE_TOPIC, "CHECKPOINT_TOPIC"];

/// Longest topic name: the length byte of a record is signed.
pub(crate) const TOPIC_BYTES_MAX: usize = 127;
/// Longest name of a retry or dead-letter topic.
pub(crate) const GROUP_TOPIC_BYTES_MAX: usize = 255;
/// Longest name of a group.
pub(crate) const GROUP_BYTES_MAX: usize = 120;

/// Returns whether a topic exists on every broker as a system topic.
pub(crate) fn is_system(topic: &str) -> bool {
    topic.starts_with(SYSTEM_TOPIC_PREFIX) || SYSTEM_TOPICS.contains(&topic) || BROKER_TOPICS.contains(&topic)
}

/// Returns whether a name is that of a light queue, or of a group that only reads such queues.
pub(crate) fn is_light(name: &str) -> bool {
    name.starts_with(LIGHT_PREFIX)
}

/// Returns whether messages of a topic may be in light queues. Copies for a group or for later are not, nor are messages
/// sent to a light queue itself.
pub(crate) fn admits_light(topic: &[u8]) -> bool {
    let is_excluded = [RETRY_PREFIX, DEAD_LETTER_PREFIX, LIGHT_PREFIX, SYSTEM_TOPIC_PREFIX]
        .iter()
        .any(|prefix| topic.starts_with(prefix.as_bytes()));
    !is_excluded && topic != SCHEDULE_TOPIC.as_bytes()
}

/// Prefix of the regional trace topics, which clients write.
pub(crate) const CLOUD_TRACE_PREFIX: &str = "rmq_sys_TRACE_DATA_";

/// Returns the topic of a group's POP retry topic, and any other name as it is.
pub(crate) fn popped_topic<'t>(group: &str, name: &'t str) -> &'t str {
    let of_group = name.strip_prefix(RETRY_PREFIX).and_then(|rest| rest.strip_prefix(group));
    of_group.and_then(|rest| rest.strip_prefix(['_', '+'])).unwrap_or(name)
}

/// Returns whether a topic is internal: it holds waiting messages of other topics, or brokers' records. Clients may
/// not use it.
pub(crate) fn is_internal(topic: &str) -> bool {
    (topic.starts_with(SYSTEM_TOPIC_PREFIX) && !topic.starts_with(CLOUD_TRACE_PREFIX))
        || BROKER_TOPICS.contains(&topic)
        || topic == "CHECKPOINT_TOPIC"
        || topic.strip_prefix(DEAD_LETTER_PREFIX).is_some_and(is_internal_group)
}

/// Returns whether a group is internal: brokers keep their progress under its name.
pub(crate) fn is_internal_group(group: &str) -> bool {
    group.starts_with(SYSTEM_GROUP_PREFIX)
}

/// Returns the topic from which a group pops messages of `topic` again; only names of the second kind can be parted.
pub(crate) fn pop_retry_topic(group: &str, topic: &str, is_v2: bool) -> String {
    let between = if is_v2 { '+' } else { '_' };
    format!("{RETRY_PREFIX}{group}{between}{topic}")
}

/// Returns whether a topic belongs to one group: retry or dead letters.
pub(crate) fn is_of_group(topic: &str) -> bool {
    topic.starts_with(RETRY_PREFIX) || topic.starts_with(DEAD_LETTER_PREFIX)
}

/// Returns the longest name of this kind of topic.
pub(crate) fn bytes_max(topic: &str) -> usize {
    if is_of_group(topic) { GROUP_TOPIC_BYTES_MAX } else { TOPIC_BYTES_MAX }
}

/// Returns whether names of topics and groups may contain this character.
pub(crate) fn is_name_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'%' | b'|' | b'_' | b'-')
}
