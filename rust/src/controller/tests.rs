//! Tests of the decisions: refusals in their order, elections, leases, and properties of random histories.

use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;

use super::core::{Action, Core, Heartbeat, Settings};
use super::liveness::Beat;
use super::requests::{Asked, Code, Outcome, Request, SetView};
use super::state::{BrokerSet, Entry, State};

const LEASE: Duration = Duration::from_secs(2);

/// A core whose log commits immediately, with everything it did.
struct World {
    core: Core,
    now: Duration,
    token: u64,
    answers: BTreeMap<u64, Outcome>,
    notices: Vec<(String, SetView)>,
    /// Rounds that were begun and not confirmed yet.
    rounds: Vec<u64>,
    confirms: bool,
    entries: Vec<Vec<u8>>,
}

impl World {
    fn new() -> Self {
        Self::with(Settings {
            is_unclean_allowed: false,
            lease: LEASE,
            first_election_wait: Duration::from_secs(2),
        })
    }

    fn with(settings: Settings) -> Self {
        let mut world = Self {
            core: Core::new(settings, 7),
            now: Duration::from_secs(100),
            token: 0,
            answers: BTreeMap::new(),
            notices: Vec::new(),
            rounds: Vec::new(),
            confirms: true,
            entries: Vec::new(),
        };
        world.core.leads(world.now);
        world.settle();
        world
    }

    fn settle(&mut self) {
        loop {
            let actions = self.core.take_actions();
            if actions.is_empty() {
                return;
            }
            for action in actions {
                match action {
                    Action::Append { entry, .. } => {
                        self.entries.push(entry.clone());
                        self.core.committed(&entry, self.now);
                    }
                    Action::Confirm { round } if self.confirms => self.core.confirmed(round, true, self.now),
                    Action::Confirm { round } => self.rounds.push(round),
                    Action::Answer { token, outcome } => {
                        self.answers.insert(token, *outcome);
                    }
                    Action::Notify { address, set } => self.notices.push((address, *set)),
                    Action::Note { .. } => {}
                }
            }
        }
    }

    fn ask(&mut self, request: Request) -> Option<Outcome> {
        self.ask_of("c", "b", request)
    }

    fn ask_of(&mut self, cluster: &str, name: &str, request: Request) -> Option<Outcome> {
        self.token += 1;
        let asked = Asked { cluster: cluster.to_owned(), name: name.to_owned(), request };
        self.core.request(self.token, asked, self.now);
        self.settle();
        self.answers.get(&self.token).cloned()
    }

    fn code(&mut self, request: Request) -> Code {
        self.ask(request).expect("answered").code
    }

    fn apply(&mut self, id: i64) -> Code {
        self.code(Request::ApplyBrokerId { id, check_code: format!("h:{id};1") })
    }

    fn elect(&mut self, id: i64, is_designated: bool) -> Option<Outcome> {
        self.ask(Request::Elect { id, is_designated })
    }

    fn alter(&mut self, master: i64, epoch: i32, in_sync: &[i64], in_sync_epoch: i32) -> Code {
        self.alter_as(master, epoch, in_sync, in_sync_epoch, false)
    }

    fn alter_as(
        &mut self,
        master: i64,
        master_epoch: i32,
        in_sync: &[i64],
        in_sync_epoch: i32,
        waits_for_all: bool,
    ) -> Code {
        let in_sync = in_sync.iter().copied().collect();
        self.code(Request::AlterSyncStateSet { master, master_epoch, in_sync, in_sync_epoch, waits_for_all })
    }

    /// A heartbeat on the connection of the replica; a master gets a lease if it `asks` for one.
    fn beat(&mut self, id: i64, max_offset: i64, asks: bool) -> Option<Outcome> {
        self.beat_on(id, 10 + id as u64, max_offset, asks, false)
    }

    fn beat_on(
        &mut self,
        id: i64,
        connection: u64,
        max_offset: i64,
        asks: bool,
        releases: bool,
    ) -> Option<Outcome> {
        let timeout = Duration::from_secs(10);
        let beat = Beat {
            connection,
            at: self.now,
            timeout,
            epoch: 1,
            max_offset,
            confirm_offset: 0,
            priority: i32::MAX,
            takes_leases: asks,
        };
        self.token += 1;
        let heartbeat = Heartbeat { name: "b".to_owned(), id, beat, releases };
        self.core.heartbeat(asks.then_some(self.token), heartbeat, self.now);
        self.settle();
        self.answers.get(&self.token).cloned()
    }

    fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        while self.now < end {
            self.now += Duration::from_millis(100).min(end - self.now);
            self.core.tick(self.now);
            self.settle();
        }
    }

    fn set(&self) -> SetView {
        self.core.view("b", self.now).expect("known")
    }

    fn master(&self) -> Option<i64> {
        self.set().master.map(|(id, _)| id)
    }

    /// Two replicas in sync, the first leads.
    fn pair() -> Self {
        Self::pair_as(false)
    }

    /// Likewise; the master may acknowledge only what both have.
    fn pair_as(waits_for_all: bool) -> Self {
        let mut world = Self::new();
        assert_eq!(world.apply(1), Code::Success);
        world.beat(1, 0, false);
        assert_eq!(world.elect(1, false).unwrap().code, Code::Success);
        assert_eq!(world.apply(2), Code::Success);
        world.beat(2, 0, false);
        assert_eq!(world.alter_as(1, 1, &[1, 2], 1, waits_for_all), Code::Success);
        world
    }
}

#[test]
fn ids_are_given_once_and_a_repetition_has_no_effect() {
    let mut world = World::new();
    assert_eq!(world.ask(Request::NextBrokerId).unwrap().set, None);
    assert_eq!(world.apply(2), Code::BrokerIdInvalid, "the set is unknown");
    assert_eq!(world.apply(1), Code::Success);
    assert_eq!(world.apply(1), Code::Success, "the same code");
    let other = Request::ApplyBrokerId { id: 1, check_code: "other:1;2".to_owned() };
    assert_eq!(world.code(other), Code::BrokerIdInvalid);
    assert_eq!(world.set().next_id, 2);
    assert_eq!(world.entries.len(), 1);
    let foreign = Request::ApplyBrokerId { id: 2, check_code: "x:1;2".to_owned() };
    assert_eq!(world.ask_of("elsewhere", "b", foreign).unwrap().code, Code::InvalidRequest);
}

#[test]
fn registration_needs_an_id_and_takes_over_a_new_address() {
    let mut world = World::new();
    let register =
        |id| Request::Register { id, address: "new:1".to_owned(), connection: 1, has_started: false };
    assert_eq!(world.code(register(1)), Code::BrokerNeedToBeRegistered);
    world.apply(1);
    assert_eq!(world.code(register(2)), Code::BrokerNeedToBeRegistered);
    let registered = world.ask(register(1)).unwrap();
    assert_eq!(registered.code, Code::Success);
    let set = registered.set.unwrap();
    assert_eq!(set.replicas[0].address, "new:1");
    assert_eq!((set.master, set.master_epoch), (None, 0));
}

#[test]
fn an_alteration_is_refused_in_the_order_of_the_original() {
    let mut world = World::new();
    assert_eq!(world.alter(1, 1, &[1], 1), Code::AlterSyncStateSetFailed, "the set is unknown");
    let mut world = World::pair();
    assert_eq!(world.alter(9, 9, &[1, 2], 9), Code::AlterSyncStateSetFailed, "the same set");
    assert_eq!(world.alter(2, 9, &[1], 9), Code::InvalidMaster);
    assert_eq!(world.alter(1, 9, &[1], 9), Code::FencedMasterEpoch);
    assert_eq!(world.alter(1, 1, &[1], 9), Code::FencedSyncStateSetEpoch);
    assert_eq!(world.alter(1, 1, &[1, 3], 2), Code::InvalidReplicas);
    world.core.closed(12, world.now);
    assert_eq!(world.alter(1, 1, &[2], 2), Code::BrokerNotAlive);
    world.beat(2, 0, false);
    assert_eq!(world.alter(1, 1, &[2], 2), Code::AlterSyncStateSetFailed, "without the master");
    assert_eq!(world.alter(1, 1, &[1], 2), Code::Success);
    assert_eq!((world.set().in_sync, world.set().in_sync_epoch), (vec![1], 3));
}

