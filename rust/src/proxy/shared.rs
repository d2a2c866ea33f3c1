//! Shared state of the methods, with the connections of clients to the broker.
//!
//! Threads: any.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use hashbrown::HashMap;
use parking_lot::Mutex;

use super::broker_call::BrokerCall;
use super::caller::{Addresses, Caller};
use super::client::ConnectedClient;
use super::status::{Refused, code};
use crate::access::rules::User;
use crate::clock::SharedClock;
use crate::dataplane::service::data_plane::DataPlane;
use crate::dataplane::state::metadata::Metadata;
use crate::dataplane::waiting::event::Event;
use crate::remoting::{Client, Connector, Peer};
use crate::requests::credentials::Credentials;

/// A client whose last stream ended this long ago is gone.
const LEFT: Duration = Duration::from_secs(5);
/// A client without calls for this long is gone.
const SILENT: Duration = Duration::from_secs(120);
/// Half messages whose place is remembered.
const HALVES_MAX: usize = 100_000;

/// The place of a half message: its offset in the queue of half messages, and its position in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct HalfPlace {
    pub(super) offset: i64,
    pub(super) position: i64,
}

/// Half messages by topic and transaction id; the oldest are forgotten first.
#[derive(Default)]
struct Halves {
    places: HashMap<(String, String), HalfPlace>,
    order: VecDeque<(String, String)>,
}

/// Settings of the proxy.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ProxyOptions {
    /// Clients whose state is kept; calls of further ones are refused.
    pub(crate) clients_max: usize,
    /// Shortest wait of a receive.
    pub(crate) poll_ms_min: i64,
    /// Longest wait of a receive.
    pub(crate) poll_ms_max: i64,
}

impl Default for ProxyOptions {
    fn default() -> Self {
        Self { clients_max: 100_000, poll_ms_min: 1_000, poll_ms_max: 20_000 }
    }
}

type ClientKey = (Option<Box<str>>, String);

fn key_of(caller: &Caller) -> ClientKey {
    (caller.user.as_ref().map(|user| user.name.clone()), caller.client_id.clone())
}

/// The shared state.
pub(super) struct Proxy {
    pub(super) data_plane: Arc<DataPlane>,
    pub(super) metadata: Arc<Metadata>,
    pub(super) clock: SharedClock,
    pub(super) options: ProxyOptions,
    pub(super) connector: Connector<Event>,
    remoting: OnceLock<Client>,
    clients: Mutex<HashMap<ClientKey, Arc<ConnectedClient>>>,
    /// The clients whose connection to the broker takes its requests.
    by_peer: Mutex<HashMap<Arc<str>, Weak<ConnectedClient>>>,
    halves: Mutex<Halves>,
    next: AtomicU64,
}

impl Proxy {
    pub(super) fn new(
        data_plane: Arc<DataPlane>,
        metadata: Arc<Metadata>,
        connector: Connector<Event>,
    ) -> Self {
        Self {
            clock: Arc::clone(&data_plane.clock),
            data_plane,
            metadata,
            options: ProxyOptions::default(),
            connector,
            remoting: OnceLock::new(),
            clients: Mutex::default(),
            by_peer: Mutex::default(),
            halves: Mutex::default(),
            next: AtomicU64::new(0),
        }
    }

    /// Sets the connections to the broker, once.
    pub(super) fn connect_with(&self, remoting: Client) {
        drop(self.remoting.set(remoting));
    }

    pub(super) fn remoting(&self) -> Option<&Client> {
        self.remoting.get()
    }

    pub(super) fn now_ms(&self) -> i64 {
        self.clock.wall_ms().cast_signed()
    }

