//! Proxy: the interface of 5.x clients, gRPC, inside a broker or in front of a cluster.
//!
//! `listener` accepts connections, `service` finds the method of a call, `caller` reads its client. Each method is a
//! request to a broker in remoting's form (`broker_call`), on a connection within the process or to another one:
//! admission, access control, store and POP are those of every other client. `places` finds the broker of a topic, a
//! group, a queue or a handle among its `brokers`: the broker of this process, or those of a `cluster`, whose answers stay
//! in a `cache`. `topics` are the queues of a topic at each. `api` holds the messages, `messages` converts them, `names`
//! checks them, `handle` reads receipt handles, `halves` and `half_lookups` find half messages, and `counts` are metrics.
//! `client` and `shared` keep what outlives a call; `telemetry` registers clients, and `upkeep` extends the messages that
//! they are working on. `fuzzed` exposes decoders to mutated bytes.
//!
//! *Architecture invariant*: nothing here decides what a broker accepts, except what 5.x clients expect in their own
//! codes. Requests and states are bounded.
//! Threads: one, `rmqpy-grpc`, apart from those of remoting.

mod acks;
mod api;
mod api_lite;
mod api_telemetry;
mod bodies;
mod broker_call;
mod brokers;
mod cache;
mod caller;
mod client;
mod cluster;
mod codec;
mod counts;
#[cfg(feature = "fuzzing")]
pub(crate) mod fuzzed;
mod half_lookups;
mod halves;
mod handle;
mod listener;
mod lite;
mod messages;
mod names;
mod offsets;
mod places;
mod pulls;
mod receives;
mod routes;
mod sends;
mod service;
mod shared;
mod status;
mod telemetry;
mod topics;
mod transactions;
mod upkeep;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::AbortHandle;

use crate::dataplane::service::data_plane::DataPlane;
use crate::dataplane::waiting::event::Event;
use crate::remoting::{Client, ClientOptions, Connector};
use crate::requests::credentials::Credentials;
use crate::tls::{ClientTls, ServerTls};
use brokers::{Brokers, Local};
use cluster::Cluster;
use shared::{Proxy, ProxyOptions};

/// Time for answers in flight when the server stops.
const STOP_GRACE: Duration = Duration::from_millis(500);

/// A running server for 5.x clients.
pub(crate) struct ProxyServer {
    proxy: Arc<Proxy>,
    acceptor: AbortHandle,
}

/// The cluster behind a separate process.
pub(crate) struct ClusterOptions {
    /// Addresses of the name servers, `host:port`.
    pub(crate) name_servers: Vec<String>,
    /// Encrypts the connections to name servers and brokers.
    pub(crate) tls: Option<Arc<ClientTls>>,
    /// Signs requests of the proxy itself, which its clients need not be allowed to make.
    pub(crate) user: Option<Credentials>,
    /// The largest body, as it is transmitted.
    pub(crate) message_bytes_max: usize,
}

impl ProxyServer {
    /// Starts serving at `address`, port 0 for a free one, in front of the broker of this process; returns the bound
    /// address too.
    ///
    /// # Errors
    /// When the address cannot be bound, a thread cannot be started, or the server is not a broker.
    pub(crate) fn start(
        data_plane: Arc<DataPlane>,
        connector: Connector<Event>,
        address: SocketAddr,
        tls: Arc<ServerTls>,
    ) -> io::Result<(Self, SocketAddr)> {
        let metadata = data_plane.metadata().cloned();
        let metadata = metadata.ok_or_else(|| io::Error::other("only brokers serve gRPC"))?;
        let message_bytes_max = metadata.identity.message_bytes_max;
        let options = ProxyOptions { message_bytes_max, ..ProxyOptions::default() };
        let brokers = Brokers::Local(Local::new(metadata));
        let proxy = Proxy::new(data_plane, brokers, connector, None, options);
        Self::serve(proxy, ClientOptions::default(), address, tls)
    }

    /// Starts serving in front of a cluster.
    ///
    /// # Errors
    /// As `start`, except that no broker is needed.
    pub(crate) fn start_for(
        cluster: ClusterOptions,
        data_plane: Arc<DataPlane>,
        connector: Connector<Event>,
        address: SocketAddr,
        tls: Arc<ServerTls>,
    ) -> io::Result<(Self, SocketAddr)> {
        let ClusterOptions { name_servers, tls: outgoing, user, message_bytes_max } = cluster;
        let options = ProxyOptions { message_bytes_max, ..ProxyOptions::default() };
        let brokers = Brokers::Cluster(Cluster::new(name_servers));
        let proxy = Proxy::new(data_plane, brokers, connector, user, options);
        Self::serve(proxy, ClientOptions { tls: outgoing, ..ClientOptions::default() }, address, tls)
    }

    fn serve(
        proxy: Proxy,
        outgoing: ClientOptions,
        address: SocketAddr,
        tls: Arc<ServerTls>,
    ) -> io::Result<(Self, SocketAddr)> {
        let listener = listener::bind(address)?;
        let bound = listener.local_addr()?;
        let proxy = Arc::new(proxy);
        let requests = Arc::new(upkeep::BrokerRequests(Arc::downgrade(&proxy)));
        let remoting = Client::start_as("rmqpy-grpc", outgoing, requests)?;
        let runtime = remoting.runtime().clone();
        proxy.connect_with(remoting);
        runtime.spawn(upkeep::run(Arc::downgrade(&proxy)));
        if proxy.brokers.only().is_none() {
            runtime.spawn(upkeep::probe(Arc::downgrade(&proxy)));
        }
        let acceptor = runtime.spawn(listener::accept(Arc::clone(&proxy), listener, tls)).abort_handle();
        Ok((Self { proxy, acceptor }, bound))
    }

    /// Returns calls and refused calls by method.
    pub(crate) fn counts(&self) -> Vec<(&'static str, u64, u64)> {
        self.proxy.counts.read()
    }

    /// Returns whether its brokers can be found: a name server has answered recently.
    pub(crate) fn is_ready(&self) -> bool {
        self.proxy.brokers.are_found()
    }

    /// Ends all connections and joins the thread. Idempotent.
    pub(crate) fn stop(&self) {
        self.acceptor.abort();
        if let Some(remoting) = self.proxy.remoting() {
            remoting.stop(STOP_GRACE);
        }
    }
}

impl Drop for ProxyServer {
    fn drop(&mut self) {
        self.stop();
    }
}
