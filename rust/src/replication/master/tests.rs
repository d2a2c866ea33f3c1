//! Tests of the master's side of replication.

use super::*;

const NOW: Duration = Duration::from_secs(100);
const ONE: ConnectionId = ConnectionId(1);
const OTHER: ConnectionId = ConnectionId(2);

fn master(copies: usize, first: u64, end: u64) -> Master {
    let rules = MasterRules {
        copies,
        gap_bytes_max: 256,
        silence_max: Duration::from_secs(20),
        heartbeat_interval: Duration::from_secs(5),
        transfer_bytes_max: 32,
        unreported_bytes_max: 100,
        file_bytes: 1000,
    };
    let (first, end) = (PhysicalOffset(first), PhysicalOffset(end));
    Master::new(rules, LogState { epochs: Epochs::default(), first, end }, PhysicalOffset(0))
}

fn joined(master: &mut Master, id: ConnectionId, end: u64) -> Result<(), Distrust> {
    master.connected(id, CopyFrom::First, NOW);
    master.reported(id, PhysicalOffset(end), NOW)
}

fn sent(master: &mut Master, id: ConnectionId) -> Vec<(u64, u32)> {
    std::iter::from_fn(|| master.next(id, NOW)).map(|header| (header.at.0, header.bytes)).collect()
}

#[test]
fn all_replicas_in_sync_confirm_and_one_that_is_gone_holds_them_up() {
    let mut master = master(2, 0, 100);
    let require = |master: &mut Master, slaves: &[u64]| {
        let slaves: BTreeSet<u64> = slaves.iter().copied().collect();
        master.require(InSyncSet { count: slaves.len() + 1, slaves: Some(slaves) });
    };
    require(&mut master, &[]);
    assert_eq!((master.confirmed().0, master.in_sync()), (100, 1), "this replica alone is in sync");
    require(&mut master, &[7, 8]);
    master.grown(PhysicalOffset(200));
    for (id, broker_id, end) in [(ONE, 7, 100), (OTHER, 8, 100)] {
        joined(&mut master, id, end).unwrap();
        master.identified(id, broker_id);
    }
    assert!(master.next(ONE, NOW).is_some() && master.next(OTHER, NOW).is_some());
    master.reported(ONE, PhysicalOffset(132), NOW).unwrap();
    assert_eq!((master.confirmed().0, master.in_sync()), (100, 3), "one of two is not enough");
    master.reported(OTHER, PhysicalOffset(120), NOW).unwrap();
    assert_eq!(master.confirmed().0, 120);
    master.disconnected(OTHER);
    assert_eq!(master.confirmed().0, 120, "a replica that is gone is still in the set");
    require(&mut master, &[7]);
    assert_eq!(master.confirmed().0, 132);
    require(&mut master, &[]);
    assert_eq!(master.confirmed().0, 200);
}

#[test]
fn a_slave_gets_missing_bytes_in_transfers_that_end_with_files() {
    let mut master = master(2, 0, 1010);
    assert_eq!(master.next(ONE, NOW), None);
    joined(&mut master, ONE, 950).unwrap();
    assert_eq!(sent(&mut master, ONE), [(950, 32), (982, 18), (1000, 10)]);
    master.grown(PhysicalOffset(1020));
    assert_eq!(sent(&mut master, ONE), [(1010, 10)]);
}

#[test]
fn no_transfer_crosses_the_beginning_of_an_epoch() {
    let mut master = master(2, 0, 40);
    for (epoch, start) in [(1, 0), (2, 10), (3, 15)] {
        master.epochs.begin(epoch, PhysicalOffset(start)).unwrap();
    }
    joined(&mut master, ONE, 4).unwrap();
    assert_eq!(sent(&mut master, ONE), [(4, 6), (10, 5), (15, 25)]);
}

#[test]
fn a_slave_that_reports_nothing_is_sent_a_bounded_amount() {
    let mut master = master(2, 0, 900);
    joined(&mut master, ONE, 500).unwrap();
    assert_eq!(sent(&mut master, ONE).iter().map(|(_, bytes)| bytes).sum::<u32>(), 100);
    master.reported(ONE, PhysicalOffset(550), NOW).unwrap();
    assert_eq!(sent(&mut master, ONE).iter().map(|(_, bytes)| bytes).sum::<u32>(), 50);
}

#[test]
fn an_empty_slave_begins_with_the_first_file_or_with_the_last() {
    for (copy_from, start) in [(CopyFrom::First, 1000), (CopyFrom::LastFile, 3000)] {
        let mut master = master(2, 1000, 3010);
        master.connected(ONE, copy_from, NOW);
        master.reported(ONE, PhysicalOffset(0), NOW).unwrap();
        master.reported(ONE, PhysicalOffset(0), NOW).unwrap();
        assert_eq!(master.next(ONE, NOW).unwrap().at, PhysicalOffset(start));
    }
}