    /// Returns a number that no other call got.
    pub(super) fn next(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    pub(super) fn is_guarded(&self) -> bool {
        self.data_plane.guard.is_on()
    }

    /// Returns the state of the caller, created on its first call.
    pub(super) fn client(&self, caller: &Caller) -> Result<Arc<ConnectedClient>, Refused> {
        let key = key_of(caller);
        let mut clients = self.clients.lock();
        if let Some(client) = clients.get(&key) {
            client.seen(caller);
            return Ok(Arc::clone(client));
        }
        if clients.len() >= self.options.clients_max {
            return Err(Refused::new(code::TOO_MANY_REQUESTS, "too many clients"));
        }
        let client = Arc::new(ConnectedClient::new(caller));
        clients.insert(key, Arc::clone(&client));
        Ok(client)
    }

    /// Removes the state of the caller.
    pub(super) fn forget(&self, caller: &Caller) -> Option<Arc<ConnectedClient>> {
        self.clients.lock().remove(&key_of(caller))
    }

    /// Removes and returns the clients that are gone.
    pub(super) fn take_gone(&self) -> Vec<Arc<ConnectedClient>> {
        let mut clients = self.clients.lock();
        clients.extract_if(|_, client| client.is_gone(LEFT, SILENT)).map(|(_, client)| client).collect()
    }

    pub(super) fn all_clients(&self) -> Vec<Arc<ConnectedClient>> {
        self.clients.lock().values().cloned().collect()
    }

    /// Opens a connection to the broker, which takes requests of the broker for `client`.
    pub(super) fn open(
        &self,
        Addresses { peer, local }: Addresses,
        client: Option<&Arc<ConnectedClient>>,
    ) -> Result<Arc<Peer>, Refused> {
        let stopped = || Refused::new(code::INTERNAL_SERVER_ERROR, "the server is stopping");
        let remoting = self.remoting().ok_or_else(stopped)?;
        let pipe = self.connector.connect(peer, local);
        let pipe = pipe.map_err(|error| Refused::new(code::TOO_MANY_REQUESTS, error.to_string()))?;
        let name = format!("grpc/{}", self.next());
        if let Some(client) = client {
            self.by_peer.lock().insert(name.as_str().into(), Arc::downgrade(client));
        }
        Ok(remoting.adopt(&name, pipe))
    }

    /// Returns the client for requests of the broker on this connection.
    pub(super) fn client_of(&self, peer: &str) -> Option<Arc<ConnectedClient>> {
        self.by_peer.lock().get(peer)?.upgrade()
    }

    pub(super) fn forget_peer(&self, peer: &str) {
        self.by_peer.lock().remove(peer);
    }

    /// Returns the client's connection for requests.
    pub(super) fn main(&self, client: &Arc<ConnectedClient>) -> Result<Arc<Peer>, Refused> {
        let addresses = client.addresses();
        client.main(|| self.open(addresses, Some(client)))
    }

    pub(super) fn remember_half(&self, topic: &str, transaction_id: &str, place: HalfPlace) {
        let mut halves = self.halves.lock();
        let key = (topic.to_owned(), transaction_id.to_owned());
        if halves.places.insert(key.clone(), place).is_none() {
            halves.order.push_back(key);
        }
        while halves.order.len() > HALVES_MAX {
            if let Some(oldest) = halves.order.pop_front() {
                halves.places.remove(&oldest);
            }
        }
    }

    pub(super) fn half(&self, topic: &str, transaction_id: &str) -> Option<HalfPlace> {
        self.halves.lock().places.get(&(topic.to_owned(), transaction_id.to_owned())).copied()
    }
}

/// What a method needs to ask the broker for its caller.
pub(super) struct Asking {
    pub(super) client: Arc<ConnectedClient>,
    pub(super) peer: Arc<Peer>,
    pub(super) credentials: Option<Credentials>,
    pub(super) is_guarded: bool,
}

impl Asking {
    pub(super) fn of(proxy: &Proxy, caller: &Caller) -> Result<Self, Refused> {
        let client = proxy.client(caller)?;
        let peer = proxy.main(&client)?;
        Ok(Self { client, peer, credentials: caller.credentials(), is_guarded: proxy.is_guarded() })
    }

    /// Returns how the proxy asks for a client that is not calling.
    pub(super) fn for_client(proxy: &Proxy, client: &Arc<ConnectedClient>) -> Result<Self, Refused> {
        let peer = proxy.main(client)?;
        let of = |user: Arc<User>| Credentials::of(&user.name, user.key.clone());
        let credentials = client.user().map(of);
        Ok(Self { client: Arc::clone(client), peer, credentials, is_guarded: proxy.is_guarded() })
    }

    pub(super) fn call<'a>(&'a self, code: i32) -> BrokerCall<'a> {
        BrokerCall::new(code, self.client.language, self.credentials.as_ref())
    }
}

/// Returns the host and port of an address, as clients show it.
pub(super) fn shown(address: SocketAddr) -> String {
    SocketAddr::new(address.ip().to_canonical(), address.port()).to_string()
}
