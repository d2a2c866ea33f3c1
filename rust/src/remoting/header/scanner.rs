//! Scanner: reads lenient JSON, unescapes strings in place, and skips blanks, comments and unused values.

use std::ops::Range;

use super::marks::Marks;
use super::swar;
use crate::remoting::error::HeaderError;

/// Maximum nesting of JSON. Clients send two levels; the rest is for unknown fields.
pub(super) const DEPTH_MAX: usize = 8;

pub(super) struct Scanner<'a> {
    pub(super) bytes: &'a mut [u8],
    /// The read position. Bytes after it are unchanged.
    pub(super) at: usize,
    marks: Marks,
}

impl<'a> Scanner<'a> {
    pub(super) fn new(bytes: &'a mut [u8]) -> Self {
        Self { bytes, at: 0, marks: Marks::new() }
    }

    /// Enters an object; returns whether it has members.
    pub(super) fn begin(&mut self) -> Result<bool, HeaderError> {
        self.blank()?;
        self.expect(b'{')?;
        self.blank()?;
        let is_empty = self.peek() == Some(b'}');
        self.at += usize::from(is_empty);
        Ok(!is_empty)
    }

    /// Reads the name of the next member, up to its value.
    #[inline(always)]
    pub(super) fn name(&mut self) -> Result<Range<usize>, HeaderError> {
        let name = match self.peek() {
            Some(quote @ (b'"' | b'\'')) => self.string(quote)?,
            // Releases before 5.5 accept bare names too.
            _ => self.bare()?,
        };
        self.blank()?;
        self.expect(b':')?;
        self.blank()?;
        Ok(name)
    }

    /// Skips the separator after a member; returns whether another member follows.
    #[inline(always)]
    pub(super) fn goes_on(&mut self) -> Result<bool, HeaderError> {
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

    /// Reads a member of the most common shape, `"name":"value"` without blanks or escapes.
    #[inline(always)]
    pub(super) fn plain_member(&mut self) -> Option<(Range<usize>, Range<usize>)> {
        if self.peek() != Some(b'"') {
            return None;
        }
        let name = self.at + 1..self.marks.next(self.bytes, self.at + 1)?;
        let [b'"', b':', b'"', ..] = self.bytes.get(name.end..)? else { return None };
        let value = name.end + 3..self.marks.next(self.bytes, name.end + 3)?;
        if self.bytes.get(value.end) != Some(&b'"') {
            return None;
        }
        self.at = value.end + 1;
        Some((name, value))
    }

    /// Reads a value as text: strings unescaped, numbers and booleans verbatim, `null` as `None`. C++ clients write
    /// numbers where strings belong. An object or a list stays JSON text. Inlined like `string`.
    #[inline(always)]
    pub(super) fn text(&mut self) -> Result<Option<Range<usize>>, HeaderError> {
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

    /// Reads a plain number of up to nine digits that ends at a comma or brace.
    #[inline(always)]
    pub(super) fn plain_number(&mut self) -> Option<i32> {
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

    /// Skips any value. `depth` counts the brackets around it.
    pub(super) fn skip(&mut self, depth: usize) -> Result<(), HeaderError> {
        match self.peek() {
            Some(quote @ (b'"' | b'\'')) => self.skip_string(quote),
            Some(open @ (b'{' | b'[')) => {
                if depth > DEPTH_MAX {
                    return Err(HeaderError::TooDeep { at: self.at });
                }
                self.at += 1;
                // Separators are not matched with brackets: only the end of the value matters.
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

    /// Reads the string that begins here, unescaped. Inlined: a header is forty short strings, and a call for each
    /// takes a quarter of the time.
    #[inline(always)]
    fn string(&mut self, quote: u8) -> Result<Range<usize>, HeaderError> {
        let start = self.at + 1;
        self.at = start + self.plain(start, quote)?;
        let end = self.at;
        if self.next()? == quote { Ok(start..end) } else { self.unescape(start, quote) }
    }

    /// Reads the rest of a string after its first backslash; the text moves down as it shrinks.
    fn unescape(&mut self, start: usize, quote: u8) -> Result<Range<usize>, HeaderError> {
        let mut end = self.at - 1;
        loop {
            let mut utf8 = [0; 4];
            let escaped = match self.bytes.get(self.at..) {
                // The separators of properties, present in every send.
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
        // The leftover bytes could begin inside a character.
        if let Some(left) = self.bytes.get_mut(end..self.at - 1) {
            left.fill(b' ');
        }
        Ok(start..end)
    }

    /// Counts the bytes from `at` to the next quote or backslash.
    #[inline(always)]
    fn plain(&mut self, at: usize, quote: u8) -> Result<usize, HeaderError> {
        let end = match quote {
            b'"' => self.marks.next(self.bytes, at),
            _ => swar::find_quote(self.bytes.get(at..).unwrap_or_default(), quote).map(|plain| at + plain),
        };
        end.map(|end| end - at).ok_or(HeaderError::Truncated { at: self.bytes.len() })
    }

    /// Reads the character after a backslash.
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

    /// Reads `\uXXXX`, or two for a surrogate pair; an unpaired surrogate becomes U+FFFD.
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

    /// Reads a run of bytes without quotes: a bare name, a number, a literal.
    pub(super) fn bare(&mut self) -> Result<Range<usize>, HeaderError> {
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

    /// Skips white space and comments.
    pub(super) fn blank(&mut self) -> Result<(), HeaderError> {
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

    pub(super) fn cut(&self, range: Range<usize>) -> &[u8] {
        self.bytes.get(range).unwrap_or_default()
    }

    pub(super) fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn next(&mut self) -> Result<u8, HeaderError> {
        let byte = self.peek().ok_or(HeaderError::Truncated { at: self.at })?;
        self.at += 1;
        Ok(byte)
    }
}
