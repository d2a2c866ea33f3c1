//! Tests of access control: vectors as text, and properties.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;

use super::action::{Action, Actions};
use super::failures::Failures;
use super::limits::{Limits, Usage, UserConnection};
use super::network::Network;
use super::permits::Permits;
use super::policy::{Decision, Entry, Needed, Policies};
use super::refusal::Refusal;
use super::resource::{Resource, ResourceKind, ResourcePattern};
use super::rules::{Checks, Rules, Signed, User};
use super::signature::{SIGNATURE_CHARS, SigningKey, TooManyFields, signed_text};
use super::white_list::WhiteList;

fn lines(vectors: &'static str) -> impl Iterator<Item = Vec<&'static str>> {
    let lines = vectors.lines().filter(|line| !line.starts_with('#') && !line.trim().is_empty());
    lines.map(|line| line.split(" |").map(str::trim).collect())
}

fn bytes_of(hex: &str) -> Vec<u8> {
    (0..hex.len() / 2).map(|at| u8::from_str_radix(&hex[2 * at..2 * at + 2], 16).unwrap()).collect()
}

#[test]
fn requests_are_signed_as_the_original_signs_them() {
    let mut count = 0;
    for row in lines(include_str!("../../../tests/vectors/signatures.txt")) {
        let [secret, release, fields, body, signature] = row[..] else { panic!("{row:?}") };
        let fields = fields.split(' ').map(|field| field.split_once('=').unwrap());
        let (release, body) = (release.parse().unwrap(), bytes_of(body));
        let (key, another) = (SigningKey::new(secret), SigningKey::new("another"));
        assert_eq!(&*key.sign(fields.clone(), release, &body).unwrap(), signature);
        let text = signed_text(fields.clone(), release, &body).unwrap();
        assert_eq!(&*key.sign_text(&text), signature);
        assert_eq!(key.verifies(signature, fields.clone(), release, &body), Ok(true));
        assert_eq!(another.verifies(signature, fields, release, &body), Ok(false));
        count += 1;
    }
    assert!(count >= 9);
}

fn actions(names: &str) -> Actions {
    names.split(',').map(|name| Action::named(name.trim()).unwrap()).collect()
}

fn resource(key: &str) -> Resource<'_> {
    let (kind, name) = key.split_once(':').unwrap();
    Resource { kind: ResourceKind::named(kind).unwrap(), name }
}

fn entry(decision: &str, action_names: &str, resources: &str, sources: &str) -> Entry {
    let sources = sources.split(',').map(str::trim).filter(|text| !text.is_empty());
    Entry {
        resources: ResourcePattern::parse(resources).unwrap(),
        actions: actions(action_names),
        sources: sources.map(|text| Network::parse(text).unwrap()).collect(),
        decision: if decision == "Deny" { Decision::Deny } else { Decision::Allow },
    }
}

#[test]
fn the_most_precise_entry_decides_and_a_deny_before_an_allow() {
    let (mut policies, mut block, mut count) = (Policies::default(), "", 0);
    for row in lines(include_str!("../../../tests/vectors/decisions.txt")) {
        match row[..] {
            [name] => (policies, block) = (Policies::default(), name),
            ["custom", decision, actions, resources, sources] => {
                policies.custom.push(entry(decision, actions, resources, sources));
            }
            ["default", decision, actions, resources, sources] => {
                policies.default.push(entry(decision, actions, resources, sources));
            }
            ["?", asked, action_names, source, expected] => {
                let needed =
                    Needed { resource: resource(asked), actions: actions(action_names), is_reserved: false };
                let found = policies.deciding(needed, source.parse().unwrap());
                let said = found.map_or("none", |entry| match entry.decision {
                    Decision::Allow => "allow",
                    Decision::Deny => "deny",
                });
                assert_eq!(said, expected, "{block}: {row:?}");
                count += 1;
            }
            _ => panic!("{row:?}"),
        }
    }
    assert!(count >= 35);
}