#[test]
fn the_first_election_takes_the_longest_log_of_all_registered_replicas() {
    let mut world = World::new();
    world.apply(1);
    world.apply(2);
    world.beat(1, 0, false);
    assert_eq!(world.elect(1, false), None, "it waits for the other");
    let waiting = world.token;
    world.beat(2, 500, false);
    let elected = world.answers[&waiting].clone();
    assert_eq!(elected.code, Code::Success);
    assert_eq!(elected.set.unwrap().master, Some((2, "h:2".to_owned())));
}

#[test]
fn the_first_election_does_not_wait_for_a_silent_replica_for_ever() {
    let mut world = World::new();
    world.apply(1);
    world.apply(2);
    world.beat(1, 0, false);
    assert_eq!(world.elect(1, false), None);
    let waiting = world.token;
    world.pass(Duration::from_millis(2_200));
    assert_eq!(world.answers[&waiting].code, Code::Success);
    assert_eq!(world.master(), Some(1));
}

#[test]
fn a_master_that_never_was_alive_is_elected_if_it_asks_first() {
    let mut world = World::new();
    world.apply(1);
    assert_eq!(world.elect(1, false).unwrap().code, Code::Success);
    assert_eq!(world.elect(1, false).unwrap().code, Code::ElectMasterFailed, "it is not alive");
}

#[test]
fn a_lost_master_without_a_lease_is_replaced_at_once() {
    let mut world = World::pair();
    world.notices.clear();
    world.core.closed(11, world.now);
    world.settle();
    let set = world.set();
    assert_eq!((set.master.clone().map(|master| master.0), set.master_epoch), (Some(2), 2));
    assert_eq!((set.in_sync, set.in_sync_epoch), (vec![2], 3));
    assert_eq!(world.notices.iter().map(|(address, _)| address.as_str()).collect::<Vec<_>>(), ["h:2"]);
}

#[test]
fn a_lost_master_is_replaced_only_after_its_lease_and_the_margin() {
    let mut world = World::pair();
    assert_eq!(world.beat(1, 0, true).unwrap().lease_ms, Some(2_000));
    let granted = world.now;
    world.core.closed(11, world.now);
    world.settle();
    while world.master() == Some(1) {
        assert!(world.now < granted + Duration::from_millis(2_400), "no election");
        world.pass(Duration::from_millis(50));
        world.beat(2, 0, false);
    }
    assert_eq!(world.master(), Some(2));
    assert!(world.now >= granted + Duration::from_millis(2_200), "elected within the lease");
}

#[test]
fn a_lost_master_that_waits_for_all_is_replaced_within_its_lease() {
    let mut world = World::pair_as(true);
    world.beat(1, 0, true);
    world.pass(Duration::from_millis(100));
    world.core.closed(11, world.now);
    world.settle();
    world.pass(Duration::from_millis(400));
    world.beat(2, 0, false);
    assert_eq!(world.master(), Some(1), "it may reconnect");
    world.pass(Duration::from_millis(100));
    assert_eq!((world.master(), world.set().master_epoch), (Some(2), 2));
    // The next set has not promised it yet.
    assert!(!world.core.state().get("b").unwrap().waits_for_all);
}

#[test]
fn within_the_lease_only_a_replica_that_has_shown_life_since_the_loss_is_elected() {
    let mut world = World::pair_as(true);
    world.beat(2, 0, false);
    world.beat(1, 0, true);
    world.pass(Duration::from_millis(100));
    world.core.closed(11, world.now);
    world.pass(Duration::from_secs(1));
    assert_eq!(world.master(), Some(1), "the other may have lost power with the master");
    world.beat(2, 0, false);
    world.pass(Duration::from_millis(100));
    assert_eq!(world.master(), Some(2));
}

#[test]
fn a_living_master_that_waits_for_all_keeps_its_lease() {
    let mut world = World::pair_as(true);
    world.beat(1, 0, true);
    assert_eq!(world.elect(2, true), None, "it waits for the lease");
    world.core.closed(11, world.now);
    world.pass(Duration::from_millis(300));
    world.beat_on(1, 31, 0, true, false);
    world.beat(2, 0, false);
    world.pass(Duration::from_millis(700));
    assert_eq!(world.master(), Some(1), "it has reconnected");
}

