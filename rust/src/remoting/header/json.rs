//! JSON header: decodes the bytes in one walk and unescapes text in place.
//!
//! Not a general JSON parser. It knows the one shape headers have, skips unknown members, and tolerates everything
//! that Java parsers of any release tolerate.

use std::ops::Range;

use super::fields::{Field, Header, span};
use super::scanner::Scanner;
use crate::remoting::codes::language;
use crate::remoting::error::HeaderError;

/// Decodes `bytes` and unescapes them in place: text is never longer than its escaped form.
pub(super) fn decode(bytes: &mut [u8], header: &mut Header) -> Result<(), HeaderError> {
    let mut json = Scanner::new(bytes);
    json.members(|json, name| {
        match json.known(name) {
            Some(WellKnownField::Code) => json.number_into(&mut header.code)?,
            Some(WellKnownField::Flag) => json.number_into(&mut header.flag)?,
            Some(WellKnownField::Opaque) => json.number_into(&mut header.opaque)?,
            Some(WellKnownField::Version) => json.number_into(&mut header.version)?,
            Some(WellKnownField::Language) => json.language_into(&mut header.language)?,
            Some(WellKnownField::Remark) => header.remark = json.text()?.map(span),
            Some(WellKnownField::ExtFields) => json.ext(header)?,
            None => json.skip(2)?,
        }
        Ok(())
    })?;
    // C++ clients end their JSON with a line feed and count it.
    json.blank()?;
    if json.at == json.bytes.len() { Ok(()) } else { Err(HeaderError::Syntax { at: json.at }) }
}

enum WellKnownField {
    Code,
    ExtFields,
    Flag,
    Language,
    Opaque,
    Remark,
    Version,
}

impl WellKnownField {
    #[cold]
    fn in_any_case(name: &[u8]) -> Option<Self> {
        let is = |known: &str| name.eq_ignore_ascii_case(known.as_bytes());
        match name.len() {
            4 if is("code") => Some(Self::Code),
            4 if is("flag") => Some(Self::Flag),
            6 if is("opaque") => Some(Self::Opaque),
            6 if is("remark") => Some(Self::Remark),
            7 if is("version") => Some(Self::Version),
            8 if is("language") => Some(Self::Language),
            9 if is("extFields") => Some(Self::ExtFields),
            _ => None,
        }
    }
}

impl Scanner<'_> {
    /// Returns the fixed field called `name`, first in the usual case, then in any case.
    #[inline(always)]
    fn known(&self, name: Range<usize>) -> Option<WellKnownField> {
        let name = self.cut(name);
        match name {
            b"code" => Some(WellKnownField::Code),
            b"extFields" => Some(WellKnownField::ExtFields),
            b"flag" => Some(WellKnownField::Flag),
            b"language" => Some(WellKnownField::Language),
            b"opaque" => Some(WellKnownField::Opaque),
            b"remark" => Some(WellKnownField::Remark),
            b"version" => Some(WellKnownField::Version),
            b"serializeTypeCurrentRPC" => None,
            _ => WellKnownField::in_any_case(name),
        }
    }

    /// Walks the members of an object; `member` gets each name and must consume the value.
    fn members(
        &mut self,
        mut member: impl FnMut(&mut Self, Range<usize>) -> Result<(), HeaderError>,
    ) -> Result<(), HeaderError> {
        let mut is_open = self.begin()?;
        while is_open {
            let name = self.name()?;
            member(self, name)?;
            is_open = self.goes_on()?;
        }
        Ok(())
    }

    fn ext(&mut self, header: &mut Header) -> Result<(), HeaderError> {
        if self.peek() != Some(b'{') {
            let at = self.at;
            let bare = self.bare()?;
            return if self.cut(bare) == b"null" { Ok(()) } else { Err(HeaderError::Syntax { at }) };
        }
        header.has_ext = true;
        let mut is_open = self.begin()?;
        while is_open {
            if let Some((name, value)) = self.plain_member() {
                header.push_field(Field { name: span(name), value: span(value) })?;
            } else {
                let name = self.name()?;
                if let Some(value) = self.text()? {
                    header.push_field(Field { name: span(name), value: span(value) })?;
                }
            }
            is_open = self.goes_on()?;
        }
        Ok(())
    }

    /// Reads a 32-bit number, written as number or text; `null` and empty text change nothing.
    fn number_into(&mut self, number: &mut i32) -> Result<(), HeaderError> {
        let at = self.at;
        if let Some(plain) = self.plain_number() {
            *number = plain;
            return Ok(());
        }
        let Some(text) = self.text()?.filter(|text| !text.is_empty()) else { return Ok(()) };
        *number = decimal(self.cut(text)).ok_or(HeaderError::Number { at })?;
        Ok(())
    }

    /// Reads a language by name or by ordinal.
    fn language_into(&mut self, code: &mut u8) -> Result<(), HeaderError> {
        let Some(text) = self.text()? else { return Ok(()) };
        let text = std::str::from_utf8(self.cut(text)).unwrap_or_default();
        *code = match text.parse::<u8>() {
            Ok(ordinal) if usize::from(ordinal) < language::NAMES.len() => ordinal,
            _ => language::from_name(text),
        };
        Ok(())
    }
}

/// Parses a decimal 32-bit number with an optional sign.
fn decimal(text: &[u8]) -> Option<i32> {
    let (is_negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        [b'+', digits @ ..] => (false, digits),
        digits => (false, digits),
    };
    if digits.is_empty() {
        return None;
    }
    let mut number = 0_i64;
    for byte in digits {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 || number > i64::from(u32::MAX) {
            return None;
        }
        number = number * 10 + i64::from(digit);
    }
    i32::try_from(if is_negative { -number } else { number }).ok()
}
