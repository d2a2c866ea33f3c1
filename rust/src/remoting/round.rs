//! Round: batches the replies of connections that are ready at the same time, after all of them were served.
//!
//! A reply wakes its peer, which is expensive while the peer sleeps, and on a small machine takes the processor from
//! this thread. Replies written together wake each peer once, with more work. A connection that is ready alone writes
//! immediately, and checks later whether others have joined it.
//!
//! Invariant: a deferred connection runs once more, after the connections that were ready with it.
//! Threads: the I/O thread.

use std::cell::Cell;

/// Immediate writes of a lone connection before one defers to check for others.
const ALONE: u32 = 32;

/// The connections of one thread that have replies to write.
#[derive(Debug, Default)]
pub(super) struct Round {
    /// Connections that are deferred.
    waiting: Cell<u32>,
    /// The peak of `waiting` since it was last zero.
    gathered: Cell<u32>,
    /// Remaining immediate writes.
    alone: Cell<u32>,
}

impl Round {
    /// Returns whether a connection with replies must write them later, after the others; it then calls
    /// `comes_back`.
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

    /// Records that a deferred connection is about to write.
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
    fn a_connection_ready_alone_writes_immediately_and_checks_later() {
        let round = Round::default();
        let deferred = (0..100).filter(|_| round.defers().then(|| round.comes_back()).is_some());
        assert_eq!(deferred.count(), 100_usize.div_ceil(ALONE as usize + 1));
    }

    #[test]
    fn connections_that_join_a_lone_one_soon_defer() {
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