#[test]
fn a_master_that_takes_leases_is_lost_soon_after_its_lease() {
    let mut world = World::pair();
    world.beat(1, 0, true);
    for _ in 0..27 {
        world.pass(Duration::from_millis(100));
        world.beat(2, 0, false);
    }
    assert_eq!(world.master(), Some(2), "without waiting for 10 s");
}

#[test]
fn a_controller_that_was_paused_waits_for_the_next_heartbeats() {
    let mut world = World::pair();
    world.beat(1, 0, true);
    world.pass(Duration::from_millis(100));
    world.now += Duration::from_secs(20);
    world.core.tick(world.now);
    world.settle();
    world.beat(2, 0, false);
    assert_eq!(world.master(), Some(1), "it may have sent heartbeats meanwhile");
    world.pass(Duration::from_secs(3));
    assert_eq!(world.master(), Some(2));
}

#[test]
fn a_new_leader_does_not_wait_long_for_a_master_that_it_never_received_a_heartbeat_from() {
    for (waits_for_all, limit) in [(true, 1_200), (false, 10_200)] {
        let mut world = World::pair_as(waits_for_all);
        let entries = world.entries.clone();
        // A controller that has just started.
        world.core = Core::new(
            Settings { is_unclean_allowed: false, lease: LEASE, first_election_wait: Duration::ZERO },
            8,
        );
        entries.iter().for_each(|entry| world.core.committed(entry, world.now));
        world.core.leads(world.now);
        let began = world.now;
        while world.master() == Some(1) && world.now < began + Duration::from_secs(20) {
            world.beat(2, 0, false);
            world.pass(Duration::from_millis(100));
        }
        let taken = (world.now - began).as_millis();
        assert_eq!(world.master(), Some(2));
        assert!(taken > limit - 300 && taken <= limit, "{waits_for_all}: {taken} ms");
    }
}

#[test]
fn until_a_new_master_reports_a_set_another_of_the_set_before_may_replace_it() {
    let mut world = World::new();
    for id in 1..=3 {
        world.apply(id);
        world.beat(id, 0, true);
    }
    assert_eq!(world.elect(1, false).unwrap().code, Code::Success);
    assert_eq!(world.alter_as(1, 1, &[1, 2, 3], 1, true), Code::Success);
    world.core.closed(11, world.now);
    world.settle();
    assert_eq!((world.master(), world.set().in_sync), (Some(2), vec![2]));
    // It has lost its power before it leads.
    world.core.closed(12, world.now);
    world.settle();
    world.beat(3, 0, true);
    world.pass(Duration::from_millis(500));
    assert_eq!((world.master(), world.set().in_sync), (Some(3), vec![3]));
    let before = world.set().in_sync_epoch;
    assert_eq!(world.alter_as(3, 3, &[3], before, true), Code::Success, "the first report");
    let after = world.set().in_sync_epoch;
    assert_eq!(world.alter_as(3, 3, &[3], after, true), Code::AlterSyncStateSetFailed, "the same set");
    world.core.closed(13, world.now);
    world.beat_on(2, 40, 0, true, false);
    world.pass(Duration::from_secs(5));
    assert_eq!(world.master(), None, "it may have acknowledged alone since");
}

#[test]
fn a_released_lease_lets_the_election_proceed_at_once() {
    let mut world = World::pair();
    world.beat(1, 0, true);
    assert_eq!(world.elect(2, true), None, "it waits for the lease");
    let waiting = world.token;
    assert_eq!(world.beat(1, 0, true).unwrap().lease_ms, Some(0), "withdrawn");
    world.beat_on(1, 11, 0, true, true);
    assert_eq!(world.answers[&waiting].code, Code::Success);
    assert_eq!(world.master(), Some(2));
    assert_eq!(world.beat(1, 0, true).unwrap().lease_ms, None, "it leads no longer");
}

#[test]
fn a_late_heartbeat_on_an_old_connection_grants_no_lease_and_does_not_revive() {
    let mut world = World::pair();
    world.beat_on(1, 20, 7, true, false);
    assert_eq!(world.beat_on(1, 11, 3, true, false).unwrap().lease_ms, None);
    world.core.closed(11, world.now);
    world.settle();
    assert_eq!(world.master(), Some(1), "the closed connection was not the newest");
}

