//! Statistics: record counts of a stopped store by topic.
//!
//! Threads: any.

use std::collections::{BTreeMap, BTreeSet};

use hashbrown::HashMap;

use crate::store::error::StoreError;

use super::StoppedStore;
use super::walk::{Extent, Found};

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TopicStats {
    /// Queues that have records.
    pub queues: BTreeSet<u32>,
    pub records: u64,
    pub(crate) bytes: u64,
    /// Bytes of the bodies, as stored.
    pub body_bytes: u64,
    /// Store times of the oldest and the newest record, in milliseconds.
    pub stored_ms: (i64, i64),
}

impl StoppedStore {
    /// Counts the records of every topic. Also returns the beginning and the end of the log.
    pub fn stats(&self) -> Result<(Extent, BTreeMap<String, TopicStats>), StoreError> {
        let mut topics: HashMap<Vec<u8>, TopicStats> = HashMap::new();
        let extent = self.walk(|found| {
            let Found::Record(record) = found else { return Ok(()) };
            let stored_ms = record.store_timestamp_ms();
            let topic = topics.entry_ref(record.topic()).or_insert_with(|| TopicStats {
                queues: BTreeSet::new(),
                records: 0,
                bytes: 0,
                body_bytes: 0,
                stored_ms: (stored_ms, stored_ms),
            });
            topic.queues.insert(record.queue_id());
            topic.records += 1;
            topic.bytes += record.total_size() as u64;
            topic.body_bytes += record.body().len() as u64;
            topic.stored_ms = (topic.stored_ms.0.min(stored_ms), topic.stored_ms.1.max(stored_ms));
            Ok(())
        })?;
        let named =
            topics.into_iter().map(|(name, stats)| (String::from_utf8_lossy(&name).into_owned(), stats));
        Ok((extent, named.collect()))
    }
}
