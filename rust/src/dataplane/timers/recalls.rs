//! Recalls: keys of messages that are not to be delivered, by the slot in which those wait.
//!
//! Memory has the keys of slots whose time is now; before, what takes a message back waits in the timer log like any
//! other.

use std::collections::{BTreeMap, HashSet};

use crate::message::properties::{self, name};

#[derive(Default)]
pub(super) struct Recalls {
    slots: BTreeMap<i64, HashSet<Box<[u8]>>>,
}

impl Recalls {
    /// Has the message of a slot and a topic with this key not be delivered. The key is its unique one, or that behind its
    /// topic. The sender of a recall may send to its own topic, and reaches no other.
    pub(super) fn add(&mut self, slot: i64, topic: &[u8], key: &[u8]) {
        let keys = self.slots.entry(slot).or_default();
        keys.insert(qualified(topic, key));
        let unique_key = key.strip_prefix(topic).and_then(|rest| rest.strip_prefix(b"+"));
        unique_key.into_iter().for_each(|unique_key| _ = keys.insert(qualified(topic, unique_key)));
    }

    /// Whether a message of a slot has been taken back, by its properties.
    pub(super) fn has(&self, slot: i64, message: &[u8]) -> bool {
        let Some(keys) = self.slots.get(&slot) else { return false };
        let Some(unique_key) = properties::get(message, name::UNIQ_KEY) else { return false };
        let topic = properties::get(message, name::REAL_TOPIC).unwrap_or_default();
        keys.contains(&qualified(topic, unique_key))
    }

    /// Forgets slots before this one.
    pub(super) fn forget_before(&mut self, slot: i64) {
        if self.slots.first_key_value().is_some_and(|(first, _)| *first < slot) {
            self.slots = self.slots.split_off(&slot);
        }
    }
}

/// A key within a topic, whose name has no byte of zero.
fn qualified(topic: &[u8], key: &[u8]) -> Box<[u8]> {
    [topic, b"\0", key].concat().into()
}