#[test]
fn what_is_no_pattern_no_network_and_no_action_is_refused() {
    for key in ["", "Topic", "Topic:", "Topics:a", "Topic:a*b", "Topic:*a*", "**", ":a"] {
        assert_eq!(ResourcePattern::parse(key), None, "{key}");
    }
    for text in
        ["", "10.0.0", "10.0.0.0/33", "10.0.0.0/-1", "10.0.0.0/+8", "10.0.0.0/", "fd00::/129", "a", "*"]
    {
        assert_eq!(Network::parse(text), None, "{text}");
    }
    assert_eq!(Action::named("Any"), None, "it may be asked for, and not be stored");
    assert_eq!(Action::named("pub"), Some(Action::Pub));
}

fn user(name: &str, secret: &str, policies: Policies) -> User {
    User {
        name: name.into(),
        key: SigningKey::new(secret),
        is_super: false,
        is_enabled: true,
        policies,
        trusted_from: WhiteList::default(),
        usage: Arc::default(),
    }
}

fn checks() -> Checks {
    Checks {
        authenticates: true,
        authorizes: true,
        takes_certificates: false,
        unsigned_codes: [105].into(),
        unguarded_codes: [34].into(),
        cluster: "c1".into(),
        trusted_from: WhiteList::default(),
        limits: Limits::default(),
    }
}

fn source() -> IpAddr {
    IpAddr::from([10, 0, 0, 7])
}

fn asked<'a>(code: i32, access_key: &'a str, signature: &'a str) -> Signed<'a> {
    Signed {
        code,
        version: 513,
        access_key,
        certificate_name: None,
        signature,
        body: b"body",
        source: source(),
    }
}

#[test]
fn of_a_name_that_stands_twice_the_later_value_is_signed() {
    let key = SigningKey::new("secret");
    let sign = |fields: &[(&'static str, &'static str)]| key.sign(fields.iter().copied(), 513, b"").unwrap();
    assert_eq!(sign(&[("a", "1"), ("b", "2"), ("a", "3")]), sign(&[("b", "2"), ("a", "3")]));
    assert_ne!(sign(&[("a", "1"), ("b", "2"), ("a", "3")]), sign(&[("b", "2"), ("a", "1")]));
}

#[test]
fn a_request_with_more_fields_than_are_read_is_not_signed() {
    let names: Vec<_> = (0..257).map(|number| format!("{number:03}")).collect();
    let sign = |count| {
        SigningKey::new("secret").sign(names[..count].iter().map(|name| (name.as_str(), "")), 513, b"")
    };
    assert!(sign(256).is_ok());
    assert_eq!(sign(257), Err(TooManyFields));
}

#[test]
fn a_request_is_its_users_who_has_signed_it_and_is_enabled() {
    let disabled = User { is_enabled: false, ..user("bob", "bobs", Policies::default()) };
    let rules = Rules::new(checks(), 1, [user("alice", "alices", Policies::default()), disabled]);
    let fields = [("AccessKey", "alice"), ("topic", "T")];
    let signature = SigningKey::new("alices").sign(fields.into_iter(), 513, b"body").unwrap();
    let ask = |code, access_key: &'static str, signature: &str| {
        let found = rules.authenticate(asked(code, access_key, signature), None, fields.into_iter());
        found.map(|sender| sender.user.map(|user| user.name.to_string()))
    };
    assert_eq!(ask(10, "alice", &signature), Ok(Some("alice".to_owned())));
    assert_eq!(ask(10, "", &signature), Err(Refusal::Unsigned));
    let mismatch = |user: &str| Err(Refusal::Mismatch { user: user.into() });
    assert_eq!(ask(10, "alice", ""), mismatch("alice"));
    assert_eq!(ask(10, "alice", &signature.to_lowercase()), mismatch("alice"));
    assert_eq!(ask(10, "alice", &format!("{signature}=")), mismatch("alice"));
    assert_eq!(ask(10, "nobody", &signature), mismatch("nobody"));
    assert_eq!(
        ask(10, "bob", &signature),
        mismatch("bob"),
        "only who has the key learns that it is disabled"
    );
    let bobs = SigningKey::new("bobs").sign(fields.into_iter(), 513, b"body").unwrap();
    assert_eq!(ask(10, "bob", &bobs), Err(Refusal::Disabled { user: "bob".into() }));
    // A code that needs no signature is served without, and in nobody's name with a wrong one.
    assert_eq!(ask(105, "", ""), Ok(None));
    assert_eq!(ask(105, "alice", "wrong"), Ok(None));
    assert_eq!(ask(105, "alice", &signature), Ok(Some("alice".to_owned())));
}

