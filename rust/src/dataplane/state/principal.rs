//! Principal: the authenticated user of a connection.
//!
//! Threads: the connection's I/O thread.

use std::sync::Arc;

use crate::access::limits::UserConnection;
use crate::access::permits::Permits;
use crate::access::rules::User;

/// The user of a connection, with cached permits.
#[derive(Debug, Default)]
pub(in crate::dataplane) struct Principal {
    pub(in crate::dataplane) generation: u64,
    /// The user of the last request; `None` if it named none or access control is off.
    pub(in crate::dataplane) user: Option<Arc<User>>,
    pub(in crate::dataplane) permits: Permits,
    /// Whether policies apply to the last request.
    pub(in crate::dataplane) is_guarded: bool,
    /// Whether a delayed reply is pending; nothing more is checked until it is sent.
    pub(in crate::dataplane) is_delayed: bool,
    /// Whether the current request was parked and counted before.
    pub(in crate::dataplane) is_counted: bool,
    /// The connection's entry, if connections of users are limited.
    pub(in crate::dataplane) counted: Option<UserConnection>,
}

impl Principal {
    /// Returns the sender of the current request for a later check; `None` without a user.
    pub(in crate::dataplane) fn waiter(&self, group: &str) -> Option<Waiter> {
        let user = self.user.as_ref()?;
        Some(Waiter { user: Arc::clone(user), group: group.into() })
    }

    pub(in crate::dataplane) fn kept_bytes(&self) -> usize {
        self.permits.kept_bytes()
    }

    pub(in crate::dataplane) fn shrink(&mut self) {
        self.permits.clear();
    }
}

#[derive(Debug)]
pub(in crate::dataplane) struct Waiter {
    pub(in crate::dataplane) user: Arc<User>,
    pub(in crate::dataplane) group: Box<str>,
}
