//! `ServerTls` and `ClientTls`: TLS settings from PEM text, and generation of certificates.

use std::sync::Arc;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use super::errors::raise;
use crate::tls::{
    ClientCertificates, ClientTls, Identity, ServerTls, Suites, TlsError, Trust, authorities, expiry, make,
};

/// TLS for a server's ports: a certificate and its key, as PEM, and the policy for client certificates.
///
/// `client_auth` is none, optional or require; the latter two need `trust`, the certificates of the authorities.
/// Plain connections are served too, unless `is_enforced`. `protocols` and `ciphers` are lists as `tls_suites` takes
/// them. Raises `ConfigError`.
#[pyclass(name = "ServerTls", module = "rmqpy._native", frozen)]
pub(super) struct PyServerTls {
    pub(super) tls: Arc<ServerTls>,
    suites: Suites,
}

/// The parts of a `ServerTls`.
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
        other => {
            return Err(PyValueError::new_err(format!(
                "client_auth must be none, optional or require, not {other:?}"
            )));
        }
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

    /// Use another certificate for new connections, with the same suites. Raises `ConfigError` without any
    /// change.
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

    /// Take the handshake failures since the last call: `ip:port` and reason; and how many more there were.
    fn take_failures(&self) -> (Vec<(String, String)>, u64) {
        let failures = self.tls.take_failures();
        (failures.rows.into_iter().map(|(peer, why)| (peer.to_string(), why)).collect(), failures.more)
    }
}

/// TLS for a client's connections: trusted authorities as PEM (without them any server is trusted), and an optional
/// certificate and key.
///
/// With `server_name` every server's certificate must be for that name, whatever its address. `protocols` and
/// `ciphers` are lists as `tls_suites` takes them. Raises `ConfigError`.
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

    /// Use the settings of another `ClientTls` for new connections.
    fn replace(&self, other: &Self) {
        self.tls.replace(&other.tls);
    }
}

/// Return the suites of `tls.protocols` and `tls.ciphers`: protocol and OpenSSL name of each. Names may be those of
/// rustls, Java or OpenSSL, separated by commas, colons or blanks; an empty list selects all. Raises `ConfigError`
/// naming unavailable suites.
#[pyfunction]
pub(super) fn tls_suites(protocols: &str, ciphers: &str) -> PyResult<Vec<(&'static str, &'static str)>> {
    Ok(Suites::named(protocols, ciphers)?.rows())
}

/// Return when the first certificate of a PEM text expires, in seconds since 1970. Raises `ConfigError`.
#[pyfunction]
pub(super) fn certificate_expiry(certificate: &[u8]) -> PyResult<u64> {
    Ok(expiry(certificate)?.as_secs())
}

/// Create a certificate and its key, as PEM, for these names and addresses, valid for some days from now. Signed by
/// `authority`, a certificate and key from `make_certificate`, or self-signed. Raises `ConfigError`.
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
