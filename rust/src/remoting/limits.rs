//! Limits of the network, each with its reason. A connection that meets one waits or is closed; none grows.

use std::sync::Arc;
use std::time::Duration;

use crate::tls::{ClientTls, ServerTls};

use super::frame::FrameLimits;

/// Frames handed to the service at once: what one hold of the put lock may cost the other connections.
pub const BURST_FRAMES_MAX: usize = 64;
/// Bytes of one read, and so of one turn of a connection before the others of its thread have theirs.
pub(super) const READ_BYTES_MAX: usize = 256 << 10;
/// The same of a frame larger than the buffer of a busy connection: its memory is touched for the first time, page by page,
/// and whoever sends such frames is in less of a hurry than others.
pub(super) const LARGE_READ_BYTES_MAX: usize = 64 << 10;
/// Frames of one turn.
pub const TURN_FRAMES_MAX: usize = 64;
/// Read buffer of an idle connection: 10,000 of them cost 40 MiB.
pub(super) const INBOX_BYTES_IDLE: usize = 4 << 10;
/// Read buffer of a busy connection. Only a frame larger than this makes it grow further, on the shared budget.
pub(super) const INBOX_BYTES_HOT: usize = 256 << 10;
/// The same while all buffers together have more than `ServerOptions::buffers_bytes_max`: the usual requests fit.
pub(super) const INBOX_BYTES_SPENT: usize = 16 << 10;
/// One part in so many of `ServerOptions::buffers_bytes_max` is what connections may have before they have shaken hands.
pub(super) const HANDSHAKES_SHARE: usize = 4;
/// What the session of a connection may keep from one burst to the next; all goes when the connection is idle.
pub(super) const KEPT_BYTES_MAX: usize = 64 << 10;
/// Replies of a turn that are worth a write before the turn ends.
pub(super) const WRITE_BYTES_EAGER: usize = 64 << 10;
/// What must come of an open frame in every `ServerOptions::open_frame`: a byte now and then must not hold a buffer
/// for ever.
pub(super) const OPEN_FRAME_BYTES_MIN: u64 = 1 << 10;
/// How long a stopping server waits for a peer to take notice, so that its unread bytes do not turn the close into
/// a reset that destroys the last replies.
pub(super) const CLOSE_GRACE: Duration = Duration::from_millis(250);
/// Pause of an acceptor that ran out of file descriptors.
pub(super) const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Connections the kernel may hold before they are accepted: clients reconnect all at once after a restart.
pub(super) const BACKLOG: i32 = 1024;

/// What a `Server` may use.
#[derive(Debug, Clone)]
pub struct ServerOptions {
    /// I/O threads; 0 takes one up to seven cores, then one for every four, four at most: two busy cores are left to
    /// the flush and to the clients' own work on small machines.
    pub io_threads: usize,
    /// A connection that neither read nor wrote for this long is closed.
    pub idle: Duration,
    /// A connection whose first frame is not complete after this long is closed; a handshake counts.
    pub first_frame: Duration,
    /// While a frame is open, 1 KiB of it must come in every interval of this length.
    pub open_frame: Duration,
    /// What the sender of a large frame may be late with: a network may need as long to find out what it lost.
    pub large_frame_delay: Duration,
    /// What must come of a large frame in every second after that.
    pub large_frame_bytes_per_second: u64,
    /// How long a frame waits for memory; then it is refused.
    pub large_frame_wait: Duration,
    /// Connections beyond are closed as they are accepted.
    pub connections_max: usize,
    /// Connections of one address beyond are closed as they are accepted; loopback has no such limit, for a proxy on
    /// this machine speaks for everybody.
    pub connections_per_address_max: usize,
    /// Open descriptors of the process above which connections are closed as they are accepted: the rest of what the
    /// system allows is left to files.
    pub descriptors_max: usize,
    /// What one frame may be.
    pub frame: FrameLimits,
    /// Bytes waiting for one peer above which nothing more is read from it.
    pub outbox_bytes_max: usize,
    /// The same for all peers together: beyond it, a connection reads only when nothing waits for its peer.
    pub outboxes_bytes_max: usize,
    /// Memory of all frames too large for a busy read buffer; the next such frame waits, unread, for its turn.
    pub large_frames_bytes_max: usize,
    /// Memory of the buffers of all connections, filled or not, above which none keeps what it does not need.
    pub buffers_bytes_max: usize,
    /// Replies of one connection that may come later than the burst of their requests.
    pub owed_max: usize,
    /// Notices that may wait for one connection.
    pub notices_max: usize,
    /// Bytes that may wait in one connection's mailbox, requests included whose replies will come there.
    pub mailbox_bytes_max: usize,
    /// The same for all of them together.
    pub mailboxes_bytes_max: usize,
    /// How connections that begin with a hello of TLS are served; without, they are closed as any that sends no frame.
    pub tls: Option<Arc<ServerTls>>,
}

