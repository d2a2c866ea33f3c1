//! SQL92 filters: expressions over a message's properties, compiled once and evaluated on record bytes.
//!
//! `lexer` and `parser` build the tree of an expression, `expression` evaluates it, `number` parses numbers like
//! Java. The grammar and rules are Apache's, with two exceptions: trailing text is an error unless Apache's behaviour
//! is requested, and a number in a property has ASCII digits and no hexadecimal point.
//!
//! Property values are text; the other operand decides their type. A missing property is unknown, and logic has three
//! values. A value that cannot be converted fails the whole evaluation, and the message does not match.
//!
//! Invariant: text, depth and names are bounded, and an evaluation allocates nothing. Pure; any thread.

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
    /// The names of its properties; nodes refer to them by index.
    names: Box<[Box<str>]>,
    /// The number of nodes in the tree.
    nodes: usize,
    text_bytes: usize,
}

impl SqlFilter {
    /// Compiles an expression. Trailing text is an error if `is_strict`; otherwise it is ignored, as Apache does.
    ///
    /// # Errors
    /// The text is not an expression, cannot be true, or exceeds a limit.
    pub fn parse(text: &str, is_strict: bool) -> Result<Self, SqlError> {
        if text.len() > SQL_BYTES_MAX {
            let reason = format!("an expression may have {SQL_BYTES_MAX} bytes, not {}", text.len());
            return Err(SqlError::new(SQL_BYTES_MAX, reason));
        }
        let parsed = parser::parse(text, is_strict)?;
        let names = parsed.names.into_iter().map(Box::from).collect();
        Ok(Self { root: parsed.root, names, nodes: parsed.nodes, text_bytes: text.len() })
    }

    /// Returns whether a message with these encoded properties matches.
    #[must_use]
    pub fn matches(&self, properties: &[u8]) -> bool {
        self.matches_entries(properties::entries(properties))
    }

    /// Evaluates the filter on names and values; the last of repeated names counts.
    pub fn matches_entries<'v>(&self, entries: impl Iterator<Item = (&'v [u8], &'v [u8])>) -> bool {
        let mut values = [None; SQL_NAMES_MAX];
        for (name, value) in entries {
            if let Some(at) = self.names.iter().position(|own| own.as_bytes() == name) {
                values[at] = Some(value);
            }
        }
        matches!(self.root.evaluate(&values), Ok(Value::Bool(true)))
    }

    /// Returns the maximum cost of an evaluation, in units of some nanoseconds, for bounding the work of one read.
    #[must_use]
    pub fn cost(&self, properties_bytes: usize) -> usize {
        properties_bytes + self.nodes * (1 + properties_bytes / 16)
    }

    /// Returns the approximate memory of the filter.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.text_bytes + self.nodes * size_of::<Node>()
    }
}
