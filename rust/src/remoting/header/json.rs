//! Reads the JSON header: one walk over the bytes, text unescaped straight into the header's memory.
//!
//! Not a general JSON parser. It knows the one shape there is, skips what it does not know, and forgives what the
//! Java parsers of every release forgive.

use std::ops::Range;

use super::{DEPTH_MAX, Field, Header};
use crate::remoting::codes::language;
use crate::remoting::error::HeaderError;

pub(super) fn decode(bytes: &[u8], header: &mut Header) -> Result<(), HeaderError> {
    let mut json = Json { bytes, at: 0 };
    json.members(header, |json, name, header| {
        let name = forget(header, &name);
        match name {
            Some(Known::Code) => json.number(header)?.map_or((), |n| header.code = n),
            Some(Known::Flag) => json.number(header)?.map_or((), |n| header.flag = n),
            Some(Known::Opaque) => json.number(header)?.map_or((), |n| header.opaque = n),
            Some(Known::Version) => json.number(header)?.map_or((), |n| header.version = n),
            Some(Known::Language) => json.language(header)?,
            Some(Known::Remark) => header.remark = json.text(header)?,
            Some(Known::ExtFields) => json.ext(header)?,
            None => json.skip(2)?,
        }
        Ok(())
    })?;
    // C++ ends its JSON with a line feed and counts it.
    json.blank()?;
    if json.at == bytes.len() { Ok(()) } else { Err(HeaderError::Syntax { at: json.at }) }
}

enum Known {
    Code,
    ExtFields,
    Flag,
    Language,
    Opaque,
    Remark,
    Version,
}

/// Names the fixed field whose name was just appended to the text, and takes the name out again.
fn forget(header: &mut Header, name: &Range<u32>) -> Option<Known> {
    let text = header.cut(name);
    let is = |known: &str| text.eq_ignore_ascii_case(known);
    let known = match text.len() {
        4 if is("code") => Some(Known::Code),
        4 if is("flag") => Some(Known::Flag),
        6 if is("opaque") => Some(Known::Opaque),
        6 if is("remark") => Some(Known::Remark),
        7 if is("version") => Some(Known::Version),
        8 if is("language") => Some(Known::Language),
        9 if is("extFields") => Some(Known::ExtFields),
        _ => None,
    };
    header.text.truncate(name.start as usize);
    known
}

