//! Needs: what each hot request does to which topic or group. Those of all other requests are in Python's declarations
//! (`rmqpy.protocol.access`); a test walks both.
//!
//! Names are read from the same fields as the request itself, the last one where a name stands twice. A retry topic is
//! its group's own: who may be a member of the group may read and write it, and nobody else. Internal topics and groups
//! are reserved: no policy gives a right to them.

use crate::access::action::{Action, Actions};
use crate::access::policy::Needed;
use crate::access::resource::{Resource, ResourceKind};
use crate::message::topic::{self, RETRY_PREFIX};
use crate::remoting::codes::request;
use crate::remoting::header::Header;

const PUB: Actions = Actions::of(&[Action::Pub]);
const SUB: Actions = Actions::of(&[Action::Sub]);
const SUB_GET: Actions = Actions::of(&[Action::Sub, Action::Get]);
const SUB_UPDATE: Actions = Actions::of(&[Action::Sub, Action::Update]);

/// A field of the header, what its value names, and the actions of which one is needed.
pub(crate) type NeedRow = (ResourceKind, &'static str, Actions);

/// What a hot request needs by its header; nothing for other codes. A returned message and the end of a transaction are
/// about a record besides, whose own topic counts: see the handlers.
pub(crate) const fn rows(code: i32) -> &'static [NeedRow] {
    use ResourceKind::{Group, Topic};
    match code {
        request::SEND_MESSAGE => &[(Topic, "topic", PUB)],
        request::SEND_MESSAGE_V2 | request::SEND_BATCH_MESSAGE => &[(Topic, "b", PUB)],
        request::RECALL_MESSAGE => &[(Topic, "topic", PUB)],
        request::PULL_MESSAGE | request::LITE_PULL_MESSAGE => {
            &[(Topic, "topic", SUB), (Group, "consumerGroup", SUB)]
        }
        request::CONSUMER_SEND_MSG_BACK => &[(Group, "group", SUB)],
        request::QUERY_CONSUMER_OFFSET => &[(Topic, "topic", SUB_GET), (Group, "consumerGroup", SUB_GET)],
        request::UPDATE_CONSUMER_OFFSET => {
            &[(Topic, "topic", SUB_UPDATE), (Group, "consumerGroup", SUB_UPDATE)]
        }
        _ => &[],
    }
}

/// Asks `permit` for everything that a hot request needs by its header.
///
/// # Errors
/// The first one.
pub(crate) fn each<'h, E>(
    header: &'h Header,
    mut permit: impl FnMut(Needed<'h>) -> Result<(), E>,
) -> Result<(), E> {
    for (kind, field, actions) in rows(header.code) {
        permit(on(*kind, header.get(field).unwrap_or_default(), *actions))?;
    }
    Ok(())
}

/// To send to this topic.
pub(crate) fn to_send(topic: &str) -> Needed<'_> {
    on(ResourceKind::Topic, topic, PUB)
}

/// To be given messages of this topic.
pub(crate) fn to_receive(topic: &str) -> Needed<'_> {
    on(ResourceKind::Topic, topic, SUB)
}

/// To be a member of this group.
pub(crate) fn to_join(group: &str) -> Needed<'_> {
    on(ResourceKind::Group, group, SUB)
}

/// These actions on a topic or group: on the group, where it is a group's retry topic.
pub(crate) fn on(kind: ResourceKind, name: &str, actions: Actions) -> Needed<'_> {
    let (resource, actions) = match name.strip_prefix(RETRY_PREFIX) {
        Some(group) if kind == ResourceKind::Topic => {
            // A member sends what it failed on, and reads it again: to send there, too, is to consume.
            let actions = if actions == PUB { SUB } else { actions };
            (Resource { kind: ResourceKind::Group, name: group }, actions)
        }
        Some(group) if kind == ResourceKind::Group => (Resource { kind, name: group }, actions),
        _ => (Resource { kind, name }, actions),
    };
    let is_reserved = match resource.kind {
        ResourceKind::Topic => topic::is_internal(resource.name),
        ResourceKind::Group => topic::is_internal_group(resource.name),
        ResourceKind::Cluster | ResourceKind::Namespace => false,
    };
    Needed { resource, actions, is_reserved }
}
