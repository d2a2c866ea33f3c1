//! Principal: who sends on a connection, as far as access control has found out.
//!
//! Threads: the connection's I/O thread.

use std::sync::Arc;

use crate::access::limits::UserConnection;
use crate::access::permits::Permits;
use crate::access::rules::User;

/// Who sends on a connection, and what they were allowed.
#[derive(Debug, Default)]
pub(super) struct Principal {
    pub(super) generation: u64,
    /// Of the last request; `None` where it named none, or nothing is checked.
    pub(super) user: Option<Arc<User>>,
    pub(super) permits: Permits,
    /// Whether policies are asked about the last request.
    pub(super) is_guarded: bool,
    /// An answer is late: nothing more is checked until it is sent.
    pub(super) is_delayed: bool,
    /// The request under way has waited, and was counted when it came.
    pub(super) is_counted: bool,
    /// What it counts as, where connections of users are limited.
    pub(super) counted: Option<UserConnection>,
}

impl Principal {
    /// The sender of the request under way, to be asked about again; `None` where nobody is.
    pub(super) fn waiter(&self, group: &str) -> Option<Waiter> {
        let user = self.user.as_ref()?;
        Some(Waiter { user: Arc::clone(user), group: group.into() })
    }

    pub(super) fn kept_bytes(&self) -> usize {
        self.permits.kept_bytes()
    }

    pub(super) fn shrink(&mut self) {
        self.permits.clear();
    }
}

/// Who asked for a pull that waits.
#[derive(Debug)]
pub(super) struct Waiter {
    pub(super) user: Arc<User>,
    pub(super) group: Box<str>,
}
