//! A server's side: which connections are encrypted, and with which certificate.
//!
//! Invariant: a connection keeps the configuration it began with; the next one has the newest.
//! Threads: any.

use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig, ServerConnection};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::HELLO;
use super::fault::broken;
use super::pem::{Identity, TlsError};
use super::stream::Stream;
use super::suites::Suites;

/// What is asked of clients.
#[derive(Debug, Clone)]
pub enum ClientCertificates {
    /// Nothing.
    Ignored,
    /// A certificate that one of these vouches for, from those that have one.
    Optional(Arc<RootCertStore>),
    /// The same from each.
    Required(Arc<RootCertStore>),
}

/// How long a peer has to read why it was refused: closing at once, with bytes of it unread, could destroy that.
const FAREWELL: Duration = Duration::from_millis(250);
/// Bytes of one read of what nobody wants.
const DISCARD_BYTES: usize = 4 << 10;
/// Failures that are kept until they are taken; of more there is the number.
const FAILURES_MAX: usize = 16;

/// What a listener knows of TLS.
#[derive(Debug)]
pub struct ServerTls {
    is_enforced: bool,
    config: ArcSwap<ServerConfig>,
    failures: Mutex<Failures>,
}

/// Handshakes that failed: who tried, and why it failed; and how many more there were.
#[derive(Debug, Default)]
pub struct Failures {
    /// The first ones.
    pub rows: Vec<(SocketAddr, String)>,
    /// The others.
    pub more: u64,
}

impl ServerTls {
    /// With this certificate; without `is_enforced`, connections that begin otherwise are served as they are.
    ///
    /// # Errors
    /// Key and certificate do not belong together, or cannot be used, or not with these suites.
    pub fn new(
        is_enforced: bool,
        identity: Identity,
        clients: ClientCertificates,
        suites: &Suites,
    ) -> Result<Self, TlsError> {
        let config = ArcSwap::new(config(identity, clients, suites)?);
        Ok(Self { is_enforced, config, failures: Mutex::default() })
    }

    /// Takes another certificate for the connections to come.
    ///
    /// # Errors
    /// As `new`; nothing has changed then.
    pub fn replace(
        &self,
        identity: Identity,
        clients: ClientCertificates,
        suites: &Suites,
    ) -> Result<(), TlsError> {
        self.config.store(config(identity, clients, suites)?);
        Ok(())
    }

    /// Looks at the first byte of a connection, and shakes hands where it is that of a hello. Takes as long as the peer
    /// does: its caller sets a limit. `holds` is called with the memory of the handshake, whenever that may have changed.
    ///
    /// # Errors
    /// The connection is of no use; the text says why, and is kept for `take_failures`.
    pub async fn welcome(
        &self,
        socket: TcpStream,
        peer: SocketAddr,
        holds: impl Fn(usize),
    ) -> io::Result<Stream> {
        let mut first = [0];
        let count = socket.peek(&mut first).await?;
        if count > 0 && first == [HELLO] {
            let session = ServerConnection::new(self.config.load_full()).map_err(|error| broken(&error))?;
            let mut stream = Stream::through(socket, session.into());
            let shaken = poll_fn(|cx| {
                let polled = stream.poll_handshake(cx);
                holds(stream.handshake_bytes());
                polled
            });
            let shaken = shaken.await;
            return match shaken {
                Ok(()) => Ok(stream),
                Err(error) => {
                    self.failed(peer, error.to_string());
                    holds(0);
                    see_off(stream.into_socket()).await;
                    Err(error)
                }
            };
        }
        if count > 0 && self.is_enforced {
            let why = "not encrypted, and tls.server.mode is enforcing";
            self.failed(peer, why.to_owned());
            see_off(socket).await;
            return Err(io::Error::new(io::ErrorKind::InvalidData, why));
        }
        Ok(Stream::Plain(socket))
    }

    fn failed(&self, peer: SocketAddr, why: String) {
        let mut failures = self.failures.lock();
        if failures.rows.len() < FAILURES_MAX {
            failures.rows.push((peer, why));
        } else {
            failures.more += 1;
        }
    }

    /// The failures since the last call.
    pub fn take_failures(&self) -> Failures {
        std::mem::take(&mut self.failures.lock())
    }
}

async fn see_off(mut socket: TcpStream) {
    let farewell = async {
        socket.shutdown().await?;
        let mut bytes = [0; DISCARD_BYTES];
        while socket.read(&mut bytes).await? > 0 {}
        Ok::<_, io::Error>(())
    };
    drop(timeout(FAREWELL, farewell).await);
}

fn config(
    identity: Identity,
    clients: ClientCertificates,
    suites: &Suites,
) -> Result<Arc<ServerConfig>, TlsError> {
    suites.fit(&identity.key)?;
    let provider = || Arc::clone(&suites.provider);
    let verified = |roots: Arc<RootCertStore>| WebPkiClientVerifier::builder_with_provider(roots, provider());
    let verifier = match clients {
        ClientCertificates::Ignored => Ok(WebPkiClientVerifier::no_client_auth()),
        ClientCertificates::Optional(roots) => verified(roots).allow_unauthenticated().build(),
        ClientCertificates::Required(roots) => verified(roots).build(),
    };
    let config = ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&suites.versions)
        .map_err(TlsError::refused)?
        .with_client_cert_verifier(verifier.map_err(TlsError::refused)?)
        .with_single_cert(identity.chain, identity.key)
        .map_err(TlsError::refused)?;
    Ok(Arc::new(config))
}
