//! PEM: certificates and private keys, as text.

use std::sync::Arc;

use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use thiserror::Error;

/// Label of an encrypted key.
const ENCRYPTED: &str = "ENCRYPTED PRIVATE KEY";
/// Label of the format before PKCS #8.
const ENCRYPTED_OLD: &str = "Proc-Type: 4,ENCRYPTED";

/// The reason why certificates or keys cannot be used; the text names the remedy.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum TlsError {
    /// The text has no certificate.
    #[error("no certificate: expected PEM text with BEGIN CERTIFICATE")]
    NoCertificate,
    /// The text has no key.
    #[error("no private key: expected PEM text with BEGIN PRIVATE KEY")]
    NoKey,
    /// The key is encrypted, and no password was given.
    #[error("the private key is encrypted, and no password is set")]
    NoPassword,
    /// The password is wrong.
    #[error("the private key cannot be decrypted: {0}")]
    Password(String),
    /// The key is encrypted in a format before PKCS #8.
    #[error("the private key is encrypted in an old format: convert it with `openssl pkcs8 -topk8`")]
    OldForm,
    /// rustls refused it.
    #[error("{0}")]
    Refused(String),
}

impl TlsError {
    pub(super) fn refused(error: impl ToString) -> Self {
        Self::Refused(error.to_string())
    }
}

/// A certificate with its chain, and its key.
#[derive(Debug)]
pub struct Identity {
    pub(super) chain: Vec<CertificateDer<'static>>,
    pub(super) key: PrivateKeyDer<'static>,
}

impl Identity {
    /// Reads both; a PKCS #8 key may be encrypted.
    ///
    /// # Errors
    /// One of them is missing, or cannot be read.
    pub fn read(chain: &[u8], key: &[u8], password: Option<&str>) -> Result<Self, TlsError> {
        Ok(Self { chain: certificates(chain)?, key: private_key(key, password)? })
    }
}

/// Reads trusted authorities.
///
/// # Errors
/// There is none, or one cannot be read.
pub fn authorities(text: &[u8]) -> Result<Arc<RootCertStore>, TlsError> {
    let mut store = RootCertStore::empty();
    let (_, _ignored) = store.add_parsable_certificates(certificates(text)?);
    if store.is_empty() { Err(TlsError::NoCertificate) } else { Ok(Arc::new(store)) }
}

pub(super) fn certificates(text: &[u8]) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(text).collect();
    match found {
        Ok(found) if !found.is_empty() => Ok(found),
        Ok(_) => Err(TlsError::NoCertificate),
        Err(error) => Err(TlsError::refused(error)),
    }
}

fn private_key(text: &[u8], password: Option<&str>) -> Result<PrivateKeyDer<'static>, TlsError> {
    let readable = String::from_utf8_lossy(text);
    if readable.contains(ENCRYPTED_OLD) {
        return Err(TlsError::OldForm);
    }
    if readable.contains(ENCRYPTED) {
        return decrypted(&readable, password.filter(|given| !given.is_empty()).ok_or(TlsError::NoPassword)?);
    }
    PrivateKeyDer::from_pem_slice(text).map_err(|_| TlsError::NoKey)
}

fn decrypted(text: &str, password: &str) -> Result<PrivateKeyDer<'static>, TlsError> {
    let begin = text.find(&format!("-----BEGIN {ENCRYPTED}")).ok_or(TlsError::NoKey)?;
    let block = text.get(begin..).unwrap_or_default();
    let damaged = |error: &dyn ToString| TlsError::Password(error.to_string());
    let (_, document) = pkcs8::SecretDocument::from_pem(block.trim()).map_err(|error| damaged(&error))?;
    let encrypted =
        pkcs8::EncryptedPrivateKeyInfoRef::try_from(document.as_bytes()).map_err(|error| damaged(&error))?;
    let key =
        encrypted.decrypt(password).map_err(|_| TlsError::Password("the password is wrong".to_owned()))?;
    Ok(PrivatePkcs8KeyDer::from(key.as_bytes().to_vec()).into())
}
