//! Timer unit: the 52 bytes of a pending message in the timer log.
//!
//! ```text
//! 0   i32  size, 52                      24  i32  the millisecond before its delivery, minus that
//! 4   i64  previous unit of its slot     28  i64  position of the message in the log
//! 12  i32  kind                          36  i32  size of the message
//! 16  i64  store time of the message     40  i32  hash of its topic, then 8 unused bytes
//! ```
//!
//! Apache's broker divides the millisecond before by the width of a slot to find the slot of a unit. Slots here end
//! with the first millisecond of the next one, so both agree.

pub(crate) const UNIT_BYTES: usize = 52;
/// Kinds of units, as combinable bits.
pub(crate) const DEFAULT: u32 = 1;
/// The message is stored again when the unit is due.
pub(crate) const ROLL: u32 = 2;
/// The message recalls another one of its slot and is not delivered.
pub(crate) const DELETE: u32 = 4;
/// The unit has no message and ends the log of a broker stopped in order. Apache's broker takes it for a recall and
/// reads from it how far the queue was read and which units of a slot are left.
pub(crate) const SEAL: u32 = 8;
const KINDS: u32 = 15;
const NO_PREVIOUS: i64 = -1;

/// Returns whether a unit of this kind is a recall.
pub(crate) fn is_recall(kind: u32) -> bool {
    kind & DELETE != 0 && kind & ROLL == 0
}

/// Returns what a unit adds to the number of pending messages; a recall counts as -1.
pub(crate) fn count(kind: u32) -> i32 {
    match (kind & SEAL != 0, kind & DELETE != 0) {
        (true, _) => 0,
        (false, true) => -1,
        (false, false) => 1,
    }
}

/// A unit of the timer log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct TimerUnit {
    /// Position of the previous unit of its slot.
    pub(crate) previous: Option<u64>,
    pub(crate) kind: u32,
    pub(crate) stored_ms: i64,
    /// The time at which the message is delivered or stored again.
    pub(crate) due_ms: i64,
    pub(crate) physical: u64,
    pub(crate) size: u32,
    pub(crate) topic_hash: i32,
}

impl TimerUnit {
    pub(crate) fn encode(&self) -> [u8; UNIT_BYTES] {
        let previous = self.previous.map_or(NO_PREVIOUS, u64::cast_signed);
        // After a large change of the clock only the delivery time in the unit counts.
        let before_ms = self.due_ms.saturating_sub(1);
        let (stored_ms, wait_ms) = match i32::try_from(before_ms.saturating_sub(self.stored_ms)) {
            Ok(wait_ms) => (self.stored_ms, wait_ms),
            Err(_) => (before_ms, 0),
        };
        let mut bytes = [0; UNIT_BYTES];
        let mut at = 0;
        let mut put = |field: &[u8]| {
            bytes.iter_mut().skip(at).zip(field).for_each(|(into, byte)| *into = *byte);
            at += field.len();
        };
        put(&(UNIT_BYTES as u32).to_be_bytes());
        put(&previous.to_be_bytes());
        put(&self.kind.to_be_bytes());
        put(&stored_ms.to_be_bytes());
        put(&wait_ms.to_be_bytes());
        put(&self.physical.to_be_bytes());
        put(&self.size.to_be_bytes());
        put(&self.topic_hash.to_be_bytes());
        bytes
    }

    /// Decodes a unit; returns `None` if the bytes are not valid.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes = bytes.get(..UNIT_BYTES)?;
        let int = |at: usize| bytes.get(at..)?.first_chunk().copied().map(u32::from_be_bytes);
        let long = |at: usize| bytes.get(at..)?.first_chunk().copied().map(i64::from_be_bytes);
        let kind = int(12)?;
        if int(0)? as usize != UNIT_BYTES || kind == 0 || kind > KINDS {
            return None;
        }
        let stored_ms = long(16)?;
        Some(Self {
            previous: u64::try_from(long(4)?).ok(),
            kind,
            stored_ms,
            due_ms: stored_ms.saturating_add(i64::from(int(24)?.cast_signed())).saturating_add(1),
            physical: u64::try_from(long(28)?).ok()?,
            size: int(36)?,
            topic_hash: int(40)?.cast_signed(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNIT: TimerUnit = TimerUnit {
        previous: Some(104),
        kind: DEFAULT | ROLL,
        stored_ms: 1_700_000_000_000,
        due_ms: 1_700_000_090_000,
        physical: 0x0102,
        size: 0x0304,
        topic_hash: -2,
    };

    #[test]
    fn a_unit_has_the_bytes_of_apache() {
        let bytes = UNIT.encode();
        assert_eq!(bytes[..16], [0, 0, 0, 52, 0, 0, 0, 0, 0, 0, 0, 104, 0, 0, 0, 3]);
        assert_eq!(bytes[24..28], 89_999_u32.to_be_bytes());
        assert_eq!(bytes[28..44], [0, 0, 0, 0, 0, 0, 1, 2, 0, 0, 3, 4, 255, 255, 255, 254]);
        assert_eq!(TimerUnit::decode(&bytes), Some(UNIT));
        let first = TimerUnit { previous: None, ..UNIT };
        assert_eq!(first.encode()[4..12], [0xFF; 8]);
        assert_eq!(TimerUnit::decode(&first.encode()), Some(first));
    }

    #[test]
    fn apache_finds_a_unit_due_at_the_last_millisecond_of_its_slot_in_that_slot() {
        let unit = TimerUnit { due_ms: 1_700_000_090_000, ..UNIT };
        let bytes = unit.encode();
        let long = |at: usize| bytes[at..].first_chunk().copied().map(i64::from_be_bytes);
        let wait_ms = bytes[24..].first_chunk().copied().map(i32::from_be_bytes);
        assert_eq!((long(16).unwrap_or(0) + i64::from(wait_ms.unwrap_or(0))) / 1_000, 1_700_000_089);
    }

    #[test]
    fn bytes_that_are_not_a_unit_are_refused() {
        assert_eq!(TimerUnit::decode(&[0; UNIT_BYTES]), None);
        assert_eq!(TimerUnit::decode(&UNIT.encode()[..51]), None);
        let far = TimerUnit { stored_ms: 0, ..UNIT };
        assert_eq!(TimerUnit::decode(&far.encode()).map(|unit| unit.due_ms), Some(UNIT.due_ms));
    }
}
