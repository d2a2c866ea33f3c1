//! Handshake: what a slave is told of its master's log before the stream begins, whose bytes compare nothing.
//!
//! The master is asked over its ordinary port, by who can speak there. What it answers holds for one process alone: ours
//! gives a ticket, which no other process takes. Beside one that gives none the connection for the stream is there already
//! and waits for the answer, so that either both are of one process or the connection has ended.
//!
//! Invariant: an answer counts for the connection that waited for it, and for no later one.
//! Threads: the connector's asks; any answers.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::timeout;

use crate::replication::epochs::Epochs;
use crate::replication::stream::Ticket;

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

/// What a slave goes by that may follow.
#[derive(Debug, Clone, Default)]
pub struct Agreement {
    /// The epochs of the master's log, which this one goes on with; none where they are not known.
    pub epochs: Epochs,
    /// Lets the connection in, at masters that give one.
    pub ticket: Option<Ticket>,
}

/// The question of a connector, and its answer.
#[derive(Debug, Default)]
pub(super) struct Handshake {
    state: Mutex<State>,
    answered: Notify,
}

#[derive(Debug, Default)]
struct State {
    /// Number of the one that waits for an answer, or waited last.
    question: u64,
    waits: bool,
    answer: Option<Result<Agreement, Refusal>>,
}

impl Handshake {
    /// Asks whether this log may go on with the master's.
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
        let reason = "the master's log was not compared with this one in time".to_owned();
        answer.unwrap_or(Err(Refusal { is_diverged: false, reason }))
    }

    /// The question that waits for an answer.
    pub(super) fn wanted(&self) -> Option<u64> {
        let state = self.state.lock();
        (state.waits && state.answer.is_none()).then_some(state.question)
    }

    /// Answers a question, if it still waits.
    pub(super) fn answer(&self, question: u64, answer: Result<Agreement, Refusal>) {
        let mut state = self.state.lock();
        if state.waits && state.question == question {
            state.answer = Some(answer);
            self.answered.notify_one();
        }
    }
}
