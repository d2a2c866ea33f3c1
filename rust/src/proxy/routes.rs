//! Routes: QueryRoute and QueryAssignment, with the queues of every broker behind this server.
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
use super::topics::{TopicPart, TopicRoute};
use crate::access::action::{Action, Actions};
use crate::access::resource::ResourceKind;
use crate::message::MessageType;
use crate::requests::needs;

/// The code under which refusals of routes are counted: GET_ROUTEINFO_BY_TOPIC.
const ROUTE: i32 = 105;
const PUB_SUB_GET: Actions = Actions::of(&[Action::Pub, Action::Sub, Action::Get]);

impl Proxy {
    pub(super) async fn query_route(&self, caller: &Caller, asked: &QueryRouteRequest) -> QueryRouteResponse {
        let found = self.route(caller, asked).await;
        QueryRouteResponse { status: Some(status(&found)), message_queues: found.unwrap_or_default() }
    }

    async fn route(&self, caller: &Caller, asked: &QueryRouteRequest) -> Result<Vec<MessageQueue>, Refused> {
        let name = names::topic(asked.topic.as_ref())?;
        self.permit(caller, needs::on(ResourceKind::Topic, name, PUB_SUB_GET))?;
        let topic = self.topic(name, caller.credentials().as_ref()).await?;
        let (endpoints, types) =
            (shown_endpoints(asked.endpoints.as_ref(), caller.addresses), accepted(&topic));
        let queues = topic.parts.iter().flat_map(|part| {
            let (endpoints, types) = (&endpoints, &types);
            permissions(part).map(move |(id, permission)| MessageQueue {
                topic: asked.topic.clone(),
                id,
                permission,
                broker: Some(shown_broker(part, endpoints)),
                accept_message_types: types.clone(),
            })
        });
        Ok(queues.collect())
    }

    pub(super) async fn query_assignment(
        &self,
        caller: &Caller,
        asked: &QueryAssignmentRequest,
    ) -> QueryAssignmentResponse {
        let found = self.assignments(caller, asked).await;
        QueryAssignmentResponse { status: Some(status(&found)), assignments: found.unwrap_or_default() }
    }

    async fn assignments(
        &self,
        caller: &Caller,
        asked: &QueryAssignmentRequest,
    ) -> Result<Vec<Assignment>, Refused> {
        let name = names::topic(asked.topic.as_ref())?;
        let group = names::group(asked.group.as_ref())?;
        self.permit(caller, needs::to_join(group))?;
        self.permit(caller, needs::to_receive(name))?;
        let credentials = caller.credentials();
        let topic = self.topic(name, credentials.as_ref()).await?;
        if topic.parts.iter().all(|part| part.reads() == 0) {
            return Err(Refused::new(code::FORBIDDEN, "no readable queue"));
        }
        let is_ordered = self.is_ordered(group, name, credentials.as_ref()).await?;
        let (endpoints, types) =
            (shown_endpoints(asked.endpoints.as_ref(), caller.addresses), accepted(&topic));
        let readable = topic.parts.iter().filter(|part| part.reads() > 0);
        let queues = readable.flat_map(|part| {
            let (endpoints, types) = (&endpoints, &types);
            let ids = if is_ordered { 0..part.reads().cast_signed() } else { -1..0 };
            ids.map(move |id| MessageQueue {
                topic: asked.topic.clone(),
                id,
                permission: if part.is_writable { permission::READ_WRITE } else { permission::READ },
                broker: Some(shown_broker(part, endpoints)),
                accept_message_types: types.clone(),
            })
        });
        Ok(queues.map(|queue| Assignment { message_queue: Some(queue) }).collect())
    }

    fn permit(&self, caller: &Caller, needed: crate::access::policy::Needed<'_>) -> Result<(), Refused> {
        let peer = caller.addresses.peer;
        let permitted = self.data_plane.guard.permits(ROUTE, caller.user.as_ref(), peer, needed);
        permitted.map_err(|refusal| Refused::new(code::UNAUTHORIZED, refusal.to_string()))
    }
}

/// Returns the queues of a topic at one broker, with the permission of each. Clients that know only queue 0 find the
/// queues for both directions first.
fn permissions(part: &TopicPart) -> impl Iterator<Item = (i32, i32)> + use<> {
    // Clients keep a route for 30 s, so a route from the time of an election shows that messages are taken.
    let (reads, writes) = (part.reads(), part.permitted_writes());
    let is_open = part.is_readable || part.is_writable;
    let count = part.read_queues.max(part.write_queues).max(1);
    (0..count).filter_map(move |id| {
        let permission = match (id < reads, id < writes) {
            (true, true) => permission::READ_WRITE,
            (true, false) => permission::READ,
            (false, true) => permission::WRITE,
            (false, false) if is_open => return None,
            (false, false) => permission::NONE,
        };
        Some((id.cast_signed(), permission))
    })
}

/// Returns the address that the client was configured with, or that it has connected to.
fn shown_endpoints(asked: Option<&Endpoints>, addresses: Addresses) -> Endpoints {
    let is_usable = |endpoints: &&Endpoints| {
        !endpoints.addresses.is_empty()
            && endpoints.addresses.iter().all(|address| !address.host.is_empty() && address.port > 0)
    };
    asked.filter(is_usable).cloned().unwrap_or_else(|| {
        let ip = addresses.local.ip().to_canonical();
        let address = Address { host: ip.to_string(), port: addresses.local.port().into() };
        let scheme = if ip.is_ipv4() { scheme::IPV4 } else { scheme::IPV6 };
        Endpoints { scheme, addresses: vec![address] }
    })
}

fn shown_broker(part: &TopicPart, endpoints: &Endpoints) -> Broker {
    Broker { name: part.broker.name.to_string(), id: 0, endpoints: Some(endpoints.clone()) }
}

/// Returns the types of messages that a topic takes. A topic that declares none takes all that every client knows.
fn accepted(topic: &TopicRoute) -> Vec<i32> {
    match topic.message_type {
        Some(kind) => vec![number_of(kind)],
        None => {
            vec![message_type::NORMAL, message_type::FIFO, message_type::DELAY, message_type::TRANSACTION]
        }
    }
}

/// Returns the number of a type in the interface.
fn number_of(kind: MessageType) -> i32 {
    match kind {
        MessageType::Normal => message_type::NORMAL,
        MessageType::Fifo => message_type::FIFO,
        MessageType::Delay => message_type::DELAY,
        MessageType::Transaction => message_type::TRANSACTION,
        MessageType::Priority => message_type::PRIORITY,
        MessageType::Lite => message_type::LITE,
    }
}

/// Returns the name of a topic or group as clients show it.
pub(super) fn named(name: &str) -> Resource {
    Resource { namespace: String::new(), name: name.to_owned() }
}
