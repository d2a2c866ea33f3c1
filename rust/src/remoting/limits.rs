//! Limits of the network, each with its reason. A connection at a limit waits or is closed.

use std::sync::Arc;
use std::time::Duration;

use crate::tls::{ClientTls, ServerTls};

use super::frame::FrameLimits;

/// Frames handed to the service in one call: bounds one hold of the put lock.
pub const BURST_FRAMES_MAX: usize = 64;
/// Header bytes of one burst, and so of one turn: several times those of ordinary requests. Work on a header grows with it,
/// and one with an expression costs some ten nanoseconds a byte.
pub(super) const BURST_HEADER_BYTES_MAX: usize = 32 << 10;
/// Bytes of one read, and so of one turn before the thread's other connections get theirs.
pub(super) const READ_BYTES_MAX: usize = 256 << 10;
/// Bytes of one read of a frame larger than a busy connection's buffer. Its memory is touched for the first time,
/// page by page, and its sender is less latency-sensitive.
pub(super) const LARGE_READ_BYTES_MAX: usize = 64 << 10;
/// Frames of one turn.
pub const TURN_FRAMES_MAX: usize = 64;
/// Read buffer of an idle connection: 10,000 of them cost 40 MiB.
pub(super) const INBOX_BYTES_IDLE: usize = 4 << 10;
/// Read buffer of a busy connection. It grows further only for a larger frame, from the shared budget.
pub(super) const INBOX_BYTES_HOT: usize = 256 << 10;
/// Read buffer of a busy connection while all buffers together exceed `ServerOptions::buffers_bytes_max`: ordinary
/// requests fit.
pub(super) const INBOX_BYTES_SPENT: usize = 16 << 10;
/// Divisor of `ServerOptions::buffers_bytes_max`: the share available to unfinished handshakes.
pub(super) const HANDSHAKES_SHARE: usize = 4;
/// Memory a session may keep between bursts; an idle connection keeps none.
pub(super) const KEPT_BYTES_MAX: usize = 64 << 10;
/// Pending replies that are written before the turn ends.
pub(super) const WRITE_BYTES_EAGER: usize = 64 << 10;
/// Bytes that an open frame must receive in every `ServerOptions::open_frame`: an occasional byte must not hold a
/// buffer forever.
pub(super) const OPEN_FRAME_BYTES_MIN: u64 = 1 << 10;
/// Maximum time that a stopping server waits for a peer to notice the close. Unread bytes would turn the close into
/// a reset that destroys the last replies.
pub(super) const CLOSE_GRACE: Duration = Duration::from_millis(250);
/// Pause of an acceptor that ran out of file descriptors.
pub(super) const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Connections the kernel may queue before they are accepted: all clients reconnect together after a restart.
pub(super) const BACKLOG: i32 = 1024;

/// Resource limits of a `Server`.
#[derive(Debug, Clone)]
pub struct ServerOptions {
    /// I/O threads. 0 selects one up to seven cores, then one per four cores, at most four: on small machines two
    /// busy cores are left to the flush and to the clients.
    pub io_threads: usize,
    /// A connection that neither read nor wrote for this long is closed.
    pub idle: Duration,
    /// A connection whose first frame, handshake included, is not complete after this long is closed.
    pub first_frame: Duration,
    /// While a frame is open, 1 KiB of it must arrive in every interval of this length.
    pub open_frame: Duration,
    /// Time after which the minimum rate of a large frame applies: a network may need as long to detect a loss.
    pub large_frame_delay: Duration,
    /// The minimum rate of a large frame after that delay.
    pub large_frame_bytes_per_second: u64,
    /// Maximum wait of a frame for memory; then it is refused.
    pub large_frame_wait: Duration,
    /// Further connections are closed as they are accepted.
    pub connections_max: usize,
    /// Further connections of one address are closed as they are accepted. Loopback is exempt: a local proxy may
    /// carry every client.
    pub connections_per_address_max: usize,
    /// Open descriptors of the process above which new connections are closed: the rest of the system limit is left
    /// to files.
    pub descriptors_max: usize,
    /// The limits of one frame.
    pub frame: FrameLimits,
    /// Pending bytes to one peer above which nothing more is read from it.
    pub outbox_bytes_max: usize,
    /// Pending bytes to all peers above which a connection reads only when nothing is pending for its peer.
    pub outboxes_bytes_max: usize,
    /// Memory of all frames too large for a busy read buffer. Further ones wait unread.
    pub large_frames_bytes_max: usize,
    /// Memory of all connection buffers, filled or not, above which a connection keeps only what it needs.
    pub buffers_bytes_max: usize,
    /// Replies of one connection that may be sent later than the burst of their requests.
    pub owed_max: usize,
    /// Notices that may be pending for one connection.
    pub notices_max: usize,
    /// Bytes that may be pending in one connection's mailbox, including requests with deferred replies.
    pub mailbox_bytes_max: usize,
    /// Bytes that may be pending in all mailboxes together.
    pub mailboxes_bytes_max: usize,
    /// Serves connections that begin with a TLS hello. Without it they are closed like any connection that does not
    /// send a frame.
    pub tls: Option<Arc<ServerTls>>,
}