#[test]
fn super_users_and_codes_off_the_list_need_no_policy() {
    let root = User { is_super: true, ..user("root", "roots", Policies::default()) };
    let alice = user("alice", "alices", Policies::default());
    let rules = Rules::new(checks(), 1, []);
    assert!(!rules.guards(10, Some(&root)));
    assert!(rules.guards(10, Some(&alice)) && rules.guards(10, None));
    assert!(!rules.guards(34, Some(&alice)));
    let needed = Needed { resource: resource("Topic:T"), actions: actions("Pub"), is_reserved: false };
    assert_eq!(rules.authorize(None, needed, source(), None), Err(Refusal::Unsigned));
}

#[test]
fn a_refusal_names_user_action_resource_address_and_rule() {
    let policies =
        Policies { custom: vec![entry("Deny", "Pub, Sub", "Topic:ord*", "")], ..Policies::default() };
    let alice = user("alice", "alices", policies);
    let rules = Rules::new(checks(), 1, []);
    let check = |key, names, expected: &str| {
        let needed = Needed { resource: resource(key), actions: actions(names), is_reserved: false };
        let refusal = rules.authorize(Some(&alice), needed, source(), None).unwrap_err();
        assert_eq!(refusal.to_string(), expected);
    };
    check(
        "Topic:orders",
        "Pub",
        "User:alice has no permission to Pub Topic:orders from 10.0.0.7: Deny of Pub or Sub on Topic:ord*",
    );
    check(
        "Cluster:",
        "Get, Update",
        "User:alice has no permission to Update or Get Cluster:c1 from 10.0.0.7: no policy allows it",
    );
}

fn to_send(name: &str) -> Needed<'_> {
    Needed {
        resource: Resource { kind: ResourceKind::Topic, name },
        actions: actions("Pub"),
        is_reserved: false,
    }
}

#[test]
fn a_connection_remembers_what_it_was_allowed_and_nothing_else() {
    let alice = user(
        "alice",
        "s",
        Policies { custom: vec![entry("Allow", "Pub", "Topic:a*", "")], ..Policies::default() },
    );
    let rules = Rules::new(checks(), 1, []);
    let mut permits = Permits::default();
    assert!(rules.authorize(Some(&alice), to_send("a1"), source(), Some(&mut permits)).is_ok());
    assert!(rules.authorize(Some(&alice), to_send("b1"), source(), Some(&mut permits)).is_err());
    assert!(permits.has(to_send("a1")) && !permits.has(to_send("a2")) && !permits.has(to_send("b1")));
    assert!(!permits.has(Needed { actions: actions("Sub"), ..to_send("a1") }));
    for number in 0..2_000 {
        let name = format!("a-{number}");
        assert!(rules.authorize(Some(&alice), to_send(&name), source(), Some(&mut permits)).is_ok());
    }
    assert!(permits.kept_bytes() < 64 << 10, "{}", permits.kept_bytes());
}

#[test]
fn no_secret_is_printed() {
    let alice = Arc::new(user("alice", "do-not-print", Policies::default()));
    let rules = Rules::new(checks(), 1, [user("alice", "do-not-print", Policies::default())]);
    assert!(!format!("{alice:?} {:?} {rules:?}", alice.key).contains("do-not-print"));
}

#[test]
fn guesses_from_one_address_are_answered_ever_later_one_after_the_other() {
    let mut failures = Failures::default();
    let now = Duration::from_secs(1_000);
    let mut add = |address: IpAddr, now| failures.add(address, now).as_millis();
    let first: Vec<_> = (0..9).map(|_| add(source(), now)).collect();
    assert_eq!(first, [0, 0, 0, 0, 0, 100, 300, 700, 1_500]);
    assert_eq!(add(IpAddr::from([10, 0, 0, 8]), now), 0, "another address is not delayed");
    assert!((0..100).all(|_| add(source(), now) <= 2_500));
    assert_eq!(add(source(), now + Duration::from_secs(400)), 0, "it is forgotten in time");
}

