//! Large frames: the memory budget shared by all frames that exceed an ordinary buffer.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore};

use super::frame::FrameLimits;

/// The unit of the shared budget, because semaphore permits are 32 bit.
pub(super) const PAGE_BYTES: usize = 4 << 10;

/// Memory for frames that exceed an ordinary buffer, granted in order of request.
#[derive(Debug, Clone)]
pub(super) struct LargeFrames {
    pub(super) pages: Arc<Semaphore>,
    pages_max: usize,
}

impl LargeFrames {
    /// Sizes the budget so that one frame of the maximum size always fits.
    pub(super) fn new(bytes_max: usize, limits: &FrameLimits) -> Self {
        let pages_max =
            bytes_max.max(limits.frame_bytes_max).div_ceil(PAGE_BYTES).min(Semaphore::MAX_PERMITS);
        Self { pages: Arc::new(Semaphore::new(pages_max)), pages_max }
    }

    /// Returns whether frames may soon have to wait.
    pub(super) fn is_scarce(&self) -> bool {
        self.pages.available_permits() < self.pages_max / 2
    }

    pub(super) fn reserve(&self, bytes: usize) -> Reservation {
        let pages = u32::try_from(bytes.div_ceil(PAGE_BYTES)).unwrap_or(u32::MAX);
        Box::pin(Arc::clone(&self.pages).acquire_many_owned(pages))
    }
}

pub(super) type Reservation = Pin<Box<dyn Future<Output = Result<OwnedSemaphorePermit, AcquireError>>>>;
