//! PEM: certificates and private keys, as text.

use std::sync::Arc;

use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use thiserror::Error;

/// What stands before an encrypted key.
const ENCRYPTED: &str = "ENCRYPTED PRIVATE KEY";
/// The same of the form that came before PKCS #8.
const ENCRYPTED_OLD: &str = "Proc-Type: 4,ENCRYPTED";

/// Certificates and keys that cannot be used; the text says what to do.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum TlsError {
    /// There is no certificate in it.
    #[error("no certificate: PEM text with BEGIN CERTIFICATE is expected")]
    NoCertificate,
    /// There is no key in it.
    #[error("no private key: PEM text with BEGIN PRIVATE KEY is expected")]
    NoKey,
    /// Its key has a password, and none was given.
    #[error("the private key is encrypted, and there is no password for it")]
    NoPassword,
    /// Its password is another.
    #[error("the private key cannot be decrypted: {0}")]
    Password(String),
    /// It is encrypted in the form of old.
    #[error("the private key is encrypted in an old form: make it anew with `openssl pkcs8 -topk8`")]
    OldForm,
    /// rustls refuses it.
    #[error("{0}")]
    Refused(String),
}

impl TlsError {
    pub(super) fn refused(error: impl ToString) -> Self {
        Self::Refused(error.to_string())
    }
}

/// A certificate with those that vouch for it, and its key.
#[derive(Debug)]
pub struct Identity {
    pub(super) chain: Vec<CertificateDer<'static>>,
    pub(super) key: PrivateKeyDer<'static>,
}

impl Identity {
    /// Reads both; a key in PKCS #8 may be encrypted.
    ///
    /// # Errors
    /// One of them is missing, or cannot be read.
    pub fn read(chain: &[u8], key: &[u8], password: Option<&str>) -> Result<Self, TlsError> {
        Ok(Self { chain: certificates(chain)?, key: private_key(key, password)? })
    }
}

/// The authorities that are trusted.
///
/// # Errors
/// There is none, or one that cannot be read.
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
