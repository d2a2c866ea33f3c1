//! Settled: pops of which every message was acknowledged before they fell due, so that their records need no delivery.
//!
//! A checkpoint and its acknowledgements wait in the timers. Where all messages are acknowledged, delivering them to the
//! revive topic would change nothing, but write each record a second time and parse it. This table knows such records
//! by their positions in the log, and the timers leave them out.
//!
//! Invariant: acknowledgements are left out only behind their checkpoint, which falls due before them. A broker that
//! continues from saved progress, with an empty table, therefore delivers the checkpoint with all of its
//! acknowledgements, or without the checkpoint what no longer matters.
//! Nothing depends on the table: what it does not know, or has no room for, is delivered. `clear` is always right.
//! Threads: any; the lock is held for a few look-ups.

use hashbrown::{HashMap, HashSet};
use parking_lot::Mutex;

/// Pops with messages that are not acknowledged yet, in 20 MB.
const OPEN_MAX: usize = 114_688;
/// Pops that are acknowledged and not due, in 26 MB.
const SETTLED_MAX: usize = 917_504;
/// Acknowledgements of left-out checkpoints, which fall due a second after these.
const PASSED_MAX: usize = 229_376;
/// Groups whose pops it knows.
const GROUPS_MAX: usize = 4_096;
/// Records of acknowledgements of one pop; only repeated ones make more.
const RECORDS_MAX: usize = 64;
/// The timers may have what falls due sooner in hand.
const LEAD_MS_MIN: i64 = 2_000;
/// Pause between two searches for open pops that are overdue, while new ones have no room.
const SWEEP_MS: i64 = 5_000;
/// The capacity that an empty table keeps.
const KEPT_MAX: usize = 1_024;

/// A pop of one queue, as its checkpoint names it.
#[derive(Clone, Copy, Debug)]
pub(in crate::dataplane) struct PopName<'p> {
    /// The serial of the queue.
    pub(in crate::dataplane) queue: u64,
    pub(in crate::dataplane) group: &'p str,
    pub(in crate::dataplane) start: i64,
    pub(in crate::dataplane) pop_ms: i64,
    /// When its messages become visible again.
    pub(in crate::dataplane) due_ms: i64,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Key {
    queue: u64,
    start: i64,
    pop_ms: i64,
    group: u32,
}

#[derive(Debug)]
struct Open {
    /// The position of the checkpoint.
    record: u64,
    due_ms: i64,
    /// Bit `i` stands for message `i`, which is not acknowledged.
    left: u32,
    /// The offset of each message, counted from the start, unless they are consecutive.
    differences: Option<Box<[u64]>>,
    /// The acknowledgements of two checkpoints with one name are the same: both are delivered.
    has_twin: bool,
    /// The positions of the acknowledgements: most pops have one.
    first: Option<u64>,
    more: Vec<u64>,
}

impl Open {
    /// Notes acknowledgements; false for too many records.
    fn ack(&mut self, start: i64, offsets: &[u64], record: u64) -> bool {
        for offset in offsets {
            let Some(difference) = u64::try_from(start).ok().and_then(|start| offset.checked_sub(start))
            else {
                continue;
            };
            let index = match &self.differences {
                Some(differences) => differences.binary_search(&difference).ok(),
                None => usize::try_from(difference).ok(),
            };
            let bit = index.and_then(|index| 1_u32.checked_shl(u32::try_from(index).ok()?));
            self.left &= !bit.unwrap_or(0);
        }
        match self.first {
            None => self.first = Some(record),
            Some(_) => self.more.push(record),
        }
        self.more.len() < RECORDS_MAX
    }
}

/// The positions of acknowledgements.
#[derive(Debug)]
enum Records {
    One(u64),
    Many(Box<[u64]>),
}

#[derive(Debug, Default)]
struct Table {
    groups: HashMap<Box<str>, u32>,
    open: HashMap<Key, Open>,
    /// The open pops by the positions of their checkpoints.
    by_record: HashMap<u64, Key>,
    /// By the positions of checkpoints, those of their acknowledgements.
    settled: HashMap<u64, Records>,
    /// The positions of acknowledgements whose checkpoint was left out.
    passed: HashSet<u64>,
    swept_ms: i64,
}

impl Table {
    fn key(&self, pop: &PopName<'_>) -> Option<Key> {
        let group = *self.groups.get(pop.group)?;
        Some(Key { queue: pop.queue, start: pop.start, pop_ms: pop.pop_ms, group })
    }

