//! Reads the JSON header: one walk over the bytes, text unescaped where it stands.
//!
//! Not a general JSON parser. It knows the one shape there is, skips what it does not know, and forgives what the
//! Java parsers of every release forgive.

use std::ops::Range;

use super::{DEPTH_MAX, Field, Header, span, swar};
use crate::remoting::codes::language;
use crate::remoting::error::HeaderError;

/// Reads `bytes` and undoes escapes in them, in place: no text is longer than what it was escaped to.
pub(super) fn decode(bytes: &mut [u8], header: &mut Header) -> Result<(), HeaderError> {
    let mut json = Json { bytes, at: 0 };
    json.members(|json, name| {
        match json.known(name) {
            Some(Known::Code) => json.number_into(&mut header.code)?,
            Some(Known::Flag) => json.number_into(&mut header.flag)?,
            Some(Known::Opaque) => json.number_into(&mut header.opaque)?,
            Some(Known::Version) => json.number_into(&mut header.version)?,
            Some(Known::Language) => json.language_into(&mut header.language)?,
            Some(Known::Remark) => header.remark = json.text()?.map(span),
            Some(Known::ExtFields) => json.ext(header)?,
            None => json.skip(2)?,
        }
        Ok(())
    })?;
    // C++ ends its JSON with a line feed and counts it.
    json.blank()?;
    if json.at == json.bytes.len() { Ok(()) } else { Err(HeaderError::Syntax { at: json.at }) }
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

impl Known {
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

struct Json<'a> {
    bytes: &'a mut [u8],
    at: usize,
}

impl Json<'_> {
    /// The fixed field that `name` names: as everybody writes it, or in another case.
    #[inline(always)]
    fn known(&self, name: Range<usize>) -> Option<Known> {
        let name = self.cut(name);
        match name {
            b"code" => Some(Known::Code),
            b"extFields" => Some(Known::ExtFields),
            b"flag" => Some(Known::Flag),
            b"language" => Some(Known::Language),
            b"opaque" => Some(Known::Opaque),
            b"remark" => Some(Known::Remark),
            b"version" => Some(Known::Version),
            b"serializeTypeCurrentRPC" => None,
            _ => Known::in_any_case(name),
        }
    }

    /// Walks the members of an object; `member` gets each name and must take the value.
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

    /// Steps into an object; whether it has members.
    fn begin(&mut self) -> Result<bool, HeaderError> {
        self.blank()?;
        self.expect(b'{')?;
        self.blank()?;
        let is_empty = self.peek() == Some(b'}');
        self.at += usize::from(is_empty);
        Ok(!is_empty)
    }

    /// The name of the member that begins here, and the way to its value.
    #[inline(always)]
    fn name(&mut self) -> Result<Range<usize>, HeaderError> {
        let name = match self.peek() {
            Some(quote @ (b'"' | b'\'')) => self.string(quote)?,
            // Releases before 5.5 take bare names too.
            _ => self.bare()?,
        };
        self.blank()?;
        self.expect(b':')?;
        self.blank()?;
        Ok(name)
    }

    /// Steps over what stands behind a member; whether it is followed by another.
    #[inline(always)]
    fn goes_on(&mut self) -> Result<bool, HeaderError> {
        if let Some([b',', b'"', ..]) = self.bytes.get(self.at..) {
            self.at += 1;
            return Ok(true);
        }
        self.blank()?;
        match self.next()? {
            b',' => self.blank().map(|()| true),
            b'}' => Ok(false),
            _ => Err(HeaderError::Syntax { at: self.at - 1 }),
        }
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

    /// Takes a member of the shape that nearly all have, `"name":"value"` without blanks or escapes.
    #[inline(always)]
    fn plain_member(&mut self) -> Option<(Range<usize>, Range<usize>)> {
        let [b'"', rest @ ..] = self.bytes.get(self.at..)? else { return None };
        let name = self.at + 1..self.at + 1 + swar::find_quote(rest, b'"')?;
        let [b'"', b':', b'"', rest @ ..] = self.bytes.get(name.end..)? else { return None };
        let value = name.end + 3..name.end + 3 + swar::find_quote(rest, b'"')?;
        if self.bytes.get(value.end) != Some(&b'"') {
            return None;
        }
        self.at = value.end + 1;
        Some((name, value))
    }

    /// A value as text: strings unescaped, numbers and booleans as they stand, `null` as `None`. C++ writes numbers
    /// where strings belong. An object or a list stays JSON text. Inlined like `string`.
    #[inline(always)]
    fn text(&mut self) -> Result<Option<Range<usize>>, HeaderError> {
        match self.peek() {
            Some(quote @ (b'"' | b'\'')) => self.string(quote).map(Some),
            Some(b'{' | b'[') => {
                let start = self.at;
                self.skip(3)?;
                Ok(Some(start..self.at))
            }
            _ => {
                let scalar = self.bare()?;
                match self.cut(scalar.clone()) {
                    b"null" => Ok(None),
                    b"true" | b"false" | [b'-' | b'+' | b'0'..=b'9', ..] => Ok(Some(scalar)),
                    _ => Err(HeaderError::Syntax { at: scalar.start }),
                }
            }
        }
    }

    /// A 32-bit number, written as such or as text; `null` and the empty text change nothing.
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

    /// A number of up to nine digits, written as such, with another member or the end behind it.
    #[inline(always)]
    fn plain_number(&mut self) -> Option<i32> {
        let mut number = 0;
        for (length, byte) in self.bytes.get(self.at..)?.iter().take(10).enumerate() {
            match byte {
                b'0'..=b'9' if length < 9 => number = number * 10 + i32::from(byte - b'0'),
                b',' | b'}' if length > 0 => {
                    self.at += length;
                    return Some(number);
                }
                _ => return None,
            }
        }
        None
    }

    /// A language by name or by ordinal.
    fn language_into(&mut self, code: &mut u8) -> Result<(), HeaderError> {
        let Some(text) = self.text()? else { return Ok(()) };
        let text = std::str::from_utf8(self.cut(text)).unwrap_or_default();
        *code = match text.parse::<u8>() {
            Ok(ordinal) if usize::from(ordinal) < language::NAMES.len() => ordinal,
            _ => language::from_name(text),
        };
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

    /// The string that begins here, unescaped. Inlined: a header is forty short strings, and a call for each is a
    /// quarter of the time.
    #[inline(always)]
    fn string(&mut self, quote: u8) -> Result<Range<usize>, HeaderError> {
        let start = self.at + 1;
        self.at = start + self.plain(start, quote)?;
        let end = self.at;
        if self.next()? == quote { Ok(start..end) } else { self.unescape(start, quote) }
    }

    /// The rest of a string whose first backslash was just passed: the text moves down as it shrinks.
    fn unescape(&mut self, start: usize, quote: u8) -> Result<Range<usize>, HeaderError> {
        let mut end = self.at - 1;
        loop {
            let mut utf8 = [0; 4];
            let escaped = match self.bytes.get(self.at..) {
                // The separators of properties, which every send has.
                Some([b'u', b'0', b'0', b'0', digit @ b'1'..=b'2', ..]) => {
                    utf8[0] = digit - b'0';
                    self.at += 5;
                    &utf8[..1]
                }
                _ => self.escape()?.encode_utf8(&mut utf8).as_bytes(),
            };
            if let Some(into) = self.bytes.get_mut(end..end + escaped.len()) {
                into.copy_from_slice(escaped);
            }
            end += escaped.len();
            let plain = self.plain(self.at, quote)?;
            self.bytes.copy_within(self.at..self.at + plain, end);
            end += plain;
            self.at += plain;
            if self.next()? == quote {
                break;
            }
        }
        // What is left behind could begin inside a character.
        if let Some(left) = self.bytes.get_mut(end..self.at - 1) {
            left.fill(b' ');
        }
        Ok(start..end)
    }

    /// How many bytes from `at` on are neither quote nor backslash; one of the two follows.
    #[inline(always)]
    fn plain(&self, at: usize, quote: u8) -> Result<usize, HeaderError> {
        let rest = self.bytes.get(at..).unwrap_or_default();
        swar::find_quote(rest, quote).ok_or(HeaderError::Truncated { at: self.bytes.len() })
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

    /// A run of bytes without quotes: a bare name, a number, a literal.
    fn bare(&mut self) -> Result<Range<usize>, HeaderError> {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        let is_bare =
            |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'$' | b'-' | b'+' | b'.');
        let length = rest.iter().take_while(|byte| is_bare(byte)).count();
        if length == 0 {
            return Err(HeaderError::Syntax { at: self.at });
        }
        let start = self.at;
        self.at += length;
        Ok(start..self.at)
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

    fn cut(&self, range: Range<usize>) -> &[u8] {
        self.bytes.get(range).unwrap_or_default()
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

/// A decimal number of 32 bits, with or without a sign.
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
