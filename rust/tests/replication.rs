//! Master and slaves over a simulated disk, network and operator: whatever dies, and when, no promise is broken.
//!
//! Each seed is a life of two or three replicas: appends, bytes that arrive in pieces or never, flushes, kills, power
//! losses, cuts, promotions, restarts in any order. `RMQPY_REPLICA_SEEDS` says how many (2,000).

#![allow(clippy::expect_used, reason = "a test that cannot go on fails")]

mod replicas;

use replicas::{Mistake, Violation, World};

fn seeds() -> u64 {
    std::env::var("RMQPY_REPLICA_SEEDS").map_or(2000, |seeds| seeds.parse().expect("a number of seeds"))
}

/// The first seed that shows a mistake, and what it shows.
fn found(mistake: Mistake) -> Option<(u64, Violation)> {
    (0..20_000).find_map(|seed| World::live(seed, mistake).err().map(|violation| (seed, violation)))
}

#[test]
fn no_promise_is_broken_whatever_dies() {
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
    assert!(promised > 0 && promotions > 0 && truncations > 0, "nothing was put to the test");
}

#[test]
fn acknowledging_before_a_position_is_confirmed_is_found() {
    let (seed, violation) = found(Mistake::AcknowledgesEarly).expect("no seed shows it");
    println!("seed {seed}: {violation:?}");
    assert!(matches!(violation, Violation::Lost { .. }), "{violation:?}");
}

#[test]
fn a_slave_that_does_not_truncate_is_found() {
    let (seed, violation) = found(Mistake::NeverTruncates).expect("no seed shows it");
    println!("seed {seed}: {violation:?}");
    assert!(matches!(violation, Violation::Differs { .. }), "{violation:?}");
}

#[test]
fn a_queue_offset_that_is_given_twice_is_found() {
    let (seed, violation) = found(Mistake::CountsOnFromMemory).expect("no seed shows it");
    println!("seed {seed}: {violation:?}");
    assert!(matches!(violation, Violation::OffsetTwice { .. }), "{violation:?}");
}
