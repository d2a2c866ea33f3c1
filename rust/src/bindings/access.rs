//! Access control as Python states it: users, entries of policies, needs.

use std::net::IpAddr;
use std::sync::Arc;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::access::action::{Action, Actions};
use crate::access::network::Network;
use crate::access::policy::{Decision, Entry, Needed, Policies};
use crate::access::refusal::RESERVED;
use crate::access::resource::{ResourceKind, ResourcePattern};
use crate::access::rules::User;
use crate::access::signature::{SigningKey, TooManyFields};
use crate::access::white_list::WhiteList;
use crate::message::properties::{self, name};
use crate::message::record::RecordView;
use crate::message::topic::{HALF_TOPIC, UNDECIDED_TOPIC};
use crate::remoting::codes::VERSION;
use crate::requests::needs;

/// resource, actions, source addresses, decision
pub(super) type EntryRow = (String, Vec<String>, Vec<String>, String);
/// name, secret, whether super, whether enabled, custom entries, default entries, white list
pub(super) type UserRow = (String, String, bool, bool, Vec<EntryRow>, Vec<EntryRow>, String);
/// kind and name of the resource, actions of which one is needed
pub(super) type Need = (String, String, Vec<String>);
/// kind of resource, header field, actions
type HotNeed = (&'static str, &'static str, Vec<&'static str>);

fn bad(what: impl std::fmt::Display) -> PyErr {
    PyValueError::new_err(what.to_string())
}

fn actions(names: &[String]) -> PyResult<Actions> {
    let read = |name: &String| Action::named(name).ok_or_else(|| bad(format!("{name:?} is no action")));
    names.iter().map(read).collect()
}

fn entry((resource, action_names, sources, decision): EntryRow) -> PyResult<Entry> {
    let resources = ResourcePattern::parse(&resource).ok_or_else(|| {
        bad(format!("{resource:?} is no resource: it is *, or Topic:NAME, Group:PREFIX*, Cluster:*"))
    })?;
    let actions = actions(&action_names)?;
    if actions.is_empty() {
        return Err(bad(format!("no action on {resource}")));
    }
    let network = |text: String| {
        Network::parse(&text).ok_or_else(|| bad(format!("{text:?} is no address, and no block of addresses")))
    };
    let sources = sources.into_iter().map(network).collect::<PyResult<_>>()?;
    let decision = match decision.to_ascii_lowercase().as_str() {
        "allow" => Decision::Allow,
        "deny" => Decision::Deny,
        _ => return Err(bad(format!("{decision:?} is no decision: it is Allow or Deny"))),
    };
    Ok(Entry { resources, actions, sources, decision })
}

fn entries(rows: Vec<EntryRow>) -> PyResult<Vec<Entry>> {
    rows.into_iter().map(entry).collect()
}

/// The user of a row.
pub(super) fn user(
    (name, secret, is_super, is_enabled, custom, default, trusted): UserRow,
) -> PyResult<User> {
    let policies = Policies { custom: entries(custom)?, default: entries(default)? };
    let (name, key, trusted_from) = (name.into(), SigningKey::new(&secret), white_list(&trusted)?);
    Ok(User { name, key, is_super, is_enabled, policies, trusted_from, usage: Arc::default() })
}

/// The need of a row.
pub(super) fn needed((kind, name, action_names): &Need) -> PyResult<Needed<'_>> {
    let kind = ResourceKind::named(kind).ok_or_else(|| bad(format!("{kind:?} is no kind of resource")))?;
    Ok(needs::on(kind, name, actions(action_names)?))
}

/// The addresses of one entry of a white list.
pub(super) fn white_list(text: &str) -> PyResult<WhiteList> {
    WhiteList::parse(text)
        .ok_or_else(|| bad(format!("{text:?} is no address, list or range of addresses, and not *")))
}

/// Whether `source` is one of the addresses of an entry of a white list. Raises `ValueError` where it cannot be read.
#[pyfunction]
pub(super) fn is_listed(text: &str, source: &str) -> PyResult<bool> {
    let source: IpAddr = source.parse().map_err(|_| bad(format!("{source:?} is no address")))?;
    Ok(white_list(text)?.has(source))
}

/// An entry as it will be understood: resource, actions, sources, decision. Raises `ValueError` where it cannot be.
#[pyfunction]
pub(super) fn check_entry(
    resource: String,
    actions: Vec<String>,
    sources: Vec<String>,
    decision: String,
) -> PyResult<(String, Vec<&'static str>, Vec<String>, String)> {
    let Entry { resources, actions, decision, .. } = entry((resource, actions, sources.clone(), decision))?;
    let names = actions.each().map(Action::name).collect();
    Ok((resources.to_string(), names, sources, format!("{decision:?}")))
}

/// What these custom and default entries say to a need from an address: whether it is allowed, and the entry that
/// decides, `None` where none does.
#[pyfunction]
pub(super) fn decide(
    custom: Vec<EntryRow>,
    default: Vec<EntryRow>,
    need: Need,
    source: &str,
) -> PyResult<(bool, Option<String>)> {
    let policies = Policies { custom: entries(custom)?, default: entries(default)? };
    let source: IpAddr = source.parse().map_err(|_| bad(format!("{source:?} is no address")))?;
    let needed = needed(&need)?;
    if needed.is_reserved {
        return Ok((false, Some(RESERVED.to_owned())));
    }
    let deciding = policies.deciding(needed, source);
    let is_allowed = deciding.is_some_and(|entry| entry.decision == Decision::Allow);
    Ok((is_allowed, deciding.map(ToString::to_string)))
}

/// What a request of this code, which is served natively, needs by its header: kind of the resource, header field,
/// actions of which one will do.
#[pyfunction]
pub(super) fn hot_needs(code: i32) -> Vec<HotNeed> {
    let row = |(kind, field, actions): &needs::NeedRow| {
        (kind.name(), *field, actions.each().map(Action::name).collect())
    };
    needs::rows(code).iter().map(row).collect()
}

/// The signature of a request with these header fields, by the original's rules.
#[pyfunction]
pub(super) fn signature(secret: &str, fields: Vec<(String, String)>, body: &[u8]) -> PyResult<String> {
    let fields = fields.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    let signature = SigningKey::new(secret).sign(fields, VERSION, body);
    signature.map(|signature| signature.to_string()).map_err(|TooManyFields| bad("too many header fields"))
}

/// The topic of a record of the log; empty where it is none.
#[pyfunction]
pub(super) fn record_topic(record: &[u8]) -> String {
    RecordView::parse(record).map_or_else(|_| String::new(), |record| text(record.topic()))
}

/// The topic that a record of the log will be delivered to: of a half message that is open or was given up, the one
/// it was sent to. Empty where it is none.
#[pyfunction]
pub(super) fn record_destination(record: &[u8]) -> String {
    let Ok(record) = RecordView::parse(record) else { return String::new() };
    let is_half = [HALF_TOPIC, UNDECIDED_TOPIC].iter().any(|topic| record.topic() == topic.as_bytes());
    let real = properties::get(record.properties(), name::REAL_TOPIC).filter(|_| is_half);
    text(real.unwrap_or_else(|| record.topic()))
}

fn text(topic: &[u8]) -> String {
    std::str::from_utf8(topic).unwrap_or_default().to_owned()
}