    fn close(&mut self, key: &Key) -> Option<Open> {
        let open = self.open.remove(key)?;
        self.by_record.remove(&open.record);
        Some(open)
    }

    /// Whether there is room for another open pop, if need be by dropping those that the timers have never shown.
    fn has_room(&mut self, now_ms: i64) -> bool {
        if self.open.len() >= OPEN_MAX && now_ms.saturating_sub(self.swept_ms) >= SWEEP_MS {
            self.swept_ms = now_ms;
            self.open.retain(|_, open| open.due_ms > now_ms);
            let Self { open, by_record, .. } = self;
            by_record.retain(|_, key| open.contains_key(key));
        }
        self.open.len() < OPEN_MAX
    }

    fn popped(&mut self, pop: &PopName<'_>, offsets: &[u64], record: u64, now_ms: i64) {
        if offsets.is_empty() || offsets.len() > u32::BITS as usize || !self.has_room(now_ms) {
            return;
        }
        if !self.groups.contains_key(pop.group) {
            if self.groups.len() >= GROUPS_MAX {
                *self = Self::default();
            }
            let id = self.groups.len() as u32;
            self.groups.insert(pop.group.into(), id);
        }
        let Some(key) = self.key(pop) else { return };
        if let Some(twin) = self.open.get_mut(&key) {
            twin.has_twin = true;
            return;
        }
        let start = pop.start as u64;
        let is_consecutive =
            offsets.iter().zip(0..).all(|(offset, index)| *offset == start.wrapping_add(index));
        let differences = || offsets.iter().map(|offset| offset.saturating_sub(start)).collect();
        let open = Open {
            record,
            due_ms: pop.due_ms,
            left: u32::MAX >> (u32::BITS - offsets.len() as u32),
            differences: (!is_consecutive).then(differences),
            has_twin: false,
            first: None,
            more: Vec::new(),
        };
        self.open.insert(key, open);
        self.by_record.insert(record, key);
    }

    fn acked(&mut self, pop: &PopName<'_>, offsets: &[u64], record: u64, now_ms: i64) {
        let Some(key) = self.key(pop) else { return };
        let Some(open) = self.open.get_mut(&key).filter(|open| !open.has_twin) else { return };
        // A forged handle may name another time, at which its acknowledgement comes too early or too late.
        let is_known = open.due_ms == pop.due_ms
            && pop.due_ms.saturating_sub(now_ms) >= LEAD_MS_MIN
            && open.ack(key.start, offsets, record);
        if is_known && open.left != 0 {
            return;
        }
        let Some(open) = self.close(&key).filter(|_| is_known && self.settled.len() < SETTLED_MAX) else {
            return;
        };
        let Some(first) = open.first else { return };
        let records = match open.more {
            more if more.is_empty() => Records::One(first),
            mut more => {
                more.push(first);
                Records::Many(more.into())
            }
        };
        self.settled.insert(open.record, records);
    }

    fn leaves_out(&mut self, record: u64) -> bool {
        if self.passed.remove(&record) {
            return true;
        }
        match self.settled.remove(&record) {
            Some(records) => {
                if self.passed.len() >= PASSED_MAX {
                    // Without their checkpoint they change nothing.
                    self.passed.clear();
                }
                match records {
                    Records::One(ack) => _ = self.passed.insert(ack),
                    Records::Many(acks) => self.passed.extend(acks),
                }
                true
            }
            None => {
                self.forget(record);
                false
            }
        }
    }

    fn forget(&mut self, record: u64) {
        self.passed.remove(&record);
        self.settled.remove(&record);
        if let Some(key) = self.by_record.remove(&record) {
            self.open.remove(&key);
        }
    }

    /// Returns the memory of tables that are empty.
    fn shrink(&mut self) {
        if self.open.is_empty() && self.open.capacity() > KEPT_MAX {
            (self.open, self.by_record) = Default::default();
        }
        if self.settled.is_empty() && self.settled.capacity() > KEPT_MAX {
            self.settled = HashMap::default();
        }
        if self.passed.is_empty() && self.passed.capacity() > KEPT_MAX {
            self.passed = HashSet::default();
        }
    }
}

/// The records that need no delivery.
#[derive(Debug, Default)]
pub(in crate::dataplane) struct Settled {
    /// The revive topic.
    pub(in crate::dataplane) topic: Box<str>,
    table: Mutex<Table>,
}

impl Settled {
    pub(in crate::dataplane) fn new(revive_topic: &str) -> Self {
        Self { topic: revive_topic.into(), table: Mutex::default() }
    }