#[test]
fn a_lease_needs_a_confirmation_that_began_after_the_heartbeat() {
    let mut world = World::pair();
    world.confirms = false;
    assert_eq!(world.beat(1, 0, true), None);
    let first = world.token;
    assert_eq!(world.beat_on(1, 11, 0, true, false), None, "a newer heartbeat of the same broker");
    let second = world.token;
    assert_eq!(world.answers[&first].lease_ms, None, "replaced by the newer one");
    world.core.confirmed(1, true, world.now);
    world.settle();
    assert!(!world.answers.contains_key(&second), "the first round began before it");
    world.core.confirmed(2, false, world.now);
    world.settle();
    assert_eq!(world.answers[&second].lease_ms, None, "another controller leads");
}

#[test]
fn a_new_leader_assumes_full_leases() {
    let mut world = World::pair();
    world.core.follows(world.now);
    assert_eq!(world.elect(2, true).unwrap().code, Code::NotLeader);
    world.core.leads(world.now);
    world.core.closed(11, world.now);
    world.settle();
    world.pass(Duration::from_secs(2));
    assert_eq!(world.master(), Some(1));
    world.pass(Duration::from_millis(300));
    assert_eq!(world.master(), Some(2));
}

#[test]
fn without_a_candidate_the_epoch_rises_once_and_the_returning_replica_is_elected() {
    let mut world = World::pair();
    world.alter(1, 1, &[1], 2);
    world.core.closed(11, world.now);
    world.settle();
    assert_eq!(world.master(), Some(1), "it may reconnect");
    world.pass(Duration::from_secs(3));
    assert_eq!((world.master(), world.set().master_epoch), (None, 2));
    assert_eq!(world.elect(2, false).unwrap().code, Code::ElectMasterFailed);
    assert_eq!(world.elect(2, true).unwrap().code, Code::ElectMasterFailed);
    world.beat_on(1, 30, 0, false, false);
    assert_eq!((world.master(), world.set().master_epoch), (Some(1), 3));
}

#[test]
fn a_reconnection_costs_no_epoch() {
    let mut world = World::pair();
    world.alter(1, 1, &[1], 2);
    world.core.closed(11, world.now);
    world.pass(Duration::from_millis(500));
    world.beat_on(1, 30, 0, false, false);
    world.pass(Duration::from_secs(3));
    assert_eq!((world.master(), world.set().master_epoch), (Some(1), 1));
}

#[test]
fn an_unclean_election_needs_the_setting() {
    let mut world = World::pair();
    world.alter(1, 1, &[1], 2);
    world.core.closed(11, world.now);
    world.pass(Duration::from_secs(3));
    assert_eq!(world.master(), None);
    world.core.set_settings(Settings {
        is_unclean_allowed: true,
        lease: LEASE,
        first_election_wait: Duration::ZERO,
    });
    world.pass(Duration::from_millis(100));
    assert_eq!(world.master(), Some(2));
}

#[test]
fn a_designated_replica_must_be_in_sync_and_alive_and_not_lead_already() {
    let mut world = World::pair();
    assert_eq!(world.elect(1, true).unwrap().code, Code::MasterStillExist);
    assert_eq!(world.elect(3, true).unwrap().code, Code::BrokerNeedToBeRegistered);
    let kept = world.elect(2, false).unwrap();
    assert_eq!((kept.code, kept.set.unwrap().master.unwrap().0), (Code::MasterStillExist, 1));
    world.alter(1, 1, &[1], 2);
    assert_eq!(world.elect(2, true).unwrap().code, Code::ElectMasterFailed);
}

#[test]
fn a_restarted_master_gives_way_to_one_that_kept_its_log() {
    let mut world = World::pair();
    let register = Request::Register { id: 1, address: "h:1".to_owned(), connection: 40, has_started: false };
    world.ask_of("c", "b", register);
    assert_eq!((world.master(), world.set().master_epoch), (Some(2), 2));
}