impl Default for ServerOptions {
    fn default() -> Self {
        Self {
            io_threads: 0,
            // As the original, which closes after 120 s too; clients send a heartbeat every 30 s.
            idle: Duration::from_secs(120),
            first_frame: Duration::from_secs(30),
            open_frame: Duration::from_secs(10),
            // A frame of 16 MiB has 21 s, one of 1 MiB has 6 s; one that does not come on is noticed after 5 s.
            large_frame_delay: Duration::from_secs(5),
            large_frame_bytes_per_second: 1 << 20,
            // Longer than a frame that does not come on can keep others waiting.
            large_frame_wait: Duration::from_secs(9),
            connections_max: 10_000,
            // Behind a translated address may be a whole company, and one that is broken must not lock all others out.
            connections_per_address_max: 5_000,
            descriptors_max: usize::MAX,
            frame: FrameLimits::default(),
            outbox_bytes_max: 1 << 20,
            outboxes_bytes_max: 64 << 20,
            // Two of the largest, or eight of the largest messages; a frame holds it only while it is read.
            large_frames_bytes_max: 32 << 20,
            // Read buffers of 512 busy connections, or all small ones of 8,000; those beyond make do with less.
            buffers_bytes_max: 128 << 20,
            // All that the bounds on parked pulls, cold reads and requests for Python let one connection have.
            owed_max: 16_384,
            // More than there are groups a client is a member of.
            notices_max: 1_024,
            // The largest reply there is.
            mailbox_bytes_max: 16 << 20,
            mailboxes_bytes_max: 64 << 20,
            tls: None,
        }
    }
}

impl ServerOptions {
    /// How many I/O threads these options mean on this machine.
    pub(super) fn io_threads(&self) -> usize {
        match self.io_threads {
            0 => std::thread::available_parallelism().map_or(1, |cores| (cores.get() / 4).clamp(1, 4)),
            count => count,
        }
    }

    /// How often connections are looked at: often enough that a timeout is late by an eighth at most.
    pub(super) fn sweep_interval(&self) -> Duration {
        let timeouts = [self.idle, self.first_frame, self.open_frame, self.large_frame_delay];
        let shortest = timeouts.into_iter().fold(self.large_frame_wait, Duration::min);
        (shortest / 8).clamp(Duration::from_millis(5), Duration::from_secs(1))
    }
}

/// What a `Client` may use.
#[derive(Debug, Clone)]
pub struct ClientOptions {
    /// How long a connection may take to be made, its handshake included.
    pub connect: Duration,
    /// A connection that neither read nor wrote for this long is closed; give or take five seconds.
    pub idle: Duration,
    /// What one frame from a peer may be.
    pub frame: FrameLimits,
    /// Memory of all frames too large for an ordinary read buffer; the next such frame waits for its turn.
    pub large_frames_bytes_max: usize,
    /// Bytes that may wait to be written to one peer; a call beyond fails as overloaded.
    pub outgoing_bytes_max: usize,
    /// Calls to one peer that may wait for a reply.
    pub calls_max: usize,
    /// Every connection is encrypted; without, none is.
    pub tls: Option<Arc<ClientTls>>,
}

impl Default for ClientOptions {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(3),
            idle: Duration::from_secs(120),
            frame: FrameLimits::default(),
            large_frames_bytes_max: 256 << 20,
            outgoing_bytes_max: 64 << 20,
            calls_max: 65_536,
            tls: None,
        }
    }
}
