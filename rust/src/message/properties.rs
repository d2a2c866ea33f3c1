//! Properties: the byte string `name 0x01 value 0x02`, repeated.
//!
//! Properties are never expanded into a map: readers scan for the name they need, writers append. Unread entries pass
//! through verbatim, so a message leaves a broker with its original bytes.

use std::collections::HashSet;
use std::sync::LazyLock;

use memchr::memchr;

/// Separates a name from its value.
pub const NAME_VALUE_SEPARATOR: u8 = 1;
/// Ends an entry. The last one may be missing.
pub const ENTRY_SEPARATOR: u8 = 2;
/// Longest properties a record can hold: its length field is a signed 16-bit number.
pub(crate) const PROPERTIES_BYTES_MAX: usize = i16::MAX as usize;

/// Names with a meaning for brokers and clients.
#[allow(missing_docs, reason = "constants named like their value")]
pub mod name {
    pub const KEYS: &[u8] = b"KEYS";
    pub(crate) const TAGS: &[u8] = b"TAGS";
    pub(crate) const WAIT: &[u8] = b"WAIT";
    pub(crate) const DELAY: &[u8] = b"DELAY";
    pub const UNIQ_KEY: &[u8] = b"UNIQ_KEY";
    pub(crate) const RETRY_TOPIC: &[u8] = b"RETRY_TOPIC";
    pub(crate) const REAL_TOPIC: &[u8] = b"REAL_TOPIC";
    pub(crate) const REAL_QUEUE_ID: &[u8] = b"REAL_QID";
    pub(crate) const TRANSACTION_PREPARED: &[u8] = b"TRAN_MSG";
    pub(crate) const PRODUCER_GROUP: &[u8] = b"PGROUP";
    pub(crate) const CHECK_IMMUNITY_S: &[u8] = b"CHECK_IMMUNITY_TIME_IN_SECONDS";
    pub(crate) const FIRST_HALF_OFFSET: &[u8] = b"TRAN_PREPARED_QUEUE_OFFSET";
    pub(crate) const TRANSACTION_CHECKS: &[u8] = b"TRANSACTION_CHECK_TIMES";
    pub(crate) const ORIGIN_MESSAGE_ID: &[u8] = b"ORIGIN_MESSAGE_ID";
    pub(crate) const MSG_REGION: &[u8] = b"MSG_REGION";
    pub const TRACE_ON: &[u8] = b"TRACE_ON";
    pub(crate) const CLUSTER: &[u8] = b"CLUSTER";
    pub const INNER_NUM: &[u8] = b"INNER_NUM";
    pub(crate) const INSTANCE_ID: &str = "INSTANCE_ID";
    pub(crate) const TRANSACTION_ID: &[u8] = b"__transactionId__";
    pub(crate) const POP_CK: &[u8] = b"POP_CK";
    pub(crate) const FIRST_POP_TIME: &[u8] = b"1ST_POP_TIME";
    pub(crate) const ORIGIN_GROUP: &[u8] = b"ORIGIN_GROUP";
    pub(crate) const SHARDING_KEY: &[u8] = b"__SHARDINGKEY";
    pub(crate) const PRIORITY: &[u8] = b"_SYS_MSG_PRIORITY_";
    pub const CRC32: &[u8] = b"__CRC32#";
    pub(crate) const TIMER_DELAY_SEC: &[u8] = b"TIMER_DELAY_SEC";
    pub(crate) const TIMER_DELAY_MS: &[u8] = b"TIMER_DELAY_MS";
    pub(crate) const TIMER_DELIVER_MS: &[u8] = b"TIMER_DELIVER_MS";
    pub(crate) const TIMER_OUT_MS: &[u8] = b"TIMER_OUT_MS";
    pub(crate) const TIMER_ENQUEUE_MS: &[u8] = b"TIMER_ENQUEUE_MS";
    pub(crate) const TIMER_DEQUEUE_MS: &[u8] = b"TIMER_DEQUEUE_MS";
    pub(crate) const TIMER_ROLL_TIMES: &[u8] = b"TIMER_ROLL_TIMES";
    pub(crate) const BORN_TIMESTAMP: &[u8] = b"BORN_TIMESTAMP";
    pub(crate) const TIMER_DELETE_KEY: &[u8] = b"TIMER_DEL_UNIQKEY";
    pub(crate) const LITE_TOPIC: &[u8] = b"__LITE_TOPIC";
    pub(crate) const LIGHT_QUEUES: &[u8] = b"INNER_MULTI_DISPATCH";
    pub(crate) const LIGHT_OFFSETS: &[u8] = b"INNER_MULTI_QUEUE_OFFSET";
}

/// Names that only brokers and clients' libraries write, by RocketMQ's list.
static RESERVED: LazyLock<HashSet<&'static str>> = LazyLock::new(|| {
    [
        "KEYS TAGS WAIT DELAY RETRY_TOPIC REAL_TOPIC REAL_QID TRAN_MSG PGROUP MIN_OFFSET MAX_OFFSET BUYER_ID",
        "ORIGIN_MESSAGE_ID TRANSFER_FLAG CORRECTION_FLAG MQ2_FLAG RECONSUME_TIME MSG_REGION TRACE_ON UNIQ_KEY",
        "EXTEND_UNIQ_INFO MAX_RECONSUME_TIMES CONSUME_START_TIME POP_CK POP_CK_OFFSET 1ST_POP_TIME",
        "TRAN_PREPARED_QUEUE_OFFSET DUP_INFO INSTANCE_ID CORRELATION_ID REPLY_TO_CLIENT TTL ARRIVE_TIME",
        "PUSH_REPLY_TIME CLUSTER MSG_TYPE INNER_MULTI_QUEUE_OFFSET TIMER_DELAY_SEC TIMER_DELAY_MS",
        "TIMER_DELIVER_MS TIMER_OUT_MS TIMER_ENQUEUE_MS TIMER_DEQUEUE_MS TIMER_ROLL_TIMES TIMER_DEL_UNIQKEY",
        "TIMER_DELAY_LEVEL __BORNHOST BORN_TIMESTAMP __CRC32# DLQ_ORIGIN_TOPIC DLQ_ORIGIN_MESSAGE_ID",
        "_SYS_MSG_PRIORITY_ __LITE_TOPIC",
    ]
    .into_iter()
    .flat_map(str::split_whitespace)
    .collect()
});

