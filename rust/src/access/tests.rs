//! Tests of access control: vectors as text, and properties.

mod addresses;
mod signatures;

use std::net::IpAddr;
use std::sync::Arc;

use proptest::prelude::*;

use super::action::{Action, Actions};
use super::limits::Limits;
use super::network::Network;
use super::permits::Permits;
use super::policy::{Decision, Entry, Needed, Policies};
use super::refusal::Refusal;
use super::resource::{Resource, ResourceKind, ResourcePattern};
use super::rules::{Checks, Rules, Signed, User};
use super::signature::SigningKey;
use super::white_list::WhiteList;

fn lines(vectors: &'static str) -> impl Iterator<Item = Vec<&'static str>> {
    let lines = vectors.lines().filter(|line| !line.starts_with('#') && !line.trim().is_empty());
    lines.map(|line| line.split(" |").map(str::trim).collect())
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
fn invalid_patterns_networks_and_actions_are_refused() {
    for key in ["", "Topic", "Topic:", "Topics:a", "Topic:a*b", "Topic:*a*", "**", ":a"] {
        assert_eq!(ResourcePattern::parse(key), None, "{key}");
    }
    for text in
        ["", "10.0.0", "10.0.0.0/33", "10.0.0.0/-1", "10.0.0.0/+8", "10.0.0.0/", "fd00::/129", "a", "*"]
    {
        assert_eq!(Network::parse(text), None, "{text}");
    }
    assert_eq!(Action::named("Any"), None, "requests may need it, but policies cannot store it");
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
fn a_request_belongs_to_the_enabled_user_that_signed_it() {
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
        "only a holder of the key learns that the user is disabled"
    );
    let bobs = SigningKey::new("bobs").sign(fields.into_iter(), 513, b"body").unwrap();
    assert_eq!(ask(10, "bob", &bobs), Err(Refusal::Disabled { user: "bob".into() }));
    // A code that needs no signature is served without one, and without a user if the signature is wrong.
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
fn a_connection_caches_permissions_and_nothing_else() {
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
    fn a_deny_of_the_exact_name_is_never_overruled(
        custom in prop::collection::vec(any_entry(), 0..8), asked in name(),
    ) {
        let needed = Needed { resource: Resource { kind: ResourceKind::Topic, name: &asked }, actions: actions("Pub"), is_reserved: false };
        let mut policies = Policies { custom, default: vec![] };
        policies.custom.push(entry("Deny", "Pub", &format!("Topic:{asked}"), ""));
        prop_assert_eq!(policies.deciding(needed, source()).unwrap().decision, Decision::Deny);
    }
}

fn white_list(text: &str) -> WhiteList {
    WhiteList::parse(text).unwrap()
}

#[test]
fn a_request_without_a_signature_belongs_to_the_user_of_its_certificate() {
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
    assert_eq!(
        ask(&rules, asked(10, "carol", &signature), "alice"),
        named("carol"),
        "the signing user has precedence"
    );
    let mismatch = Err(Refusal::Mismatch { user: "carol".into() });
    assert_eq!(
        ask(&rules, asked(10, "carol", "guessed"), "alice"),
        mismatch,
        "the user of the certificate is not tried"
    );

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
    assert!(of_alice.authenticate(asked(10, "", ""), None, [].into_iter()).is_err(), "without a user");
    let elsewhere = Signed { source: IpAddr::from([10, 0, 0, 8]), ..asked(10, "alice", "") };
    assert!(of_alice.authenticate(elsewhere, None, [].into_iter()).is_err());
    let of_all = Rules::new(Checks { trusted_from: white_list("10.0.0.*"), ..checks() }, 1, [alice()]);
    let sender = of_all.authenticate(asked(10, "", ""), None, [].into_iter()).unwrap();
    assert!(sender.is_trusted && sender.user.is_none());
}
