//! Load plan: brokers, requests, rate and duration.

use std::time::Duration;

/// Maximum connections of a plan; processes commonly may open 20,000 files.
const CONNECTIONS_MAX: usize = 10_000;
/// Requests in flight on one connection.
const WINDOW_MAX: usize = 65_536;
/// Largest request body: a frame, less room for the header.
const BODY_BYTES_MAX: usize = 15 << 20;

/// A queue and its first offset.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Position {
    /// Queue of the topic.
    pub queue: u32,
    /// First offset to read; a reader that reaches the end starts here again. Ignored by sends.
    pub begin: u64,
}

/// A broker and the queues to use there.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Target {
    /// Host and port.
    pub address: String,
    /// Its name, as sends carry it.
    pub broker: String,
    /// Queues of the topic, used round-robin.
    pub queues: Vec<Position>,
}

/// The kind of every request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "fields named for what they hold")]
pub enum Work {
    Produce {
        body_bytes: usize,
        /// Messages per request; more than one makes client batches (code 320).
        batch: usize,
    },
    /// Sends half messages (code 310) and commits each once it is stored (code 37); slots, times and latencies treat
    /// both as one request.
    Transact { body_bytes: usize },
    /// Pulls messages (code 11); each connection cycles through the queues.
    Consume {
        /// Maximum messages of one response.
        messages_max: usize,
    },
    /// Pops messages (code 200050) and acknowledges all of them in one request (200051 or 200151); both requests count
    /// as one.
    Pop {
        /// Maximum messages of one response.
        messages_max: usize,
    },
}

/// Brokers, requests, rate and duration of a load.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The kind of every request.
    pub work: Work,
    /// Brokers; connections are dealt to them round-robin.
    pub targets: Vec<Target>,
    /// The topic to write or read.
    pub topic: String,
    /// The producer or consumer group of the requests.
    pub group: String,
    /// For sends: the first millisecond of the second in which all messages are due; `None` for immediate delivery.
    pub due_ms: Option<u64>,
    /// Connections of all threads together.
    pub connections: usize,
    /// Maximum requests in flight per connection.
    pub window: usize,
    /// Threads that share the connections.
    pub threads: usize,
    /// Open loop: total messages due per second. `None` is the closed loop.
    pub rate: Option<f64>,
    /// The time before measuring starts.
    pub warm_up: Duration,
    /// Length of the measured interval.
    pub duration: Duration,
    /// Ends earlier, after this many messages including warm-up.
    pub count: Option<u64>,
    /// The run fails after this long without a response; also the maximum wait for the last responses.
    pub timeout: Duration,
    /// Processes whose CPU time is reported, usually the broker's.
    pub pids: Vec<u32>,
}

/// The reason why a plan was not executed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[allow(missing_docs, reason = "fields named for what they hold")]
pub enum LoadError {
    /// A setting is out of bounds.
    #[error("{0}")]
    Plan(&'static str),
    /// A request does not fit a frame.
    #[error("requests of this size cannot be sent: {0}")]
    TooLarge(String),
    #[error("cannot connect to {address}: {reason}")]
    Connect { address: String, reason: String },
    /// A connection ended, or carried an invalid response.
    #[error("lost the connection to {address}: {reason}")]
    Lost { address: String, reason: String },
    /// A broker stopped responding.
    #[error("{address} did not respond for {seconds} s")]
    Silent { address: String, seconds: u64 },
    /// A thread could not be created.
    #[error("a thread of the load generator failed: {0}")]
    Thread(String),
}

impl Plan {
    /// Returns the end, measured from the start.
    pub(super) fn end(&self) -> Duration {
        self.warm_up.saturating_add(self.duration)
    }

    /// Returns the number of messages that one request carries or asks for.
    pub fn messages_each(&self) -> usize {
        match self.work {
            Work::Produce { batch, .. } => batch,
            Work::Transact { .. } => 1,
            Work::Consume { messages_max } | Work::Pop { messages_max } => messages_max,
        }
    }

    /// Returns whether requests send messages instead of fetching them.
    pub(super) fn sends(&self) -> bool {
        !matches!(self.work, Work::Consume { .. } | Work::Pop { .. })
    }

    /// Refuses an invalid plan, naming the setting to change.
    pub(super) fn check(&self) -> Result<(), LoadError> {
        let is_open_loop_possible = match self.rate {
            Some(rate) => rate.is_finite() && rate > 0.0,
            None => true,
        };
        let body_bytes = match self.work {
            Work::Produce { body_bytes, batch } => body_bytes.saturating_mul(batch),
            Work::Transact { body_bytes } => body_bytes,
            Work::Consume { .. } | Work::Pop { .. } => 0,
        };
        let rules = [
            (!self.targets.iter().any(|target| target.queues.is_empty()), "a broker has no queues"),
            (!self.targets.is_empty(), "the plan has no brokers"),
            ((1..=CONNECTIONS_MAX).contains(&self.connections), "connections must be 1 to 10000"),
            ((1..=WINDOW_MAX).contains(&self.window), "the window must be 1 to 65536"),
            ((1..=64).contains(&self.threads), "threads must be 1 to 64"),
            ((1..=32_768).contains(&self.messages_each()), "a request carries 1 to 32768 messages"),
            (!self.sends() || body_bytes > 0, "RocketMQ refuses empty messages"),
            (body_bytes <= BODY_BYTES_MAX, "one request must be below 15 MiB"),
            (is_open_loop_possible, "the rate must be a number above 0"),
            (!self.duration.is_zero(), "the measured interval must not be zero"),
        ];
        match rules.into_iter().find(|(holds, _)| !holds) {
            Some((_, text)) => Err(LoadError::Plan(text)),
            None => Ok(()),
        }
    }
}
