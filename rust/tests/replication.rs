//! Replication: a master and slaves over a simulated disk, network and operator. Failures break no promise.
//!
//! Each seed is a history of two or three replicas: appends, bytes that arrive in pieces or never, flushes, kills, power
//! losses, partitions, promotions, restarts in any order. `RMQPY_REPLICA_SEEDS` is the number of seeds (2,000).

#![allow(clippy::expect_used, reason = "a failed expectation fails the test")]

mod replicas;

use replicas::{Mistake, Violation, World};

fn seeds() -> u64 {
    std::env::var("RMQPY_REPLICA_SEEDS").map_or(2000, |seeds| seeds.parse().expect("a number of seeds"))
}

/// Returns the first seed that reveals a mistake, and the violation.
fn found(mistake: Mistake) -> Option<(u64, Violation)> {
    (0..20_000).find_map(|seed| World::live(seed, mistake).err().map(|violation| (seed, violation)))
}

#[test]
fn failures_break_no_promise() {
    let mut promised = 0;
    let mut promotions = 0;
    let mut truncations = 0;
    for seed in 0..seeds() {
        match World::live(seed, Mistake::None) {
            Ok(life) => {
                promised += life.promised;
                promotions += life.promotions;
                truncations += life.truncations;
            }
            Err(violation) => panic!("seed {seed}: {violation:?}"),
        }
    }
    println!(
        "{} seeds: {promised} bytes promised, {promotions} promotions, {truncations} truncations",
        seeds()
    );
    assert!(promised > 0 && promotions > 0 && truncations > 0, "nothing was tested");
}

#[test]
fn acknowledging_before_a_position_is_confirmed_is_found() {
    let (seed, violation) = found(Mistake::AcknowledgesEarly).expect("no seed reveals it");
    println!("seed {seed}: {violation:?}");
    assert!(matches!(violation, Violation::Lost { .. }), "{violation:?}");
}

#[test]
fn a_slave_that_does_not_truncate_is_found() {
    let (seed, violation) = found(Mistake::NeverTruncates).expect("no seed reveals it");
    println!("seed {seed}: {violation:?}");
    assert!(matches!(violation, Violation::Differs { .. }), "{violation:?}");
}

#[test]
fn a_queue_offset_assigned_twice_is_found() {
    let (seed, violation) = found(Mistake::CountsOnFromMemory).expect("no seed reveals it");
    println!("seed {seed}: {violation:?}");
    assert!(matches!(violation, Violation::OffsetTwice { .. }), "{violation:?}");
}
