//! Mailbox room: bounds the events other threads may leave for a connection, and its deferred replies.
//!
//! A request with a deferred reply reserves room when it is accepted, and releases it when the connection has handled
//! the reply, so an owed reply always fits. Without room, the request is refused immediately. Notices, which no peer
//! waits for, have separate room and are dropped when it is used up.
//!
//! Invariant: every reservation is released once, by `link::Room`.
//! Threads: any.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use super::limits::ServerOptions;

/// A connection without other pending bytes gets a reply of this size however full the mailboxes are: peers that do
/// not read must not block the heartbeats of others.
const SMALL_BYTES: usize = 4 << 10;

/// The bytes in all mailboxes of one server, and their limits.
#[derive(Debug)]
pub(super) struct Mailboxes {
    owed_max: usize,
    notices_max: usize,
    /// Maximum bytes in one mailbox.
    bytes_max: usize,
    /// Maximum bytes in all mailboxes together.
    all_bytes_max: usize,
    all_bytes: AtomicUsize,
    dropped: AtomicU64,
}

impl Mailboxes {
    pub(super) fn new(options: &ServerOptions) -> Self {
        Self {
            owed_max: options.owed_max,
            notices_max: options.notices_max,
            bytes_max: options.mailbox_bytes_max,
            all_bytes_max: options.mailboxes_bytes_max,
            all_bytes: AtomicUsize::new(0),
            dropped: AtomicU64::new(0),
        }
    }

    pub(super) fn bytes(&self) -> usize {
        self.all_bytes.load(Ordering::Relaxed)
    }

    /// Returns the number of notices dropped for lack of room.
    pub(super) fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }
}

/// The room that one connection has in use.
#[derive(Debug)]
pub(super) struct MailboxUsage {
    all: Arc<Mailboxes>,
    owed: AtomicUsize,
    notices: AtomicUsize,
    bytes: AtomicUsize,
}

impl MailboxUsage {
    pub(super) fn new(all: Arc<Mailboxes>) -> Self {
        let [owed, notices, bytes] = [(); 3].map(|()| AtomicUsize::new(0));
        Self { all, owed, notices, bytes }
    }

    pub(super) fn take_slot(&self, kind: Kind) -> bool {
        let (count, count_max) = match kind {
            Kind::Notice => (&self.notices, self.all.notices_max),
            Kind::Reply | Kind::Owed => (&self.owed, self.all.owed_max),
        };
        let has_room = count.fetch_add(1, Ordering::Relaxed) < count_max;
        if !has_room {
            count.fetch_sub(1, Ordering::Relaxed);
        }
        has_room
    }

    pub(super) fn give(&self, kind: Kind, bytes: usize) {
        self.give_bytes(bytes);
        let count = if kind == Kind::Notice { &self.notices } else { &self.owed };
        count.fetch_sub(1, Ordering::Relaxed);
    }

    pub(super) fn take_bytes(&self, bytes: usize) -> bool {
        if bytes == 0 {
            return true;
        }
        let own = self.bytes.fetch_add(bytes, Ordering::Relaxed);
        let all = self.all.all_bytes.fetch_add(bytes, Ordering::Relaxed);
        let fits = own + bytes <= self.all.bytes_max && all + bytes <= self.all.all_bytes_max;
        let has_room = fits || (own == 0 && bytes <= SMALL_BYTES);
        if !has_room {
            self.give_bytes(bytes);
        }
        has_room
    }

    /// Counts a notice that found no room.
    pub(super) fn dropped(&self) {
        self.all.dropped.fetch_add(1, Ordering::Relaxed);
    }

    fn give_bytes(&self, bytes: usize) {
        if bytes > 0 {
            self.bytes.fetch_sub(bytes, Ordering::Relaxed);
            self.all.all_bytes.fetch_sub(bytes, Ordering::Relaxed);
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Notice,
    /// A reply in the mailbox, or sent another way.
    Reply,
    /// A reply that the peer waits for, wherever it comes from.
    Owed,
}
