//! Key hashes: the keys under which a message can be looked up.
//!
//! Threads: any; computed before the put lock is taken, so that the append allocates nothing.

use arrayvec::ArrayVec;

use crate::message::properties::{self, name};
use crate::message::tag;

/// Keys of one message that are stored without an allocation.
const KEYS_INLINE: usize = 4;

/// Hashes of the keys of a message: UNIQ_KEY, the words of KEYS, and the tag.
#[derive(Clone, Default, Debug)]
pub struct KeyHashes {
    inline: ArrayVec<i32, KEYS_INLINE>,
    more: Vec<i32>,
}

impl KeyHashes {
    /// Returns the keys of a message with these properties, in Apache's order.
    #[must_use]
    pub fn of(topic: &[u8], properties: &[u8]) -> Self {
        let (mut unique, mut words, mut tags) = (None, None, None);
        for (key, value) in properties::entries(properties) {
            match key {
                name::UNIQ_KEY => unique = Some(value),
                name::KEYS => words = Some(value),
                name::TAGS => tags = Some(value),
                _ => {}
            }
        }
        let mut hashes = Self::default();
        unique.into_iter().for_each(|key| hashes.push(tag::key_hash(topic, key)));
        words
            .into_iter()
            .flat_map(|words| words.split(|byte| *byte == b' '))
            .filter(|word| !word.is_empty())
            .for_each(|word| hashes.push(tag::key_hash(topic, word)));
        tags.into_iter().for_each(|tag| hashes.push(tag::tag_key_hash(topic, tag)));
        hashes
    }

    pub(crate) fn push(&mut self, hash: i32) {
        if self.inline.try_push(hash).is_err() {
            self.more.push(hash);
        }
    }

    pub(crate) fn into_iter(self) -> impl Iterator<Item = i32> {
        self.inline.into_iter().chain(self.more)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = i32> + '_ {
        self.inline.iter().chain(&self.more).copied()
    }
}
