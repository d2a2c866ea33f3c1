//! Notes: messages for operators about connections that began, ended or were refused.

use std::collections::VecDeque;

use parking_lot::Mutex;

/// Maximum number of notes not taken yet; older ones are dropped.
const NOTES_MAX: usize = 64;

/// Whether the note is a warning, and its text.
pub type Note = (bool, String);

#[derive(Debug, Default)]
pub(super) struct Notes(Mutex<Waiting>);

#[derive(Debug, Default)]
struct Waiting {
    notes: VecDeque<Note>,
    /// The last note, which is not repeated.
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
