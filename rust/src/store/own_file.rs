//! Own files: small files of rmqpy in the store, replaced atomically.
//!
//! *Invariant*: after a crash a file has its new content or its old one.
//! Threads: any; one at a time writes a file.

use crate::positions::PhysicalOffset;

use super::Store;
use super::error::StoreError;

/// Bytes of the log per read of a digest.
const DIGEST_BYTES: usize = 1 << 20;

impl Store {
    /// Returns the content of an own file; empty if it does not exist.
    pub(crate) fn own_file(&self, name: &str) -> Result<Vec<u8>, StoreError> {
        self.disk.read_front(&self.options.paths.own().join(name), usize::MAX)
    }

    /// Durably replaces the content of an own file.
    pub(crate) fn replace_own_file(&self, name: &str, content: &[u8]) -> Result<(), StoreError> {
        self.disk.replace_file(&self.options.paths.own(), name, content)
    }

    /// Returns the CRC-32 of a range of the log; `None` if part of it is missing or must not be copied yet.
    #[must_use]
    pub fn digest(&self, begin: PhysicalOffset, end: PhysicalOffset) -> Option<u32> {
        let (mut digest, mut at) = (crc32fast::Hasher::new(), begin);
        while at < end {
            let bytes = self.log_bytes(at, (end.bytes_since(at) as usize).min(DIGEST_BYTES))?;
            digest.update(&bytes);
            at.0 += bytes.len() as u64;
        }
        Some(digest.finalize())
    }

    /// Fences the log: refuses messages from now on, because another broker leads.
    pub fn fence(&self) {
        self.log.set_replica(true);
    }
}
