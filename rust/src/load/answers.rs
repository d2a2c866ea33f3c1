//! Responses: reads only the request, the code and the number of messages.

use memchr::memmem::Finder;

use crate::remoting::frame::Frame;
use crate::remoting::header::Header;
use crate::remoting::{Encoding, HeaderError};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Head {
    pub(super) code: i32,
    pub(super) opaque: i32,
}

/// The location of a stored half message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct StoredHalf {
    pub(super) queue_offset: u64,
    /// The position in the log.
    pub(super) position: u64,
}

/// Reads responses, with reusable memory.
#[derive(Debug)]
pub(super) struct AnswerReader {
    code: Finder<'static>,
    opaque: Finder<'static>,
    header: Header,
}

impl AnswerReader {
    pub(super) fn new() -> Self {
        Self { code: Finder::new("\"code\":"), opaque: Finder::new("\"opaque\":"), header: Header::new() }
    }

    /// Returns code and opaque of a response. Unusually written headers take the slow path. Fails when the header is
    /// unreadable.
    pub(super) fn read(&mut self, frame: &Frame<'_>) -> Result<Head, HeaderError> {
        let quick = match frame.encoding {
            Encoding::Binary => binary(frame.header),
            Encoding::Json => self.json(frame.header),
        };
        if let Some(answer) = quick {
            return Ok(answer);
        }
        self.header.decode(frame)?;
        Ok(Head { code: self.header.code, opaque: self.header.opaque })
    }

    /// Returns the location of the half message in this response.
    pub(super) fn half(&mut self, frame: &Frame<'_>) -> Result<StoredHalf, String> {
        self.header.decode(frame).map_err(|error| error.to_string())?;
        let (mut queue_offset, mut position) = (None, None);
        for (name, value) in self.header.ext() {
            match name {
                "queueOffset" => queue_offset = value.parse().ok(),
                // The id of a stored message ends with its position.
                "msgId" => {
                    let digits = value.len().checked_sub(16).and_then(|at| value.get(at..));
                    position = digits.and_then(|digits| u64::from_str_radix(digits, 16).ok());
                }
                _ => {}
            }
        }
        let half =
            queue_offset.zip(position).map(|(queue_offset, position)| StoredHalf { queue_offset, position });
        half.ok_or_else(|| "the response lacks the location of the half message".to_owned())
    }

    /// Returns the whole header of a response.
    pub(super) fn header(&mut self, frame: &Frame<'_>) -> Result<&Header, String> {
        self.header.decode(frame).map_err(|error| error.to_string())?;
        Ok(&self.header)
    }

    /// Returns the remark of a response, for display.
    pub(super) fn remark(&mut self, frame: &Frame<'_>) -> String {
        match self.header.decode(frame) {
            Ok(()) => self.header.remark().unwrap_or_default().to_owned(),
            Err(error) => error.to_string(),
        }
    }

    fn json(&self, header: &[u8]) -> Option<Head> {
        let number = |key: &Finder<'_>| {
            let at = key.find(header)? + key.needle().len();
            let digits = header.get(at..)?;
            let length = digits.iter().position(|byte| !byte.is_ascii_digit())?;
            let text = std::str::from_utf8(digits.get(..length)?).ok()?;
            text.parse().ok()
        };
        Some(Head { code: number(&self.code)?, opaque: number(&self.opaque)? })
    }
}

fn binary(header: &[u8]) -> Option<Head> {
    let &[c0, c1, _, _, _, o0, o1, o2, o3] = header.first_chunk::<9>()?;
    Some(Head { code: i16::from_be_bytes([c0, c1]).into(), opaque: i32::from_be_bytes([o0, o1, o2, o3]) })
}

/// Counts the records of a pull by their size fields.
pub(super) fn records(mut body: &[u8]) -> u64 {
    let mut count = 0;
    while let Some(size) = body.first_chunk::<4>() {
        let size = u32::from_be_bytes(*size) as usize;
        match body.get(size..) {
            Some(rest) if size > 0 => body = rest,
            _ => break,
        }
        count += 1;
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::remoting::codes::flag;
    use crate::remoting::frame::{FrameLimits, split};
    use crate::remoting::header::HeaderWriter;

    fn check(bytes: &[u8], expected: Head) {
        let (frame, _) = split(bytes, &FrameLimits::default()).unwrap().unwrap();
        assert_eq!(AnswerReader::new().read(&frame).unwrap(), expected);
    }

    #[test]
    fn both_encodings_give_code_and_opaque() {
        for encoding in [Encoding::Json, Encoding::Binary] {
            let mut bytes = Vec::new();
            let mut header = HeaderWriter::begin(
                &mut bytes,
                encoding,
                17,
                1_000_000_009,
                flag::RESPONSE,
                Some("no topic"),
            );
            header.ext("msgId", "7F000001");
            header.finish(0).unwrap();
            check(&bytes, Head { code: 17, opaque: 1_000_000_009 });
        }
    }

    #[test]
    fn a_header_with_blanks_is_read() {
        let header = br#"{ "opaque" : 12, "flag" : 1, "code" : 2 }"#;
        let mut bytes = vec![0, 0, 0, header.len() as u8 + 4, 0, 0, 0, header.len() as u8];
        bytes.extend_from_slice(header);
        check(&bytes, Head { code: 2, opaque: 12 });
    }

    #[test]
    fn records_are_counted_by_their_sizes_and_a_broken_one_ends_the_count() {
        assert_eq!(records(&[0, 0, 0, 5, 9, 0, 0, 0, 4]), 2);
        assert_eq!(records(&[]), 0);
        assert_eq!(records(&[0, 0, 0, 0, 0, 0, 0, 4]), 0);
        assert_eq!(records(&[0, 0, 0, 4, 0, 0, 0, 9]), 1);
    }
}
