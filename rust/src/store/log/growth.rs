//! Growth: whoever copies the log is told that there is more of it.
//!
//! Costs a read of one flag where nobody copies.
//!
//! Threads: told by the one that moves *visible*; watched and unwatched from any.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering, fence};

use parking_lot::RwLock;

/// What is called when the log has grown: by the thread that appended, or flushed, with the dispatch lock held. It must not
/// block, nor append.
pub type Watcher = Arc<dyn Fn() + Send + Sync>;

/// Tells one watcher.
#[derive(Default)]
pub struct Growth {
    is_watched: AtomicBool,
    watcher: RwLock<Option<Watcher>>,
}

impl Growth {
    /// Has `watcher` called from now on; `None` calls nobody. What the log has by then the watcher looks up itself.
    pub fn watch(&self, watcher: Option<Watcher>) {
        let mut current = self.watcher.write();
        self.is_watched.store(watcher.is_some(), Ordering::Release);
        *current = watcher;
        // Either the watcher sees what was appended, or the append sees the watcher.
        fence(Ordering::SeqCst);
    }

    pub(crate) fn tell(&self) {
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
