//! Copies: messages for their next delivery, in the group's retry topic, or among its dead letters.
//!
//! Threads: that of the revival, which may wait for the disk.

use std::sync::Arc;

use super::records::Checkpoint;
use crate::dataplane::state::metadata::Metadata;
use crate::message::properties::{self, name};
use crate::message::record::{RecordFields, RecordView};
use crate::message::tag;
use crate::message::topic::{DEAD_LETTER_PREFIX, RETRY_PREFIX, pop_retry_topic, popped_topic};
use crate::positions::{PhysicalOffset, QueueOffset};
use crate::store::{ConsumeQueue, KeyHashes, Put, Store, StoreError};

/// Copies with one unique key that are checked after a crash: one for each delivery of a message.
const COPIES_MAX: usize = 64;
/// Room for the added properties of a copy.
const ADDED_BYTES: usize = 160;

/// A message for its next delivery.
struct Copy {
    queue: Arc<ConsumeQueue>,
    properties: Vec<u8>,
    reconsume_times: i32,
}

/// The result of copying the messages of a checkpoint.
pub(super) enum Copied {
    /// All are copied, or gone.
    All,
    /// Messages at these offsets are copied; the store has no room for the others now.
    Some(Vec<u64>),
    /// This topic has to be made first.
    Missing(String),
}

/// Appends copies to this broker's own log.
pub(super) struct Copier {
    pub(super) store: Arc<Store>,
    pub(super) metadata: Arc<Metadata>,
    /// The store time of the newest record before the start: what was due by then may have been copied already.
    pub(super) recovered_ms: i64,
}

impl Copier {
    /// Copies the messages of a checkpoint.
    pub(super) fn copy(&self, checkpoint: &Checkpoint) -> Result<Copied, StoreError> {
        let key = &checkpoint.key;
        let (Some(topic), Some(group)) = (self.metadata.topic(&key.topic), self.metadata.group(&key.group))
        else {
            // The topic or the group was deleted, and its messages with it.
            return Ok(Copied::All);
        };
        if key.queue_id >= topic.queue_count() {
            return Ok(Copied::All);
        }
        let queue = topic.queue(&self.store, key.queue_id)?;
        let mut originals = Vec::with_capacity(checkpoint.offsets.len());
        for offset in &checkpoint.offsets {
            let unit = self.store.units(&queue, QueueOffset(*offset), 1)?;
            let record =
                unit.first().and_then(|unit| self.store.lookup_queued(PhysicalOffset(unit.physical)));
            // A message that has expired is not delivered again.
            originals.extend(record);
        }
        let mut copies = Vec::with_capacity(originals.len());
        for original in &originals {
            let Ok(record) = RecordView::parse(original) else { continue };
            let copy = match self.copy_of(&record, checkpoint, group.retry_max)? {
                Ok(copy) => copy,
                Err(missing) => return Ok(Copied::Missing(missing)),
            };
            if checkpoint.due_ms() > self.recovered_ms || !self.is_copied(&record, &copy)? {
                copies.push((record, copy));
            }
        }
        if copies.is_empty() {
            return Ok(Copied::All);
        }
        let store_host = self.metadata.identity.store_host;
        let mut puts: Vec<Put<'_>> = copies
            .iter()
            .map(|(record, copy)| {
                let key = copy.queue.key();
                let fields = RecordFields {
                    queue_id: key.queue_id,
                    topic: key.topic.as_bytes(),
                    born_host: store_host,
                    store_host,
                    reconsume_times: copy.reconsume_times,
                    prepared_transaction_offset: 0,
                    properties: &copy.properties,
                    ..record.fields()
                };
                let keys = KeyHashes::of(key.topic.as_bytes(), &copy.properties);
                Put::new(Arc::clone(&copy.queue), fields, tag::tags_code(&copy.properties), keys)
            })
            .collect();
        self.store.append(&mut puts);
        let stored: Vec<u64> = copies
            .iter()
            .zip(&puts)
            .filter(|(_, put)| put.outcome.is_ok())
            .map(|((record, _), _)| queue.offset_of(record).0)
            .collect();
        Ok(if stored.len() == copies.len() { Copied::All } else { Copied::Some(stored) })
    }

    /// The next delivery of a message, or the dead letter that it becomes; the name of its topic where that does not exist.
    fn copy_of(
        &self,
        record: &RecordView<'_>,
        checkpoint: &Checkpoint,
        retry_max: i32,
    ) -> Result<Result<Copy, String>, StoreError> {
        let key = &checkpoint.key;
        let options = &self.metadata.identity.pop;
        let added = i32::from(!checkpoint.is_suspended);
        let reconsume_times = record.reconsume_times().saturating_add(added);
        let is_dead = options.has_dead_letters && reconsume_times > retry_max;
        let name = if is_dead {
            format!("{DEAD_LETTER_PREFIX}{}", key.group)
        } else if key.topic.starts_with(RETRY_PREFIX) {
            key.topic.clone()
        } else {
            pop_retry_topic(&key.group, &key.topic, options.is_retry_v2)
        };
        let Some(topic) = self.metadata.topic(&name) else { return Ok(Err(name)) };
        // A retry topic that does not have this queue yet returns the message in its last one.
        let queue_id = match options.keeps_retry_queues && !is_dead {
            true => key.queue_id.min(topic.queue_count().saturating_sub(1)),
            false => 0,
        };
        let queue = topic.queue(&self.store, queue_id)?;
        let original = record.properties();
        let pop_ms = key.pop_ms.to_string();
        let is_first =
            record.reconsume_times() == 0 || properties::get(original, name::FIRST_POP_TIME).is_none();
        let is_kept = |found: &[u8]| {
            found != name::ORIGIN_GROUP
                && !(is_first && found == name::FIRST_POP_TIME)
                && found != name::POP_CK
        };
        let mut properties = Vec::with_capacity(original.len() + ADDED_BYTES);
        let mut writer = properties::Writer::copy_if(&mut properties, original, is_kept);
        writer.append(name::ORIGIN_GROUP, key.group.as_bytes());
        if is_dead && properties::get(original, name::RETRY_TOPIC).is_none() {
            writer.append(name::RETRY_TOPIC, popped_topic(&key.group, &key.topic).as_bytes());
        }
        if is_first {
            writer.append(name::FIRST_POP_TIME, pop_ms.as_bytes());
        }
        if properties.len() > properties::PROPERTIES_BYTES_MAX {
            // What says when it was first popped is not worth the message.
            properties = original.to_vec();
        }
        Ok(Ok(Copy { queue, properties, reconsume_times }))
    }

    /// Whether the same copy was stored before a crash, which the saved progress did not know.
    fn is_copied(&self, record: &RecordView<'_>, copy: &Copy) -> Result<bool, StoreError> {
        let key = properties::get(record.properties(), name::UNIQ_KEY);
        let Some(key) = key.and_then(|key| std::str::from_utf8(key).ok()) else { return Ok(false) };
        let topic = &copy.queue.key().topic;
        let found = self.store.query(topic, key, COPIES_MAX, 0, self.recovered_ms)?;
        let of_copy = |name| properties::get(&copy.properties, name);
        Ok(found.records.iter().filter_map(|bytes| RecordView::parse(bytes).ok()).any(|known| {
            known.physical_offset() > record.physical_offset()
                && known.reconsume_times() == copy.reconsume_times
                && [name::UNIQ_KEY, name::ORIGIN_GROUP, name::FIRST_POP_TIME]
                    .into_iter()
                    .all(|name| properties::get(known.properties(), name) == of_copy(name))
        }))
    }
}
