//! Decoding: one copy of a header's bytes, read in its encoding where they stand.

use std::ops::Range;

use super::fields::{Field, Header, range};
use super::{binary, json};
use crate::remoting::codes::language;
use crate::remoting::error::HeaderError;
use crate::remoting::frame::{Encoding, Frame};

/// Text memory kept between headers. Larger ones are served and their memory returned, so that one odd request does
/// not stay with each of 50,000 idle connections.
pub(super) const TEXT_KEPT_BYTES: usize = 32 << 10;

impl Header {
    /// Replaces the content with the header of `frame`.
    ///
    /// # Errors
    /// When the header cannot be read; the content is unspecified then, and the connection should close.
    pub fn decode(&mut self, frame: &Frame<'_>) -> Result<(), HeaderError> {
        self.clear();
        // One copy and one UTF-8 check for the whole header cost a third of a copy and a check for each field.
        let mut bytes = std::mem::take(&mut self.text).into_bytes();
        bytes.clear();
        bytes.shrink_to(TEXT_KEPT_BYTES);
        bytes.extend_from_slice(frame.header);
        match frame.encoding {
            Encoding::Json => json::decode(&mut bytes, self)?,
            Encoding::Binary => binary::decode(&mut bytes, self)?,
        }
        match String::from_utf8(bytes) {
            Ok(text) => self.text = text,
            Err(broken) => self.mend(broken.as_bytes()),
        }
        Ok(())
    }

    /// Memory kept for the next header.
    pub(crate) fn kept_bytes(&self) -> usize {
        self.text.capacity() + self.fields.capacity() * size_of::<Field>()
    }

    /// Gives it back, and the fields with it.
    pub(crate) fn shrink(&mut self) {
        (self.text, self.fields) = (String::new(), Vec::new());
        self.remark = None;
    }

    fn clear(&mut self) {
        self.code = 0;
        // What Java clients assume of a sender that does not say.
        self.language = language::JAVA;
        self.version = 0;
        self.opaque = 0;
        self.flag = 0;
        self.fields.clear();
        self.remark = None;
        self.has_ext = false;
    }

    /// Copies out of bytes that are not all UTF-8 what the spans name. What is broken becomes U+FFFD, as in Java:
    /// some C++ senders use the code page of their machine, and their requests work.
    fn mend(&mut self, bytes: &[u8]) {
        let text = &mut self.text;
        let mut copy = |span: &mut Range<u32>| {
            let start = text.len() as u32;
            for chunk in bytes.get(range(span)).unwrap_or_default().utf8_chunks() {
                text.push_str(chunk.valid());
                if !chunk.invalid().is_empty() {
                    text.push(char::REPLACEMENT_CHARACTER);
                }
            }
            *span = start..text.len() as u32;
        };
        for field in &mut self.fields {
            copy(&mut field.name);
            copy(&mut field.value);
        }
        if let Some(remark) = &mut self.remark {
            copy(remark);
        }
    }
}