struct Json<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Json<'a> {
    /// Walks the members of an object; `member` gets each name and must take the value.
    fn members(
        &mut self,
        header: &mut Header,
        mut member: impl FnMut(&mut Self, Range<u32>, &mut Header) -> Result<(), HeaderError>,
    ) -> Result<(), HeaderError> {
        self.blank()?;
        self.expect(b'{')?;
        self.blank()?;
        if self.peek() == Some(b'}') {
            self.at += 1;
            return Ok(());
        }
        loop {
            let start = header.text.len();
            match self.peek() {
                Some(quote @ (b'"' | b'\'')) => self.string(quote, header)?,
                // Releases before 5.5 take bare names too.
                _ => {
                    let name = self.bare()?;
                    header.push_text(name);
                }
            }
            let name = header.span_from(start);
            self.blank()?;
            self.expect(b':')?;
            self.blank()?;
            member(self, name, header)?;
            self.blank()?;
            match self.next()? {
                b',' => self.blank()?,
                b'}' => return Ok(()),
                _ => return Err(HeaderError::Syntax { at: self.at - 1 }),
            }
        }
    }

    fn ext(&mut self, header: &mut Header) -> Result<(), HeaderError> {
        if self.peek() != Some(b'{') {
            let at = self.at;
            return if self.bare()? == b"null" { Ok(()) } else { Err(HeaderError::Syntax { at }) };
        }
        header.has_ext = true;
        self.members(header, |json, name, header| match json.text(header)? {
            Some(value) => header.push_field(Field { name, value }),
            None => Ok(()),
        })
    }

    /// A value as text: strings unescaped, numbers and booleans as they stand, `null` as `None`. C++ writes numbers
    /// where strings belong. An object or a list stays JSON text.
    fn text(&mut self, header: &mut Header) -> Result<Option<Range<u32>>, HeaderError> {
        let start = header.text.len();
        match self.peek() {
            Some(quote @ (b'"' | b'\'')) => self.string(quote, header)?,
            Some(b'{' | b'[') => {
                let from = self.at;
                self.skip(3)?;
                let raw = self.bytes.get(from..self.at).unwrap_or_default();
                header.push_text(raw);
            }
            _ => match self.scalar()? {
                b"null" => return Ok(None),
                scalar => header.push_text(scalar),
            },
        }
        Ok(Some(header.span_from(start)))
    }

    /// A 32-bit number, written as such or as text; `None` for `null` and the empty text.
    fn number(&mut self, header: &mut Header) -> Result<Option<i32>, HeaderError> {
        let at = self.at;
        let Some(span) = self.text(header)? else { return Ok(None) };
        let text = header.cut(&span);
        let number = if text.is_empty() { None } else { Some(text.parse()) };
        header.text.truncate(span.start as usize);
        number.transpose().map_err(|_| HeaderError::Number { at })
    }

    /// A language by name or by ordinal.
    fn language(&mut self, header: &mut Header) -> Result<(), HeaderError> {
        let Some(span) = self.text(header)? else { return Ok(()) };
        let text = header.cut(&span);
        header.language = match text.parse::<u8>() {
            Ok(ordinal) if usize::from(ordinal) < language::NAMES.len() => ordinal,
            _ => language::from_name(text),
        };
        header.text.truncate(span.start as usize);
        Ok(())
    }

    /// Steps over any value. `depth` counts the brackets around it.
    fn skip(&mut self, depth: usize) -> Result<(), HeaderError> {
        match self.peek() {
            Some(quote @ (b'"' | b'\'')) => self.skip_string(quote),
            Some(open @ (b'{' | b'[')) => {
                if depth > DEPTH_MAX {
                    return Err(HeaderError::TooDeep { at: self.at });
                }
                self.at += 1;
                // Separators are not checked against brackets: the value is thrown away, only its end matters.
                loop {
                    self.blank()?;
                    match self.peek() {
                        Some(b'}') if open == b'{' => break,
                        Some(b']') if open == b'[' => break,
                        Some(b',' | b':') => self.at += 1,
                        _ => self.skip(depth + 1)?,
                    }
                }
                self.at += 1;
                Ok(())
            }
            _ => self.bare().map(|_| ()),
        }
    }

    fn skip_string(&mut self, quote: u8) -> Result<(), HeaderError> {
        self.at += 1;
        loop {
            match self.next()? {
                b'\\' => self.at += 1,
                byte if byte == quote => return Ok(()),
                _ => {}
            }
        }
    }

    /// Appends the string that begins here, unescaped.
    fn string(&mut self, quote: u8, header: &mut Header) -> Result<(), HeaderError> {
        self.at += 1;
        loop {
            let rest = self.bytes.get(self.at..).unwrap_or_default();
            let end = rest.iter().position(|&byte| byte == quote || byte == b'\\');
            let (plain, rest) = rest.split_at(end.ok_or(HeaderError::Truncated { at: self.bytes.len() })?);
            header.push_text(plain);
            self.at += plain.len() + 1;
            if rest.first() == Some(&quote) {
                return Ok(());
            }
            let escaped = self.escape()?;
            header.text.push(escaped);
        }
    }

    /// The character behind a backslash that was just passed.
    fn escape(&mut self) -> Result<char, HeaderError> {
        let at = self.at;
        Ok(match self.next()? {
            byte @ (b'"' | b'\'' | b'\\' | b'/') => char::from(byte),
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            b'v' => '\u{b}',
            b'u' => return self.utf16(),
            _ => return Err(HeaderError::Syntax { at }),
        })
    }

    /// `\uXXXX`, two of them where a surrogate pair stands; a half pair becomes U+FFFD.
    fn utf16(&mut self) -> Result<char, HeaderError> {
        let high = self.hex4()?;
        if let Some(char) = char::from_u32(high) {
            return Ok(char);
        }
        let behind = self.at;
        if high < 0xDC00 && self.bytes.get(behind..).is_some_and(|rest| rest.starts_with(b"\\u")) {
            self.at += 2;
            let low = self.hex4()?;
            if (0xDC00..0xE000).contains(&low) {
                let scalar = 0x1_0000 + ((high - 0xD800) << 10) + (low - 0xDC00);
                return Ok(char::from_u32(scalar).unwrap_or(char::REPLACEMENT_CHARACTER));
            }
            self.at = behind;
        }
        Ok(char::REPLACEMENT_CHARACTER)
    }

    fn hex4(&mut self) -> Result<u32, HeaderError> {
        let at = self.at;
        let mut unit = 0;
        for _ in 0..4 {
            let digit = char::from(self.next()?).to_digit(16);
            unit = unit << 4 | digit.ok_or(HeaderError::Syntax { at })?;
        }
        Ok(unit)
    }

    /// `null`, `true`, `false` or a number.
    fn scalar(&mut self) -> Result<&'a [u8], HeaderError> {
        let at = self.at;
        let found = self.bare()?;
        let is_number = matches!(found, [b'-' | b'+' | b'0'..=b'9', ..]);
        if is_number || matches!(found, b"null" | b"true" | b"false") {
            Ok(found)
        } else {
            Err(HeaderError::Syntax { at })
        }
    }

    /// A run of bytes without quotes: a bare name, a number, a literal.
    fn bare(&mut self) -> Result<&'a [u8], HeaderError> {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        let is_bare = |byte: &u8| matches!(byte, b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'_' | b'$' | b'-' | b'+' | b'.');
        let length = rest.iter().take_while(|byte| is_bare(byte)).count();
        if length == 0 {
            return Err(HeaderError::Syntax { at: self.at });
        }
        self.at += length;
        Ok(&rest[..length])
    }

    /// Steps over white space and comments.
    fn blank(&mut self) -> Result<(), HeaderError> {
        loop {
            match self.peek() {
                Some(b' ' | b'\t' | b'\r' | b'\n') => self.at += 1,
                Some(b'/') => self.comment()?,
                _ => return Ok(()),
            }
        }
    }

    fn comment(&mut self) -> Result<(), HeaderError> {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        let length = match rest {
            [b'/', b'/', ..] => rest.iter().position(|&byte| byte == b'\n').unwrap_or(rest.len()),
            [b'/', b'*', inner @ ..] => {
                let end = inner.windows(2).position(|pair| pair == b"*/");
                end.ok_or(HeaderError::Truncated { at: self.bytes.len() })? + 4
            }
            _ => return Err(HeaderError::Syntax { at: self.at }),
        };
        self.at += length;
        Ok(())
    }

    fn expect(&mut self, byte: u8) -> Result<(), HeaderError> {
        let at = self.at;
        if self.next()? == byte { Ok(()) } else { Err(HeaderError::Syntax { at }) }
    }

    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn next(&mut self) -> Result<u8, HeaderError> {
        let byte = self.peek().ok_or(HeaderError::Truncated { at: self.at })?;
        self.at += 1;
        Ok(byte)
    }
}
