//! Controllers of a group in one process, connected without sockets.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{ControllerId, Group, RaftLog};
use crate::controller::log::{Log, Report};
use crate::controller::state::{Entry, Event, Replica, State};

/// Time for a step on a busy machine.
const STEP_MAX: Duration = Duration::from_secs(30);

/// A controller with what its log reported.
struct Member {
    log: Arc<RaftLog>,
    state: State,
    leads: bool,
    confirmed: BTreeMap<u64, bool>,
}

/// A group whose calls reach every controller that is up and not cut off.
struct World {
    folder: PathBuf,
    members: BTreeMap<ControllerId, Member>,
    cut_off: BTreeSet<ControllerId>,
    /// Token of a served call → the caller and its number.
    served: BTreeMap<u64, (ControllerId, u64)>,
    tokens: u64,
}

impl World {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("rmqpy-raft-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        let (members, cut_off, served) = (BTreeMap::new(), BTreeSet::new(), BTreeMap::new());
        let mut world = Self { folder, members, cut_off, served, tokens: 0 };
        for id in ["n0", "n1", "n2"] {
            world.start(id);
        }
        world
    }

    fn start(&mut self, id: &str) {
        let group = Group { own: named(id), members: ["n0", "n1", "n2"].map(named).into() };
        let log = RaftLog::open(&self.folder.join(id), group).expect("opens");
        let member =
            Member { log: Arc::new(log), state: State::default(), leads: false, confirmed: BTreeMap::new() };
        self.members.insert(named(id), member);
    }

    fn stop(&mut self, id: &str) {
        if let Some(member) = self.members.remove(&named(id)) {
            member.log.stop();
        }
    }

    fn reaches(&self, one: &str, other: &str) -> bool {
        !self.cut_off.contains(&named(one)) && !self.cut_off.contains(&named(other))
    }

    /// Delivers what waits.
    fn pump(&mut self) {
        let ids: Vec<ControllerId> = self.members.keys().copied().collect();
        for id in ids {
            let reports = self.members[&id].log.mailbox().take();
            for report in reports {
                self.report(&id, report);
            }
        }
        // Each log has a thread and timers.
        std::thread::sleep(Duration::from_millis(1));
    }

    fn report(&mut self, id: &str, report: Report) {
        let member = self.members.get_mut(&named(id)).expect("a member");
        match report {
            Report::Restored(state) => member.state = State::decode(&state).expect("a state"),
            Report::Committed(entry) => {
                let entry = Entry::decode(&entry).expect("an entry");
                entry.events.iter().for_each(|event| member.state.apply(event));
            }
            Report::Leads => member.leads = true,
            Report::Follows => member.leads = false,
            Report::Confirmed { round, is_leader } => drop(member.confirmed.insert(round, is_leader)),
            Report::Call { call, target, body, .. } => {
                if self.reaches(id, &target) && self.members.contains_key(&named(&target)) {
                    self.tokens += 1;
                    self.served.insert(self.tokens, (named(id), call));
                    self.members[&named(&target)].log.serve(self.tokens, body);
                } else {
                    self.members[&named(id)].log.replied(call, None);
                }
            }
            Report::Replied { token, body } => {
                let (caller, call) = self.served.remove(&token).expect("a served call");
                let body = self.reaches(id, &caller).then_some(body);
                if let Some(caller) = self.members.get(&caller) {
                    caller.log.replied(call, body.as_deref());
                }
            }
            Report::Failed { reason, .. } | Report::Broken(reason) => panic!("{id}: {reason}"),
        }
    }

    fn until<T>(&mut self, what: &str, mut found: impl FnMut(&mut Self) -> Option<T>) -> T {
        let began = Instant::now();
        loop {
            if let Some(found) = found(self) {
                return found;
            }
            assert!(began.elapsed() < STEP_MAX, "{what}");
            self.pump();
        }
    }

    fn leading(&self) -> Option<ControllerId> {
        let up = self.members.iter().filter(|(id, member)| member.leads && !self.cut_off.contains(*id));
        up.map(|(id, _)| *id).next()
    }

    fn leader(&mut self) -> ControllerId {
        self.until("a leader that is not cut off", |world| world.leading())
    }

