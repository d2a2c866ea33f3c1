//! Survivors: the newest message of each key, found in bounded memory.
//!
//! A map from keys to the index of their newest message grows until it has its maximum size. Then the keys are divided
//! in two by a bit of their hash: one half stays in the map, and another pass over the messages finds the other. So the
//! number of passes grows with the number of keys, and the memory does not. One bit for each message holds the result.
//!
//! Keys are compared by two hashes of 64 bits with secret seeds.

use std::hash::{BuildHasher, RandomState};

use hashbrown::HashMap;

/// Memory of a key in the map, while it grows.
const KEY_BYTES: u64 = 64;
/// Fewest keys of a map.
const KEYS_MIN: u64 = 100;

/// Returns how many keys a map of this size holds.
pub(super) fn keys_max(bytes: u64) -> usize {
    (bytes / KEY_BYTES).max(KEYS_MIN) as usize
}

type KeyHash = [u64; 2];

/// A share of all keys: those whose hash has these low bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Share {
    bits: u32,
    low: u64,
}

impl Share {
    const ALL: Self = Self { bits: 0, low: 0 };

    fn has(self, hash: &KeyHash) -> bool {
        hash[0] & !(u64::MAX << self.bits) == self.low
    }

    /// Divides the share; `None` if it cannot be divided any more.
    fn halves(self) -> Option<(Self, Self)> {
        let bits = self.bits + 1;
        (bits < u64::BITS).then(|| (Self { bits, ..self }, Self { bits, low: self.low | 1 << self.bits }))
    }
}

/// The messages that a round drops.
#[derive(Default)]
pub(super) struct Survivors {
    dropped: Vec<u64>,
}

impl Survivors {
    /// Finds the survivors. `scan` calls its argument with each message in order: its index, its key, and whether it
    /// deletes the key. It is called once for each pass, and ends everything by returning false or an error.
    pub(super) fn find<E>(
        keys_max: usize,
        mut scan: impl FnMut(&mut dyn FnMut(u64, &[u8], bool)) -> Result<bool, E>,
    ) -> Result<Option<Self>, E> {
        let (low, high) = (RandomState::new(), RandomState::new());
        let mut found = Self::default();
        let mut shares = vec![Share::ALL];
        let mut newest: HashMap<KeyHash, u64> = HashMap::new();
        while let Some(mut share) = shares.pop() {
            newest.clear();
            let is_whole = scan(&mut |index, key, is_deletion| {
                let hash = [low.hash_one(key), high.hash_one(key)];
                if !share.has(&hash) {
                    return;
                }
                if let Some(older) = newest.insert(hash, index) {
                    found.drop_message(older);
                }
                if is_deletion {
                    found.drop_message(index);
                }
                while newest.len() > keys_max
                    && let Some((kept, other)) = share.halves()
                {
                    newest.retain(|hash, _| kept.has(hash));
                    shares.push(other);
                    share = kept;
                }
            })?;
            if !is_whole {
                return Ok(None);
            }
        }
        Ok(Some(found))
    }

    fn drop_message(&mut self, index: u64) {
        let word = (index / 64) as usize;
        if self.dropped.len() <= word {
            self.dropped.resize(word + 1, 0);
        }
        if let Some(word) = self.dropped.get_mut(word) {
            *word |= 1 << (index % 64);
        }
    }

    /// Returns whether the message stays.
    pub(super) fn has(&self, index: u64) -> bool {
        self.dropped.get((index / 64) as usize).is_none_or(|word| word & 1 << (index % 64) == 0)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::convert::Infallible;

    use proptest::prelude::*;

    use super::*;

    type Message = (u8, bool);

    fn survivors(messages: &[Message], keys_max: usize) -> (Vec<usize>, usize) {
        let mut passes = 0;
        let found = Survivors::find(keys_max, |visit| {
            passes += 1;
            for (index, (key, is_deletion)) in messages.iter().enumerate() {
                visit(index as u64, &[*key], *is_deletion);
            }
            Ok::<_, Infallible>(true)
        });
        let Ok(Some(found)) = found else { unreachable!("nothing ends the scan") };
        ((0..messages.len()).filter(|index| found.has(*index as u64)).collect(), passes)
    }

    proptest! {
        #[test]
        fn the_newest_message_of_each_key_stays_whatever_the_memory(
            messages in prop::collection::vec((0_u8..40, any::<bool>()), 0..200),
            keys_max in 1_usize..50,
        ) {
            let mut newest = BTreeMap::new();
            for (index, (key, is_deletion)) in messages.iter().enumerate() {
                newest.insert(key, (index, *is_deletion));
            }
            let mut expected: Vec<usize> =
                newest.values().filter(|(_, is_deletion)| !is_deletion).map(|(index, _)| *index).collect();
            expected.sort_unstable();
            let (found, passes) = survivors(&messages, keys_max);
            prop_assert_eq!(found, expected);
            prop_assert!(passes == 1 || newest.len() > keys_max);
        }
    }

    #[test]
    fn more_keys_than_the_map_holds_take_more_passes() {
        let messages: Vec<Message> = (0..=255).map(|key| (key, false)).collect();
        assert_eq!(survivors(&messages, 256).1, 1);
        let (found, passes) = survivors(&messages, 10);
        assert_eq!(found.len(), 256);
        assert!((26..200).contains(&passes), "{passes}");
    }

    #[test]
    fn a_scan_that_ends_early_has_no_result() {
        let found = Survivors::find(1, |_| Ok::<_, Infallible>(false));
        assert!(matches!(found, Ok(None)));
    }
}
