//! Stored records: records that tests of the data plane append directly, as sends do.

use crate::message::record::RecordFields;
use crate::positions::{PhysicalOffset, QueueOffset};
use crate::store::{KeyHashes, Put, Store};

/// Returns a record of a queue with these properties.
pub(in crate::dataplane) fn fields<'a>(
    topic: &'a str,
    queue_id: u32,
    properties: &'a [u8],
    body: &'a [u8],
) -> RecordFields<'a> {
    let host = "127.0.0.1:10911".parse().expect("an address");
    RecordFields {
        queue_id,
        flag: 0,
        sys_flag: 0,
        born_timestamp_ms: 7,
        born_host: host,
        store_host: host,
        reconsume_times: 0,
        prepared_transaction_offset: 0,
        body,
        body_crc: RecordFields::body_crc(body),
        topic: topic.as_bytes(),
        properties,
    }
}

/// Appends a record to its queue and returns its offset and position.
pub(in crate::dataplane) fn store_record(
    store: &Store,
    record: RecordFields<'_>,
) -> (QueueOffset, PhysicalOffset) {
    let topic = std::str::from_utf8(record.topic).expect("a name");
    let queue = store.queue_or_create(topic, record.queue_id).expect("a queue");
    let (tags_code, keys) = (0, KeyHashes::default());
    let mut puts = [Put::new(queue, record, tags_code, keys)];
    store.append(&mut puts);
    let stored = puts[0].outcome.expect("stored");
    (stored.queue_offset, stored.physical)
}