    /// Registers broker sets, at another leader if the first one is deposed meanwhile.
    fn register(&mut self, numbers: std::ops::Range<u64>) {
        for number in numbers {
            let mut asked = None;
            self.until("an entry at a leader", |world| {
                let leader = world.leading()?;
                if asked.replace(leader) != Some(leader) {
                    world.members[&leader].log.append(number, entry(number));
                }
                world.members[&leader].state.get(&format!("b{number}")).is_some().then_some(())
            });
        }
    }

    fn all_equal(&mut self, sets: usize) {
        self.until("equal states", |world| {
            let members = world.members.iter().filter(|(id, _)| !world.cut_off.contains(*id));
            let mut states = members.map(|(_, member)| &member.state);
            let first = states.next()?;
            (first.sets().count() == sets && states.all(|state| state == first)).then_some(())
        });
    }
}

impl Drop for World {
    fn drop(&mut self) {
        for member in self.members.values() {
            member.log.stop();
        }
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn named(id: &str) -> ControllerId {
    ControllerId::from(id).expect("a short name")
}

fn entry(number: u64) -> Vec<u8> {
    let replica = Replica { address: format!("h:{number}"), check_code: "h;1".to_owned() };
    let (name, cluster) = (format!("b{number}"), "c".to_owned());
    let events = vec![Event::BrokerIdApplied { name, cluster, id: 1, replica }];
    Entry { proposer: 1, proposal: number, events }.encode()
}

#[test]
fn every_controller_of_a_group_has_what_its_leader_was_told() {
    let mut world = World::new("agree");
    world.register(0..20);
    world.all_equal(20);
    let leader = world.leader();
    world.members[&leader].log.confirm(7);
    let is_leader = world.until("a confirmation", |world| world.members[&leader].confirmed.get(&7).copied());
    assert!(is_leader);
    assert_eq!(world.members.values().filter(|member| member.leads).count(), 1);
    let known: BTreeSet<_> = world.until("that all know the leader", |world| {
        let known: BTreeSet<_> = world.members.values().map(|member| member.log.leader()).collect();
        (known.len() == 1).then_some(known)
    });
    assert_eq!(known, BTreeSet::from([Some(leader)]));
}

#[test]
fn another_controller_leads_after_the_leader_has_stopped_and_it_catches_up_when_it_is_back() {
    let mut world = World::new("stop");
    world.register(0..3);
    let first = world.leader();
    world.stop(&first);
    world.register(3..6);
    let second = world.leader();
    assert_ne!(first, second);
    world.start(&first);
    world.all_equal(6);
}

#[test]
fn a_leader_that_is_cut_off_confirms_nothing_and_follows_the_new_one_afterwards() {
    let mut world = World::new("cut");
    world.register(0..2);
    let first = world.leader();
    world.cut_off.insert(first);
    world.members[&first].log.confirm(1);
    let is_leader =
        world.until("an end of the round", |world| world.members[&first].confirmed.get(&1).copied());
    assert!(!is_leader);
    world.register(2..4);
    world.until("that it stops leading", |world| (!world.members[&first].leads).then_some(()));
    world.cut_off.clear();
    world.all_equal(4);
}

#[test]
fn without_a_majority_nothing_is_agreed_on() {
    let mut world = World::new("majority");
    world.register(0..1);
    let leader = world.leader();
    let others: Vec<_> = world.members.keys().filter(|id| **id != leader).copied().collect();
    others.iter().for_each(|id| world.stop(id));
    world.members[&leader].log.append(1, entry(1));
    world.until("that it stops leading", |world| (!world.members[&leader].leads).then_some(()));
    assert!(world.members[&leader].state.get("b1").is_none());
    others.iter().for_each(|id| world.start(id));
    world.register(2..3);
}

#[test]
fn a_group_that_stopped_as_a_whole_goes_on_with_everything_after_snapshots_too() {
    let mut world = World::new("restart");
    world.register(0..5);
    for number in 0..1_300 {
        let leader = world.leader();
        world.members[&leader].log.append(5, entry(5));
        if number % 50 == 0 {
            world.pump();
        }
    }
    world.register(6..7);
    world.all_equal(7);
    let ids: Vec<_> = world.members.keys().copied().collect();
    ids.iter().for_each(|id| world.stop(id));
    assert!(ids.iter().any(|id| world.folder.join(id.as_str()).join("raft-snapshot").exists()));
    ids.iter().for_each(|id| world.start(id));
    world.register(7..8);
    world.all_equal(8);
    world.stop("n1");
    std::fs::remove_dir_all(world.folder.join("n1")).expect("its folder");
    world.start("n1");
    world.all_equal(8);
}