#[test]
fn guesses_of_an_ipv6_network_count_together_and_the_table_has_a_bound() {
    let mut failures = Failures::default();
    let now = Duration::from_secs(1_000);
    let late =
        (0..10_u16).map(|host| failures.add(IpAddr::from([0xfd00, 0, 0, 1, 0, 0, 0, host]), now)).max();
    assert!(late.unwrap() > Duration::ZERO);
    for number in 0..30_000_u32 {
        failures.add(IpAddr::from(number.to_be_bytes()), now);
    }
    assert!(failures.add(IpAddr::from([200, 1, 1, 1]), now) > Duration::ZERO, "those beyond share one count");
}

fn name() -> impl Strategy<Value = String> {
    "[ab]{1,3}"
}

fn any_entry() -> impl Strategy<Value = Entry> {
    let key = prop_oneof![
        Just("*".to_owned()),
        prop_oneof![Just("Topic"), Just("Group")].prop_map(|kind| format!("{kind}:*")),
        (name(), any::<bool>())
            .prop_map(|(name, is_prefix)| format!("Topic:{name}{}", if is_prefix { "*" } else { "" })),
    ];
    let source = prop_oneof![Just(""), Just("10.0.0.0/8"), Just("11.0.0.1")];
    let names = prop_oneof![Just("All"), Just("Pub"), Just("Sub, Pub"), Just("Get")];
    (key, source, names, any::<bool>()).prop_map(|(key, source, names, is_deny)| {
        entry(if is_deny { "Deny" } else { "Allow" }, names, &key, source)
    })
}