#[test]
fn an_impossible_report_is_refused() {
    let mut master = master(2, 100, 500);
    let (at, master_end) = (PhysicalOffset, PhysicalOffset(500));
    let ahead = Distrust::AheadOfMaster { slave: at(501), master: master_end };
    assert_eq!(joined(&mut master, ONE, 501), Err(ahead));
    for flags in [0, 1, 1 << 16, 1 << 16 | 1] {
        assert_eq!(joined(&mut master, ONE, 1 << 32 | flags), Err(Distrust::OfController));
    }
    assert_eq!(joined(&mut master, ONE, 99), Err(Distrust::Expired { slave: at(99), first: at(100) }));
    joined(&mut master, ONE, 300).unwrap();
    let early = Distrust::NeverSent { reported: at(301), sent: at(300) };
    assert_eq!(master.reported(ONE, at(301), NOW), Err(early));
    let back = Distrust::WentBack { reported: at(299), before: at(300) };
    assert_eq!(master.reported(ONE, at(299), NOW), Err(back));
    assert_eq!(master.confirmed(), at(300));
}

#[test]
fn a_position_is_confirmed_when_enough_copies_reach_it_and_stays_so() {
    let mut master = master(2, 0, 500);
    assert_eq!(master.confirmed(), PhysicalOffset(0));
    joined(&mut master, ONE, 400).unwrap();
    joined(&mut master, OTHER, 450).unwrap();
    assert_eq!(master.confirmed(), PhysicalOffset(450));
    master.disconnected(OTHER);
    assert_eq!(master.confirmed(), PhysicalOffset(450));
    sent(&mut master, ONE);
    master.reported(ONE, PhysicalOffset(480), NOW).unwrap();
    assert_eq!(master.confirmed(), PhysicalOffset(480));
}

#[test]
fn records_of_older_epochs_are_confirmed_with_the_begin_of_this_one() {
    let mut master = master(2, 0, 500);
    master.epochs.begin(1, PhysicalOffset(0)).unwrap();
    master.epochs.begin(2, PhysicalOffset(400)).unwrap();
    joined(&mut master, ONE, 350).unwrap();
    sent(&mut master, ONE);
    master.reported(ONE, PhysicalOffset(399), NOW).unwrap();
    assert_eq!(master.confirmed(), PhysicalOffset(0));
    master.reported(ONE, PhysicalOffset(400), NOW).unwrap();
    assert_eq!(master.confirmed(), PhysicalOffset(400));
}

#[test]
fn of_three_copies_the_third_longest_counts_and_of_one_the_masters_own() {
    let mut three = master(3, 0, 500);
    joined(&mut three, ONE, 400).unwrap();
    assert_eq!(three.confirmed(), PhysicalOffset(0));
    joined(&mut three, OTHER, 450).unwrap();
    assert_eq!(three.confirmed(), PhysicalOffset(400));
    let mut one = master(1, 0, 500);
    one.grown(PhysicalOffset(600));
    assert_eq!(one.confirmed(), PhysicalOffset(600));
}

#[test]
fn a_slave_is_in_sync_while_it_lacks_little() {
    let mut master = master(2, 0, 500);
    joined(&mut master, ONE, 300).unwrap();
    master.connected(OTHER, CopyFrom::First, NOW);
    assert_eq!(master.in_sync(), 2);
    let state = master.state(ONE).expect("it is connected");
    assert_eq!((state.has, state.is_in_sync), (Some(PhysicalOffset(300)), true));
    assert!(!master.state(OTHER).expect("it is connected").is_in_sync);
    assert_eq!(master.lags().collect::<Vec<_>>(), [(ONE, Some(200)), (OTHER, None)]);
    master.grown(PhysicalOffset(556));
    assert_eq!(master.in_sync(), 1);
}

#[test]
fn an_observer_is_sent_the_log_and_counts_as_no_copy() {
    let mut master = master(2, 0, 500);
    master.connected(ONE, CopyFrom::First, NOW);
    master.observes(ONE);
    master.reported(ONE, PhysicalOffset(490), NOW).unwrap();
    assert_eq!(sent(&mut master, ONE), [(490, 10)]);
    master.reported(ONE, PhysicalOffset(500), NOW).unwrap();
    assert_eq!((master.confirmed().0, master.in_sync()), (0, 1));
    assert!(!master.state(ONE).expect("it is connected").is_in_sync);
    master.identified(ONE, 7);
    master.require(InSyncSet { slaves: Some(BTreeSet::from([7])), count: 2 });
    assert_eq!(master.confirmed().0, 0, "even with the id of a slave in the set");
}

#[test]
fn heartbeats_are_sent_and_their_absence_is_noticed() {
    let mut master = master(2, 0, 0);
    joined(&mut master, ONE, 0).unwrap();
    let later = NOW + Duration::from_secs(5);
    assert_eq!(master.next(ONE, NOW), None);
    assert_eq!(master.next(ONE, later), Some(TransferHeader { at: PhysicalOffset(0), bytes: 0 }));
    assert_eq!(master.next(ONE, later), None);
    assert_eq!(master.silent(NOW + Duration::from_secs(20)).count(), 0);
    assert_eq!(master.silent(NOW + Duration::from_secs(21)).collect::<Vec<_>>(), [ONE]);
}
