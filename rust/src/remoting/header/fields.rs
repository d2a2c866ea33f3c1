//! Decoded header: the fixed fields, and spans of one text for all others.

use std::ops::Range;
use std::str::FromStr;

use crate::remoting::codes::flag;
use crate::remoting::error::{FieldError, HeaderError};

/// Maximum extension fields of a header. The largest requests of any client have about 25.
pub const EXT_FIELDS_MAX: usize = 256;

/// A decoded header, and the memory for the next one.
#[derive(Debug, Default)]
pub struct Header {
    /// Request code, or response code in a response.
    pub code: i32,
    /// Language of the sender, a code of [`language`](crate::remoting::codes::language); unknown ones read as
    /// `OTHER`.
    pub language: u8,
    /// Release of the sender, as an ordinal of the Java version list; 0 when absent.
    pub version: i32,
    /// Chosen by the requester and echoed in the response. Any 32-bit value, including negative ones.
    pub opaque: i32,
    /// Bits of [`flag`].
    pub flag: i32,
    /// A copy of the header's bytes with escapes undone in place and every non-text byte replaced by ASCII. The spans
    /// below index it.
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
    /// Returns an empty header, to decode into.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns whether this is a response. Only the flag distinguishes it: codes of both directions overlap.
    #[must_use]
    pub const fn is_response(&self) -> bool {
        self.flag & flag::RESPONSE != 0
    }

    /// Returns whether the request must not be answered, not even with an error.
    #[must_use]
    pub const fn is_oneway(&self) -> bool {
        self.flag & flag::ONEWAY != 0
    }

    /// Free text; in responses, the error text.
    #[must_use]
    pub fn remark(&self) -> Option<&str> {
        self.remark.as_ref().map(|span| self.cut(span))
    }

    /// Returns the exact value of the extension field `name`; the last one if the name is repeated.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        let is_asked = |field: &&Field| field.name.len() == name.len() && self.cut(&field.name) == name;
        let field = self.fields.iter().rev().find(is_asked)?;
        Some(self.cut(&field.value))
    }

    /// Returns all extension fields in wire order. If a name is repeated the later value counts, so a pass that
    /// overwrites is correct.
    pub fn ext(&self) -> impl ExactSizeIterator<Item = (&str, &str)> {
        self.fields.iter().map(|field| (self.cut(&field.name), self.cut(&field.value)))
    }

    /// Returns whether there was an extension map, even an empty one.
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

/// Headers are far below 4 GiB; with 32-bit spans four fields fit a cache line.
pub(super) const fn span(range: Range<usize>) -> Range<u32> {
    range.start as u32..range.end as u32
}

pub(super) const fn range(span: &Range<u32>) -> Range<usize> {
    span.start as usize..span.end as usize
}

/// Parses the value of the extension field `name` as a number.
#[inline]
pub(crate) fn number<N: FromStr>(name: &str, text: &str) -> Result<N, FieldError> {
    text.parse().map_err(|_| not_a_number(name, text))
}

/// Out of line, so that the success path stays small.
#[cold]
fn not_a_number(name: &str, text: &str) -> FieldError {
    FieldError::NotANumber(Box::new((name.into(), text.into())))
}
