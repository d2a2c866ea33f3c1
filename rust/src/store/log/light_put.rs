//! Light put: the light queues of a message to append, and its properties with the offsets there.
//!
//! Memory for the longest offsets is allocated before the put lock is taken. Offsets are written in decimal, as Apache's
//! broker does, so the size of the record is known only under the lock.
//!
//! Threads: the sender's; `assign` and `place` under the put lock.

use std::io::Write;
use std::sync::Arc;

use crate::message::properties::{self, ENTRY_SEPARATOR, NAME_VALUE_SEPARATOR, PROPERTIES_BYTES_MAX, name};
use crate::message::record::RecordFields;
use crate::positions::QueueOffset;
use crate::store::derived::{ConsumeQueue, LightPlace};

/// Bytes of the longest offset and its separator.
const OFFSET_BYTES_MAX: usize = 21;

/// The light queues of a message, in the order of their list, and its properties.
#[derive(Debug)]
pub struct LightPut {
    places: Box<[LightPlace]>,
    properties: Vec<u8>,
    /// The size of the properties without the offsets.
    kept: usize,
}

impl LightPut {
    /// Creates the properties of a message for these queues, which none may be twice.
    pub(crate) fn new(queues: Vec<Arc<ConsumeQueue>>, original: &[u8]) -> Self {
        let bytes_max = original.len() + 1 + Self::offsets_bytes_max(queues.len());
        let mut properties = Vec::with_capacity(bytes_max);
        // Apache's broker drops WAIT from such a message, and replaces offsets.
        let is_kept = |name: &[u8]| name != name::WAIT && name != name::LIGHT_OFFSETS;
        properties::Writer::copy_if(&mut properties, original, is_kept);
        let place = |queue| LightPlace { queue, offset: QueueOffset(0) };
        Self { places: queues.into_iter().map(place).collect(), kept: properties.len(), properties }
    }

    /// Returns the size of the longest offsets in this number of queues, as a property.
    pub(crate) fn offsets_bytes_max(queues: usize) -> usize {
        name::LIGHT_OFFSETS.len() + 2 + queues * OFFSET_BYTES_MAX
    }

    /// Sets the offsets that the record has if it is appended next; returns false if the properties are too long with
    /// them. Under the put lock.
    pub(super) fn assign(&mut self) -> bool {
        let Self { places, properties, kept } = self;
        properties.truncate(*kept);
        properties.extend_from_slice(name::LIGHT_OFFSETS);
        properties.push(NAME_VALUE_SEPARATOR);
        for (index, place) in places.iter_mut().enumerate() {
            place.offset = place.queue.next();
            let separator = if index == 0 { "" } else { "," };
            // Writing to memory cannot fail.
            let _ = write!(properties, "{separator}{}", place.offset.0);
        }
        properties.push(ENTRY_SEPARATOR);
        properties.len() <= PROPERTIES_BYTES_MAX
    }

    /// Returns the record with the assigned offsets.
    pub(super) fn record<'r>(&'r self, record: &RecordFields<'r>) -> RecordFields<'r> {
        RecordFields { properties: &self.properties, ..*record }
    }

    /// Reserves the assigned offsets and moves them out. Under the put lock.
    pub(super) fn place(&mut self) -> Box<[LightPlace]> {
        self.places.iter().for_each(|place| place.queue.advance_next());
        std::mem::take(&mut self.places)
    }

    /// Returns whether one of the queues was deleted.
    pub(super) fn lacks_queue(&self) -> bool {
        self.places.iter().any(|place| place.queue.is_deleted())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::message::multi_dispatch;
    use crate::positions::QueueKey;

    fn queue(name: &str, max: u64) -> Arc<ConsumeQueue> {
        Arc::new(ConsumeQueue::new(QueueKey::new(name, 0), 0, 0, max))
    }

    #[test]
    fn the_stored_properties_are_those_of_apache() {
        let original =
            b"WAIT\x01false\x02INNER_MULTI_QUEUE_OFFSET\x019\x02INNER_MULTI_DISPATCH\x01%LMQ%a,%LMQ%b";
        let mut put = LightPut::new(vec![queue("%LMQ%a", 0), queue("%LMQ%b", 41)], original);
        assert!(put.assign());
        let expected = &b"INNER_MULTI_DISPATCH\x01%LMQ%a,%LMQ%b\x02INNER_MULTI_QUEUE_OFFSET\x010,41\x02"[..];
        assert_eq!(put.properties, expected);
    }

    #[test]
    fn properties_that_grow_beyond_the_limit_are_refused() {
        let names: Vec<String> = (0..1_600).map(|index| format!("%LMQ%{index}")).collect();
        let original = format!("INNER_MULTI_DISPATCH\x01{}\x02", names.join(","));
        let put = |max| {
            let queues = names.iter().map(|name| queue(name, max)).collect();
            LightPut::new(queues, original.as_bytes()).assign()
        };
        assert!(put(9));
        assert!(!put(1 << 60));
    }

    proptest! {
        /// What a broker writes is read back, whatever the offsets, without another allocation.
        #[test]
        fn assigned_offsets_are_read_back(offsets in prop::collection::vec(0..i64::MAX as u64, 1..40), again in 1..4) {
            let names: Vec<String> = (0..offsets.len()).map(|index| format!("%LMQ%q{index}")).collect();
            let queues = names.iter().zip(&offsets).map(|(name, offset)| queue(name, *offset)).collect();
            let original = format!("KEYS\x01k\x02INNER_MULTI_DISPATCH\x01{}\x02", names.join(","));
            let mut put = LightPut::new(queues, original.as_bytes());
            let capacity = put.properties.capacity();
            for _ in 0..again {
                prop_assert!(put.assign());
            }
            prop_assert_eq!(put.properties.capacity(), capacity);
            let expected: Vec<_> =
                names.iter().zip(&offsets).map(|(name, offset)| (name.as_str(), QueueOffset(*offset))).collect();
            prop_assert_eq!(multi_dispatch::places(b"orders", &put.properties), expected);
            let queues: Vec<_> = put.places.iter().map(|place| Arc::clone(&place.queue)).collect();
            put.place();
            for (queue, offset) in queues.iter().zip(offsets) {
                prop_assert_eq!(queue.next(), QueueOffset(offset + 1));
            }
        }
    }
}
