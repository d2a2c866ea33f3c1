//! Unit: an entry of a ConsumeQueue, 20 bytes that point into the log.

pub(crate) const UNIT_BYTES: usize = 20;

/// One entry of a queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Unit {
    pub(crate) physical: u64,
    pub(crate) size: u32,
    /// The hash of the tag; for delayed messages the delivery time.
    pub(crate) tags_code: i64,
}

impl Unit {
    /// Precedes the first unit of a queue whose beginning is lost, so that later units keep their offsets.
    pub(crate) const FILLER: Self = Self { physical: 0, size: i32::MAX as u32, tags_code: 0 };

    /// Returns a unit for a lost message, so that later units keep their offsets. It points to `at`, between its
    /// neighbours in the log; no record has only one byte.
    pub(crate) const fn lost(at: u64) -> Self {
        Self { physical: at, size: 1, tags_code: 0 }
    }

    /// Returns whether this unit stands for a lost message.
    pub(crate) const fn is_lost(&self) -> bool {
        self.size == 1
    }

    pub(crate) fn encode(&self) -> [u8; UNIT_BYTES] {
        let mut bytes = [0; UNIT_BYTES];
        let (physical, rest) = bytes.split_at_mut(8);
        let (size, tags_code) = rest.split_at_mut(4);
        physical.copy_from_slice(&self.physical.to_be_bytes());
        size.copy_from_slice(&self.size.to_be_bytes());
        tags_code.copy_from_slice(&self.tags_code.to_be_bytes());
        bytes
    }

    /// Decodes a unit without checking it.
    pub(crate) fn decode(bytes: &[u8; UNIT_BYTES]) -> Self {
        let [p0, p1, p2, p3, p4, p5, p6, p7, s0, s1, s2, s3, t0, t1, t2, t3, t4, t5, t6, t7] = *bytes;
        Self {
            physical: u64::from_be_bytes([p0, p1, p2, p3, p4, p5, p6, p7]),
            size: u32::from_be_bytes([s0, s1, s2, s3]),
            tags_code: i64::from_be_bytes([t0, t1, t2, t3, t4, t5, t6, t7]),
        }
    }

    /// Returns whether this can be a unit. Zeros, as in the unused part of a file, cannot.
    pub(crate) fn is_plausible(&self) -> bool {
        self.physical < 1 << 63 && self.size > 0 && self.size <= i32::MAX as u32
    }

    pub(crate) fn end(&self) -> u64 {
        self.physical + u64::from(self.size)
    }
}
