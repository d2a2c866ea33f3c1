//! Access control: converts users, policy entries and requirements between Python and the core.

use std::collections::HashSet;
use std::net::IpAddr;
use std::sync::Arc;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::access::action::{Action, Actions};
use crate::access::limits::Limits;
use crate::access::network::Network;
use crate::access::policy::{Decision, Entry, Needed, Policies};
use crate::access::refusal::RESERVED;
use crate::access::resource::{ResourceKind, ResourcePattern};
use crate::access::rules::{Checks, User};
use crate::access::signature::{SigningKey, TooManyFields};
use crate::access::white_list::WhiteList;
use crate::message::properties::{self, name};
use crate::message::record::RecordView;
use crate::message::topic::{HALF_TOPIC, UNDECIDED_TOPIC};
use crate::remoting::codes::VERSION;
use crate::requests::needs;

/// The settings of `rmqpy.config.access` that checks need, read by name.
#[derive(FromPyObject)]
pub(super) struct AccessConfig {
    authenticates: bool,
    authorizes: bool,
    is_plain: bool,
    takes_certificates: bool,
    codes_unsigned: HashSet<i32>,
    codes_unguarded: HashSet<i32>,
    user_connections_max: u32,
    user_requests_max: u32,
    user_bytes_max: u64,
}

impl AccessConfig {
    /// Returns the checks of a cluster that also serves `open_codes`, and `trusted` addresses.
    pub(super) fn checks(
        self,
        open_codes: &HashSet<i32>,
        cluster: &str,
        trusted: &[String],
    ) -> PyResult<Checks> {
        let mut trusted_from = WhiteList::default();
        for text in trusted {
            trusted_from.extend(white_list(text)?);
        }
        Ok(Checks {
            authenticates: self.authenticates || self.is_plain,
            authorizes: self.authorizes || self.is_plain,
            takes_certificates: self.takes_certificates,
            unsigned_codes: &self.codes_unsigned | open_codes,
            unguarded_codes: &self.codes_unguarded | open_codes,
            cluster: cluster.into(),
            trusted_from,
            limits: Limits {
                connections: self.user_connections_max,
                requests_per_second: self.user_requests_max,
                bytes_per_second: self.user_bytes_max,
            },
        })
    }
}

/// resource, actions, source addresses, decision
pub(super) type EntryRow = (String, Vec<String>, Vec<String>, String);
/// name, secret, whether super, whether enabled, custom entries, default entries, white list
pub(super) type UserRow = (String, String, bool, bool, Vec<EntryRow>, Vec<EntryRow>, String);
/// resource kind, resource name, actions of which one is needed
pub(super) type Need = (String, String, Vec<String>);
/// resource kind, header field, actions
type HotNeed = (&'static str, &'static str, Vec<&'static str>);

/// A request that was refused.
#[pyclass(frozen, get_all, module = "rmqpy._native")]
pub(super) struct AccessRefusal {
    /// The request code.
    pub(super) code: i32,
    /// The `ip:port` of the sender.
    pub(super) address: String,
    /// The reason.
    pub(super) reason: String,
}

fn bad(what: impl std::fmt::Display) -> PyErr {
    PyValueError::new_err(what.to_string())
}

fn actions(names: &[String]) -> PyResult<Actions> {
    let read = |name: &String| Action::named(name).ok_or_else(|| bad(format!("{name:?} is not an action")));
    names.iter().map(read).collect()
}

fn entry((resource, action_names, sources, decision): EntryRow) -> PyResult<Entry> {
    let resources = ResourcePattern::parse(&resource).ok_or_else(|| {
        bad(format!("{resource:?} is not a resource: use *, Topic:NAME, Group:PREFIX* or Cluster:*"))
    })?;
    let actions = actions(&action_names)?;
    if actions.is_empty() {
        return Err(bad(format!("{resource} has no actions")));
    }
    let network = |text: String| {
        Network::parse(&text)
            .ok_or_else(|| bad(format!("{text:?} is not an address or a block of addresses")))
    };
    let sources = sources.into_iter().map(network).collect::<PyResult<_>>()?;
    let decision = match decision.to_ascii_lowercase().as_str() {
        "allow" => Decision::Allow,
        "deny" => Decision::Deny,
        _ => return Err(bad(format!("{decision:?} is not a decision: use Allow or Deny"))),
    };
    Ok(Entry { resources, actions, sources, decision })
}

fn entries(rows: Vec<EntryRow>) -> PyResult<Vec<Entry>> {
    rows.into_iter().map(entry).collect()
}

/// Converts a row to a user.
pub(super) fn user(
    (name, secret, is_super, is_enabled, custom, default, trusted): UserRow,
) -> PyResult<User> {
    let policies = Policies { custom: entries(custom)?, default: entries(default)? };
    let (name, key, trusted_from) = (name.into(), SigningKey::new(&secret), white_list(&trusted)?);
    Ok(User { name, key, is_super, is_enabled, policies, trusted_from, usage: Arc::default() })
}

/// Converts a row to a requirement.
pub(super) fn needed((kind, name, action_names): &Need) -> PyResult<Needed<'_>> {
    let kind = ResourceKind::named(kind).ok_or_else(|| bad(format!("{kind:?} is not a resource kind")))?;
    Ok(needs::on(kind, name, actions(action_names)?))
}

