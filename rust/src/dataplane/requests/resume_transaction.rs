//! Resumed transactions: half messages whose producers are queried again, at an operator's request
//! (RESUME_CHECK_HALF_MESSAGE).
//!
//! A discarded half is stored again as a new half with its checks at zero. This happens only once, or consumers
//! might see the message twice: the index finds later halves with its unique key, and the latest ones, which the
//! index may not have yet, are remembered.
//!
//! Threads: any that may wait for the disk.

use super::broker::Broker;
use super::check_transactions::with_checks;
use crate::dataplane::delivery::transactions::{NewHalf, group_of, topic_of};
use crate::dataplane::state::rejection::{ErrorReply, put_refused, unavailable};
use crate::message::properties::{self, name};
use crate::message::record::{RecordFields, RecordView};
use crate::message::topic::{HALF_TOPIC, UNDECIDED_TOPIC};
use crate::message::{MessageType, tag};
use crate::positions::PhysicalOffset;
use crate::remoting::codes::response;
use crate::store::{KeyHashes, Put};

/// Positions of resumed halves that are remembered.
const REMEMBERED_MAX: usize = 1_024;
/// Records with the same key that are examined.
const KEY_HITS_MAX: usize = 32;

impl Broker {
    /// Restarts the checks of a half that is open, or that was discarded and becomes a new half. May wait for the
    /// disk.
    pub(crate) fn resume_transaction(&self, at: PhysicalOffset) -> Result<(), ErrorReply> {
        let bytes = self.store.lookup(at).ok_or_else(not_found)?;
        let record = RecordView::parse(&bytes).ok().filter(RecordView::body_crc_matches);
        let record = record.ok_or_else(not_found)?;
        let now_ms = self.clock.wall_ms() as i64;
        if record.topic() == HALF_TOPIC.as_bytes() {
            let is_open = self.transactions.begin_again(record.queue_offset(), at, now_ms);
            return if is_open { Ok(()) } else { Err(refused("the transaction has ended already")) };
        }
        if record.topic() != UNDECIDED_TOPIC.as_bytes() {
            return Err(refused("this message is not a discarded half message"));
        }
        if !self.transactions.has_room() {
            return Err(refused("too many transactions are open"));
        }
        // Held throughout, so that concurrent calls do not resume the same half.
        let mut resumed = self.resumed.lock();
        if resumed.contains(&at) || self.was_resumed(&record)? {
            return Err(refused("the half message was resumed already"));
        }
        let queue = self.store.queue_or_create(HALF_TOPIC, 0).map_err(unavailable)?;
        let properties = with_checks(&record, 0);
        let topic = HALF_TOPIC.as_bytes();
        let half = RecordFields { queue_id: 0, topic, properties: &properties, ..record.fields() };
        let (tags_code, keys) = (tag::tags_code(&properties), KeyHashes::of(topic, &properties));
        let message_type = MessageType::Transaction;
        let mut puts = [Put { message_type, ..Put::new(queue, half, tags_code, keys) }];
        self.store.append(&mut puts);
        let [Put { outcome, .. }] = puts;
        let stored = outcome.map_err(|error| put_refused(&error))?;
        if self.store.is_sync() {
            self.store.release_after(stored.end);
        }
        self.transactions.open(&NewHalf {
            offset: stored.queue_offset,
            physical: stored.physical,
            topic: topic_of(&properties),
            group: group_of(&properties),
            client: record.born_host().ip(),
            sender: None,
            stored_ms: stored.store_timestamp_ms,
            due_ms: now_ms,
            checks: 0,
        });
        if resumed.len() == REMEMBERED_MAX {
            resumed.pop_front();
        }
        resumed.push_back(at);
        Ok(())
    }

    /// Returns whether a later half with the same key was stored.
    fn was_resumed(&self, given_up: &RecordView<'_>) -> Result<bool, ErrorReply> {
        let key = properties::get(given_up.properties(), name::UNIQ_KEY);
        let Some(key) = key.and_then(|key| std::str::from_utf8(key).ok()) else { return Ok(false) };
        let begin_ms = given_up.store_timestamp_ms();
        let found =
            self.store.query(HALF_TOPIC, key, KEY_HITS_MAX, begin_ms, i64::MAX).map_err(unavailable)?;
        Ok(found.records.iter().filter_map(|bytes| RecordView::parse(bytes).ok()).any(|half| {
            half.physical_offset() > given_up.physical_offset()
                && properties::get(half.properties(), name::UNIQ_KEY) == Some(key.as_bytes())
        }))
    }
}

fn refused(remark: &'static str) -> ErrorReply {
    ErrorReply::new(response::SYSTEM_ERROR, remark)
}

fn not_found() -> ErrorReply {
    refused("no message is at this position")
}
