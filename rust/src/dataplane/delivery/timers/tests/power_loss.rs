//! A power loss at any moment loses no timed message and delivers none early.

use std::collections::BTreeMap;

use super::*;

/// Goal: a power loss at any moment of a save loses no message and delivers none early. Method: power fails before
/// each operation of each save, and different parts of the unsynced bytes survive. The rest is opened, delivers,
/// fails in the middle of its first save, and is opened again.
#[test]
fn a_power_loss_at_any_moment_of_a_save_loses_no_timed_message() {
    let whole = SimDisk::new();
    let moments = cut_life(&whole, &ManualClock::at(START_MS), 0, None).1;
    assert!(moments.len() > 60, "{} operations", moments.len());
    for (index, moment) in moments.into_iter().enumerate() {
        let survival = [Survival::Nothing, Survival::Percent(50), Survival::Prefix, Survival::Percent(90)];
        let survival = survival[index % 4];
        let (disk, clock) = (SimDisk::new(), ManualClock::at(START_MS));
        let mut sent = cut_life(&disk, &clock, 0, Some(moment)).0;
        let disk = disk.crash(survival, moment);
        sent.extend(cut_life(&disk, &clock, 1, Some(disk.operations() + moment % 90)).0);
        let disk = disk.crash(survival, moment + 7);
        clock.advance(Duration::from_secs(60));
        let store = open(&disk, &clock);
        fixture(&store, &clock).settle();
        let came: BTreeMap<_, _> = arrivals(&store).into_iter().map(|(body, at, _)| (body, at)).collect();
        for (body, due_ms) in &sent {
            let at_ms = came.get(body).copied().unwrap_or(0);
            assert!(at_ms >= *due_ms, "{moment}, {survival:?}: {} at {at_ms}", String::from_utf8_lossy(body));
        }
    }
}

/// Runs a broker that sends itself timed messages and saves, until the disk stops before operation `stop`. Returns
/// the durable messages with their times, and the operations of the saves.
fn cut_life(
    disk: &SimDisk,
    clock: &Arc<ManualClock>,
    life: u64,
    stop: Option<u64>,
) -> (BTreeMap<Vec<u8>, i64>, Vec<u64>) {
    let (mut durable, mut sent, mut moments) = (BTreeMap::new(), BTreeMap::new(), Vec::new());
    let store = open(disk, clock);
    let fixture = fixture(&store, clock);
    stop.into_iter().for_each(|stop| disk.freeze_at(stop));
    for round in 0..8_u64 {
        for number in 0..24_u64 {
            let delay_ms = 1 + (life * 7_919 + round * 104_729 + number * 1_299_709) % 5_000;
            let body = format!("{life}/{round}/{number}").into_bytes();
            after(&store, clock, delay_ms, &body);
            sent.insert(body, (clock.wall_ms() + delay_ms) as i64);
        }
        if store.flush().is_ok() && !disk.is_frozen() {
            durable.append(&mut sent);
        }
        for _ in 0..40 {
            clock.advance(Duration::from_millis(13));
            fixture.step();
        }
        let before = disk.operations();
        let saved = fixture.timers.save();
        moments.extend(before..disk.operations());
        if saved.is_err() || disk.is_frozen() {
            break;
        }
    }
    store.abandon();
    (durable, moments)
}

/// Goal: every message whose record survives a power loss is delivered, never early. Method: rounds of sends,
/// deliveries and saves with a crash at the end of each, and a model of the durable messages.
#[test]
fn power_losses_lose_no_timed_message_and_make_none_early() {
    for seed in 0..9_u64 {
        let survival = [Survival::Percent(50), Survival::Nothing, Survival::Prefix][seed as usize % 3];
        let (mut disk, clock) = (SimDisk::new(), ManualClock::at(START_MS));
        let mut sent: BTreeMap<Vec<u8>, u64> = BTreeMap::new();
        for round in 0..4_u64 {
            let store = open(&disk, &clock);
            let fixture = fixture(&store, &clock);
            for number in 0..40_u64 {
                let delay_ms = 1 + (seed * 7_919 + round * 104_729 + number * 1_299_709) % 9_000;
                let body = format!("{round}/{number}").into_bytes();
                after(&store, &clock, delay_ms, &body);
                sent.insert(body, clock.wall_ms() + delay_ms);
                clock.advance(Duration::from_millis((seed + number) % 97));
                fixture.settle();
                if (seed + number) % 11 == 0 {
                    fixture.save();
                }
            }
            store.flush().expect("sent messages are durable");
            store.abandon();
            drop((fixture, store));
            disk = disk.crash(survival, seed * 100 + round);
        }
        clock.advance(Duration::from_secs(60));
        let store = open(&disk, &clock);
        fixture(&store, &clock).settle();
        let found = arrivals(&store);
        for (body, stored_ms, _) in &found {
            assert!(*stored_ms >= sent[body] as i64, "seed {seed}: early");
        }
        let came: BTreeMap<_, _> = found.into_iter().map(|(body, at, _)| (body, at)).collect();
        let lost: Vec<_> = sent.keys().filter(|body| !came.contains_key(*body)).collect();
        assert!(lost.is_empty(), "seed {seed}: lost {lost:?}");
    }
}
