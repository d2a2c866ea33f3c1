//! Handshake: what a slave is told of its master's log before the stream begins, whose bytes compare nothing.
//!
//! The master is asked over its ordinary port, by who can speak there. The connection for the stream is there already and
//! waits, so that the master which is asked and the one that sends are the same process, or the connection has ended.
//!
//! Invariant: an answer counts for the connection that waited for it, and for no later one.
//! Threads: the connector's asks; any answers.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::timeout;

use crate::replication::epochs::Epochs;

/// How long a connection waits for an answer.
const ANSWER_MAX: Duration = Duration::from_secs(15);

/// Why a slave does not follow the master that it has asked about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The two logs do not fit together, as far as is known; otherwise it could not be found out.
    pub is_diverged: bool,
    /// Why.
    pub reason: String,
}

/// The question of a connector, and its answer.
#[derive(Debug, Default)]
pub(super) struct Handshake {
    state: Mutex<State>,
    answered: Notify,
}

#[derive(Debug, Default)]
struct State {
    /// Of the connection that waits, or waited last.
    ticket: u64,
    waits: bool,
    answer: Option<Result<Epochs, Refusal>>,
}

impl Handshake {
    /// The epochs of the master's log, which this one goes on with; none where they are not known.
    pub(super) async fn ask(&self) -> Result<Epochs, Refusal> {
        {
            let mut state = self.state.lock();
            *state = State { ticket: state.ticket + 1, waits: true, answer: None };
        }
        let answer = async {
            loop {
                if let Some(answer) = self.state.lock().answer.take() {
                    return answer;
                }
                self.answered.notified().await;
            }
        };
        let answer = timeout(ANSWER_MAX, answer).await;
        self.state.lock().waits = false;
        let reason = "nobody has said in time what is in the master's log".to_owned();
        answer.unwrap_or(Err(Refusal { is_diverged: false, reason }))
    }

    /// The connection that waits for an answer.
    pub(super) fn wanted(&self) -> Option<u64> {
        let state = self.state.lock();
        (state.waits && state.answer.is_none()).then_some(state.ticket)
    }

    /// Answers the connection `ticket`, if it still waits.
    pub(super) fn answer(&self, ticket: u64, answer: Result<Epochs, Refusal>) {
        let mut state = self.state.lock();
        if state.waits && state.ticket == ticket {
            state.answer = Some(answer);
            self.answered.notify_one();
        }
    }
}
