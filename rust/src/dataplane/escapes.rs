//! Escapes: messages whose time comes while this broker acts for its master, on their way to another broker.
//!
//! A slave's log is a copy, in which it stores nothing of its own. So a copy of what is due is laid out here; Python takes
//! it, sends it to a broker of the cluster that has the topic, and says what came of it. Delivery does not wait: it treats
//! a message that is not accepted yet as one that was refused, and comes again with it a moment later.
//!
//! *Invariant*: a message is passed when another broker has accepted it, and in the order of its batch; one that was not is
//! offered again, for as long as it takes. What was accepted and not passed before the acting ends is delivered once more
//! by whoever goes on.
//! Threads: any; one lock, held for an operation on a map or the copy of one message.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::message::record::RecordFields;
use crate::positions::PhysicalOffset;
use crate::store::{FirstOf, Left, Put, PutError, Store, StoreError, WaitingRoom};

/// Messages that are on their way at once; others wait where they are.
const UNDERWAY_MAX: usize = 4_096;
const UNDERWAY_BYTES_MAX: usize = 32 << 20;

/// A message as it is sent to another broker.
pub(crate) struct Escape {
    /// Of the message that waited, in this log.
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
    /// Python has it, and this many bytes are reserved for it.
    Taken(usize),
    Accepted,
}

#[derive(Default)]
struct State {
    /// By the position of the message that waited.
    messages: BTreeMap<PhysicalOffset, Stage>,
    /// Of those that are not accepted yet.
    bytes: usize,
    /// Whether new ones are taken in.
    is_open: bool,
}

impl State {
    /// Whether this message was accepted, which is said once; otherwise it is on its way when this returns, if there is
    /// room.
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

/// The messages on their way.
#[derive(Default)]
pub(crate) struct Escapes {
    state: Mutex<State>,
}

impl Escapes {
    /// Takes messages in, or none any more: what is on its way is decided about all the same.
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

    /// At most `limit` of the messages that were offered, the oldest first.
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

    /// Another broker has accepted a message that was taken, or has not, and it will be offered again.
    pub(crate) fn decide(&self, position: PhysicalOffset, is_accepted: bool) {
        let mut state = self.state.lock();
        let Some(Stage::Taken(bytes)) = state.messages.remove(&position) else { return };
        state.bytes -= bytes;
        if is_accepted {
            state.messages.insert(position, Stage::Accepted);
        }
    }

    /// Messages that were accepted, or are on their way.
    pub(crate) fn count(&self) -> usize {
        self.state.lock().messages.len()
    }

    /// Forgets everything: nothing is delivered from here any more.
    pub(crate) fn clear(&self) {
        *self.state.lock() = State::default();
    }
}

impl Escape {
    /// A message that lies at `position`.
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

/// Why a message whose time has come does not go on now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Stuck {
    /// It has nowhere to go, and never will.
    Lost(Left),
    /// Its queue cannot be made at present.
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

/// Where messages go whose time has come.
#[derive(Clone)]
pub(super) enum Outlet {
    /// Into this broker's log.
    Log,
    /// To another broker.
    Escapes(Arc<Escapes>),
}

impl Outlet {
    /// Has these go on, copies of the messages at `positions` that waited in `room`; the indices of those that have to be
    /// tried again. What goes nowhere is reported: a queue that was deleted has taken its messages along, and what is too
    /// large for the log always will be.
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
                        Err(PutError::TooLarge) => Left::TooLarge,
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
                    // What lies behind one that is not accepted stays noted, or it would be sent twice.
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
