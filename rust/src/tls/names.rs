//! Names: the subject and the expiry of a certificate.

use std::time::Duration;

use rustls::pki_types::CertificateDer;
use x509_cert::der::Decode as _;
use x509_cert::der::asn1::{PrintableStringRef, Utf8StringRef};
use x509_cert::der::oid::ObjectIdentifier;

use super::pem::{TlsError, certificates};

const COMMON_NAME: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.4.3");
/// Longest name that is accepted; longer ones are ignored.
const NAME_CHARS_MAX: usize = 256;

/// Returns the end of validity of the first certificate in this PEM text, since 1970.
///
/// # Errors
/// There is none, or it cannot be read.
pub fn expiry(text: &[u8]) -> Result<Duration, TlsError> {
    let found = certificates(text)?;
    let first = found.first().ok_or(TlsError::NoCertificate)?;
    let parsed = x509_cert::Certificate::from_der(first).map_err(TlsError::refused)?;
    Ok(parsed.tbs_certificate().validity().not_after.to_unix_duration())
}

/// Returns the common name of a certificate's subject.
pub(super) fn common_name(certificate: &CertificateDer<'_>) -> Option<Box<str>> {
    let parsed = x509_cert::Certificate::from_der(certificate).ok()?;
    let attributes = parsed.tbs_certificate().subject().iter();
    let value = attributes.filter(|attribute| attribute.oid == COMMON_NAME).last()?.value.clone();
    let name = value
        .decode_as::<Utf8StringRef<'_>>()
        .map(|text| text.as_str().to_owned())
        .or_else(|_| value.decode_as::<PrintableStringRef<'_>>().map(|text| text.as_str().to_owned()))
        .ok()?;
    (!name.is_empty() && name.len() <= NAME_CHARS_MAX && !name.contains(char::is_control))
        .then(|| name.into_boxed_str())
}
