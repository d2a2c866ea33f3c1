//! The properties of a message: `name 0x01 value 0x02`, repeated, as one byte string.
//!
//! Never exploded into a map: readers walk it for the one name they need, writers append to it. What is not asked
//! for is carried verbatim, so that a message leaves a broker with the bytes it came with.

use memchr::memchr;

/// Stands between a name and its value.
pub const NAME_VALUE_SEPARATOR: u8 = 1;
/// Ends an entry. The last one may be missing.
pub const ENTRY_SEPARATOR: u8 = 2;
/// Longest properties a record can hold: its length field is a signed 16-bit number.
pub const PROPERTIES_BYTES_MAX: usize = i16::MAX as usize;

/// Names that brokers and clients give a meaning.
#[allow(missing_docs, reason = "constants named like their value")]
pub mod name {
    pub const KEYS: &[u8] = b"KEYS";
    pub const TAGS: &[u8] = b"TAGS";
    pub const WAIT: &[u8] = b"WAIT";
    pub const DELAY: &[u8] = b"DELAY";
    pub const UNIQ_KEY: &[u8] = b"UNIQ_KEY";
    pub const RETRY_TOPIC: &[u8] = b"RETRY_TOPIC";
    pub const REAL_TOPIC: &[u8] = b"REAL_TOPIC";
    pub const REAL_QUEUE_ID: &[u8] = b"REAL_QID";
    pub const TRANSACTION_PREPARED: &[u8] = b"TRAN_MSG";
    pub const PRODUCER_GROUP: &[u8] = b"PGROUP";
    pub const MIN_OFFSET: &[u8] = b"MIN_OFFSET";
    pub const MAX_OFFSET: &[u8] = b"MAX_OFFSET";
    pub const ORIGIN_MESSAGE_ID: &[u8] = b"ORIGIN_MESSAGE_ID";
    pub const ORIGIN_GROUP: &[u8] = b"ORIGIN_GROUP";
    pub const RECONSUME_TIME: &[u8] = b"RECONSUME_TIME";
    pub const MAX_RECONSUME_TIMES: &[u8] = b"MAX_RECONSUME_TIMES";
    pub const MSG_REGION: &[u8] = b"MSG_REGION";
    pub const TRACE_ON: &[u8] = b"TRACE_ON";
    pub const CLUSTER: &[u8] = b"CLUSTER";
    pub const CONSUME_START_TIME: &[u8] = b"CONSUME_START_TIME";
    pub const INNER_NUM: &[u8] = b"INNER_NUM";
    pub const INNER_BASE: &[u8] = b"INNER_BASE";
    pub const CHECK_IMMUNITY_TIME: &[u8] = b"CHECK_IMMUNITY_TIME_IN_SECONDS";
    pub const PREPARED_QUEUE_OFFSET: &[u8] = b"TRAN_PREPARED_QUEUE_OFFSET";
    pub const TRANSACTION_ID: &[u8] = b"__transactionId__";
    pub const TRANSACTION_CHECK_TIMES: &[u8] = b"TRANSACTION_CHECK_TIMES";
    pub const INSTANCE_ID: &[u8] = b"INSTANCE_ID";
    pub const CORRELATION_ID: &[u8] = b"CORRELATION_ID";
    pub const REPLY_TO_CLIENT: &[u8] = b"REPLY_TO_CLIENT";
    pub const TTL: &[u8] = b"TTL";
    pub const ARRIVE_TIME: &[u8] = b"ARRIVE_TIME";
    pub const PUSH_REPLY_TIME: &[u8] = b"PUSH_REPLY_TIME";
    pub const MSG_TYPE: &[u8] = b"MSG_TYPE";
    pub const POP_CK: &[u8] = b"POP_CK";
    pub const POP_CK_OFFSET: &[u8] = b"POP_CK_OFFSET";
    pub const FIRST_POP_TIME: &[u8] = b"1ST_POP_TIME";
    pub const PRIORITY: &[u8] = b"_SYS_MSG_PRIORITY_";
    pub const LITE_TOPIC: &[u8] = b"__LITE_TOPIC";
    pub const SHARDING_KEY: &[u8] = b"__SHARDINGKEY";
    pub const MULTI_DISPATCH: &[u8] = b"INNER_MULTI_DISPATCH";
    pub const MULTI_QUEUE_OFFSET: &[u8] = b"INNER_MULTI_QUEUE_OFFSET";
    pub const BORN_HOST: &[u8] = b"__BORNHOST";
    pub const BORN_TIMESTAMP: &[u8] = b"BORN_TIMESTAMP";
    pub const CRC32: &[u8] = b"__CRC32#";
    pub const DLQ_ORIGIN_TOPIC: &[u8] = b"DLQ_ORIGIN_TOPIC";
    pub const DLQ_ORIGIN_MESSAGE_ID: &[u8] = b"DLQ_ORIGIN_MESSAGE_ID";
    pub const TIMER_DELAY_SEC: &[u8] = b"TIMER_DELAY_SEC";
    pub const TIMER_DELAY_MS: &[u8] = b"TIMER_DELAY_MS";
    pub const TIMER_DELIVER_MS: &[u8] = b"TIMER_DELIVER_MS";
    pub const TIMER_OUT_MS: &[u8] = b"TIMER_OUT_MS";
    pub const TIMER_ENQUEUE_MS: &[u8] = b"TIMER_ENQUEUE_MS";
    pub const TIMER_DEQUEUE_MS: &[u8] = b"TIMER_DEQUEUE_MS";
    pub const TIMER_ROLL_TIMES: &[u8] = b"TIMER_ROLL_TIMES";
    pub const TIMER_DELETE_UNIQ_KEY: &[u8] = b"TIMER_DEL_UNIQKEY";
    /// Properties with this prefix are for the way between client and broker and are never stored.
    pub const TRANSIENT_PREFIX: &[u8] = b"__RMQ.TRANSIENT.";
}

