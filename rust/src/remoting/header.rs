//! The header of a frame: what is asked or answered, by whom, and the extension fields that are its arguments.
//!
//! [`Header`] reads both encodings in one pass into memory it keeps, so that a connection that reuses one allocates
//! nothing once it has seen its largest header. [`HeaderWriter`] writes both straight into an output buffer.
//!
//! Reading is as lenient as the Java clients are used to: any case of the fixed names, numbers as text and text as
//! numbers, single quotes, comments, unknown fields. Writing is strict: exact names, every extension value a string.
//!
//! Invariant: no input makes a decoder panic, recurse deeper than [`DEPTH_MAX`] or keep more than
//! [`EXT_FIELDS_MAX`] fields. Threads: each connection owns its `Header` on its own I/O thread.

mod binary;
mod json;
mod swar;
#[cfg(test)]
mod tests;
mod writer;

use std::ops::Range;

pub use writer::{ExtBlock, HeaderWriter};

use super::codes::{flag, language};
use super::error::HeaderError;
use super::frame::{Encoding, Frame};

/// Extension fields one header may carry. The largest requests of any client have about 25.
pub const EXT_FIELDS_MAX: usize = 256;

/// How deep JSON may nest; what clients send is two deep, the rest is for fields we skip.
pub const DEPTH_MAX: usize = 8;

/// Text memory kept between headers. Larger ones are served and their memory returned, so that one odd request does
/// not stay with each of 50,000 idle connections.
const TEXT_KEPT_BYTES: usize = 32 << 10;

/// One decoded header, and the memory for the next.
#[derive(Debug, Default)]
pub struct Header {
    /// Request code, or response code in a response.
    pub code: i32,
    /// Implementation language of the sender, a code of [`language`]; unknown ones read as `OTHER`.
    pub language: u8,
    /// Release of the sender, as an ordinal of the Java version list; 0 when it said none.
    pub version: i32,
    /// Chosen by the requester, echoed in the response. Any 32-bit value, negative ones too.
    pub opaque: i32,
    /// Bits of [`flag`].
    pub flag: i32,
    /// A copy of the header's bytes in which escapes are undone in place and everything that is no text is ASCII.
    /// The spans below cut the text out of it.
    text: String,
    fields: Vec<Field>,
    remark: Option<Range<u32>>,
    has_ext: bool,
}

#[derive(Clone, Debug)]
struct Field {
    name: Range<u32>,
    value: Range<u32>,
}

impl Header {
    /// An empty header, to decode into.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

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

    /// Whether this answers a request of ours. Only the flag tells; codes of both directions overlap.
    #[must_use]
    pub const fn is_response(&self) -> bool {
        self.flag & flag::RESPONSE != 0
    }

    /// Whether nothing must be answered, errors included.
    #[must_use]
    pub const fn is_oneway(&self) -> bool {
        self.flag & flag::ONEWAY != 0
    }

    /// Free text, in responses that of an error.
    #[must_use]
    pub fn remark(&self) -> Option<&str> {
        self.remark.as_ref().map(|span| self.cut(span))
    }

    /// Value of the extension field `name`, exactly as written; the last one where a name stands twice.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        let field = self.fields.iter().rev().find(|field| self.cut(&field.name) == name)?;
        Some(self.cut(&field.value))
    }

    /// All extension fields in the order of the wire. Where a name stands twice the later one counts, so a pass
    /// that overwrites as it goes is right.
    pub fn ext(&self) -> impl ExactSizeIterator<Item = (&str, &str)> {
        self.fields.iter().map(|field| (self.cut(&field.name), self.cut(&field.value)))
    }

    /// Whether there was an extension map at all, be it empty.
    #[must_use]
    pub const fn has_ext(&self) -> bool {
        self.has_ext
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

    fn cut(&self, span: &Range<u32>) -> &str {
        self.text.get(range(span)).unwrap_or_default()
    }

    fn push_field(&mut self, field: Field) -> Result<(), HeaderError> {
        if self.fields.len() >= EXT_FIELDS_MAX {
            return Err(HeaderError::TooManyFields);
        }
        self.fields.push(field);
        Ok(())
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

/// Headers are far below 4 GiB; spans of half the size make fields that fit a cache line four by four.
const fn span(range: Range<usize>) -> Range<u32> {
    range.start as u32..range.end as u32
}

const fn range(span: &Range<u32>) -> Range<usize> {
    span.start as usize..span.end as usize
}
