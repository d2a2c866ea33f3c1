//! SQL errors: the limits of an expression, and the error for an invalid one.

use std::fmt;

/// Maximum length of an expression.
pub const SQL_BYTES_MAX: usize = 16 << 10;
/// Maximum nesting of an expression.
pub(super) const DEPTH_MAX: usize = 64;
/// Maximum number of different properties in an expression.
pub const SQL_NAMES_MAX: usize = 32;

/// Appended to errors about operators.
pub(super) const OPERATORS: &str = "operators are = <> < <= > >=, AND, OR, NOT, BETWEEN, IN, IS NULL, CONTAINS, \
                                    STARTSWITH and ENDSWITH";

/// The reason an expression is refused.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SqlError {
    /// The byte position of the error.
    pub at: usize,
    /// The error at that position.
    pub reason: String,
}

impl SqlError {
    pub(super) fn new(at: usize, reason: impl Into<String>) -> Self {
        Self { at, reason: reason.into() }
    }
}

impl fmt::Display for SqlError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} (at byte {})", self.reason, self.at)
    }
}

impl std::error::Error for SqlError {}
