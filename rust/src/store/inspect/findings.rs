//! Findings of a verification, and how each is judged: as damage, or as what a crash explains.
//!
//! Invariant: findings in memory are bounded; the others are counted.
//! Threads: the verification.

use std::fmt;
use std::path::{Path, PathBuf};

use super::walk::Extent;

/// Findings that are kept; the others are counted.
const FINDINGS_MAX: usize = 1000;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FindingKind {
    /// A file of the log is missing, misnamed or of another size.
    Layout,
    /// Bytes in the log that are no whole record.
    Record,
    /// Something other than zeros behind the end of the log.
    Tail,
    /// Offsets of a queue that the log has no records for.
    Hole,
    /// Entries of a queue: missing, wrong, or without a record.
    Unit,
    /// Entries of the index: missing, wrong, or without a record.
    Key,
    /// The checkpoint names what is not there.
    Checkpoint,
    /// What rmqpy noted at an orderly stop is not what is there.
    Manifest,
    /// Messages of a killed process that are not in the log yet.
    Spool,
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
            Self::Spool => "spool",
        })
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Severity {
    /// As a crash may leave it behind the last checkpoint, and as the next start puts it right; or worth knowing.
    Note,
    Damage,
}

/// Something that is not as it should be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finding {
    pub kind: FindingKind,
    pub severity: Severity,
    pub(crate) path: PathBuf,
    /// Position of the log that it has to do with, if it has.
    pub(crate) at: Option<u64>,
    /// What was expected or found.
    pub text: String,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Report {
    pub extent: Extent,
    pub records: u64,
    /// Queues that have a folder.
    pub queues: u64,
    pub keys: u64,
    /// Whether the store was not closed in order.
    pub is_aborted: bool,
    /// The first [`FINDINGS_MAX`] findings, notes among them.
    pub findings: Vec<Finding>,
    pub damage: u64,
    pub notes: u64,
}

/// Findings so far, and how they are judged.
pub(super) struct Findings {
    pub(super) list: Vec<Finding>,
    pub(super) damage: u64,
    pub(super) notes: u64,
    pub(super) log_begin: u64,
    /// From where on a crash may have left things unfinished; `None` after an orderly stop.
    pub(super) unsettled: Option<u64>,
}

impl Findings {
    pub(super) fn log_begin(&self) -> u64 {
        self.log_begin
    }

    /// Adds what has to do with `physical`: a note where a crash explains it. [`u64::MAX`] stands for no position.
    pub(super) fn add(&mut self, kind: FindingKind, path: &Path, physical: u64, text: String) {
        let is_explained = physical != u64::MAX && self.unsettled.is_some_and(|from| physical >= from);
        let severity = if is_explained { Severity::Note } else { Severity::Damage };
        self.push(kind, severity, path, Some(physical).filter(|at| *at != u64::MAX), text);
    }

    /// Adds what is worth knowing.
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
