//! Escapes: messages that fall due while this broker acts for its master, in transfer to another broker.
//!
//! A slave's log is a copy that takes no messages, so a due message is offered here. Python sends it to a broker of
//! the cluster that has the topic, and reports the result. Delivery does not block: it treats a message without a
//! result as refused, and offers it again later.
//!
//! *Invariant*: delivery passes a message only when another broker has accepted it, in the order of its batch. An
//! accepted message that is not passed before acting ends is delivered again by the next master.
//! Threads: any; one lock, held for an operation on a map or the copy of one message.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::message::record::RecordFields;
use crate::positions::PhysicalOffset;
use crate::store::{FirstOf, Left, Put, PutError, Store, StoreError, WaitingRoom};

/// Maximum number of messages in transfer; others wait in their queues.
const UNDERWAY_MAX: usize = 4_096;
const UNDERWAY_BYTES_MAX: usize = 32 << 20;

/// A message for another broker.
pub(crate) struct Escape {
    /// The position of the pending message in this log.
    pub(crate) position: PhysicalOffset,
    pub(crate) topic: String,
    pub(crate) queue_id: u32,
    pub(crate) flag: i32,
    pub(crate) sys_flag: i32,
    pub(crate) born_timestamp_ms: i64,
    pub(crate) reconsume_times: i32,
    pub(crate) properties: String,
    pub(crate) body: Vec<u8>,
}

enum Stage {
    Offered(Box<Escape>),
    /// Handed to Python, with the number of bytes reserved for it.
    Taken(usize),
    Accepted,
}

#[derive(Default)]
struct State {
    /// By the position of the pending message.
    messages: BTreeMap<PhysicalOffset, Stage>,
    /// Bytes of the messages that are not accepted yet.
    bytes: usize,
    /// Whether new messages are admitted.
    is_open: bool,
}

impl State {
    /// Returns true once for an accepted message. Otherwise offers the message, if there is room.
    fn pass(&mut self, position: PhysicalOffset, put: &Put<'_>) -> bool {
        if matches!(self.messages.get(&position), Some(Stage::Accepted)) {
            self.messages.remove(&position);
            return true;
        }
        self.offer(position, put);
        false
    }

    fn offer(&mut self, position: PhysicalOffset, put: &Put<'_>) {
        let has_room = self.messages.len() < UNDERWAY_MAX && self.bytes < UNDERWAY_BYTES_MAX;
        if !self.is_open || !has_room || self.messages.contains_key(&position) {
            return;
        }
        let escape = Escape::of(position, &put.record);
        self.bytes += escape.size();
        self.messages.insert(position, Stage::Offered(Box::new(escape)));
    }
}

/// The messages in transfer.
#[derive(Default)]
pub(crate) struct Escapes {
    state: Mutex<State>,
}

impl Escapes {
    /// Admits messages, or withdraws those that are only offered. Messages already taken still get their result.
    pub(crate) fn set_open(&self, is_open: bool) {
        let mut state = self.state.lock();
        state.is_open = is_open;
        if !is_open {
            let State { messages, bytes, .. } = &mut *state;
            messages.retain(|_, stage| match stage {
                Stage::Offered(escape) => {
                    *bytes -= escape.size();
                    false
                }
                Stage::Taken(_) | Stage::Accepted => true,
            });
        }
    }

    /// Takes at most `limit` of the offered messages, the oldest first.
    pub(crate) fn take(&self, limit: usize) -> Vec<Escape> {
        let mut state = self.state.lock();
        let offered = state.messages.values_mut().filter(|stage| matches!(stage, Stage::Offered(_)));
        let taken = offered.take(limit).filter_map(|stage| {
            let Stage::Offered(escape) = stage else { return None };
            let taken = Stage::Taken(escape.size());
            let Stage::Offered(escape) = std::mem::replace(stage, taken) else { return None };
            Some(*escape)
        });
        taken.collect()
    }

    /// Records whether another broker accepted a taken message. A message that it refused will be offered again.
    pub(crate) fn decide(&self, position: PhysicalOffset, is_accepted: bool) {
        let mut state = self.state.lock();
        let Some(Stage::Taken(bytes)) = state.messages.remove(&position) else { return };
        state.bytes -= bytes;
        if is_accepted {
            state.messages.insert(position, Stage::Accepted);
        }
    }

    /// Returns the number of messages that are accepted or in transfer.
    pub(crate) fn count(&self) -> usize {
        self.state.lock().messages.len()
    }

    /// Discards all messages, because delivery has ended.
    pub(crate) fn clear(&self) {
        *self.state.lock() = State::default();
    }
}

impl Escape {
    pub(crate) fn of(position: PhysicalOffset, record: &RecordFields<'_>) -> Self {
        Self {
            position,
            topic: String::from_utf8_lossy(record.topic).into_owned(),
            queue_id: record.queue_id,
            flag: record.flag,
            sys_flag: record.sys_flag,
            born_timestamp_ms: record.born_timestamp_ms,
            reconsume_times: record.reconsume_times,
            properties: String::from_utf8_lossy(record.properties).into_owned(),
            body: record.body.to_vec(),
        }
    }

    fn size(&self) -> usize {
        self.properties.len() + self.body.len()
    }
}

/// The reason why a due message cannot be delivered now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::dataplane) enum Stuck {
    /// Its destination does not exist and never will.
    Lost(Left),
    /// Its queue cannot be created at present.
    Later,
}

impl From<StoreError> for Stuck {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::TopicDeleted { .. } => Self::Lost(Left::TopicDeleted),
            StoreError::Topic { .. } => Self::Lost(Left::Nowhere),
            _ => Self::Later,
        }
    }
}

#[derive(Clone)]
pub(in crate::dataplane) enum Outlet {
    /// The log of this broker.
    Log,
    /// Another broker.
    Escapes(Arc<Escapes>),
}

impl Outlet {
    /// Appends copies of the messages at `positions` of `room`, or offers them to another broker. Returns the
    /// indices to retry. A message whose queue was deleted or that is too large for the log is reported and not
    /// retried.
    pub(super) fn pass_on(
        &self,
        store: &Store,
        room: WaitingRoom,
        positions: impl Iterator<Item = PhysicalOffset>,
        puts: &mut [Put<'_>],
    ) -> Vec<usize> {
        match self {
            Self::Log => {
                store.append(puts);
                if let Some(last) = puts.iter().rev().find_map(|put| put.outcome.ok())
                    && store.is_sync()
                {
                    store.release_after(last.end);
                }
                let mut again = Vec::new();
                for (index, (position, put)) in positions.zip(puts.iter()).enumerate() {
                    let left = match put.outcome {
                        Ok(_) => continue,
                        Err(PutError::QueueGone) => Left::TopicDeleted,
                        Err(PutError::TooLarge | PutError::TooManyLights) => Left::TooLarge,
                        Err(_) => {
                            again.push(index);
                            continue;
                        }
                    };
                    store.report_undelivered(room, left, FirstOf::Log(position), 1);
                }
                again
            }
            Self::Escapes(escapes) => {
                let mut state = escapes.state.lock();
                let mut refused = Vec::new();
                for (index, (position, put)) in positions.zip(puts.iter()).enumerate() {
                    // Messages after a refused one keep their state, or they would be sent twice.
                    if !refused.is_empty() {
                        state.offer(position, put);
                        refused.push(index);
                    } else if !state.pass(position, put) {
                        refused.push(index);
                    }
                }
                refused
            }
        }
    }
}
