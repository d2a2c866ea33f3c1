//! Durability: the failures an acknowledged message survives, and the write path it implies.

use crate::store::log::WritePathKind;

/// The failures that an acknowledged message survives.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Durability {
    /// None until the next periodic flush: it is in process memory. Consumers see it when it is on disk.
    Memory,
    /// A kill of the process: it is in the page cache. A power loss may take messages since the last periodic flush.
    #[default]
    PageCache,
    /// The same, written through a write ring.
    PageCacheRing,
    /// A kill and a power loss: it is on disk, written through a write buffer.
    Disk,
    /// A kill and a power loss: it is on disk, written through a mapping of the file, which takes three times as
    /// long.
    DiskMapped,
}

impl Durability {
    pub const ALL: [Self; 5] =
        [Self::DiskMapped, Self::Disk, Self::PageCache, Self::PageCacheRing, Self::Memory];

    /// Returns the name used in Python.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::PageCache => "page_cache",
            Self::PageCacheRing => "page_cache_ring",
            Self::Disk => "disk",
            Self::DiskMapped => "disk_mapped",
        }
    }

    /// Returns whether an acknowledgement promises that the message is on disk.
    #[must_use]
    pub const fn promises_disk(self) -> bool {
        matches!(self, Self::Disk | Self::DiskMapped)
    }

    /// Returns whether consumers see a message only when it is on disk.
    #[must_use]
    pub const fn is_shown_when_durable(self) -> bool {
        !matches!(self, Self::PageCache | Self::PageCacheRing)
    }

    /// Returns the write path of the log.
    pub(crate) const fn write_path(self) -> WritePathKind {
        match self {
            Self::PageCache | Self::DiskMapped => WritePathKind::Mapping,
            Self::PageCacheRing => WritePathKind::Ring,
            Self::Memory | Self::Disk => WritePathKind::WriteBuffer,
        }
    }
}
