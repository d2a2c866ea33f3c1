//! Batch body: inner messages in sequence.
//!
//! ```text
//! 0   i32  size of all of this     16   i32  body length B, then B bytes
//! 4   i32  magic, 0                20+B i16  properties length, then properties
//! 8   i32  body CRC, 0
//! 12  i32  flag
//! ```

use super::error::BatchError;
use super::properties::PROPERTIES_BYTES_MAX;

/// Maximum number of inner messages. A body of 4 MiB could hold 190,000 empty ones, but clients do not send such
/// batches.
pub const BATCH_COUNT_MAX: usize = 32_768;

/// Size of an inner message with neither body nor properties.
pub(crate) const INNER_FIXED_BYTES: usize = 22;

/// One message inside a batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct InnerMessage<'a> {
    /// The application's flag.
    pub flag: i32,
    /// Body; never compressed on its own.
    pub body: &'a [u8],
    /// Its own properties, stored verbatim.
    pub properties: &'a [u8],
}

impl InnerMessage<'_> {
    /// Returns the size of this message inside a batch body.
    pub(crate) const fn encoded_len(&self) -> usize {
        INNER_FIXED_BYTES + self.body.len() + self.properties.len()
    }

    /// Appends this message to a batch body.
    ///
    /// # Panics
    /// When body or properties exceed their length fields; the builder of the batch checks both limits.
    pub fn encode(&self, out: &mut Vec<u8>) {
        assert!(self.body.len() <= i32::MAX as usize - INNER_FIXED_BYTES - PROPERTIES_BYTES_MAX);
        assert!(self.properties.len() <= PROPERTIES_BYTES_MAX);
        out.reserve(self.encoded_len());
        out.extend_from_slice(&(self.encoded_len() as u32).to_be_bytes());
        out.extend_from_slice(&[0; 8]);
        out.extend_from_slice(&self.flag.to_be_bytes());
        out.extend_from_slice(&(self.body.len() as u32).to_be_bytes());
        out.extend_from_slice(self.body);
        out.extend_from_slice(&(self.properties.len() as u16).to_be_bytes());
        out.extend_from_slice(self.properties);
    }
}

/// Iterates over the messages of a batch body, in order. An error ends the iteration.
pub fn inner_messages(body: &[u8]) -> InnerMessages<'_> {
    InnerMessages { body, at: 0, count: 0 }
}

/// Iterator of [`inner_messages`].
#[derive(Clone, Debug)]
pub struct InnerMessages<'a> {
    body: &'a [u8],
    at: usize,
    count: usize,
}

impl<'a> Iterator for InnerMessages<'a> {
    type Item = Result<InnerMessage<'a>, BatchError>;

    fn next(&mut self) -> Option<Self::Item> {
        let rest = self.body.get(self.at..).filter(|rest| !rest.is_empty())?;
        if self.count == BATCH_COUNT_MAX {
            self.at = self.body.len();
            return Some(Err(BatchError::TooMany));
        }
        let Some((message, size)) = cut(rest) else {
            let at = std::mem::replace(&mut self.at, self.body.len());
            return Some(Err(BatchError::Length { at }));
        };
        self.at += size;
        self.count += 1;
        Some(Ok(message))
    }
}

/// Splits off the inner message at the front of `bytes`, if its lengths are consistent.
fn cut(bytes: &[u8]) -> Option<(InnerMessage<'_>, usize)> {
    let (size, rest) = bytes.split_first_chunk::<4>()?;
    let size = usize::try_from(i32::from_be_bytes(*size)).ok()?;
    let rest = rest.get(..size.checked_sub(4)?)?;
    // Every client writes zeros for magic and CRC.
    let (_, rest) = rest.split_first_chunk::<8>()?;
    let (flag, rest) = rest.split_first_chunk::<4>()?;
    let (body_bytes, rest) = rest.split_first_chunk::<4>()?;
    let (body, rest) = rest.split_at_checked(usize::try_from(i32::from_be_bytes(*body_bytes)).ok()?)?;
    let (properties_bytes, properties) = rest.split_first_chunk::<2>()?;
    let properties_bytes = usize::try_from(i16::from_be_bytes(*properties_bytes)).ok()?;
    (properties.len() == properties_bytes)
        .then_some((InnerMessage { flag: i32::from_be_bytes(*flag), body, properties }, size))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_length_ends_the_batch_at_its_message() {
        let mut body = Vec::new();
        InnerMessage { flag: 1, body: b"x", properties: b"a\x01b\x02" }.encode(&mut body);
        let first = body.len();
        InnerMessage { flag: 2, body: b"", properties: b"" }.encode(&mut body);
        for at in [first + 3, first + 19, first + 21] {
            let mut body = body.clone();
            body[at] ^= 1;
            let found: Vec<_> = inner_messages(&body).collect();
            assert_eq!(found.len(), 2);
            assert_eq!(found[1], Err(BatchError::Length { at: first }));
        }
        // A size that includes bytes of the next message.
        body[3] += 4;
        assert_eq!(inner_messages(&body).collect::<Vec<_>>(), [Err(BatchError::Length { at: 0 })]);
    }

    #[test]
    fn inner_magic_and_crc_are_written_as_zero_and_ignored() {
        let message = InnerMessage { flag: -1, body: b"x", properties: b"" };
        let mut body = Vec::new();
        message.encode(&mut body);
        assert_eq!(body[4..12], [0; 8]);
        body[4..12].fill(0xAA);
        assert_eq!(inner_messages(&body).collect::<Vec<_>>(), [Ok(message)]);
    }

    #[test]
    fn the_number_of_inner_messages_is_bounded() {
        let mut body = Vec::new();
        for _ in 0..=BATCH_COUNT_MAX {
            InnerMessage { flag: 0, body: b"", properties: b"" }.encode(&mut body);
        }
        assert_eq!(inner_messages(&body).filter(Result::is_ok).count(), BATCH_COUNT_MAX);
        assert_eq!(inner_messages(&body).last(), Some(Err(BatchError::TooMany)));
    }
}
