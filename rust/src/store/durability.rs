//! Durability: what an answered message survives, and by which write path the log is written for it.

use super::log::WritePathKind;

/// What an answered message survives.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Durability {
    /// Nothing, until the next periodic flush: it is in memory of the process. Consumers see it when it is on the disk.
    Memory,
    /// A kill of the process: it is in the page cache. A power loss takes what the last periodic flush has not covered.
    #[default]
    PageCache,
    /// The same, written through a spool.
    PageCacheSpooled,
    /// A kill and a power loss: it is on the disk, written through a write buffer.
    Disk,
    /// A kill and a power loss: it is on the disk, written through a mapping of the file, which takes three times as long.
    DiskMapped,
}

impl Durability {
    pub const ALL: [Self; 5] =
        [Self::DiskMapped, Self::Disk, Self::PageCache, Self::PageCacheSpooled, Self::Memory];

    /// The name that Python's side gives it.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::PageCache => "page_cache",
            Self::PageCacheSpooled => "page_cache_spooled",
            Self::Disk => "disk",
            Self::DiskMapped => "disk_mapped",
        }
    }

    /// Whether an answer says that the message is on the disk.
    #[must_use]
    pub const fn promises_disk(self) -> bool {
        matches!(self, Self::Disk | Self::DiskMapped)
    }

    /// Whether consumers see a message only when it is on the disk.
    #[must_use]
    pub const fn is_shown_when_durable(self) -> bool {
        !matches!(self, Self::PageCache | Self::PageCacheSpooled)
    }

    /// Where the end of the log lives until it is on the disk.
    pub(crate) const fn write_path(self) -> WritePathKind {
        match self {
            Self::PageCache | Self::DiskMapped => WritePathKind::Mapping,
            Self::PageCacheSpooled => WritePathKind::Spool,
            Self::Memory | Self::Disk => WritePathKind::WriteBuffer,
        }
    }
}
