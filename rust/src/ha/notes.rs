//! Notes: what an operator should read of connections that came, went, or were refused.

use std::collections::VecDeque;

use parking_lot::Mutex;

/// Notes that wait to be taken; older ones are dropped.
const NOTES_MAX: usize = 64;

/// Whether it is a warning, and what happened.
pub type Note = (bool, String);

#[derive(Debug, Default)]
pub(super) struct Notes(Mutex<Waiting>);

#[derive(Debug, Default)]
struct Waiting {
    notes: VecDeque<Note>,
    /// The last one, which is not repeated while nothing else happens.
    last: Option<String>,
}

impl Notes {
    pub(super) fn add(&self, is_warning: bool, what: String) {
        let mut waiting = self.0.lock();
        if waiting.last.as_ref() == Some(&what) {
            return;
        }
        if waiting.notes.len() == NOTES_MAX {
            waiting.notes.pop_front();
        }
        waiting.last = Some(what.clone());
        waiting.notes.push_back((is_warning, what));
    }

    pub(super) fn take(&self) -> Vec<Note> {
        self.0.lock().notes.drain(..).collect()
    }
}
