//! Needs: the access that each hot request needs to topics and groups. Python's declarations
//! (`rmqpy.protocol.access`) cover all other requests; a test checks both.
//!
//! Names are read from the same fields as by the request itself, the last value if a name is repeated. A retry topic
//! belongs to its group: only users that may join the group may read and write it. Internal topics and groups are
//! reserved: no policy grants access to them.

use crate::access::action::{Action, Actions};
use crate::access::policy::Needed;
use crate::access::resource::Resource;
use crate::access::resource::ResourceKind::{self, Group, Topic};
use crate::message::topic::{self, RETRY_PREFIX};
use crate::remoting::codes::request;
use crate::remoting::header::Header;

const PUB: Actions = Actions::of(&[Action::Pub]);
const SUB: Actions = Actions::of(&[Action::Sub]);
const SUB_GET: Actions = Actions::of(&[Action::Sub, Action::Get]);
const SUB_UPDATE: Actions = Actions::of(&[Action::Sub, Action::Update]);

/// A header field, the resource its value names, and the actions of which one is needed.
pub(crate) type NeedRow = (ResourceKind, &'static str, Actions);

/// A request that the broker serves without Python, by its handler.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum HotRequest {
    Send,
    Pull,
    Pop,
    PopLite,
    Peek,
    Notification,
    PollingInfo,
    Ack,
    BatchAck,
    ChangeInvisibleTime,
    SendBack,
    Recall,
    EndTransaction,
    QueryOffset,
    UpdateOffset,
}

macro_rules! hot_requests {
    ($($code:ident => $handler:ident, $rows:expr;)*) => {
        /// The codes of all hot requests. A known heartbeat is answered without Python, too, and is not among them.
        pub(crate) const HOT_CODES: &[i32] = &[$(request::$code),*];

        /// Returns the hot request of this code.
        #[inline]
        pub(crate) const fn hot_request(code: i32) -> Option<HotRequest> {
            match code {
                $(request::$code => Some(HotRequest::$handler),)*
                _ => None,
            }
        }

        /// Returns the rights that the header of a hot request asks for; none for other codes. A returned message
        /// and the end of a transaction also concern the topic of a record, which their handlers check. So do the
        /// entries of a batch of acknowledgements.
        pub(crate) const fn rows(code: i32) -> &'static [NeedRow] {
            match code {
                $(request::$code => &$rows,)*
                _ => &[],
            }
        }
    };
}

hot_requests! {
    SEND_MESSAGE => Send, [(Topic, "topic", PUB)];
    SEND_MESSAGE_V2 => Send, [(Topic, "b", PUB)];
    SEND_BATCH_MESSAGE => Send, [(Topic, "b", PUB)];
    PULL_MESSAGE => Pull, [(Topic, "topic", SUB), (Group, "consumerGroup", SUB)];
    LITE_PULL_MESSAGE => Pull, [(Topic, "topic", SUB), (Group, "consumerGroup", SUB)];
    POP_MESSAGE => Pop, [(Topic, "topic", SUB), (Group, "consumerGroup", SUB)];
    POP_LITE_MESSAGE => PopLite, [(Topic, "topic", SUB), (Group, "consumerGroup", SUB)];
    PEEK_MESSAGE => Peek, [(Topic, "topic", SUB), (Group, "consumerGroup", SUB)];
    NOTIFICATION => Notification, [(Topic, "topic", SUB), (Group, "consumerGroup", SUB)];
    POLLING_INFO => PollingInfo, [(Topic, "topic", SUB), (Group, "consumerGroup", SUB)];
    ACK_MESSAGE => Ack, [(Topic, "topic", SUB), (Group, "consumerGroup", SUB)];
    BATCH_ACK_MESSAGE => BatchAck, [];
    CHANGE_MESSAGE_INVISIBLETIME => ChangeInvisibleTime, [(Topic, "topic", SUB), (Group, "consumerGroup", SUB)];
    CONSUMER_SEND_MSG_BACK => SendBack, [(Group, "group", SUB)];
    RECALL_MESSAGE => Recall, [(Topic, "topic", PUB)];
    END_TRANSACTION => EndTransaction, [];
    QUERY_CONSUMER_OFFSET => QueryOffset, [(Topic, "topic", SUB_GET), (Group, "consumerGroup", SUB_GET)];
    UPDATE_CONSUMER_OFFSET => UpdateOffset,
        [(Topic, "topic", SUB_UPDATE), (Group, "consumerGroup", SUB_UPDATE)];
}

/// Calls `permit` for everything that a hot request needs by its header.
///
/// # Errors
/// The first error of `permit`.
pub(crate) fn each<'h, E>(
    header: &'h Header,
    mut permit: impl FnMut(Needed<'h>) -> Result<(), E>,
) -> Result<(), E> {
    for (kind, field, actions) in rows(header.code) {
        let name = header.get(field).unwrap_or_default();
        let name = if header.code >= request::POP_MESSAGE { popped_topic(header, name) } else { name };
        permit(on(*kind, name, *actions))?;
    }
    Ok(())
}

/// Returns the topic of a pop retry topic's name.
fn popped_topic<'h>(header: &'h Header, name: &'h str) -> &'h str {
    let group = header.get("consumerGroup").unwrap_or_default();
    let rest = name.strip_prefix(RETRY_PREFIX).and_then(|rest| rest.strip_prefix(group));
    rest.and_then(|rest| rest.strip_prefix(['_', '+'])).unwrap_or(name)
}

/// Returns the need to send to this topic.
pub(crate) fn to_send(topic: &str) -> Needed<'_> {
    on(Topic, topic, PUB)
}

/// Returns the need to receive messages of this topic.
pub(crate) fn to_receive(topic: &str) -> Needed<'_> {
    on(Topic, topic, SUB)
}

/// Returns the need to join this group.
pub(crate) fn to_join(group: &str) -> Needed<'_> {
    on(Group, group, SUB)
}

/// Returns the need for these actions on a topic or group; a retry topic stands for its group.
pub(crate) fn on(kind: ResourceKind, name: &str, actions: Actions) -> Needed<'_> {
    let (resource, actions) = match name.strip_prefix(RETRY_PREFIX) {
        Some(group) if kind == Topic => {
            // A member sends failed messages to the retry topic and reads them again, so sending there counts as
            // consuming.
            let actions = if actions == PUB { SUB } else { actions };
            (Resource { kind: Group, name: group }, actions)
        }
        Some(group) if kind == Group => (Resource { kind, name: group }, actions),
        _ => (Resource { kind, name }, actions),
    };
    let is_reserved = match resource.kind {
        Topic => topic::is_internal(resource.name),
        Group => topic::is_internal_group(resource.name),
        ResourceKind::Cluster | ResourceKind::Namespace => false,
    };
    Needed { resource, actions, is_reserved }
}
