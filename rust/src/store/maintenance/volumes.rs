//! Volumes: usage of the file systems of a store.
//!
//! Owns the rule for each of them. Log and queues grow with every message, so each must satisfy the whole rule;
//! deleting a file of the log frees space on both. Other files in the root need only a little space for their next
//! write. The index needs none: keys wait in memory, or are read from the log later.
//!
//! Threads: that of maintenance.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::store::disk::{Disk, Space};
use crate::store::settings::paths::StorePaths;
use crate::store::settings::retention::Retention;

pub(crate) struct Volumes {
    disk: Arc<dyn Disk>,
    paths: StorePaths,
}

/// The result of a measurement.
pub(super) struct Usage {
    /// The file system of log or queues, whichever has less space left.
    pub(super) growing: (PathBuf, Space),
    /// A file system with too little space for messages.
    pub(super) full: Option<(PathBuf, Space)>,
}

impl Volumes {
    pub(crate) fn new(disk: &Arc<dyn Disk>, paths: &StorePaths) -> Self {
        Self { disk: Arc::clone(disk), paths: paths.clone() }
    }

    /// Measures the file systems; `None` if that of the log is unknown: a disk that does not report its space is not
    /// full.
    pub(super) fn measure(&self, retention: &Retention) -> Option<Usage> {
        let measured = |path: &Path| Some((path.to_owned(), self.disk.space(path).ok()?));
        let log = measured(&self.paths.log)?;
        let queues = measured(&self.paths.queues);
        let root = measured(&self.paths.root);
        let is_full = |(_, space): &(PathBuf, Space)| retention.is_full(*space);
        let has_no_room = |(_, space): &(PathBuf, Space)| retention.is_out_of_bytes(*space);
        let full =
            [Some(log.clone()).filter(is_full), queues.clone().filter(is_full), root.filter(has_no_room)];
        // On one file system, the log represents both.
        let tighter = queues.filter(|queues| queues.1.used_percent() > log.1.used_percent());
        Some(Usage { growing: tighter.unwrap_or(log), full: full.into_iter().flatten().next() })
    }
}
