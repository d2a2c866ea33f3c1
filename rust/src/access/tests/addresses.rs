//! Addresses and rates: networks, lists of trusted addresses, delayed guesses, limits of a user.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;

use super::super::failures::Failures;
use super::super::limits::{Limits, Usage, UserConnection};
use super::super::network::Network;
use super::super::white_list::WhiteList;
use super::{source, white_list};

#[test]
fn guesses_from_one_address_are_delayed_longer_each_time() {
    let mut failures = Failures::default();
    let now = Duration::from_secs(1_000);
    let mut add = |address: IpAddr, now| failures.add(address, now).as_millis();
    let first: Vec<_> = (0..9).map(|_| add(source(), now)).collect();
    assert_eq!(first, [0, 0, 0, 0, 0, 100, 300, 700, 1_500]);
    assert_eq!(add(IpAddr::from([10, 0, 0, 8]), now), 0, "another address is not delayed");
    assert!((0..100).all(|_| add(source(), now) <= 2_500));
    assert_eq!(add(source(), now + Duration::from_secs(400)), 0, "the address is forgotten after a while");
}

#[test]
fn guesses_of_an_ipv6_network_count_together_and_the_table_is_bounded() {
    let mut failures = Failures::default();
    let now = Duration::from_secs(1_000);
    let late =
        (0..10_u16).map(|host| failures.add(IpAddr::from([0xfd00, 0, 0, 1, 0, 0, 0, host]), now)).max();
    assert!(late.unwrap() > Duration::ZERO);
    for number in 0..30_000_u32 {
        failures.add(IpAddr::from(number.to_be_bytes()), now);
    }
    assert!(
        failures.add(IpAddr::from([200, 1, 1, 1]), now) > Duration::ZERO,
        "addresses beyond the limit share one count"
    );
}

#[test]
fn white_lists_have_the_notation_of_acl_1_0() {
    for (text, inside, outside) in [
        ("", "", "10.0.0.7 ::1"),
        ("*", "10.0.0.7 ::1", ""),
        ("*.*.*.*", "10.0.0.7 ::1", ""),
        ("*:*:*:*:*:*:*:*", "10.0.0.7 ::1", ""),
        ("10.0.0.7", "10.0.0.7 ::ffff:10.0.0.7", "10.0.0.8 ::1"),
        ("10.0.0.7,10.0.0.9", "10.0.0.7 10.0.0.9", "10.0.0.8"),
        ("10.0.0.{7,9}", "10.0.0.7 10.0.0.9", "10.0.0.8 10.0.1.7"),
        ("10.0.0.*", "10.0.0.0 10.0.0.255", "10.0.1.0"),
        ("10.0.1-3.*", "10.0.1.0 10.0.3.9", "10.0.0.1 10.0.4.1"),
        ("10.0.*.*", "10.0.9.9", "10.1.0.0"),
        ("10.0.0.100-200", "10.0.0.100 10.0.0.200", "10.0.0.99 10.0.0.201"),
        ("fd00::1", "fd00::1", "fd00::2 10.0.0.7"),
        ("fd00:0:0:0:0:0:0:1-f", "fd00::1 fd00::f", "fd00::10"),
        ("fd00::2-4:*", "fd00::2:7 fd00::4:0", "fd00::5:0"),
        ("fd00::{1,3}", "fd00::1 fd00::3", "fd00::2"),
    ] {
        let list = white_list(text);
        assert!(inside.split_whitespace().all(|address| list.has(address.parse().unwrap())), "{text}");
        assert!(!outside.split_whitespace().any(|address| list.has(address.parse().unwrap())), "{text}");
    }
    for text in [
        "10.0.0",
        "10.0.0.0.1",
        "10.0.0.256",
        "10.0.*.7",
        "10.0.1-3.7",
        "1-9.0.0.0",
        "*.0.0.0",
        "10.0.0.9-7",
        "a",
        "10.0.0.+7",
        "10.0.0.7,",
        "10.0.0.{7,a}",
        "fd00::g",
        "fd00::1::2",
        "1:2:3:4:5:6:7:8:9",
        "10.0.0.0/8",
        "{7}",
    ] {
        assert_eq!(WhiteList::parse(text), None, "{text}");
    }
}

#[test]
fn a_second_s_worth_is_a_burst_and_the_rest_follows_the_rate() {
    let limits = Limits { connections: 2, requests_per_second: 10, bytes_per_second: 1_000 };
    let (usage, now) = (Usage::default(), Duration::from_secs(1_000));
    let taken = (0..100).filter(|_| usage.take(limits, 0, now).is_ok()).count();
    assert_eq!(taken, 10);
    assert_eq!(usage.take(limits, 0, now), Err(("requests a second", 10)));
    let later = now + Duration::from_millis(500);
    assert_eq!((0..100).filter(|_| usage.take(limits, 0, later).is_ok()).count(), 5);
    let rested = now + Duration::from_secs(60);
    assert_eq!(
        usage.take(limits, 5_000, rested),
        Ok(()),
        "a request larger than a second's worth is accepted"
    );
    assert_eq!(usage.take(limits, 1, rested + Duration::from_secs(3)), Err(("bytes a second", 1_000)));
    assert_eq!(usage.take(limits, 1, rested + Duration::from_secs(5)), Ok(()));

    let usage = Arc::new(Usage::default());
    let first = UserConnection::of(&usage, limits.connections).unwrap();
    let second = UserConnection::of(&usage, limits.connections).unwrap();
    assert!(UserConnection::of(&usage, limits.connections).is_none());
    drop(first);
    assert!(second.is_of(&usage) && UserConnection::of(&usage, limits.connections).is_some());
}

proptest! {
    #[test]
    fn a_network_has_the_addresses_that_begin_with_its_bits(address in any::<u32>(), bits in 0_u32..=32, other in any::<u32>()) {
        let network = format!("{}/{bits}", IpAddr::from(address.to_be_bytes()));
        let begins_alike = bits == 0 || address >> (32 - bits) == other >> (32 - bits);
        prop_assert_eq!(Network::parse(&network).unwrap().contains(IpAddr::from(other.to_be_bytes())), begins_alike);
    }
}