/// Returns whether RocketMQ reserves this property name.
pub(crate) fn is_reserved(name: &str) -> bool {
    RESERVED.contains(name)
}

/// Iterates over the entries in order, by the rules of the Java clients: an entry without a name, separator or value
/// is skipped, and everything after the first separator is value.
pub fn entries(properties: &[u8]) -> Entries<'_> {
    Entries { rest: properties }
}

/// Returns the value of `name`; the last one if the name is repeated.
pub fn get<'a>(properties: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    entries(properties).filter(|(found, _)| *found == name).last().map(|(_, value)| value)
}

/// Iterator of [`entries`].
#[derive(Clone, Debug)]
pub struct Entries<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for Entries<'a> {
    type Item = (&'a [u8], &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        while !self.rest.is_empty() {
            let (entry, rest) = match memchr(ENTRY_SEPARATOR, self.rest) {
                Some(end) => (&self.rest[..end], &self.rest[end + 1..]),
                None => (self.rest, &[][..]),
            };
            self.rest = rest;
            let Some(middle) = memchr(NAME_VALUE_SEPARATOR, entry) else { continue };
            let (name, value) = (&entry[..middle], &entry[middle + 1..]);
            if !name.is_empty() && !value.is_empty() {
                return Some((name, value));
            }
        }
        None
    }
}

/// Appends entries to properties at the end of a buffer.
#[derive(Debug)]
pub struct Writer<'a> {
    out: &'a mut Vec<u8>,
    start: usize,
}

impl<'a> Writer<'a> {
    /// Starts empty properties at the end of `out`.
    pub(crate) fn new(out: &'a mut Vec<u8>) -> Self {
        let start = out.len();
        Self { out, start }
    }

    /// Continues properties that begin at `start` of `out`.
    pub(crate) fn resume(out: &'a mut Vec<u8>, start: usize) -> Self {
        Self { out, start }
    }

    /// Starts properties at the end of `out` with a verbatim copy.
    pub fn copy(out: &'a mut Vec<u8>, properties: &[u8]) -> Self {
        let writer = Self::new(out);
        writer.out.extend_from_slice(properties);
        writer
    }

    /// Starts properties at the end of `out` with the entries whose name `keeps` accepts.
    pub fn copy_if(out: &'a mut Vec<u8>, properties: &[u8], keeps: impl Fn(&[u8]) -> bool) -> Self {
        let mut writer = Self::new(out);
        for (name, value) in entries(properties).filter(|(name, _)| keeps(name)) {
            writer.append(name, value);
        }
        writer
    }

    /// Appends one entry, preceded by the separator if a lenient client omitted it. The caller has checked name and
    /// value with [`is_legal`].
    pub fn append(&mut self, name: &[u8], value: &[u8]) -> &mut Self {
        let is_open = self.out.len() > self.start && self.out.last() != Some(&ENTRY_SEPARATOR);
        if is_open {
            self.out.push(ENTRY_SEPARATOR);
        }
        self.out.extend_from_slice(name);
        self.out.push(NAME_VALUE_SEPARATOR);
        self.out.extend_from_slice(value);
        self.out.push(ENTRY_SEPARATOR);
        self
    }

    /// Returns the size of the properties so far.
    pub fn size(&self) -> usize {
        self.out.len() - self.start
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(properties: &[u8], expected: &[(&[u8], &[u8])]) {
        assert_eq!(entries(properties).collect::<Vec<_>>(), expected, "{}", properties.escape_ascii());
    }

    #[test]
    fn entries_follow_the_rules_of_java() {
        check(b"a\x01b\x02c\x01\x02d\x01e", &[(b"a", b"b"), (b"d", b"e")]);
        check(b"", &[]);
        check(b"\x02\x02", &[]);
        check(b"\x01v\x02n\x02a\x01b", &[(b"a", b"b")]);
        check(b"a\x01b\x01c\x02", &[(b"a", b"b\x01c")]);
    }

    #[test]
    fn the_last_separator_may_be_missing_and_is_added_before_appending() {
        let mut out = b"in front".to_vec();
        Writer::copy(&mut out, b"a\x01b").append(b"c", b"d").append(b"n", b"-7");
        assert_eq!(&out[8..], b"a\x01b\x02c\x01d\x02n\x01-7\x02");
        check(&out[8..], &[(b"a", b"b"), (b"c", b"d"), (b"n", b"-7")]);
    }

    #[test]
    fn the_last_of_two_values_counts() {
        assert_eq!(get(b"a\x011\x02b\x012\x02a\x013\x02", b"a"), Some(&b"3"[..]));
        assert_eq!(get(b"a\x011\x02", b"A"), None);
    }

    #[test]
    fn entries_can_be_left_out_of_a_copy() {
        let mut out = Vec::new();
        let writer = Writer::copy_if(&mut out, b"a\x011\x02b\x012\x02c\x013", |name| name != b"b");
        assert_eq!(writer.size(), 8);
        assert_eq!(out, b"a\x011\x02c\x013\x02");
    }
}