    /// A checkpoint was stored at `record`, to wait in the timers.
    pub(in crate::dataplane) fn popped(&self, pop: &PopName<'_>, offsets: &[u64], record: u64, now_ms: i64) {
        if pop.due_ms.saturating_sub(now_ms) >= LEAD_MS_MIN {
            self.table.lock().popped(pop, offsets, record, now_ms);
        }
    }

    /// Acknowledgements were stored at `record`, to wait in the timers.
    pub(in crate::dataplane) fn acked(&self, pop: &PopName<'_>, offsets: &[u64], record: u64, now_ms: i64) {
        self.table.lock().acked(pop, offsets, record, now_ms);
    }

    /// Removes due records that need no delivery; from now on the others are delivered, whatever is acknowledged.
    pub(in crate::dataplane) fn leave_out<T>(&self, due: &mut Vec<T>, record: impl Fn(&T) -> u64) {
        let mut table = self.table.lock();
        due.retain(|each| !table.leaves_out(record(each)));
        table.shrink();
    }

    /// A record is being delivered.
    pub(in crate::dataplane) fn forget(&self, record: u64) {
        self.table.lock().forget(record);
    }

    /// Forgets everything: the timers begin at other progress than they had.
    pub(in crate::dataplane) fn clear(&self) {
        *self.table.lock() = Table::default();
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use proptest::prelude::*;

    use super::*;

    fn name(group: &str, start: i64) -> PopName<'_> {
        PopName { queue: 1, group, start, pop_ms: 5, due_ms: 60_000 }
    }

    fn left(settled: &Settled, mut due: Vec<u64>) -> Vec<u64> {
        settled.leave_out(&mut due, |record| *record);
        due
    }

    #[test]
    fn a_pop_that_is_acknowledged_is_left_out_with_its_acknowledgements() {
        let settled = Settled::default();
        settled.popped(&name("g", 10), &[10, 12, 13], 100, 0);
        settled.acked(&name("g", 10), &[12], 200, 0);
        settled.acked(&name("g", 10), &[10, 13], 300, 0);
        assert_eq!(left(&settled, vec![99, 100, 101]), [99, 101]);
        assert_eq!(left(&settled, vec![200, 250, 300]), [250]);
    }

    #[test]
    fn what_is_acknowledged_after_its_checkpoint_was_delivered_is_delivered() {
        let settled = Settled::default();
        settled.popped(&name("g", 10), &[10, 11], 100, 0);
        settled.acked(&name("g", 10), &[10], 200, 0);
        assert_eq!(left(&settled, vec![100]), [100]);
        settled.acked(&name("g", 10), &[11], 300, 0);
        assert_eq!(left(&settled, vec![200, 300]), [200, 300]);
    }

    #[test]
    fn other_pops_and_other_times_differ() {
        let settled = Settled::default();
        settled.popped(&name("g", 10), &[10], 100, 0);
        settled.acked(&name("h", 10), &[10], 200, 0);
        settled.acked(&name("g", 9), &[10], 201, 0);
        settled.acked(&PopName { queue: 2, ..name("g", 10) }, &[10], 202, 0);
        settled.acked(&PopName { pop_ms: 6, ..name("g", 10) }, &[10], 203, 0);
        settled.acked(&name("g", 10), &[11, 42, 9], 204, 0);
        assert_eq!(left(&settled, vec![100]), [100]);
        settled.popped(&name("g", 20), &[20], 101, 0);
        settled.acked(&PopName { due_ms: 50_000, ..name("g", 20) }, &[20], 205, 0);
        settled.acked(&name("g", 20), &[20], 206, 0);
        assert_eq!(left(&settled, vec![101, 205, 206]), [101, 205, 206]);
    }

    #[test]
    fn what_is_about_to_fall_due_is_delivered() {
        let settled = Settled::default();
        settled.popped(&name("g", 10), &[10], 100, 59_000);
        settled.popped(&name("g", 11), &[11], 101, 0);
        settled.acked(&name("g", 10), &[10], 200, 59_000);
        settled.acked(&name("g", 11), &[11], 201, 59_000);
        assert_eq!(left(&settled, vec![100, 101, 200, 201]), [100, 101, 200, 201]);
    }

    #[test]
    fn the_table_is_bounded_and_recovers_from_pops_that_are_overdue() {
        let settled = Settled::default();
        for start in 0..=OPEN_MAX as i64 {
            settled.popped(&name("g", start), &[start as u64], 1_000 + start as u64, 0);
        }
        assert_eq!(settled.table.lock().open.len(), OPEN_MAX);
        let later = PopName { due_ms: 200_000, ..name("g", -1) };
        settled.popped(&later, &[7], 1, 100_000);
        assert_eq!(settled.table.lock().open.len(), 1);
        assert_eq!(settled.table.lock().by_record.len(), 1);
    }

