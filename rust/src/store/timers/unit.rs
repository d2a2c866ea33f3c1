//! Timer unit: a message that waits, 52 bytes of the timer log.
//!
//! ```text
//! 0   i32  size, 52                      24  i32  the millisecond before its delivery, less that
//! 4   i64  the unit before it in its slot 28  i64  position of the message in the log
//! 12  i32  kind                          36  i32  size of the message
//! 16  i64  when the message was stored   40  i32  hash of its topic, then 8 bytes of nothing
//! ```
//!
//! The millisecond before: the original divides it by the width of a slot to find the slot of a unit, and ours end with
//! the first millisecond of the next one.

pub(crate) const UNIT_BYTES: usize = 52;
/// Kinds of units, which may be combined.
pub(crate) const DEFAULT: u32 = 1;
/// The message is stored again when the time of the unit has come, and waits on.
pub(crate) const ROLL: u32 = 2;
/// The message takes another one of its slot back, and is not delivered.
pub(crate) const DELETE: u32 = 4;
/// It stands for no message, and ends the log of a broker that was stopped in order: the original, which takes it for one
/// that takes another back, learns from it how far the queue was read, and which units of a slot are left.
pub(crate) const SEAL: u32 = 8;
const KINDS: u32 = 15;
const NO_PREVIOUS: i64 = -1;

/// Whether a unit of this kind, when its time has come, takes another one of its slot back.
pub(crate) fn is_recall(kind: u32) -> bool {
    kind & DELETE != 0 && kind & ROLL == 0
}

/// What a unit adds to the number of messages that wait: one that takes another back counts against it.
pub(crate) fn count(kind: u32) -> i32 {
    match (kind & SEAL != 0, kind & DELETE != 0) {
        (true, _) => 0,
        (false, true) => -1,
        (false, false) => 1,
    }
}

/// One unit of the timer log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct TimerUnit {
    /// Position of the unit before it in its slot.
    pub(crate) previous: Option<u64>,
    pub(crate) kind: u32,
    pub(crate) stored_ms: i64,
    /// When something is to be done about the message.
    pub(crate) due_ms: i64,
    pub(crate) physical: u64,
    pub(crate) size: u32,
    pub(crate) topic_hash: i32,
}

impl TimerUnit {
    pub(crate) fn encode(&self) -> [u8; UNIT_BYTES] {
        let previous = self.previous.map_or(NO_PREVIOUS, u64::cast_signed);
        // Of a clock that was far off: what the unit says of the time of delivery is what counts.
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

    /// Reads a unit back; `None` where none can be.
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
    fn a_unit_has_the_bytes_of_the_original() {
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
    fn the_original_finds_a_unit_due_with_the_last_millisecond_of_its_slot_in_that_slot() {
        let unit = TimerUnit { due_ms: 1_700_000_090_000, ..UNIT };
        let bytes = unit.encode();
        let long = |at: usize| bytes[at..].first_chunk().copied().map(i64::from_be_bytes);
        let wait_ms = bytes[24..].first_chunk().copied().map(i32::from_be_bytes);
        assert_eq!((long(16).unwrap_or(0) + i64::from(wait_ms.unwrap_or(0))) / 1_000, 1_700_000_089);
    }

    #[test]
    fn what_is_no_unit_is_not_read_as_one() {
        assert_eq!(TimerUnit::decode(&[0; UNIT_BYTES]), None);
        assert_eq!(TimerUnit::decode(&UNIT.encode()[..51]), None);
        let far = TimerUnit { stored_ms: 0, ..UNIT };
        assert_eq!(TimerUnit::decode(&far.encode()).map(|unit| unit.due_ms), Some(UNIT.due_ms));
    }
}
