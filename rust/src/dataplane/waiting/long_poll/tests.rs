//! Long poll tests: a crowd is woken in slices, and all of it.

use std::path::Path;

use super::*;
use crate::clock::ManualClock;
use crate::dataplane::state::filter::SqlSupport;
use crate::dataplane::state::pop_options::PopOptions;
use crate::remoting::Link;
use crate::store::disk::simulated::SimDisk;
use crate::store::{Options, Put, RecoveryProgress, Store};

struct Fixture {
    store: Arc<Store>,
    queue: Arc<ConsumeQueue>,
    polls: LongPolls,
    links: Vec<Arc<Link<Event>>>,
    filter: Arc<Filter>,
}

impl Fixture {
    fn new() -> Self {
        let options = Options { threads: false, segment_bytes: 1 << 20, ..Options::new(Path::new("/store")) };
        let (disk, clock) = (SimDisk::new().shared(), ManualClock::at(1_700_000_000_000));
        let store = Store::open(options, disk, clock, &RecoveryProgress::default()).expect("the store opens");
        let queue = store.queue_or_create("t", 0).expect("a queue");
        let filter = Arc::new(Filter::parse(SqlSupport::Off, "TAG", "*").expect("a filter"));
        let polls = LongPolls::new(Arc::new(PopGroups::new(&PopOptions::default())));
        let links = (1..=10).map(|id| Link::detached(LinkId(id))).collect();
        Self { store, queue, polls, links, filter }
    }

    /// Parks pulls for the next message, on all connections in turn.
    fn park(&self, tokens: std::ops::Range<u64>) {
        let offset = self.queue.max();
        for (token, link) in tokens.zip(self.links.iter().cycle()) {
            let owed = link.owe(0).expect("room");
            let waiter = Waiter { owed, token, offset, filter: Arc::clone(&self.filter) };
            self.polls.park(&self.queue, waiter).expect("room");
        }
    }

    /// Stores a message; returns whether a pass over a crowd begins.
    fn send(&self) -> bool {
        let end = self.queue.max();
        self.store.append(&mut [Put::sample(&self.queue, b"body")]);
        assert_eq!(self.queue.max(), end.advanced(1));
        self.polls.arrived(&self.queue, self.queue.max(), 0)
    }

    /// Runs a pass to its end; returns the number of waiters that each of its steps woke.
    fn pass(&self) -> Vec<usize> {
        let mut from = Some(CROWD_BEGIN);
        let mut woken = Vec::new();
        while let Some(begin) = from {
            let before = self.polls.count();
            from = self.polls.wake_crowd(&self.queue, begin);
            woken.push(before - self.polls.count());
        }
        woken
    }
}

#[test]
fn a_few_thousand_waiters_are_woken_by_the_message() {
    let fixture = Fixture::new();
    fixture.park(0..COMPARED_MAX as u64);
    assert!(!fixture.send(), "nothing is left for later");
    assert_eq!(fixture.polls.count(), 0);
    assert!(!fixture.queue.is_awaited());
}

#[test]
fn a_crowd_is_woken_in_slices() {
    let fixture = Fixture::new();
    fixture.park(0..10_000);
    assert!(fixture.send());
    assert_eq!(fixture.polls.count(), 10_000, "the thread of the sender wakes none of them");
    let woken = fixture.pass();
    assert!(woken.iter().all(|count| *count <= SLICE), "{woken:?}");
    assert_eq!((woken.iter().sum::<usize>(), fixture.polls.count()), (10_000, 0));
    assert!(!fixture.queue.is_awaited());
}

#[test]
fn messages_that_arrive_while_a_crowd_is_woken_wake_it_once_more() {
    let fixture = Fixture::new();
    fixture.park(0..10_000);
    assert!(fixture.send());
    let next = fixture.polls.wake_crowd(&fixture.queue, CROWD_BEGIN);
    // Those that were woken have looked and wait again, partly behind the pass and partly before it.
    fixture.park(10_000..10_000 + SLICE as u64);
    assert!((0..500).all(|_| !fixture.send()), "one pass is enough for all of them");
    let mut steps = 0;
    let mut from = next;
    while let Some(begin) = from {
        from = fixture.polls.wake_crowd(&fixture.queue, begin);
        steps += 1;
    }
    assert_eq!(fixture.polls.count(), 0, "every pull looks at the newest message");
    assert!(steps <= 2 * 10_000 / SLICE, "{steps} steps");
    fixture.park(20_000..30_000);
    assert!(fixture.send(), "the next message begins a pass");
    assert_eq!(fixture.pass().iter().sum::<usize>(), 10_000);
}

#[test]
fn pulls_that_wait_behind_the_end_of_the_queue_sleep_on() {
    let fixture = Fixture::new();
    fixture.park(0..10_000);
    assert!(fixture.send());
    let next = fixture.polls.wake_crowd(&fixture.queue, CROWD_BEGIN).expect("the pass goes on");
    fixture.park(10_000..10_100);
    let mut from = Some(next);
    while let Some(begin) = from {
        from = fixture.polls.wake_crowd(&fixture.queue, begin);
    }
    assert_eq!(fixture.polls.count(), 100, "there is nothing new for these");
}

#[test]
fn the_pulls_of_an_ended_connection_are_found_among_those_of_others() {
    let fixture = Fixture::new();
    fixture.park(0..10_000);
    for token in (3..10_000).step_by(10) {
        assert!(fixture.polls.forget(&fixture.queue, LinkId(4), token).is_some());
        assert!(fixture.polls.forget(&fixture.queue, LinkId(4), token).is_none());
    }
    assert_eq!(fixture.polls.count(), 9_000);
}
