//! Shared state of the methods, with the connections of clients to brokers.
//!
//! Threads: any.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use hashbrown::HashMap;
use parking_lot::Mutex;

use super::broker_call::{Answer, BrokerCall};
use super::brokers::Brokers;
use super::caller::{Addresses, Caller};
use super::client::{ConnectedClient, Lent};
use super::counts::Counts;
use super::halves::Halves;
use super::status::{Refused, code};
use super::topics::BrokerPlace;
use crate::access::rules::User;
use crate::clock::SharedClock;
use crate::dataplane::service::data_plane::DataPlane;
use crate::dataplane::waiting::event::Event;
use crate::remoting::{Client, Connector, Peer};
use crate::requests::credentials::Credentials;

/// A client whose last stream ended this long ago is gone.
const LEFT: Duration = Duration::from_secs(5);
/// A client without calls for this long is gone.
const SILENT: Duration = Duration::from_secs(120);
/// The beginning of the names of connections to brokers.
const CONNECTION: &str = "grpc/";

/// Settings of the proxy.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ProxyOptions {
    /// Clients whose state is kept; calls of further ones are refused.
    pub(crate) clients_max: usize,
    /// Shortest wait of a receive.
    pub(crate) poll_ms_min: i64,
    /// Longest wait of a receive.
    pub(crate) poll_ms_max: i64,
    /// The largest body, as it is transmitted.
    pub(crate) message_bytes_max: usize,
}

impl Default for ProxyOptions {
    fn default() -> Self {
        Self { clients_max: 100_000, poll_ms_min: 1_000, poll_ms_max: 20_000, message_bytes_max: 4 << 20 }
    }
}

/// The client whose connection takes requests of a broker, and the name of the broker.
type Owner = (Weak<ConnectedClient>, Arc<str>);

type ClientKey = (Option<Box<str>>, String);

fn key_of(caller: &Caller) -> ClientKey {
    (caller.user.as_ref().map(|user| user.name.clone()), caller.client_id.clone())
}

/// The shared state.
pub(super) struct Proxy {
    pub(super) data_plane: Arc<DataPlane>,
    pub(super) brokers: Brokers,
    pub(super) clock: SharedClock,
    pub(super) options: ProxyOptions,
    pub(super) connector: Connector<Event>,
    /// Signs requests of the proxy itself, if it has a user.
    user: Option<Credentials>,
    remoting: OnceLock<Client>,
    clients: Mutex<HashMap<ClientKey, Arc<ConnectedClient>>>,
    by_peer: Mutex<HashMap<Arc<str>, Owner>>,
    pub(super) halves: Halves,
    pub(super) counts: Counts,
    next: AtomicU64,
    turn: AtomicUsize,
}

impl Proxy {
    pub(super) fn new(
        data_plane: Arc<DataPlane>,
        brokers: Brokers,
        connector: Connector<Event>,
        user: Option<Credentials>,
        options: ProxyOptions,
    ) -> Self {
        Self {
            clock: Arc::clone(&data_plane.clock),
            data_plane,
            brokers,
            options,
            connector,
            user,
            remoting: OnceLock::new(),
            clients: Mutex::default(),
            by_peer: Mutex::default(),
            halves: Halves::new(),
            counts: Counts::default(),
            next: AtomicU64::new(0),
            turn: AtomicUsize::new(0),
        }
    }

    /// Sets the connections to brokers, once.
    pub(super) fn connect_with(&self, remoting: Client) {
        drop(self.remoting.set(remoting));
    }

    pub(super) fn remoting(&self) -> Option<&Client> {
        self.remoting.get()
    }

    /// Returns the connections to brokers of a server that is running.
    pub(super) fn running(&self) -> Result<&Client, Refused> {
        let stopped = || Refused::new(code::INTERNAL_SERVER_ERROR, "the server is stopping");
        self.remoting().ok_or_else(stopped)
    }

    pub(super) fn now_ms(&self) -> i64 {
        self.clock.wall_ms().cast_signed()
    }

