//! Durability: the failures an acknowledged message survives, and the write path.

use crate::store::log::WritePathKind;

/// The failures that an acknowledged message survives, and how the log is written.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Durability {
    /// A kill of the process: it is in the page cache. A power loss may take messages since the last periodic flush.
    #[default]
    PageCache,
    /// The same, written through a mapping of the file.
    PageCacheMapped,
    /// A kill and a power loss: it is on disk. Consumers see it when it is there.
    Disk,
    /// The same, written through a mapping of the file.
    DiskMapped,
}

impl Durability {
    pub const ALL: [Self; 4] = [Self::Disk, Self::PageCache, Self::DiskMapped, Self::PageCacheMapped];

    /// Returns the name used in Python.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::PageCache => "page_cache",
            Self::PageCacheMapped => "page_cache_mapped",
            Self::Disk => "disk",
            Self::DiskMapped => "disk_mapped",
        }
    }

    /// Returns whether an acknowledgement promises that the message is on disk; consumers then see it only when it is.
    #[must_use]
    pub const fn promises_disk(self) -> bool {
        matches!(self, Self::Disk | Self::DiskMapped)
    }

    /// Returns the write path of the log.
    pub(crate) const fn write_path(self) -> WritePathKind {
        match self {
            Self::PageCache | Self::Disk => WritePathKind::Ring,
            Self::PageCacheMapped | Self::DiskMapped => WritePathKind::Mapping,
        }
    }
}
