//! Bounds of an expression, and the error of one that is beyond them or is none.

use std::fmt;

/// Longest expression.
pub const SQL_BYTES_MAX: usize = 16 << 10;
/// Levels of an expression, one in the other.
pub(super) const DEPTH_MAX: usize = 64;
/// Different properties that one expression may name.
pub const SQL_NAMES_MAX: usize = 32;

/// What an error about an operator ends with.
pub(super) const OPERATORS: &str = "operators are = <> < <= > >=, AND, OR, NOT, BETWEEN, IN, IS NULL, CONTAINS, \
                                    STARTSWITH and ENDSWITH";

/// Why an expression cannot be used.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SqlError {
    /// Where it was noticed, in bytes from the begin.
    pub at: usize,
    /// What is wrong there.
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
