//! SQL92 filters: expressions over the properties of a message, read once and evaluated on the bytes of a record.
//!
//! `lexer` and `parser` make a tree of an expression, `expression` evaluates it, `number` reads numbers as Java does. The
//! grammar and every rule are the original's, with two exceptions: text after a complete expression is an error unless the
//! original's behaviour is asked for, and a number in a property has ASCII digits and no hexadecimal point.
//!
//! Values of properties are text, and what they are compared with decides how they are read. A property that is not there
//! is unknown, and logic has three values; a value that cannot be read as what it is compared with fails the whole
//! evaluation, and the message does not match.
//!
//! Invariant: text, depth and names have bounds, and an evaluation allocates nothing.
//! Pure; any thread.

mod error;
mod expression;
mod lexer;
mod number;
mod parser;
#[cfg(test)]
mod tests;

pub use self::error::{SQL_BYTES_MAX, SQL_NAMES_MAX, SqlError};
use self::expression::{Node, Value};
use super::properties;

/// A compiled expression.
#[derive(Debug)]
pub struct SqlFilter {
    root: Node,
    /// The properties that it names; nodes know them by their index.
    names: Box<[Box<str>]>,
    /// Nodes of the tree.
    nodes: usize,
    text_bytes: usize,
}

impl SqlFilter {
    /// Reads an expression; what comes after it is an error where `is_strict`, and ignored otherwise, as the original does.
    ///
    /// # Errors
    /// It is no expression, or not one that can be true, or beyond the bounds.
    pub fn parse(text: &str, is_strict: bool) -> Result<Self, SqlError> {
        if text.len() > SQL_BYTES_MAX {
            let reason = format!("an expression may have {SQL_BYTES_MAX} bytes, not {}", text.len());
            return Err(SqlError::new(SQL_BYTES_MAX, reason));
        }
        let parsed = parser::parse(text, is_strict)?;
        let names = parsed.names.into_iter().map(Box::from).collect();
        Ok(Self { root: parsed.root, names, nodes: parsed.nodes, text_bytes: text.len() })
    }

    /// Whether a message with these properties, as they are stored, is wanted.
    #[must_use]
    pub fn matches(&self, properties: &[u8]) -> bool {
        self.matches_entries(properties::entries(properties))
    }

    /// The same of names and values; the last of two values of one name counts.
    pub fn matches_entries<'v>(&self, entries: impl Iterator<Item = (&'v [u8], &'v [u8])>) -> bool {
        let mut values = [None; SQL_NAMES_MAX];
        for (name, value) in entries {
            if let Some(at) = self.names.iter().position(|own| own.as_bytes() == name) {
                values[at] = Some(value);
            }
        }
        matches!(self.root.evaluate(&values), Ok(Value::Bool(true)))
    }

    /// What an evaluation costs at most, in units of some nanoseconds: to bound those of one read.
    #[must_use]
    pub fn cost(&self, properties_bytes: usize) -> usize {
        properties_bytes + self.nodes * (1 + properties_bytes / 16)
    }

    /// Memory of the filter, roughly.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.text_bytes + self.nodes * size_of::<Node>()
    }
}
