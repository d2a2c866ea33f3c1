//! `ServerTls` and `ClientTls`: certificates as Python has read them; certificates made.

use std::sync::Arc;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use super::errors::raise;
use crate::tls::{
    ClientCertificates, ClientTls, Identity, ServerTls, Suites, TlsError, Trust, authorities, expiry, make,
};

/// The TLS of a server's ports: a certificate with its key, as PEM, and what is asked of clients.
///
/// `client_auth` is none, optional or require; where it is not none, `trust` has the certificates of the authorities.
/// Connections that are not encrypted are served too, unless `is_enforced`. `protocols` and `ciphers` are lists as
/// `tls_suites` takes them. Raises `ConfigError`.
#[pyclass(name = "ServerTls", module = "rmqpy._native", frozen)]
pub(super) struct PyServerTls {
    pub(super) tls: Arc<ServerTls>,
    suites: Suites,
}

/// What `ServerTls` is made of.
type Parts = (Identity, ClientCertificates);

fn parts(
    certificate: &[u8],
    key: &[u8],
    password: Option<&str>,
    client_auth: &str,
    trust: Option<&[u8]>,
) -> PyResult<Parts> {
    let identity = Identity::read(certificate, key, password)?;
    let trusted = || -> PyResult<_> { Ok(authorities(trust.unwrap_or_default())?) };
    let clients = match client_auth {
        "none" => ClientCertificates::Ignored,
        "optional" => ClientCertificates::Optional(trusted()?),
        "require" => ClientCertificates::Required(trusted()?),
        other => return Err(PyValueError::new_err(format!("{other:?} is not none, optional or require"))),
    };
    Ok((identity, clients))
}

#[pymethods]
impl PyServerTls {
    #[new]
    #[pyo3(signature = (
        certificate, key, *, is_enforced, password=None, client_auth="none", trust=None, protocols="", ciphers=""
    ))]
    fn new(
        certificate: &[u8],
        key: &[u8],
        is_enforced: bool,
        password: Option<&str>,
        client_auth: &str,
        trust: Option<&[u8]>,
        protocols: &str,
        ciphers: &str,
    ) -> PyResult<Self> {
        let (identity, clients) = parts(certificate, key, password, client_auth, trust)?;
        let suites = Suites::named(protocols, ciphers)?;
        let tls = Arc::new(ServerTls::new(is_enforced, identity, clients, &suites)?);
        Ok(Self { tls, suites })
    }

    /// Take another certificate for the connections to come, with the same suites; those there keep theirs. Raises
    /// `ConfigError`, and nothing has changed then.
    #[pyo3(signature = (certificate, key, *, password=None, client_auth="none", trust=None))]
    fn replace(
        &self,
        certificate: &[u8],
        key: &[u8],
        password: Option<&str>,
        client_auth: &str,
        trust: Option<&[u8]>,
    ) -> PyResult<()> {
        let (identity, clients) = parts(certificate, key, password, client_auth, trust)?;
        Ok(self.tls.replace(identity, clients, &self.suites)?)
    }

    /// Handshakes that failed since the last call: `ip:port` of who tried, and why; and how many more.
    fn take_failures(&self) -> (Vec<(String, String)>, u64) {
        let failures = self.tls.take_failures();
        (failures.rows.into_iter().map(|(peer, why)| (peer.to_string(), why)).collect(), failures.more)
    }
}

/// The TLS of a client's connections: the authorities it trusts, as PEM, or any server without; and the certificate
/// and key that it shows where it is asked for one.
///
/// With `server_name` every server's certificate is for that name, whatever its address. `protocols` and `ciphers` are
/// lists as `tls_suites` takes them. Raises `ConfigError`.
#[pyclass(name = "ClientTls", module = "rmqpy._native", frozen)]
pub(super) struct PyClientTls {
    pub(super) tls: Arc<ClientTls>,
}

#[pymethods]
impl PyClientTls {
    #[new]
    #[pyo3(signature = (
        *, trust=None, certificate=None, key=None, password=None, server_name=None, protocols="", ciphers=""
    ))]
    fn new(
        trust: Option<&[u8]>,
        certificate: Option<&[u8]>,
        key: Option<&[u8]>,
        password: Option<&str>,
        server_name: Option<&str>,
        protocols: &str,
        ciphers: &str,
    ) -> PyResult<Self> {
        let trust = match trust {
            Some(text) => Trust::Authorities(authorities(text)?),
            None => Trust::Anybody,
        };
        let identity = match (certificate, key) {
            (Some(certificate), Some(key)) => Some(Identity::read(certificate, key, password)?),
            (None, None) => None,
            _ => return Err(raise("ConfigError", "a certificate and its key go together")),
        };
        let suites = Suites::named(protocols, ciphers)?;
        Ok(Self { tls: Arc::new(ClientTls::new(trust, identity, server_name, &suites)?) })
    }

    /// Be as another one for the connections to come.
    fn replace(&self, other: &Self) {
        self.tls.replace(&other.tls);
    }
}

/// The suites of `tls.protocols` and `tls.ciphers`: protocol and OpenSSL's name of each. Names are those of rustls, Java or
/// OpenSSL, separated by commas, colons or blanks; an empty list is all there are. Raises `ConfigError` naming what cannot be
/// had.
#[pyfunction]
pub(super) fn tls_suites(protocols: &str, ciphers: &str) -> PyResult<Vec<(&'static str, &'static str)>> {
    Ok(Suites::named(protocols, ciphers)?.rows())
}

/// When the certificate that comes first in this PEM text ends to be valid, in seconds since 1970. Raises `ConfigError`.
#[pyfunction]
pub(super) fn certificate_expiry(certificate: &[u8]) -> PyResult<u64> {
    Ok(expiry(certificate)?.as_secs())
}

/// A certificate and its key, as PEM: for these names and addresses, from now on for some days. Made by the `authority`,
/// whose certificate and key `make_certificate` has made, or by itself. Raises `ConfigError`.
#[pyfunction]
#[pyo3(signature = (names, *, days, is_authority=false, authority=None))]
pub(super) fn make_certificate(
    names: Vec<String>,
    days: u32,
    is_authority: bool,
    authority: Option<(String, String)>,
) -> PyResult<(String, String)> {
    let authority = authority.as_ref().map(|(certificate, key)| (certificate.as_str(), key.as_str()));
    let made = make(&names, days, is_authority, authority)?;
    Ok((made.certificate, made.key))
}

impl From<TlsError> for PyErr {
    fn from(error: TlsError) -> Self {
        raise("ConfigError", &error.to_string())
    }
}