#[test]
fn a_restarted_master_without_others_leads_in_a_new_epoch() {
    let mut world = World::pair();
    world.alter(1, 1, &[1], 2);
    let register = Request::Register { id: 1, address: "h:1".to_owned(), connection: 40, has_started: false };
    assert_eq!(world.ask_of("c", "b", register).unwrap().set.unwrap().master, None, "not alive yet");
    world.beat_on(1, 40, 0, false, false);
    assert_eq!(world.elect(1, false).unwrap().code, Code::Success);
    assert_eq!((world.master(), world.set().master_epoch), (Some(1), 2));
}

#[test]
fn a_registration_that_was_not_agreed_on_is_a_start_again() {
    let mut world = World::pair();
    let register = Request::Register { id: 2, address: "h:2".to_owned(), connection: 40, has_started: false };
    let asked = Asked { cluster: "c".to_owned(), name: "b".to_owned(), request: register.clone() };
    world.core.request(900, asked, world.now);
    // Its entry is lost with the leadership.
    drop(world.core.take_actions());
    world.core.follows(world.now);
    world.core.leads(world.now);
    world.settle();
    assert_eq!(world.code(register), Code::Success);
    assert!(world.core.state().get("b").unwrap().restarted.contains(&2));
}

#[test]
fn cleaning_spares_the_living_and_the_last_id_takes_the_set_along() {
    let mut world = World::pair();
    let clean = |ids: Option<&[i64]>, may_live| Request::Clean {
        ids: ids.map(|ids| ids.iter().copied().collect()),
        may_live,
    };
    assert_eq!(world.code(clean(None, false)), Code::InvalidCleanBrokerMetadata, "it has a master");
    assert_eq!(world.code(clean(Some(&[2]), false)), Code::InvalidCleanBrokerMetadata, "alive");
    assert_eq!(world.code(clean(Some(&[2]), true)), Code::Success);
    assert_eq!((world.set().in_sync, world.set().in_sync_epoch), (vec![1], 3));
    assert_eq!(world.code(clean(Some(&[1]), true)), Code::Success);
    assert!(world.core.view("b", world.now).is_none());
    assert_eq!(world.code(clean(None, false)), Code::InvalidCleanBrokerMetadata, "unknown");
}

#[test]
fn requests_without_a_commit_time_out_and_the_queue_is_bounded() {
    let mut core =
        Core::new(Settings { is_unclean_allowed: false, lease: LEASE, first_election_wait: LEASE }, 1);
    let now = Duration::from_secs(1);
    core.leads(now);
    for token in 0..1_100 {
        let request = Request::ApplyBrokerId { id: 1, check_code: "h:1;1".to_owned() };
        core.request(token, Asked { cluster: "c".into(), name: "b".into(), request }, now);
    }
    let busy = |action: &Action| matches!(action, Action::Answer { outcome, .. } if outcome.code == Code::SystemBusy);
    assert_eq!(core.take_actions().iter().filter(|action| busy(action)).count(), 1_100 - 1_025);
    core.tick(now + Duration::from_secs(6));
    let late = |action: &Action| matches!(action, Action::Answer { outcome, .. } if outcome.code == Code::SystemError);
    assert_eq!(core.take_actions().iter().filter(|action| late(action)).count(), 1_025);
}

#[derive(Debug, Clone)]
enum Step {
    Ask(Request),
    Beat { id: i64, connection: u64, max_offset: i64, asks: bool, releases: bool },
    Close(u64),
    Pass(u64),
    Lead(bool),
}

