//! TLS server: decides which connections are encrypted, and with which certificate.
//!
//! Invariant: a connection keeps its configuration; new ones use the newest.
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

/// Whether clients need certificates.
#[derive(Debug, Clone)]
pub enum ClientCertificates {
    /// Certificates are not requested.
    Ignored,
    /// Certificates are verified against these authorities, if shown.
    Optional(Arc<RootCertStore>),
    /// Certificates signed by these authorities are required.
    Required(Arc<RootCertStore>),
}

/// Time for a peer to read the reason of a refusal: closing immediately, with unread bytes, could destroy it.
const FAREWELL: Duration = Duration::from_millis(250);
/// Bytes per read of discarded input.
const DISCARD_BYTES: usize = 4 << 10;
/// Maximum number of failures kept until they are taken; others are only counted.
const FAILURES_MAX: usize = 16;

/// The TLS state of a listener.
#[derive(Debug)]
pub struct ServerTls {
    is_enforced: bool,
    config: ArcSwap<ServerConfig>,
    failures: Mutex<Failures>,
}

/// Failed handshakes: the peers, the reasons, and the number of others.
#[derive(Debug, Default)]
pub struct Failures {
    /// The first ones.
    pub rows: Vec<(SocketAddr, String)>,
    /// The number of others.
    pub more: u64,
}

impl ServerTls {
    /// Creates a server with this certificate; without `is_enforced` it also serves plain connections.
    ///
    /// # Errors
    /// Key and certificate do not match, or cannot be used, or not with these suites.
    pub fn new(
        is_enforced: bool,
        identity: Identity,
        clients: ClientCertificates,
        suites: &Suites,
    ) -> Result<Self, TlsError> {
        let config = ArcSwap::new(config(identity, clients, suites)?);
        Ok(Self { is_enforced, config, failures: Mutex::default() })
    }

    /// Uses another certificate for new connections.
    ///
    /// # Errors
    /// As for `new`; nothing has changed then.
    pub fn replace(
        &self,
        identity: Identity,
        clients: ClientCertificates,
        suites: &Suites,
    ) -> Result<(), TlsError> {
        self.config.store(config(identity, clients, suites)?);
        Ok(())
    }

    /// Checks the first byte of a connection, and performs the handshake if it is that of a hello. Has no time
    /// limit; the caller sets one. `holds` is called with the memory of the handshake whenever it may have changed.
    ///
    /// # Errors
    /// The connection is refused; the text names the reason, and is kept for `take_failures`.
    pub async fn welcome(
        &self,
        socket: TcpStream,
        peer: SocketAddr,
        holds: impl Fn(usize),
    ) -> io::Result<Stream> {
        self.welcome_as(&[], socket, peer, holds).await
    }

    /// Does the same for a port whose clients negotiate one of these application protocols.
    ///
    /// # Errors
    /// As `welcome`.
    pub async fn welcome_as(
        &self,
        protocols: &[&[u8]],
        socket: TcpStream,
        peer: SocketAddr,
        holds: impl Fn(usize),
    ) -> io::Result<Stream> {
        let mut first = [0];
        let count = socket.peek(&mut first).await?;
        if count > 0 && first == [HELLO] {
            let mut config = self.config.load_full();
            if !protocols.is_empty() {
                let mut negotiating = ServerConfig::clone(&config);
                negotiating.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
                config = Arc::new(negotiating);
            }
            let session = ServerConnection::new(config).map_err(|error| broken(&error))?;
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
                    if let Some(socket) = stream.into_socket() {
                        see_off(socket).await;
                    }
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

    /// Takes the failures since the last call.
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
