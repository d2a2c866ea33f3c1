//! Large frames: the memory budget that all connections share for frames no ordinary buffer holds.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore};

use super::frame::FrameLimits;

/// The shared budget counts in pages: its permits are 32 bit.
pub(super) const PAGE_BYTES: usize = 4 << 10;

/// Memory for frames that no ordinary buffer holds; first come, first served.
#[derive(Debug, Clone)]
pub(super) struct LargeFrames {
    pub(super) pages: Arc<Semaphore>,
    pages_max: usize,
}

impl LargeFrames {
    /// At least one frame of the largest size always fits.
    pub(super) fn new(bytes_max: usize, limits: &FrameLimits) -> Self {
        let pages_max =
            bytes_max.max(limits.frame_bytes_max).div_ceil(PAGE_BYTES).min(Semaphore::MAX_PERMITS);
        Self { pages: Arc::new(Semaphore::new(pages_max)), pages_max }
    }

    /// Whether a frame may soon have to wait.
    pub(super) fn is_scarce(&self) -> bool {
        self.pages.available_permits() < self.pages_max / 2
    }

    pub(super) fn reserve(&self, bytes: usize) -> Reservation {
        let pages = u32::try_from(bytes.div_ceil(PAGE_BYTES)).unwrap_or(u32::MAX);
        Box::pin(Arc::clone(&self.pages).acquire_many_owned(pages))
    }
}

pub(super) type Reservation = Pin<Box<dyn Future<Output = Result<OwnedSemaphorePermit, AcquireError>>>>;
