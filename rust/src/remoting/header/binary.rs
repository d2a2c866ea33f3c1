//! Binary header: reads the fixed-layout encoding.
//!
//! ```text
//! 0   i16  code          9   i32  flag
//! 2   u8   language      13  i32  remark length R, then R bytes
//! 3   i16  version       ..  i32  extension length E, then E bytes:
//! 5   i32  opaque                 i16 length, name, i32 length, value; repeated
//! ```
//!
//! A zero length means null, for the remark, names and values alike: an empty text cannot be distinguished from an
//! absent one.

use std::ops::Range;

use super::fields::{Field, Header, span};
use crate::remoting::codes::language;
use crate::remoting::error::HeaderError;

/// Decodes `bytes`, and overwrites with zeros every byte that is not text.
pub(super) fn decode(bytes: &mut [u8], header: &mut Header) -> Result<(), HeaderError> {
    let mut rest = Cursor { bytes, at: 0 };
    header.code = i32::from(i16::from_be_bytes(rest.array()?));
    let [language] = rest.array()?;
    header.language = if usize::from(language) < language::NAMES.len() { language } else { language::OTHER };
    header.version = i32::from(i16::from_be_bytes(rest.array()?));
    header.opaque = i32::from_be_bytes(rest.array()?);
    header.flag = i32::from_be_bytes(rest.array()?);

    let remark = rest.long_text()?;
    header.remark = (!remark.is_empty()).then(|| span(remark));

    let ext_bytes = i32::from_be_bytes(rest.array()?);
    let ext_start = rest.at;
    if usize::try_from(ext_bytes).ok() != Some(rest.bytes.len() - ext_start) {
        return Err(HeaderError::Length { at: ext_start });
    }
    header.has_ext = ext_bytes > 0;
    while rest.at < rest.bytes.len() {
        let name = rest.short_text()?;
        let value = rest.long_text()?;
        if !name.is_empty() && !value.is_empty() {
            header.push_field(Field { name: span(name), value: span(value) })?;
        }
    }
    Ok(())
}

struct Cursor<'a> {
    bytes: &'a mut [u8],
    at: usize,
}

impl Cursor<'_> {
    /// Takes the next `N` bytes and leaves zeros in their place.
    fn array<const N: usize>(&mut self) -> Result<[u8; N], HeaderError> {
        let found = self.bytes.get_mut(self.at..).and_then(<[u8]>::first_chunk_mut::<N>);
        let found = found.ok_or(HeaderError::Truncated { at: self.at })?;
        self.at += N;
        Ok(std::mem::replace(found, [0; N]))
    }

    fn short_text(&mut self) -> Result<Range<usize>, HeaderError> {
        let length = i16::from_be_bytes(self.array()?);
        self.text(i32::from(length))
    }

    fn long_text(&mut self) -> Result<Range<usize>, HeaderError> {
        let length = i32::from_be_bytes(self.array()?);
        self.text(length)
    }

    fn text(&mut self, length: i32) -> Result<Range<usize>, HeaderError> {
        let length = usize::try_from(length).map_err(|_| HeaderError::Length { at: self.at })?;
        if length > self.bytes.len() - self.at {
            return Err(HeaderError::Length { at: self.at });
        }
        let start = self.at;
        self.at += length;
        Ok(start..self.at)
    }
}
