//! TLS client: the servers it trusts, and the certificate it shows.
//!
//! Threads: any; a configuration is shared, and replaced whole.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;

use arc_swap::ArcSwap;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, ClientConnection, DigitallySignedStruct, RootCertStore, SignatureScheme};
use tokio::net::TcpStream;

use super::pem::{Identity, TlsError};
use super::stream::Stream;
use super::suites::Suites;

/// The servers that a client trusts.
#[derive(Debug, Clone)]
pub enum Trust {
    /// Servers with a certificate for their host name, signed by one of these authorities.
    Authorities(Arc<RootCertStore>),
    /// Any server: an attacker on the path can read and change everything.
    Anybody,
}

/// The shared configuration of a client's connections.
#[derive(Debug)]
pub struct ClientTls {
    current: ArcSwap<Current>,
}

#[derive(Debug)]
struct Current {
    config: Arc<ClientConfig>,
    /// The name in every server's certificate, whatever the address.
    server_name: Option<ServerName<'static>>,
}

impl ClientTls {
    /// Creates a client that shows `identity` when a server requests a certificate.
    ///
    /// # Errors
    /// The identity cannot be used, or the name is not valid.
    pub fn new(
        trust: Trust,
        identity: Option<Identity>,
        server_name: Option<&str>,
        suites: &Suites,
    ) -> Result<Self, TlsError> {
        let server_name = server_name.map(named).transpose()?;
        let provider = Arc::clone(&suites.provider);
        let begun = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&suites.versions)
            .map_err(TlsError::refused)?;
        let trusting = match trust {
            Trust::Authorities(roots) => begun.with_root_certificates(roots),
            Trust::Anybody => {
                begun.dangerous().with_custom_certificate_verifier(Arc::new(AnyCertificate(provider)))
            }
        };
        let config = match identity {
            Some(Identity { chain, key }) => {
                trusting.with_client_auth_cert(chain, key).map_err(TlsError::refused)?
            }
            None => trusting.with_no_client_auth(),
        };
        Ok(Self { current: ArcSwap::from_pointee(Current { config: Arc::new(config), server_name }) })
    }

    /// Uses the configuration of `other` for new connections.
    pub fn replace(&self, other: &Self) {
        self.current.store(other.current.load_full());
    }

    /// Starts the client side of a connection to `host:port`, before its handshake.
    ///
    /// # Errors
    /// The host cannot be a name in a certificate.
    pub fn begin(&self, socket: TcpStream, address: &str) -> io::Result<Stream> {
        let session = self.session(address).map_err(io::Error::other)?;
        Ok(Stream::through(socket, session.into()))
    }

    pub(super) fn session(&self, address: &str) -> Result<ClientConnection, TlsError> {
        let current = self.current.load();
        let name = match &current.server_name {
            Some(name) => name.clone(),
            None => named(host_of(address))?,
        };
        ClientConnection::new(Arc::clone(&current.config), name).map_err(TlsError::refused)
    }
}

fn host_of(address: &str) -> &str {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host)
}

fn named(host: &str) -> Result<ServerName<'static>, TlsError> {
    if let Ok(address) = host.parse::<IpAddr>() {
        return Ok(ServerName::from(address));
    }
    ServerName::try_from(host.to_owned())
        .map_err(|_| TlsError::Refused(format!("{host:?} cannot be a name in a certificate")))
}

/// Accepts any certificate whose key the server has.
#[derive(Debug)]
struct AnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, cert, signed, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, signed, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_to_check_is_the_host_of_an_address() {
        for (address, host) in
            [("a.example:10911", "a.example"), ("10.0.0.1:1", "10.0.0.1"), ("[::1]:1", "::1")]
        {
            assert_eq!(host_of(address), host);
            assert!(named(host).is_ok(), "{host}");
        }
        assert!(named("not a name").is_err());
    }
}
