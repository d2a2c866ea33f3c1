//! Recalls: the keys of recalled messages in the slots that are being delivered.
//!
//! Memory holds only the keys of current slots. A recall for a later slot waits in the timer log like a message.

use std::collections::{BTreeMap, HashSet};

use crate::message::properties::{self, name};

#[derive(Default)]
pub(super) struct Recalls {
    slots: BTreeMap<i64, HashSet<Box<[u8]>>>,
}

impl Recalls {
    /// Adds a recall of the message with this key in a slot and topic. The key is its unique key, alone or after the
    /// topic and `+`. A sender can recall only messages of the topic that it sends to.
    pub(super) fn add(&mut self, slot: i64, topic: &[u8], key: &[u8]) {
        let keys = self.slots.entry(slot).or_default();
        keys.insert(qualified(topic, key));
        let unique_key = key.strip_prefix(topic).and_then(|rest| rest.strip_prefix(b"+"));
        unique_key.into_iter().for_each(|unique_key| _ = keys.insert(qualified(topic, unique_key)));
    }

    /// Returns whether a message of a slot was recalled, given its properties.
    pub(super) fn has(&self, slot: i64, message: &[u8]) -> bool {
        let Some(keys) = self.slots.get(&slot) else { return false };
        let Some(unique_key) = properties::get(message, name::UNIQ_KEY) else { return false };
        let topic = properties::get(message, name::REAL_TOPIC).unwrap_or_default();
        keys.contains(&qualified(topic, unique_key))
    }

    pub(super) fn forget_before(&mut self, slot: i64) {
        if self.slots.first_key_value().is_some_and(|(first, _)| *first < slot) {
            self.slots = self.slots.split_off(&slot);
        }
    }
}

/// Returns a key with its topic. The separator is zero, which no topic name contains.
fn qualified(topic: &[u8], key: &[u8]) -> Box<[u8]> {
    [topic, b"\0", key].concat().into()
}
