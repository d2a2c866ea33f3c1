//! Lexer: splits an expression into words, literals and operators.

use super::error::{OPERATORS, SqlError};

/// A keyword, in any case.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Keyword {
    And,
    Or,
    Not,
    Is,
    In,
    Between,
    Contains,
    StartsWith,
    EndsWith,
    True,
    False,
    Null,
}

const KEYWORDS: [(&str, Keyword); 12] = [
    ("AND", Keyword::And),
    ("OR", Keyword::Or),
    ("NOT", Keyword::Not),
    ("IS", Keyword::Is),
    ("IN", Keyword::In),
    ("BETWEEN", Keyword::Between),
    ("CONTAINS", Keyword::Contains),
    ("STARTSWITH", Keyword::StartsWith),
    ("ENDSWITH", Keyword::EndsWith),
    ("TRUE", Keyword::True),
    ("FALSE", Keyword::False),
    ("NULL", Keyword::Null),
];

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Token<'t> {
    Keyword(Keyword),
    Name(&'t str),
    /// The text between the quotes, in which a quote is doubled.
    Text(&'t str),
    /// Digits, without a type letter after them.
    Integer(&'t str),
    Float(&'t str),
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    Plus,
    Minus,
    Comma,
    Open,
    Close,
    End,
}

/// Reads tokens one by one.
#[derive(Debug)]
pub(super) struct Lexer<'t> {
    text: &'t str,
    at: usize,
}

impl<'t> Lexer<'t> {
    pub(super) fn new(text: &'t str) -> Self {
        Self { text, at: 0 }
    }

    /// Returns the next token and its position.
    pub(super) fn next(&mut self) -> Result<(Token<'t>, usize), SqlError> {
        self.skip_blanks();
        let (text, at) = (self.text, self.at);
        let rest = &text.as_bytes()[at..];
        let second = rest.get(1).copied();
        let (token, size) = match rest.first().copied() {
            None => (Token::End, 0),
            Some(b'\'') => self.quoted()?,
            Some(b'=') => (Token::Equal, 1),
            Some(b'<') if second == Some(b'>') => (Token::NotEqual, 2),
            Some(b'<') if second == Some(b'=') => (Token::LessOrEqual, 2),
            Some(b'<') => (Token::Less, 1),
            Some(b'>') if second == Some(b'=') => (Token::GreaterOrEqual, 2),
            Some(b'>') => (Token::Greater, 1),
            Some(b'+') => (Token::Plus, 1),
            Some(b'-') => (Token::Minus, 1),
            Some(b',') => (Token::Comma, 1),
            Some(b'(') => (Token::Open, 1),
            Some(b')') => (Token::Close, 1),
            Some(b'0'..=b'9' | b'.') => self.number()?,
            Some(first) if is_name_byte(first) => {
                let size = rest.iter().take_while(|byte| is_name_byte(**byte)).count();
                (word(&text[at..at + size]), size)
            }
            Some(_) => return Err(self.unknown()),
        };
        self.at = at + size;
        Ok((token, at))
    }

    fn unknown(&self) -> SqlError {
        let sign = self.text[self.at..].chars().next().unwrap_or_default();
        SqlError::new(self.at, format!("{sign:?} is not valid here; {OPERATORS}"))
    }

    /// Skips white space and comments.
    fn skip_blanks(&mut self) {
        loop {
            let rest = &self.text.as_bytes()[self.at..];
            let skipped = match rest {
                [b' ' | b'\t' | b'\n' | b'\r' | b'\x0C', ..] => Some(1),
                // As in Apache's grammar, a comment must end with a line break.
                [b'-', b'-', ..] => memchr::memchr2(b'\n', b'\r', rest).map(|end| end + 1),
                [b'/', b'*', comment @ ..] => memchr::memmem::find(comment, b"*/").map(|end| end + 4),
                _ => None,
            };
            let Some(skipped) = skipped else { return };
            self.at += skipped;
        }
    }

    fn quoted(&self) -> Result<(Token<'t>, usize), SqlError> {
        let inside = &self.text[self.at + 1..];
        let bytes = inside.as_bytes();
        let mut end = 0;
        loop {
            let Some(quote) = memchr::memchr(b'\'', &bytes[end..]) else {
                return Err(SqlError::new(self.at, "the closing quote of this text is missing"));
            };
            end += quote;
            if bytes.get(end + 1) != Some(&b'\'') {
                return Ok((Token::Text(&inside[..end]), end + 2));
            }
            end += 2;
        }
    }

    /// Reads the longest number as Apache's grammar does: `007` is three numbers.
    fn number(&self) -> Result<(Token<'t>, usize), SqlError> {
        let rest = &self.text[self.at..];
        let bytes = rest.as_bytes();
        let digits_from = |at: usize| bytes[at..].iter().take_while(|byte| byte.is_ascii_digit()).count();
        let exponent_at = |at: usize| {
            let sign = match (bytes.get(at), bytes.get(at + 1)) {
                (Some(b'e' | b'E'), Some(b'+' | b'-')) => 2,
                (Some(b'e' | b'E'), _) => 1,
                _ => return None,
            };
            Some(digits_from(at + sign)).filter(|digits| *digits > 0).map(|digits| sign + digits)
        };
        let whole = digits_from(0);
        if bytes.get(whole) == Some(&b'.') {
            let fraction = digits_from(whole + 1);
            if whole + fraction == 0 {
                return Err(self.unknown());
            }
            let size = whole + 1 + fraction;
            let size = size + exponent_at(size).unwrap_or(0);
            return Ok((Token::Float(&rest[..size]), size));
        }
        if let Some(exponent) = exponent_at(whole) {
            let size = whole + exponent;
            return Ok((Token::Float(&rest[..size]), size));
        }
        if bytes.first() == Some(&b'0') {
            return Ok((Token::Integer(&rest[..1]), 1));
        }
        let suffix = usize::from(matches!(bytes.get(whole), Some(b'l' | b'L')));
        Ok((Token::Integer(&rest[..whole]), whole + suffix))
    }
}

fn is_name_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'$'
}

fn word(word: &str) -> Token<'_> {
    let keyword = KEYWORDS.iter().find(|(text, _)| text.eq_ignore_ascii_case(word));
    keyword.map_or(Token::Name(word), |(_, keyword)| Token::Keyword(*keyword))
}
