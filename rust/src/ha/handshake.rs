//! Handshake: comparison of a slave's log with its master's before the stream begins.
//!
//! A component that can query the master at its ordinary port answers the question. The answer is valid for one
//! process: an rmqpy master issues a ticket that no other process accepts. With a master without tickets, the
//! question is repeated while the connection is open, so that either both answers are of one process or the
//! connection has ended.
//!
//! *Invariant*: an answer counts only for the connection that waits for it.
//! Threads: the connector's asks; any answers.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::timeout;

use crate::replication::epochs::Epochs;
use crate::replication::stream::Ticket;

/// Time limit for an answer.
const ANSWER_MAX: Duration = Duration::from_secs(15);

/// The reason why a slave does not follow its master.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// Whether the logs diverge; otherwise the check failed.
    pub is_diverged: bool,
    /// The reason, for operators.
    pub reason: String,
}

/// The result of a successful handshake.
#[derive(Debug, Clone, Default)]
pub struct Agreement {
    /// The epochs of the master's log; empty if unknown.
    pub epochs: Epochs,
    /// The ticket that admits the connection, if the master issued one.
    pub ticket: Option<Ticket>,
    /// The broker id of this slave, to follow a master of Apache's that a controller elected.
    pub elected_as: Option<u64>,
}

/// The question of a connector, and its answer.
#[derive(Debug, Default)]
pub(super) struct Handshake {
    state: Mutex<State>,
    answered: Notify,
}

#[derive(Debug, Default)]
struct State {
    /// The number of the current or last question.
    question: u64,
    waits: bool,
    answer: Option<Result<Agreement, Refusal>>,
}

impl Handshake {
    /// Asks whether this log may continue with the master's.
    pub(super) async fn ask(&self) -> Result<Agreement, Refusal> {
        {
            let mut state = self.state.lock();
            *state = State { question: state.question + 1, waits: true, answer: None };
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
        let reason = "the comparison with the master's log timed out".to_owned();
        answer.unwrap_or(Err(Refusal { is_diverged: false, reason }))
    }

    /// Returns the pending question.
    pub(super) fn wanted(&self) -> Option<u64> {
        let state = self.state.lock();
        (state.waits && state.answer.is_none()).then_some(state.question)
    }

    /// Answers a question, if it is still pending.
    pub(super) fn answer(&self, question: u64, answer: Result<Agreement, Refusal>) {
        let mut state = self.state.lock();
        if state.waits && state.question == question {
            state.answer = Some(answer);
            self.answered.notify_one();
        }
    }
}
