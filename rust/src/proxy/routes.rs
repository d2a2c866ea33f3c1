//! Routes: QueryRoute and QueryAssignment, from the broker's own topics.
//!
//! Routes show the address that the client was configured with: the client can reach that.

use super::api::{
    Address, Assignment, Broker, Endpoints, MessageQueue, QueryAssignmentRequest, QueryAssignmentResponse,
    QueryRouteRequest, QueryRouteResponse, Resource, message_type, permission, scheme,
};
use super::caller::{Addresses, Caller};
use super::names;
use super::shared::Proxy;
use super::status::{Refused, code, status};
use crate::access::action::{Action, Actions};
use crate::access::resource::ResourceKind;
use crate::dataplane::state::metadata::{PERMISSION_READ, PERMISSION_WRITE, Topic};
use crate::message::MessageType;
use crate::requests::needs;

/// The code under which refusals of routes are counted: GET_ROUTEINFO_BY_TOPIC.
const ROUTE: i32 = 105;
const PUB_SUB_GET: Actions = Actions::of(&[Action::Pub, Action::Sub, Action::Get]);

/// Returns the refusal of a topic that does not exist, with the text of Apache's proxy.
pub(super) fn no_route(topic: &str) -> Refused {
    let text = format!("CODE: 17  DESC: No topic route info in name server for the topic: {topic}");
    Refused::new(code::TOPIC_NOT_FOUND, text)
}

impl Proxy {
    pub(super) fn query_route(&self, caller: &Caller, asked: &QueryRouteRequest) -> QueryRouteResponse {
        let found = self.route(caller, asked);
        QueryRouteResponse { status: Some(status(&found)), message_queues: found.unwrap_or_default() }
    }

    fn route(&self, caller: &Caller, asked: &QueryRouteRequest) -> Result<Vec<MessageQueue>, Refused> {
        let name = names::topic(asked.topic.as_ref())?;
        self.permit(caller, needs::on(ResourceKind::Topic, name, PUB_SUB_GET))?;
        let topic = self.metadata.topics.get(name).ok_or_else(|| no_route(name))?;
        let bits = topic.permission & self.metadata.permission();
        let is_readable = bits & PERMISSION_READ != 0;
        let is_writable = bits & PERMISSION_WRITE != 0;
        let reads = if is_readable { topic.read_queues } else { 0 };
        let writes = if is_writable { topic.write_queues } else { 0 };
        let broker = self.shown_broker(asked.endpoints.as_ref(), caller.addresses);
        let types = accepted(&topic);
        let count = topic.read_queues.max(topic.write_queues).max(1);
        // Clients that know only queue 0 find the queues for both directions first.
        let queues = (0..count).filter_map(|id| {
            let permission = match (id < reads, id < writes) {
                (true, true) => permission::READ_WRITE,
                (true, false) => permission::READ,
                (false, true) => permission::WRITE,
                (false, false) if is_readable || is_writable => return None,
                (false, false) => permission::NONE,
            };
            Some(MessageQueue {
                topic: asked.topic.clone(),
                id: id.cast_signed(),
                permission,
                broker: Some(broker.clone()),
                accept_message_types: types.clone(),
            })
        });
        Ok(queues.collect())
    }

    pub(super) fn query_assignment(
        &self,
        caller: &Caller,
        asked: &QueryAssignmentRequest,
    ) -> QueryAssignmentResponse {
        let found = self.assignments(caller, asked);
        QueryAssignmentResponse { status: Some(status(&found)), assignments: found.unwrap_or_default() }
    }

    fn assignments(
        &self,
        caller: &Caller,
        asked: &QueryAssignmentRequest,
    ) -> Result<Vec<Assignment>, Refused> {
        let name = names::topic(asked.topic.as_ref())?;
        let group = names::group(asked.group.as_ref())?;
        self.permit(caller, needs::to_join(group))?;
        self.permit(caller, needs::to_receive(name))?;
        let topic = self.metadata.topics.get(name).ok_or_else(|| no_route(name))?;
        let bits = topic.permission & self.metadata.permission();
        if bits & PERMISSION_READ == 0 || topic.read_queues == 0 {
            return Err(Refused::new(code::FORBIDDEN, "no readable queue"));
        }
        let broker = self.shown_broker(asked.endpoints.as_ref(), caller.addresses);
        let permission = if bits & PERMISSION_WRITE == 0 { permission::READ } else { permission::READ_WRITE };
        let is_ordered = self.is_ordered(group);
        let ids = if is_ordered { 0..topic.read_queues.cast_signed() } else { -1..0 };
        let queue = |id| MessageQueue {
            topic: asked.topic.clone(),
            id,
            permission,
            broker: Some(broker.clone()),
            accept_message_types: accepted(&topic),
        };
        Ok(ids.map(|id| Assignment { message_queue: Some(queue(id)) }).collect())
    }

    /// Returns whether a group consumes in order.
    pub(super) fn is_ordered(&self, group: &str) -> bool {
        self.metadata.groups.get(group).is_some_and(|group| group.is_ordered)
    }

    fn permit(&self, caller: &Caller, needed: crate::access::policy::Needed<'_>) -> Result<(), Refused> {
        let peer = caller.addresses.peer;
        let permitted = self.data_plane.guard.permits(ROUTE, caller.user.as_ref(), peer, needed);
        permitted.map_err(|refusal| Refused::new(code::UNAUTHORIZED, refusal.to_string()))
    }

    fn shown_broker(&self, asked: Option<&Endpoints>, addresses: Addresses) -> Broker {
        let is_usable = |endpoints: &&Endpoints| {
            !endpoints.addresses.is_empty()
                && endpoints.addresses.iter().all(|address| !address.host.is_empty() && address.port > 0)
        };
        let endpoints = asked.filter(is_usable).cloned().unwrap_or_else(|| {
            let ip = addresses.local.ip().to_canonical();
            let address = Address { host: ip.to_string(), port: addresses.local.port().into() };
            let scheme = if ip.is_ipv4() { scheme::IPV4 } else { scheme::IPV6 };
            Endpoints { scheme, addresses: vec![address] }
        });
        Broker { name: self.metadata.identity.broker.clone(), id: 0, endpoints: Some(endpoints) }
    }
}

/// Returns the types of messages that a topic takes: all if it declares none, as the broker does.
fn accepted(topic: &Topic) -> Vec<i32> {
    match topic.message_type {
        Some(kind) => vec![number_of(kind)],
        None => MessageType::ALL.map(number_of).to_vec(),
    }
}

/// Returns the number of a type in the interface.
fn number_of(kind: MessageType) -> i32 {
    match kind {
        MessageType::Normal => message_type::NORMAL,
        MessageType::Fifo => message_type::FIFO,
        MessageType::Delay => message_type::DELAY,
        MessageType::Transaction => message_type::TRANSACTION,
    }
}

/// Returns the name of a topic or group as clients show it.
pub(super) fn named(name: &str) -> Resource {
    Resource { namespace: String::new(), name: name.to_owned() }
}
