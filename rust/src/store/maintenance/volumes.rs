//! Volumes: the file systems that a store lies on, and how full they are.
//!
//! Owns which of them counts for what. Log and queues grow with every message: each has the whole rule, and files of the log
//! are deleted for either, as the queues' go with them. What else is in the root needs a little room for its next writing.
//! The index needs none to go on: keys wait, or are read from the log later.
//!
//! Threads: that of maintenance.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::store::disk::{Disk, Space};
use crate::store::paths::StorePaths;
use crate::store::retention::Retention;

pub(crate) struct Volumes {
    disk: Arc<dyn Disk>,
    paths: StorePaths,
}

/// What was measured.
pub(super) struct Usage {
    /// Where log or queues lie, whichever has less left.
    pub(super) growing: (PathBuf, Space),
    /// Where there is too little room for messages.
    pub(super) full: Option<(PathBuf, Space)>,
}

impl Volumes {
    pub(crate) fn new(disk: &Arc<dyn Disk>, paths: &StorePaths) -> Self {
        Self { disk: Arc::clone(disk), paths: paths.clone() }
    }

    /// `None` where nothing is known of the log's: a disk that does not say how much is free is not taken to be full.
    pub(super) fn measure(&self, retention: &Retention) -> Option<Usage> {
        let measured = |path: &Path| Some((path.to_owned(), self.disk.space(path).ok()?));
        let log = measured(&self.paths.log)?;
        let queues = measured(&self.paths.queues);
        let root = measured(&self.paths.root);
        let is_full = |(_, space): &(PathBuf, Space)| retention.is_full(*space);
        let has_no_room = |(_, space): &(PathBuf, Space)| retention.is_out_of_bytes(*space);
        let full =
            [Some(log.clone()).filter(is_full), queues.clone().filter(is_full), root.filter(has_no_room)];
        // Of one file system the log speaks.
        let tighter = queues.filter(|queues| queues.1.used_percent() > log.1.used_percent());
        Some(Usage { growing: tighter.unwrap_or(log), full: full.into_iter().flatten().next() })
    }
}