fn step() -> impl Strategy<Value = Step> {
    let id = 1..5_i64;
    prop_oneof![
        id.clone().prop_map(|id| Step::Ask(Request::ApplyBrokerId { id, check_code: format!("h:{id};1") })),
        id.clone().prop_map(|id| Step::Ask(Request::Register {
            id,
            address: format!("h:{id}"),
            connection: 10 + id as u64,
            has_started: false
        })),
        (id.clone(), any::<bool>())
            .prop_map(|(id, is_designated)| Step::Ask(Request::Elect { id, is_designated })),
        (id.clone(), 0..6_i32, proptest::collection::btree_set(1..5_i64, 0..4), 0..8_i32, any::<bool>())
            .prop_map(|(master, master_epoch, in_sync, in_sync_epoch, waits_for_all)| {
                Step::Ask(Request::AlterSyncStateSet {
                    master,
                    master_epoch,
                    in_sync,
                    in_sync_epoch,
                    waits_for_all,
                })
            }),
        (proptest::option::of(proptest::collection::btree_set(1..5_i64, 1..3)), any::<bool>())
            .prop_map(|(ids, may_live)| Step::Ask(Request::Clean { ids, may_live })),
        (id, 10..20_u64, 0..50_i64, any::<bool>(), proptest::bool::weighted(0.1)).prop_map(
            |(id, connection, max_offset, asks, releases)| Step::Beat {
                id,
                connection,
                max_offset,
                asks,
                releases
            }
        ),
        (10..20_u64).prop_map(Step::Close),
        (1..3_000_u64).prop_map(Step::Pass),
        proptest::bool::weighted(0.8).prop_map(Step::Lead),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn epochs_only_grow_leases_exclude_each_other_and_the_log_rebuilds_the_state(
        steps in proptest::collection::vec(step(), 1..60)
    ) {
        let mut world = World::new();
        // (epoch of the master, its id, the end of its lease on its own clock)
        let mut leases: Vec<(i64, Duration)> = Vec::new();
        let mut replayed = State::default();
        let mut is_leader = true;
        for step in steps {
            let before = world.core.view("b", world.now);
            let known = world.core.state().get("b").cloned();
            let promises = matches!(&step, Step::Ask(Request::AlterSyncStateSet { waits_for_all: true, .. }));
            match step {
                Step::Ask(request) => {
                    if matches!(request, Request::Clean { may_live: true, .. }) {
                        // The operator answers for the removal of a living master.
                        leases.clear();
                    }
                    world.ask_of("c", "b", request);
                }
                Step::Beat { id, connection, max_offset, asks, releases } => {
                    if releases {
                        leases.retain(|(holder, _)| *holder != id);
                    }
                    let answer = world.beat_on(id, connection, max_offset, asks, releases);
                    if let Some(ms) = answer.and_then(|outcome| outcome.lease_ms) {
                        leases.push((id, world.now + Duration::from_millis(ms)));
                    }
                }
                Step::Close(connection) => {
                    world.core.closed(connection, world.now);
                    world.settle();
                }
                Step::Pass(ms) => world.pass(Duration::from_millis(ms)),
                Step::Lead(leads) if leads != is_leader => {
                    is_leader = leads;
                    if leads { world.core.leads(world.now) } else { world.core.follows(world.now) }
                    world.settle();
                }
                Step::Lead(_) => {}
            }
            let after = world.core.view("b", world.now);
            if let (Some(before), Some(after)) = (&before, &after) {
                // Every id was removed and given again, otherwise.
                if after.next_id >= before.next_id && after.master_epoch != 0 {
                    prop_assert!(after.master_epoch >= before.master_epoch);
                    let (was, is) = (before.master.as_ref().map(|m| m.0), after.master.as_ref().map(|m| m.0));
                    prop_assert!(was == is || is.is_none() || after.master_epoch > before.master_epoch);
                }
            }
            leases.retain(|(_, end)| *end > world.now);
            if let Some(id) = after.as_ref().and_then(|set| set.master.as_ref()).map(|master| master.0) {
                let holds = |lease: &(i64, Duration)| lease.0 != id;
                let is_new = before.as_ref().and_then(|set| set.master.as_ref()).is_none_or(|m| m.0 != id);
                // Otherwise the holder of the lease acknowledges nothing without the new master.
                let blocks = |set: BrokerSet| {
                    set.waits_for_all && set.in_sync.contains(&id) || set.before.contains(&id)
                };
                let must_wait = !promises && !known.is_some_and(blocks);
                prop_assert!(
                    !is_new || !must_wait || !leases.iter().any(holds),
                    "{id} was elected within {leases:?}"
                );
                if is_new {
                    leases.retain(|(holder, _)| *holder == id);
                }
            }
            for entry in world.entries.drain(..) {
                let decoded = Entry::decode(&entry).unwrap();
                prop_assert_eq!(decoded.encode(), entry);
                decoded.events.iter().for_each(|event| replayed.apply(event));
            }
            prop_assert_eq!(&replayed, world.core.state());
            prop_assert_eq!(State::decode(&replayed.encode()), Some(replayed.clone()));
        }
    }
}
