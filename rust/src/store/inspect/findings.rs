//! Findings: results of a verification, each judged as damage or as the effect of a crash.
//!
//! Invariant: findings in memory are bounded; the others are counted.
//! Threads: one, that of the verification.

use std::fmt;
use std::path::{Path, PathBuf};

use super::walk::Extent;

/// Maximum number of findings kept; further ones are counted.
const FINDINGS_MAX: usize = 1000;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FindingKind {
    /// A file of the log is missing, misnamed or of another size.
    Layout,
    /// Bytes in the log that are not a whole record.
    Record,
    /// Bytes after the end of the log that are not zero.
    Tail,
    /// Offsets of a queue without records in the log.
    Hole,
    /// Entries of a queue: missing, wrong, or without a record.
    Unit,
    /// Entries of the index: missing, wrong, or without a record.
    Key,
    /// The checkpoint names a record that does not exist.
    Checkpoint,
    /// The manifest of an orderly stop does not match the files.
    Manifest,
    /// Messages of a killed process that are not in the log yet.
    Ring,
}

impl fmt::Display for FindingKind {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Layout => "layout",
            Self::Record => "record",
            Self::Tail => "tail",
            Self::Hole => "hole",
            Self::Unit => "unit",
            Self::Key => "key",
            Self::Checkpoint => "checkpoint",
            Self::Manifest => "manifest",
            Self::Ring => "ring",
        })
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Severity {
    /// An effect of a crash after the last checkpoint, which the next start repairs; or information.
    Note,
    Damage,
}

/// A deviation from a sound store.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finding {
    pub kind: FindingKind,
    pub severity: Severity,
    pub(crate) path: PathBuf,
    /// The position in the log, if the finding has one.
    pub(crate) at: Option<u64>,
    /// Description of the deviation.
    pub text: String,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Report {
    pub extent: Extent,
    pub records: u64,
    /// Queues with a folder.
    pub queues: u64,
    pub keys: u64,
    /// Whether the store was not closed in order.
    pub is_aborted: bool,
    /// The first [`FINDINGS_MAX`] findings, including notes.
    pub findings: Vec<Finding>,
    pub damage: u64,
    pub notes: u64,
}

/// Findings so far, and the rule to judge them.
pub(super) struct Findings {
    pub(super) list: Vec<Finding>,
    pub(super) damage: u64,
    pub(super) notes: u64,
    pub(super) log_begin: u64,
    /// The position from which a crash may have left work unfinished; `None` after an orderly stop.
    pub(super) unsettled: Option<u64>,
}

impl Findings {
    pub(super) fn log_begin(&self) -> u64 {
        self.log_begin
    }

    /// Adds a finding about `physical`: a note if a crash explains it. [`u64::MAX`] stands for no position.
    pub(super) fn add(&mut self, kind: FindingKind, path: &Path, physical: u64, text: String) {
        let is_explained = physical != u64::MAX && self.unsettled.is_some_and(|from| physical >= from);
        let severity = if is_explained { Severity::Note } else { Severity::Damage };
        self.push(kind, severity, path, Some(physical).filter(|at| *at != u64::MAX), text);
    }

    /// Adds a note.
    pub(super) fn note(&mut self, kind: FindingKind, path: &Path, text: String) {
        self.push(kind, Severity::Note, path, None, text);
    }

    fn push(&mut self, kind: FindingKind, severity: Severity, path: &Path, at: Option<u64>, text: String) {
        match severity {
            Severity::Note => self.notes += 1,
            Severity::Damage => self.damage += 1,
        }
        if self.list.len() < FINDINGS_MAX {
            self.list.push(Finding { kind, severity, path: path.to_owned(), at, text });
        }
    }
}
