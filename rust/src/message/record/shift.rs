//! Shift: queue offsets of received records, corrected to those of the queue they were read from.
//!
//! Records of a static topic keep the offsets of the queue that stores them, and brokers send the difference. Records of
//! a light queue keep those of their topic, and have the others in a property.

use super::{RECORD_BYTES_MIN, RecordView};
use crate::message::multi_dispatch;

/// The positions of the queue's id and of the offset in a record.
const QUEUE_ID_AT: usize = 12;
const QUEUE_OFFSET_AT: usize = 20;

/// Returns the bytes of whole records with `delta` added to each queue offset. Bytes that are not records are copied.
pub(crate) fn shifted(records: &[u8], delta: i64) -> Vec<u8> {
    changed(records, |record| {
        if let Some(field) = record.get_mut(QUEUE_OFFSET_AT..).and_then(|field| field.first_chunk_mut()) {
            *field = i64::from_be_bytes(*field).wrapping_add(delta).to_be_bytes();
        }
    })
}

/// Returns the bytes of whole records with the id and their offsets of a light queue. Records that are not in it are
/// copied.
pub(crate) fn in_light_queue(records: &[u8], queue: &str) -> Vec<u8> {
    changed(records, |record| {
        let place =
            |record: RecordView<'_>| multi_dispatch::place(record.topic(), record.properties(), queue);
        let Some(offset) = RecordView::parse(record).ok().and_then(place) else { return };
        for (at, bytes) in [(QUEUE_ID_AT, &[0; 4][..]), (QUEUE_OFFSET_AT, &offset.0.to_be_bytes())] {
            if let Some(field) = record.get_mut(at..at + bytes.len()) {
                field.copy_from_slice(bytes);
            }
        }
    })
}

/// Returns a copy of whole records, each changed by `change`.
fn changed(records: &[u8], change: impl Fn(&mut [u8])) -> Vec<u8> {
    let mut bytes = records.to_vec();
    let mut rest = bytes.as_mut_slice();
    while let Some(size) = rest.first_chunk().map(|size| i32::from_be_bytes(*size)) {
        let size = usize::try_from(size).ok().filter(|size| (RECORD_BYTES_MIN..=rest.len()).contains(size));
        let Some(size) = size else { break };
        let (record, after) = rest.split_at_mut(size);
        change(record);
        rest = after;
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::record::{RecordFields, Stamp};
    use crate::positions::{PhysicalOffset, QueueOffset};

    fn record(offset: i64) -> Vec<u8> {
        let mut bytes = vec![0; RECORD_BYTES_MIN];
        bytes[..4].copy_from_slice(&(RECORD_BYTES_MIN as i32).to_be_bytes());
        bytes[QUEUE_OFFSET_AT..QUEUE_OFFSET_AT + 8].copy_from_slice(&offset.to_be_bytes());
        bytes
    }

    #[test]
    fn every_record_is_corrected_and_nothing_else() {
        let bytes = [record(0), record(7)].concat();
        assert_eq!(shifted(&bytes, 10_000), [record(10_000), record(10_007)].concat());
    }

    #[test]
    fn records_of_a_light_queue_get_their_offsets_there() {
        let record = |queue_id, offset, properties: &str| {
            let host = "127.0.0.1:10911".parse().expect("an address");
            let fields = RecordFields {
                queue_id,
                flag: 0,
                sys_flag: 0,
                born_timestamp_ms: 0,
                born_host: host,
                store_host: host,
                reconsume_times: 0,
                prepared_transaction_offset: 0,
                body: b"body",
                body_crc: RecordFields::body_crc(b"body"),
                topic: b"orders",
                properties: properties.as_bytes(),
            };
            let mut bytes = vec![0; fields.encoded_len()];
            let queue = QueueOffset(offset);
            fields.encode(&mut bytes, Stamp { physical: PhysicalOffset(0), queue, store_timestamp_ms: 0 });
            bytes
        };
        let in_both = "INNER_MULTI_DISPATCH\u{1}%LMQ%a,%LMQ%b\u{2}INNER_MULTI_QUEUE_OFFSET\u{1}70,80\u{2}";
        let bytes = [record(3, 4, in_both), record(3, 5, "")].concat();
        assert_eq!(in_light_queue(&bytes, "%LMQ%b"), [record(0, 80, in_both), record(3, 5, "")].concat());
        assert_eq!(in_light_queue(&bytes, "%LMQ%c"), bytes);
    }

    #[test]
    fn bytes_that_are_no_records_are_copied() {
        for bytes in [b"".as_slice(), b"abc", &[0xFF; 200], &[0; 200], &record(1)[..90]] {
            assert_eq!(shifted(bytes, 5), bytes);
            assert_eq!(in_light_queue(bytes, "%LMQ%a"), bytes);
        }
    }
}
