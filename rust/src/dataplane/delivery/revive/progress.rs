//! Progress of popping groups after a crash: read from the checkpoints that were stored since offsets were saved.
//!
//! Offsets are saved every few seconds. A group that popped on and was killed with its broker would pop the same messages
//! again, also those that it has acknowledged. Their checkpoints say how far it had come.

use hashbrown::HashMap;

use super::records::{CHECKPOINT, ReviveRecord, parse};
use crate::dataplane::state::metadata::Metadata;
use crate::dataplane::state::offsets::Offsets;
use crate::message::properties::{self, name};
use crate::message::record::records;
use crate::message::tag;
use crate::message::topic::TIMER_TOPIC;
use crate::positions::QueueOffset;
use crate::store::{Boundary, ConsumeQueue, Get, GetResult, ReadFilter, Store, StoreError};

/// How long before the newest message offsets were saved at the latest.
const WINDOW_MS: i64 = 60_000;
/// Records that one read gives.
const RECORDS_PER_READ: u32 = 1_024;
const BYTES_PER_READ: usize = 4 << 20;

/// Queue of a group, and the offset behind what was popped.
type PoppedOffsets = HashMap<(String, String, u32), u64>;

/// Moves committed offsets on to where checkpoints say that groups had popped.
pub(super) fn recover(store: &Store, metadata: &Metadata, offsets: &Offsets) -> Result<(), StoreError> {
    let Some(newest_ms) = store.last_store_time() else { return Ok(()) };
    let revive = &*metadata.revive_topic;
    let mut reached = PoppedOffsets::new();
    for queue_id in 0..metadata.topic(revive).map_or(0, |topic| topic.queue_count()) {
        if let Some(queue) = store.queue(revive, queue_id) {
            read(store, &queue, newest_ms, metadata, &mut reached)?;
        }
    }
    if let Some(queue) = store.queue(TIMER_TOPIC, 0) {
        read(store, &queue, newest_ms, metadata, &mut reached)?;
    }
    for ((group, name, queue_id), next) in reached {
        let Some(topic) = metadata.topic(&name) else { continue };
        if offsets.query(&group, &name, queue_id).is_none_or(|committed| committed < next) {
            // Refused only for a queue that consumers can no longer read.
            let _ = offsets.commit(&group, &topic, queue_id.into(), next as i64);
        }
    }
    Ok(())
}

/// Reads the newest checkpoints of a queue.
fn read(
    store: &Store,
    queue: &ConsumeQueue,
    newest_ms: i64,
    metadata: &Metadata,
    reached: &mut PoppedOffsets,
) -> Result<(), StoreError> {
    let code = i64::from(tag::java_hash(CHECKPOINT));
    let mut offset = store.offset_by_time(queue, newest_ms.saturating_sub(WINDOW_MS), Boundary::Lower)?;
    let mut found = GetResult::default();
    while offset < queue.max() {
        let get = Get { offset, messages_max: RECORDS_PER_READ, bytes_max: BYTES_PER_READ };
        let mut is_checkpoint = |tags_code: i64| tags_code == code;
        store.get_filtered(queue, &get, &mut ReadFilter::Codes(&mut is_checkpoint), &mut found)?;
        for record in found.slices.iter().flat_map(|slice| records(slice)).flatten() {
            let real = properties::get(record.properties(), name::REAL_TOPIC);
            if real.is_some_and(|real| real != metadata.revive_topic.as_bytes()) {
                continue;
            }
            let parsed = parse(record.properties(), record.body(), &metadata.identity.broker);
            let Some(ReviveRecord::Checkpoint(checkpoint)) = parsed else { continue };
            // A change of the invisible time is a checkpoint of one message, whose offset is behind the group's.
            if let Some(last) = checkpoint.offsets.last() {
                let key = (checkpoint.key.group, checkpoint.key.topic, checkpoint.key.queue_id);
                let next = reached.entry(key).or_default();
                *next = (*next).max(last + 1);
            }
        }
        let next = found.next_begin.max(QueueOffset(offset.0 + 1));
        found.clear();
        offset = next;
    }
    Ok(())
}