/// The entries of `properties` in order, by the rules of the Java clients: one without a name, without a separator
/// or with an empty value is not there; everything behind the first separator is value.
#[must_use]
pub fn entries(properties: &[u8]) -> Entries<'_> {
    Entries { rest: properties }
}

/// Value of the entry `name`; the last one where a name stands twice.
#[must_use]
pub fn get<'a>(properties: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    entries(properties).filter(|(found, _)| *found == name).last().map(|(_, value)| value)
}

/// Whether `text` can be a name or a value: not empty, and without the two separators.
#[must_use]
pub fn is_legal(text: &[u8]) -> bool {
    !text.is_empty() && !text.iter().any(|byte| matches!(*byte, NAME_VALUE_SEPARATOR | ENTRY_SEPARATOR))
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
    /// New properties at the end of `out`.
    pub fn new(out: &'a mut Vec<u8>) -> Self {
        let start = out.len();
        Self { out, start }
    }

    /// New properties at the end of `out` that begin as a verbatim copy.
    pub fn copy(out: &'a mut Vec<u8>, properties: &[u8]) -> Self {
        let writer = Self::new(out);
        writer.out.extend_from_slice(properties);
        writer
    }

    /// New properties at the end of `out` that begin with those entries whose name `keeps`.
    pub fn copy_if(out: &'a mut Vec<u8>, properties: &[u8], keeps: impl Fn(&[u8]) -> bool) -> Self {
        let mut writer = Self::new(out);
        for (name, value) in entries(properties).filter(|(name, _)| keeps(name)) {
            writer.append(name, value);
        }
        writer
    }

    /// Appends one entry, and before it the separator that a lenient client left out. Name and value must be
    /// [`is_legal`]; this is not checked again.
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

    /// Appends a number.
    pub fn append_number(&mut self, name: &[u8], value: i64) -> &mut Self {
        self.append(name, itoa::Buffer::new().format(value).as_bytes())
    }

    /// Size of the properties so far.
    #[must_use]
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
        Writer::copy(&mut out, b"a\x01b").append(b"c", b"d").append_number(b"n", -7);
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
