//! Round: the connections of an I/O thread that are ready at the same time are answered after all of them were served.
//!
//! A reply wakes its peer, which is dear where the peer sleeps, and takes a processor from this thread where there are few.
//! Answered one after the other, peers are woken once and have more to do each time. A connection that is ready alone has
//! nothing to wait for: it writes at once, and looks again later whether others have joined it.
//!
//! Invariant: what defers comes back after the connections that were ready with it, and once.
//! Threads: the I/O thread.

use std::cell::Cell;

/// How often a connection that was alone writes at once, before one defers again to see who is ready with it.
const ALONE: u32 = 32;

/// Who has replies to write, of one thread.
#[derive(Debug, Default)]
pub(super) struct Round {
    /// Connections that have deferred and not come back.
    waiting: Cell<u32>,
    /// The most there were at a time since there were none.
    gathered: Cell<u32>,
    /// Times to write at once.
    alone: Cell<u32>,
}

impl Round {
    /// Whether a connection that has replies writes them when it comes back, after the others; if so it says `comes_back`.
    pub(super) fn defers(&self) -> bool {
        let alone = self.alone.get();
        if alone > 0 {
            self.alone.set(alone - 1);
            return false;
        }
        let waiting = self.waiting.get() + 1;
        self.waiting.set(waiting);
        self.gathered.set(waiting.max(self.gathered.get()));
        true
    }

    /// A connection that has deferred is about to write.
    pub(super) fn comes_back(&self) {
        let waiting = self.waiting.get() - 1;
        self.waiting.set(waiting);
        if waiting == 0 && self.gathered.take() == 1 {
            self.alone.set(ALONE);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_that_are_ready_together_all_defer() {
        let round = Round::default();
        for _ in 0..3 {
            assert!((0..4).all(|_| round.defers()));
            (0..4).for_each(|_| round.comes_back());
        }
    }

    #[test]
    fn a_connection_that_is_ready_alone_writes_at_once_and_looks_again_later() {
        let round = Round::default();
        let deferred = (0..100).filter(|_| round.defers().then(|| round.comes_back()).is_some());
        assert_eq!(deferred.count(), 100_usize.div_ceil(ALONE as usize + 1));
    }

    #[test]
    fn connections_that_join_one_that_was_alone_are_deferred_soon() {
        let round = Round::default();
        assert!(round.defers());
        round.comes_back();
        let mut rounds = 0;
        while (0..4).filter(|_| round.defers()).count() < 4 {
            rounds += 1;
        }
        assert!(rounds <= ALONE / 4, "{rounds} rounds");
    }
}
