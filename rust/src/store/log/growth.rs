//! Growth: notification of replication about new log data.
//!
//! Without a watcher it costs a read of one flag.
//!
//! Threads: `notify` on the thread that moves *visible*; `watch` from any.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering, fence};

use parking_lot::RwLock;

/// Called when the log has grown, on the thread that appended or flushed, with the dispatch lock held. It must
/// neither block nor append.
pub type Watcher = Arc<dyn Fn() + Send + Sync>;

/// Notifies one watcher.
#[derive(Default)]
pub struct Growth {
    is_watched: AtomicBool,
    watcher: RwLock<Option<Watcher>>,
}

impl Growth {
    /// Sets or removes the watcher, which looks up the current end of the log itself.
    pub fn watch(&self, watcher: Option<Watcher>) {
        let mut current = self.watcher.write();
        self.is_watched.store(watcher.is_some(), Ordering::Release);
        *current = watcher;
        // Either the watcher sees what was appended, or the append sees the watcher.
        fence(Ordering::SeqCst);
    }

    pub(crate) fn notify(&self) {
        if self.is_watched.load(Ordering::Relaxed)
            && let Some(watcher) = &*self.watcher.read()
        {
            watcher();
        }
    }
}

impl fmt::Debug for Growth {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Growth").field("is_watched", &self.is_watched).finish_non_exhaustive()
    }
}
