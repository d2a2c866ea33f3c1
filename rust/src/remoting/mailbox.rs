//! Room in mailboxes: what other threads may leave for a connection, and the replies that it is still owed.
//!
//! A request that is answered later takes its room when it is accepted, and gives it back when the connection has
//! handled the reply: a reply that is owed always fits. What there is no room for is refused while its sender can
//! still be told. Notices, which no peer waits for, have room of their own and are dropped where it is used up.
//!
//! Invariant: what is taken here is given back once, by `link::Room`.
//! Threads: any.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use super::limits::ServerOptions;

/// A connection that waits for no other bytes gets a reply of this size whatever all mailboxes hold: peers that do
/// not read must not keep the others from their heartbeats.
const SMALL_BYTES: usize = 4 << 10;

/// What the mailboxes of one server hold together, and what they may hold.
#[derive(Debug)]
pub(super) struct Mailboxes {
    owed_max: usize,
    notices_max: usize,
    /// Bytes of one of them.
    bytes_max: usize,
    /// Bytes of all of them.
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

    /// Notices for which there was no room.
    pub(super) fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }
}

/// What of it one connection has in use.
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

    /// There was no room for a notice.
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
    /// A reply that is not owed any more: it is in the mailbox, or went out another way.
    Reply,
    /// A reply that the peer waits for, wherever it comes from.
    Owed,
}
