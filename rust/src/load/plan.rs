//! Plan of a load: brokers, requests, rate and duration.

use std::sync::Arc;
use std::time::Duration;

use crate::remoting::Encoding;
use crate::requests::credentials::Credentials;
use crate::tls::ClientTls;

/// Connections of one plan; a process may open 20,000 files on the machines we know.
const CONNECTIONS_MAX: usize = 10_000;
/// Requests in flight on one connection.
const WINDOW_MAX: usize = 65_536;
/// Largest request body, as frames allow with room for the header.
const BODY_BYTES_MAX: usize = 15 << 20;

/// A queue, and where it is read from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Position {
    /// Queue of the topic.
    pub queue: u32,
    /// First offset to read; readers that come to the end start here again. Sends ignore it.
    pub begin: u64,
}

/// A broker and the queues to use there.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Target {
    /// Host and port.
    pub address: String,
    /// Its name, which sends carry.
    pub broker: String,
    /// Queues of the topic there, used in turn.
    pub queues: Vec<Position>,
}

/// The kind of every request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "fields named for what they hold")]
pub enum Work {
    Produce {
        body_bytes: usize,
        /// Messages in one request; more than one makes client batches (code 320).
        batch: usize,
    },
    /// Sends half messages (code 310) and commits each as soon as it is stored (code 37): one request, as far as slots,
    /// times and latencies go.
    Transact { body_bytes: usize },
    /// Pulls messages (code 11), each connection from one queue after the other.
    Consume {
        /// Messages one answer may bring.
        messages_max: usize,
    },
}

/// Brokers, requests, rate and duration of a load.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The kind of every request.
    pub work: Work,
    /// Brokers; connections are dealt among them.
    pub targets: Vec<Target>,
    /// Topic written or read.
    pub topic: String,
    /// Producer or consumer group that requests name.
    pub group: String,
    /// Of sends: the second in which all messages are to be delivered, by its first millisecond; at once where there is none.
    pub due_ms: Option<u64>,
    /// What requests are signed with.
    pub credentials: Option<Credentials>,
    /// How connections are encrypted.
    pub tls: Option<Arc<ClientTls>>,
    /// How headers are written.
    pub encoding: Encoding,
    /// Connections of all threads together.
    pub connections: usize,
    /// Requests in flight on each connection, at most.
    pub window: usize,
    /// Threads the connections are dealt among.
    pub threads: usize,
    /// Open loop: messages due each second, all connections together. `None` is the closed loop.
    pub rate: Option<f64>,
    /// Load before anything is measured.
    pub warm_up: Duration,
    /// Length of the measured interval.
    pub duration: Duration,
    /// Ends earlier, after so many messages; warm-up included.
    pub count: Option<u64>,
    /// Without any answer for so long, the run fails; also how long the last answers are waited for.
    pub timeout: Duration,
    /// Processes whose processor time is told: the broker's, as a rule.
    pub pids: Vec<u32>,
}

/// A plan that was not carried out.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[allow(missing_docs, reason = "fields named for what they hold")]
pub enum LoadError {
    /// A setting is out of its bounds.
    #[error("{0}")]
    Plan(&'static str),
    /// A request does not fit a frame.
    #[error("requests of this size cannot be sent: {0}")]
    TooLarge(String),
    #[error("cannot connect to {address}: {reason}")]
    Connect { address: String, reason: String },
    /// A connection ended, or carried what is no answer.
    #[error("lost the connection to {address}: {reason}")]
    Lost { address: String, reason: String },
    /// A broker stopped answering.
    #[error("{address} gave no answer for {seconds} s")]
    Silent { address: String, seconds: u64 },
    /// A thread could not be had.
    #[error("a thread of the load generator failed: {0}")]
    Thread(String),
}

impl Plan {
    /// Moment of the end, from the beginning.
    pub(super) fn end(&self) -> Duration {
        self.warm_up.saturating_add(self.duration)
    }

    /// Messages one request carries or asks for.
    pub fn messages_each(&self) -> usize {
        match self.work {
            Work::Produce { batch, .. } => batch,
            Work::Transact { .. } => 1,
            Work::Consume { messages_max } => messages_max,
        }
    }

    /// Whether requests bring messages, and do not fetch them.
    pub(super) fn sends(&self) -> bool {
        !matches!(self.work, Work::Consume { .. })
    }

    /// Refuses what cannot be carried out, with the setting to change.
    pub(super) fn check(&self) -> Result<(), LoadError> {
        let is_open_loop_possible = match self.rate {
            Some(rate) => rate.is_finite() && rate > 0.0,
            None => true,
        };
        let body_bytes = match self.work {
            Work::Produce { body_bytes, batch } => body_bytes.saturating_mul(batch),
            Work::Transact { body_bytes } => body_bytes,
            Work::Consume { .. } => 0,
        };
        let rules = [
            (!self.targets.iter().any(|target| target.queues.is_empty()), "a broker without queues"),
            (!self.targets.is_empty(), "no broker to talk to"),
            ((1..=CONNECTIONS_MAX).contains(&self.connections), "connections must be 1 to 10000"),
            ((1..=WINDOW_MAX).contains(&self.window), "the window must be 1 to 65536"),
            ((1..=64).contains(&self.threads), "threads must be 1 to 64"),
            ((1..=32_768).contains(&self.messages_each()), "a request carries 1 to 32768 messages"),
            (!self.sends() || body_bytes > 0, "RocketMQ takes no empty message"),
            (body_bytes <= BODY_BYTES_MAX, "one request must stay below 15 MiB"),
            (is_open_loop_possible, "the rate must be a number above 0"),
            (!self.duration.is_zero(), "the measured interval must be longer than nothing"),
        ];
        match rules.into_iter().find(|(holds, _)| !holds) {
            Some((_, text)) => Err(LoadError::Plan(text)),
            None => Ok(()),
        }
    }
}