    #[test]
    fn two_pops_with_one_name_are_delivered() {
        let settled = Settled::default();
        for record in 100..103 {
            settled.popped(&name("g", 10), &[10], record, 0);
        }
        settled.acked(&name("g", 10), &[10], 200, 0);
        assert_eq!(left(&settled, vec![100, 101, 102, 200]), [100, 101, 102, 200]);
    }

    #[derive(Clone, Debug)]
    enum Step {
        Pop {
            differences: BTreeSet<u64>,
        },
        /// Of one of the pops before.
        Ack {
            pop: prop::sample::Index,
            differences: BTreeSet<u64>,
        },
        Due {
            count: usize,
        },
        Restart,
    }

    fn step() -> impl Strategy<Value = Step> {
        let differences = || prop::collection::btree_set(0_u64..6, 1..4);
        prop_oneof![
            3 => differences().prop_map(|differences| Step::Pop { differences }),
            6 => (any::<prop::sample::Index>(), differences())
                .prop_map(|(pop, differences)| Step::Ack { pop, differences }),
            2 => (1_usize..6).prop_map(|count| Step::Due { count }),
            1 => Just(Step::Restart),
        ]
    }

    /// A checkpoint or an acknowledgement of the pop with this start.
    struct Stored {
        is_checkpoint: bool,
        start: u64,
        offsets: Vec<u64>,
    }

    /// What the revival redelivers of records that it has read in this order.
    fn redelivered<'s>(records: impl Iterator<Item = &'s Stored>) -> BTreeSet<u64> {
        let mut open: BTreeMap<u64, BTreeSet<u64>> = BTreeMap::new();
        for Stored { is_checkpoint, start, offsets } in records {
            if *is_checkpoint {
                open.insert(*start, offsets.iter().copied().collect());
            } else if let Some(left) = open.get_mut(start) {
                left.retain(|offset| !offsets.contains(offset));
            }
        }
        open.into_values().flatten().collect()
    }

    proptest! {
        /// Checkpoints fall due as they were stored, and acknowledgements behind them: deliveries lead to the
        /// same redeliveries as all records would, also where the table is forgotten meanwhile.
        #[test]
        fn leaving_out_changes_no_redelivery(steps in prop::collection::vec(step(), 0..60)) {
            let settled = Settled::default();
            let mut log: Vec<Stored> = Vec::new();
            let (mut starts, mut waiting, mut delivered) = (Vec::new(), Vec::new(), Vec::new());
            for step in steps {
                let record = log.len() as u64;
                match step {
                    Step::Pop { differences } => {
                        let start = 10 * record;
                        let offsets: Vec<u64> = differences.iter().map(|difference| start + difference).collect();
                        settled.popped(&name("g", start as i64), &offsets, record, 0);
                        starts.push(start);
                        waiting.push(record);
                        log.push(Stored { is_checkpoint: true, start, offsets });
                    }
                    Step::Ack { pop, differences } if !starts.is_empty() => {
                        let start = *pop.get(&starts);
                        let offsets: Vec<u64> = differences.iter().map(|difference| start + difference).collect();
                        settled.acked(&name("g", start as i64), &offsets, record, 0);
                        log.push(Stored { is_checkpoint: false, start, offsets });
                    }
                    Step::Ack { .. } => {}
                    Step::Due { count } => {
                        let rest = waiting.split_off(count.min(waiting.len()));
                        delivered.extend(left(&settled, std::mem::replace(&mut waiting, rest)));
                    }
                    Step::Restart => settled.clear(),
                }
            }
            delivered.extend(left(&settled, waiting));
            let acks = (0..log.len() as u64).filter(|at| log.get(*at as usize).is_some_and(|each| !each.is_checkpoint));
            delivered.extend(left(&settled, acks.collect()));
            let all = log.iter().filter(|each| each.is_checkpoint);
            let all = all.chain(log.iter().filter(|each| !each.is_checkpoint));
            let some = delivered.iter().filter_map(|at| log.get(*at as usize));
            prop_assert_eq!(redelivered(some), redelivered(all));
            let table = settled.table.lock();
            prop_assert_eq!((table.open.len(), table.by_record.len(), table.settled.len()), (0, 0, 0));
            prop_assert_eq!(table.passed.len(), 0);
        }
    }
}