/// Parses the addresses of one white list entry.
pub(super) fn white_list(text: &str) -> PyResult<WhiteList> {
    WhiteList::parse(text)
        .ok_or_else(|| bad(format!("{text:?} is not *, an address, or a list or range of addresses")))
}

/// Return whether `source` matches a white list entry, in the notation of `plain_acl.yml`. Raises `ValueError` for an
/// invalid entry.
#[pyfunction]
pub(super) fn is_listed(text: &str, source: &str) -> PyResult<bool> {
    let source: IpAddr = source.parse().map_err(|_| bad(format!("{source:?} is not an address")))?;
    Ok(white_list(text)?.has(source))
}

/// Return an entry in normal form: resource, actions, sources, decision. Raises `ValueError` for an invalid entry.
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

/// Evaluate custom and default entries for one requirement and source address: whether it is allowed, and the
/// deciding entry or `None`.
#[pyfunction]
pub(super) fn decide(
    custom: Vec<EntryRow>,
    default: Vec<EntryRow>,
    need: Need,
    source: &str,
) -> PyResult<(bool, Option<String>)> {
    let policies = Policies { custom: entries(custom)?, default: entries(default)? };
    let source: IpAddr = source.parse().map_err(|_| bad(format!("{source:?} is not an address")))?;
    let needed = needed(&need)?;
    if needed.is_reserved {
        return Ok((false, Some(RESERVED.to_owned())));
    }
    let deciding = policies.deciding(needed, source);
    let is_allowed = deciding.is_some_and(|entry| entry.decision == Decision::Allow);
    Ok((is_allowed, deciding.map(ToString::to_string)))
}

/// Return the requirements of a natively served request code: resource kind, header field, and actions of which one
/// is needed.
#[pyfunction]
pub(super) fn hot_needs(code: i32) -> Vec<HotNeed> {
    let row = |(kind, field, actions): &needs::NeedRow| {
        (kind.name(), *field, actions.each().map(Action::name).collect())
    };
    needs::rows(code).iter().map(row).collect()
}

/// Return the signature of a request with these header fields, computed as Apache's clients do.
#[pyfunction]
pub(super) fn signature(secret: &str, fields: Vec<(String, String)>, body: &[u8]) -> PyResult<String> {
    let fields = fields.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    let signature = SigningKey::new(secret).sign(fields, VERSION, body);
    signature.map(|signature| signature.to_string()).map_err(|TooManyFields| bad("too many header fields"))
}

/// Return the topic of a record of the log; empty for invalid records.
#[pyfunction]
pub(super) fn record_topic(record: &[u8]) -> String {
    RecordView::parse(record).map_or_else(|_| String::new(), |record| text(record.topic()))
}

/// Return the store time of a record of the log in ms since the epoch; 0 for invalid records.
#[pyfunction]
pub(super) fn record_stored_at_ms(record: &[u8]) -> i64 {
    RecordView::parse(record).map_or(0, |record| record.store_timestamp_ms())
}

/// Return the topic that a record of the log will be delivered to. For an open or abandoned half message that is its
/// original topic. Empty for invalid records.
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