    /// Returns a number that no other call got.
    pub(super) fn next(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// Returns the next number of a rotation.
    pub(super) fn turn(&self) -> usize {
        self.turn.fetch_add(1, Ordering::Relaxed)
    }

    pub(super) fn is_guarded(&self) -> bool {
        self.data_plane.guard.is_on()
    }

    /// Returns what signs a request that a caller causes but need not be allowed to make: the proxy's user, or the
    /// caller.
    pub(super) fn signer<'a>(&'a self, caller: Option<&'a Credentials>) -> Option<&'a Credentials> {
        self.user.as_ref().or(caller)
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

    /// Opens a connection to a broker, which takes requests of the broker for `client`.
    fn open(
        &self,
        broker: &BrokerPlace,
        Addresses { peer, local }: Addresses,
        client: Option<&Arc<ConnectedClient>>,
    ) -> Result<Arc<Peer>, Refused> {
        let remoting = self.running()?;
        let name = format!("{CONNECTION}{}", self.next());
        let known = || {
            if let Some(client) = client {
                let owner = (Arc::downgrade(client), Arc::clone(&broker.name));
                self.by_peer.lock().insert(name.as_str().into(), owner);
            }
        };
        if let (Brokers::Cluster(cluster), Some(address)) = (&self.brokers, &broker.address) {
            cluster.connect()?;
            known();
            return Ok(remoting.connect(&name, address));
        }
        let pipe = self.connector.connect(peer, local);
        let pipe = pipe.map_err(|error| Refused::new(code::TOO_MANY_REQUESTS, error.to_string()))?;
        known();
        Ok(remoting.adopt(&name, pipe))
    }

    /// Returns the client for requests of a broker on this connection, and the name of the broker.
    pub(super) fn client_of(&self, peer: &str) -> Option<(Arc<ConnectedClient>, Arc<str>)> {
        let by_peer = self.by_peer.lock();
        let (client, broker) = by_peer.get(peer)?;
        Some((client.upgrade()?, Arc::clone(broker)))
    }

    /// Forgets a connection that ended.
    pub(super) fn forget_peer(&self, peer: &str) {
        self.by_peer.lock().remove(peer);
        if let Brokers::Cluster(cluster) = &self.brokers
            && peer.starts_with(CONNECTION)
        {
            cluster.disconnected();
        }
    }

    /// Returns the client's connection for requests to this broker.
    fn main(&self, client: &Arc<ConnectedClient>, broker: &BrokerPlace) -> Result<Arc<Peer>, Refused> {
        let addresses = client.addresses();
        client.main(broker.key(), || self.open(broker, addresses, Some(client)))
    }
}

/// What a method needs to ask brokers for its caller.
pub(super) struct Asking<'p> {
    proxy: &'p Proxy,
    pub(super) client: Arc<ConnectedClient>,
    pub(super) credentials: Option<Credentials>,
    pub(super) is_guarded: bool,
}

impl<'p> Asking<'p> {
    pub(super) fn of(proxy: &'p Proxy, caller: &Caller) -> Result<Self, Refused> {
        let client = proxy.client(caller)?;
        Ok(Self { proxy, client, credentials: caller.credentials(), is_guarded: proxy.is_guarded() })
    }

    /// Returns how the proxy asks for a client that is not calling.
    pub(super) fn for_client(proxy: &'p Proxy, client: &Arc<ConnectedClient>) -> Self {
        let of = |user: Arc<User>| Credentials::of(&user.name, user.key.clone());
        let credentials = client.user().map(of);
        Self { proxy, client: Arc::clone(client), credentials, is_guarded: proxy.is_guarded() }
    }

    pub(super) fn call<'a>(&'a self, code: i32) -> BrokerCall<'a> {
        BrokerCall::new(code, self.client.language, self.credentials.as_ref())
    }

    /// Sends a request now; the future is its answer, whatever its code.
    pub(super) fn ask(
        &self,
        broker: &BrokerPlace,
        call: BrokerCall<'_>,
    ) -> impl Future<Output = Result<Answer, Refused>> + Send + use<'p> {
        let asked = self.proxy.main(&self.client, broker).map(|peer| call.ask(&peer));
        let (proxy, broker) = (self.proxy, broker.clone());
        async move {
            let answer = asked?.await;
            proxy.note(&broker, &answer);
            answer
        }
    }

    /// Sends a request that may wait for messages, on its own connection. Dropping the future ends the
    /// connection, and with it the wait.
    pub(super) async fn wait_for(
        &self,
        broker: &BrokerPlace,
        call: BrokerCall<'_>,
    ) -> Result<Answer, Refused> {
        let addresses = self.client.addresses();
        let open = || self.proxy.open(broker, addresses, None);
        let lent: Lent = self.client.lend(broker.key(), open)?;
        let answer = call.ask(&lent.peer).await;
        self.proxy.note(broker, &answer);
        if answer.is_ok() {
            lent.done();
        }
        answer
    }
}

/// Returns the host and port of an address, as clients show it.
pub(super) fn shown(address: SocketAddr) -> String {
    SocketAddr::new(address.ip().to_canonical(), address.port()).to_string()
}
