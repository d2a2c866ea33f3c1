//! Reads the binary header.
//!
//! ```text
//! 0   i16  code          9   i32  flag
//! 2   u8   language      13  i32  remark length R, then R bytes
//! 3   i16  version       ..  i32  extension length E, then E bytes:
//! 5   i32  opaque                 i16 length, name, i32 length, value; repeated
//! ```
//!
//! A zero length means null, for the remark as for names and values: an empty text cannot be told from an absent one.

use super::{Field, Header};
use crate::remoting::codes::language;
use crate::remoting::error::HeaderError;

pub(super) fn decode(bytes: &[u8], header: &mut Header) -> Result<(), HeaderError> {
    let mut rest = Reader { bytes, at: 0 };
    header.code = i32::from(i16::from_be_bytes(rest.array()?));
    let [language] = rest.array()?;
    header.language = if usize::from(language) < language::NAMES.len() { language } else { language::OTHER };
    header.version = i32::from(i16::from_be_bytes(rest.array()?));
    header.opaque = i32::from_be_bytes(rest.array()?);
    header.flag = i32::from_be_bytes(rest.array()?);

    let remark = rest.long_text()?;
    if !remark.is_empty() {
        let start = header.text.len();
        header.push_text(remark);
        header.remark = Some(header.span_from(start));
    }

    let ext = rest.long_text()?;
    if rest.at != bytes.len() {
        return Err(HeaderError::Length { at: rest.at });
    }
    header.has_ext = !ext.is_empty();
    let mut rest = Reader { bytes: &bytes[..rest.at], at: rest.at - ext.len() };
    while rest.at < rest.bytes.len() {
        let name = rest.short_text()?;
        let value = rest.long_text()?;
        if name.is_empty() || value.is_empty() {
            continue;
        }
        let start = header.text.len();
        header.push_text(name);
        let name = header.span_from(start);
        let start = header.text.len();
        header.push_text(value);
        let value = header.span_from(start);
        header.push_field(Field { name, value })?;
    }
    Ok(())
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn array<const N: usize>(&mut self) -> Result<[u8; N], HeaderError> {
        let found = self.bytes.get(self.at..).and_then(<[u8]>::first_chunk::<N>);
        let found = *found.ok_or(HeaderError::Truncated { at: self.at })?;
        self.at += N;
        Ok(found)
    }

    fn short_text(&mut self) -> Result<&'a [u8], HeaderError> {
        let length = i16::from_be_bytes(self.array()?);
        self.take(i32::from(length))
    }

    fn long_text(&mut self) -> Result<&'a [u8], HeaderError> {
        let length = i32::from_be_bytes(self.array()?);
        self.take(length)
    }

    fn take(&mut self, length: i32) -> Result<&'a [u8], HeaderError> {
        let length = usize::try_from(length).map_err(|_| HeaderError::Length { at: self.at })?;
        let taken = self.bytes.get(self.at..).and_then(|rest| rest.get(..length));
        let taken = taken.ok_or(HeaderError::Length { at: self.at })?;
        self.at += length;
        Ok(taken)
    }
}
