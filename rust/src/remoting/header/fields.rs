//! Decoded header: the fixed fields, and spans of one text for all others.

use std::ops::Range;
use std::str::FromStr;

use crate::remoting::codes::flag;
use crate::remoting::error::{FieldError, HeaderError};

/// Extension fields one header may carry. The largest requests of any client have about 25.
pub const EXT_FIELDS_MAX: usize = 256;

/// One decoded header, and the memory for the next.
#[derive(Debug, Default)]
pub struct Header {
    /// Request code, or response code in a response.
    pub code: i32,
    /// Implementation language of the sender, a code of [`language`](crate::remoting::codes::language); unknown ones read as `OTHER`.
    pub language: u8,
    /// Release of the sender, as an ordinal of the Java version list; 0 when it said none.
    pub version: i32,
    /// Chosen by the requester, echoed in the response. Any 32-bit value, negative ones too.
    pub opaque: i32,
    /// Bits of [`flag`].
    pub flag: i32,
    /// A copy of the header's bytes in which escapes are undone in place and everything that is no text is ASCII.
    /// The spans below cut the text out of it.
    pub(super) text: String,
    pub(super) fields: Vec<Field>,
    pub(super) remark: Option<Range<u32>>,
    pub(super) has_ext: bool,
}

#[derive(Clone, Debug)]
pub(super) struct Field {
    pub(super) name: Range<u32>,
    pub(super) value: Range<u32>,
}

impl Header {
    /// An empty header, to decode into.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
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
        let is_asked = |field: &&Field| field.name.len() == name.len() && self.cut(&field.name) == name;
        let field = self.fields.iter().rev().find(is_asked)?;
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

    fn cut(&self, span: &Range<u32>) -> &str {
        self.text.get(range(span)).unwrap_or_default()
    }

    pub(super) fn push_field(&mut self, field: Field) -> Result<(), HeaderError> {
        if self.fields.len() >= EXT_FIELDS_MAX {
            return Err(HeaderError::TooManyFields);
        }
        self.fields.push(field);
        Ok(())
    }
}

/// Headers are far below 4 GiB; spans of half the size make fields that fit a cache line four by four.
pub(super) const fn span(range: Range<usize>) -> Range<u32> {
    range.start as u32..range.end as u32
}

pub(super) const fn range(span: &Range<u32>) -> Range<usize> {
    span.start as usize..span.end as usize
}

/// The value of the extension field `name` as a number.
#[inline]
pub(crate) fn number<N: FromStr>(name: &str, text: &str) -> Result<N, FieldError> {
    text.parse().map_err(|_| not_a_number(name, text))
}

/// Apart, so that a number costs no more than its digits.
#[cold]
fn not_a_number(name: &str, text: &str) -> FieldError {
    FieldError::NotANumber(Box::new((name.into(), text.into())))
}
