//! Derived parts: queues and index as one list.

use crate::store::error::StoreError;

use super::dispatch::{Derived, DispatchRequest};
use super::index::Index;
use super::queue::queues::Queues;

pub(crate) struct DerivedFiles {
    pub(crate) queues: Queues,
    /// The lookup by key; `None` if disabled.
    pub(crate) index: Option<Index>,
}

impl DerivedFiles {
    fn each(&self) -> impl Iterator<Item = &dyn Derived> {
        let queues: &dyn Derived = &self.queues;
        std::iter::once(queues).chain(self.index.as_ref().map(|index| -> &dyn Derived { index }))
    }

    pub(crate) fn take(&self, records: &[DispatchRequest]) {
        self.each().for_each(|part| part.take(records));
    }

    /// Writes all parts. An error of the index stops nothing else, because the index records how far it goes.
    pub(crate) fn write(&self) -> Result<(), StoreError> {
        let _ = self.index.as_ref().map(Derived::write);
        self.queues.write()
    }

    pub(crate) fn sync(&self) -> Result<(), StoreError> {
        let _ = self.index.as_ref().map(Derived::sync);
        self.queues.sync()
    }

    /// Durably records what the index lacks. Called before a checkpoint.
    pub(crate) fn note(&self) -> Result<(), StoreError> {
        self.index.as_ref().map_or(Ok(()), Index::note)
    }

    /// Trims every part in bounded steps. Returns true when nothing is left to do.
    pub(crate) fn trim(&self, log_begin: u64) -> Result<bool, StoreError> {
        self.each().try_fold(true, |is_done, part| Ok(part.trim(log_begin)? && is_done))
    }

    pub(crate) fn digest(&self) -> u64 {
        self.each().fold(0, |sum, part| sum.wrapping_mul(31).wrapping_add(part.digest()))
    }
}

/// Returns the sum of the parts' digests with the index's own replaced by `new`.
pub(crate) fn digest_with_index(digest: u64, old: u64, new: u64) -> u64 {
    digest.wrapping_sub(old).wrapping_add(new)
}