proptest! {
    #[test]
    fn a_decision_does_not_depend_on_the_order_of_the_entries(
        mut custom in prop::collection::vec(any_entry(), 0..8), asked in name(), seed in any::<usize>(),
    ) {
        let needed = Needed { resource: Resource { kind: ResourceKind::Topic, name: &asked }, actions: actions("Pub"), is_reserved: false };
        let decide = |custom: &[Entry]| {
            let policies = Policies { custom: custom.to_vec(), default: vec![] };
            policies.deciding(needed, source()).map(|entry| entry.decision)
        };
        let before = decide(&custom);
        let length = custom.len().max(1);
        custom.rotate_left(seed % length);
        custom.reverse();
        prop_assert_eq!(decide(&custom), before);
    }

    #[test]
    fn a_deny_of_the_very_name_is_never_overruled(
        custom in prop::collection::vec(any_entry(), 0..8), asked in name(),
    ) {
        let needed = Needed { resource: Resource { kind: ResourceKind::Topic, name: &asked }, actions: actions("Pub"), is_reserved: false };
        let mut policies = Policies { custom, default: vec![] };
        policies.custom.push(entry("Deny", "Pub", &format!("Topic:{asked}"), ""));
        prop_assert_eq!(policies.deciding(needed, source()).unwrap().decision, Decision::Deny);
    }

    #[test]
    fn values_are_signed_in_the_order_of_their_names(
        fields in prop::collection::vec(("(consumer|\u{0}|é){0,2}[a-z\u{0}]{0,3}", "[0-9]{0,3}"), 0..20),
    ) {
        let signed = || fields.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        let sorted: BTreeMap<_, _> = signed().collect();
        let expected: String = sorted.into_values().collect();
        prop_assert_eq!(signed_text(signed(), 513, b"").unwrap(), expected.into_bytes());
    }

    #[test]
    fn any_change_of_what_is_signed_changes_the_signature(
        values in prop::collection::vec("[a-z]{1,4}", 1..6), body in prop::collection::vec(any::<u8>(), 0..64), at in any::<prop::sample::Index>(),
    ) {
        let names = ["a", "B", "c", "D", "e"];
        let key = SigningKey::new("secret");
        let fields = |values: &[String]| -> Vec<(&'static str, String)> {
            names.into_iter().zip(values.iter().cloned()).collect()
        };
        let sign = |fields: &[(&'static str, String)], body: &[u8]| {
            key.sign(fields.iter().map(|(name, value)| (*name, value.as_str())), 513, body).unwrap()
        };
        let signature = sign(&fields(&values), &body);
        prop_assert_eq!(signature.len(), SIGNATURE_CHARS);
        let mut reversed = fields(&values);
        reversed.reverse();
        prop_assert_eq!(&sign(&reversed, &body), &signature, "the order on the wire does not count");
        let mut other = values.clone();
        other[at.index(values.len())].push('!');
        prop_assert_ne!(&sign(&fields(&other), &body), &signature);
        let longer = [&body[..], b"!"].concat();
        prop_assert_ne!(&sign(&fields(&values), &longer), &signature);
    }

    #[test]
    fn a_network_has_the_addresses_that_begin_with_its_bits(address in any::<u32>(), bits in 0_u32..=32, other in any::<u32>()) {
        let network = format!("{}/{bits}", IpAddr::from(address.to_be_bytes()));
        let begins_alike = bits == 0 || address >> (32 - bits) == other >> (32 - bits);
        prop_assert_eq!(Network::parse(&network).unwrap().contains(IpAddr::from(other.to_be_bytes())), begins_alike);
    }
}

fn white_list(text: &str) -> WhiteList {
    WhiteList::parse(text).unwrap()
}

#[test]
fn white_lists_have_the_notation_of_the_first_kind() {
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
fn a_request_without_a_signature_is_of_the_user_its_connection_s_certificate_is_for() {
    let disabled = User { is_enabled: false, ..user("bob", "bobs", Policies::default()) };
    let users =
        || [user("alice", "alices", Policies::default()), user("carol", "carols", Policies::default())];
    let rules =
        Rules::new(Checks { takes_certificates: true, ..checks() }, 1, users().into_iter().chain([disabled]));
    let ask = |rules: &Rules, signed: Signed<'_>, name: &'static str| {
        let fields = [("AccessKey", signed.access_key)];
        let signed = Signed { certificate_name: Some(name), ..signed };
        let found = rules.authenticate(signed, None, fields.into_iter());
        found.map(|sender| sender.user.map(|user| user.name.to_string()))
    };
    let named = |name: &str| Ok(Some(name.to_owned()));
    assert_eq!(ask(&rules, asked(10, "", ""), "alice"), named("alice"));
    assert_eq!(ask(&rules, asked(10, "", ""), "bob"), Err(Refusal::Disabled { user: "bob".into() }));
    assert_eq!(
        ask(&rules, asked(10, "", ""), "mallory"),
        Err(Refusal::Uncertified { user: "mallory".into() })
    );
    assert_eq!(ask(&rules, asked(105, "", ""), "mallory"), Ok(None), "this code needs no user");

    let fields = [("AccessKey", "carol")];
    let signature = SigningKey::new("carols").sign(fields.into_iter(), 513, b"body").unwrap();
    assert_eq!(ask(&rules, asked(10, "carol", &signature), "alice"), named("carol"), "its own user wins");
    let mismatch = Err(Refusal::Mismatch { user: "carol".into() });
    assert_eq!(ask(&rules, asked(10, "carol", "guessed"), "alice"), mismatch, "and nobody else is tried");

    let switched_off = Rules::new(checks(), 1, users());
    assert_eq!(ask(&switched_off, asked(10, "", ""), "alice"), Err(Refusal::Unsigned));
}

#[test]
fn a_listed_address_needs_no_signature_and_no_policy() {
    let alice =
        || User { trusted_from: white_list("10.0.0.7"), ..user("alice", "alices", Policies::default()) };
    let of_alice = Rules::new(checks(), 1, [alice()]);
    let sender = of_alice.authenticate(asked(10, "alice", ""), None, [].into_iter()).unwrap();
    assert!(sender.is_trusted && sender.user.is_some());
    assert!(of_alice.authenticate(asked(10, "", ""), None, [].into_iter()).is_err(), "in nobody's name");
    let elsewhere = Signed { source: IpAddr::from([10, 0, 0, 8]), ..asked(10, "alice", "") };
    assert!(of_alice.authenticate(elsewhere, None, [].into_iter()).is_err());
    let of_all = Rules::new(Checks { trusted_from: white_list("10.0.0.*"), ..checks() }, 1, [alice()]);
    let sender = of_all.authenticate(asked(10, "", ""), None, [].into_iter()).unwrap();
    assert!(sender.is_trusted && sender.user.is_none());
}

#[test]
fn a_second_s_worth_is_used_at_once_and_the_rest_as_time_goes() {
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
        "one that is larger than a second's worth is taken"
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