impl Default for ServerOptions {
    fn default() -> Self {
        Self {
            io_threads: 0,
            // Apache's broker also closes after 120 s; clients send a heartbeat every 30 s.
            idle: Duration::from_secs(120),
            first_frame: Duration::from_secs(30),
            open_frame: Duration::from_secs(10),
            // A frame of 16 MiB has 21 s, one of 1 MiB has 6 s; a stalled one is noticed after 5 s.
            large_frame_delay: Duration::from_secs(5),
            large_frame_bytes_per_second: 1 << 20,
            // Longer than a stalled frame can hold its reservation.
            large_frame_wait: Duration::from_secs(9),
            connections_max: 10_000,
            // Many machines may share one translated address, yet one broken client must not exclude all others.
            connections_per_address_max: 5_000,
            descriptors_max: usize::MAX,
            frame: FrameLimits::default(),
            outbox_bytes_max: 1 << 20,
            outboxes_bytes_max: 64 << 20,
            // Two frames of the maximum size, or eight of the largest messages; a frame holds it only while it is
            // read.
            large_frames_bytes_max: 32 << 20,
            // Read buffers of 512 busy connections, or small ones of 8,000.
            buffers_bytes_max: 128 << 20,
            // The bounds on parked pulls, cold reads and Python requests of one connection add up to this.
            owed_max: 16_384,
            // More than the groups that one client joins.
            notices_max: 1_024,
            // The largest possible reply.
            mailbox_bytes_max: 16 << 20,
            mailboxes_bytes_max: 64 << 20,
            tls: None,
        }
    }
}

impl ServerOptions {
    /// Returns the number of I/O threads on this machine.
    pub(super) fn io_threads(&self) -> usize {
        match self.io_threads {
            0 => std::thread::available_parallelism().map_or(1, |cores| (cores.get() / 4).clamp(1, 4)),
            count => count,
        }
    }

    /// Returns the interval of the sweep: short enough that a timeout is at most an eighth late.
    pub(super) fn sweep_interval(&self) -> Duration {
        let timeouts = [self.idle, self.first_frame, self.open_frame, self.large_frame_delay];
        let shortest = timeouts.into_iter().fold(self.large_frame_wait, Duration::min);
        (shortest / 8).clamp(Duration::from_millis(5), Duration::from_secs(1))
    }
}

/// Resource limits of a `Client`.
#[derive(Debug, Clone)]
pub struct ClientOptions {
    /// Maximum time to establish a connection, including its handshake.
    pub connect: Duration,
    /// A connection that neither read nor wrote for this long is closed, within about five seconds.
    pub idle: Duration,
    /// The limits of one frame from a peer.
    pub frame: FrameLimits,
    /// Memory of all frames too large for an ordinary read buffer. Further ones wait.
    pub large_frames_bytes_max: usize,
    /// Bytes that may be pending to one peer; a further call fails as overloaded.
    pub outgoing_bytes_max: usize,
    /// Calls to one peer that may be in flight.
    pub calls_max: usize,
    /// Encrypts every connection. Without it, none is encrypted.
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
