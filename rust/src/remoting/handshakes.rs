//! Handshakes: bounds the memory of unfinished handshakes to a share of the buffer budget.
//!
//! A handshake takes milliseconds, unless its peer is slow or hostile. When the share is spent, the oldest handshakes
//! are closed.
//!
//! Invariant: a handshake's count returns to the budget when it ends or is closed.
//! Threads: the I/O thread; each has its part of the share.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use super::buffer_budget::{BufferBudget, BufferShare};
use super::idle_tracker::{IdleAction, IdleTracker};
use super::limits::{HANDSHAKES_SHARE, ServerOptions};
use super::link::Link;
use super::service::Close;

/// The handshakes in progress on one thread.
pub(super) struct Handshakes<E> {
    /// In order of arrival.
    open: RefCell<BTreeMap<u64, OpenHandshake<E>>>,
    last: Cell<u64>,
    bytes: Cell<usize>,
    bytes_max: usize,
    budget: BufferBudget,
}

struct OpenHandshake<E> {
    link: Arc<Link<E>>,
    tracker: Rc<IdleTracker>,
    buffers: BufferShare,
}

/// One handshake; dropping it returns its count.
pub(super) struct Handshake<'a, E> {
    handshakes: &'a Handshakes<E>,
    number: u64,
}

impl<E: Send + 'static> Handshakes<E> {
    pub(super) fn new(options: &ServerOptions, budget: BufferBudget) -> Self {
        Self {
            open: RefCell::default(),
            last: Cell::new(0),
            bytes: Cell::new(0),
            bytes_max: options.buffers_bytes_max / HANDSHAKES_SHARE / options.io_threads(),
            budget,
        }
    }

    /// Begins a handshake that counts zero bytes.
    pub(super) fn begin(&self, link: &Arc<Link<E>>, tracker: &Rc<IdleTracker>) -> Handshake<'_, E> {
        let number = self.last.get() + 1;
        self.last.set(number);
        let (link, tracker) = (Arc::clone(link), Rc::clone(tracker));
        self.open.borrow_mut().insert(number, OpenHandshake { link, tracker, buffers: self.budget.share() });
        Handshake { handshakes: self, number }
    }

    fn add(&self, more: usize, less: usize) {
        self.bytes.set(self.bytes.get() + more - less);
    }

    /// Closes the oldest handshakes until the rest fit.
    fn make_room(&self) {
        while self.bytes.get() > self.bytes_max {
            let Some((_, oldest)) = self.open.borrow_mut().pop_first() else { break };
            self.add(0, oldest.buffers.bytes());
            oldest.tracker.set_action(IdleAction::Close(Close::Slow));
            oldest.link.wake();
        }
    }
}

impl<E: Send + 'static> Handshake<'_, E> {
    /// Replaces the handshake's count with `bytes`.
    pub(super) fn holds(&self, bytes: usize) {
        if let Some(open) = self.handshakes.open.borrow_mut().get_mut(&self.number) {
            let before = open.buffers.bytes();
            open.buffers.set(bytes);
            self.handshakes.add(bytes, before);
        }
        self.handshakes.make_room();
    }
}

impl<E> Drop for Handshake<'_, E> {
    fn drop(&mut self) {
        if let Some(open) = self.handshakes.open.borrow_mut().remove(&self.number) {
            self.handshakes.bytes.set(self.handshakes.bytes.get() - open.buffers.bytes());
        }
    }
}
