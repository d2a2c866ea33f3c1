//! Authority: creates certificates, for tests and for clusters without another authority.

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose,
};

use super::names::common_name;
use super::pem::{TlsError, certificates};

/// A certificate and its key, as PEM text.
#[derive(Debug, Clone)]
pub struct Made {
    /// The certificate.
    pub certificate: String,
    /// The private key, as PKCS #8.
    pub key: String,
}

/// Creates a certificate for these names and addresses, the first of which is its common name, valid for `days` from now on.
/// With `is_authority` it is that of an authority; it is signed by `authority` (certificate and key) if given, else by itself.
///
/// # Errors
/// A name cannot be in a certificate, or the authority cannot be read.
pub fn make(
    names: &[String],
    days: u32,
    is_authority: bool,
    authority: Option<(&str, &str)>,
) -> Result<Made, TlsError> {
    let alternative = if is_authority { Vec::new() } else { names.to_vec() };
    let mut params = CertificateParams::new(alternative).map_err(TlsError::refused)?;
    params.distinguished_name = called(names.first().map_or("rmqpy", String::as_str));
    let now = std::time::SystemTime::now();
    let day = std::time::Duration::from_hours(24);
    // Clocks differ, so it is valid from yesterday on. With `days` 0 it has expired.
    params.not_before = (now - day).into();
    params.not_after = (now + day * days - std::time::Duration::from_secs(1)).into();
    if is_authority {
        be_authority(&mut params);
    } else {
        params.is_ca = IsCa::ExplicitNoCa;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    }
    let key = KeyPair::generate().map_err(TlsError::refused)?;
    let certificate = match authority {
        Some((its_certificate, its_key)) => {
            let issuer = issuer(its_certificate, its_key)?;
            params.use_authority_key_identifier_extension = true;
            params.signed_by(&key, &issuer)
        }
        None => params.self_signed(&key),
    };
    let certificate = certificate.map_err(TlsError::refused)?;
    Ok(Made { certificate: certificate.pem(), key: key.serialize_pem() })
}

/// Loads an authority that `make` created: its subject has only a common name.
fn issuer(certificate: &str, key: &str) -> Result<Issuer<'static, KeyPair>, TlsError> {
    let found = certificates(certificate.as_bytes())?;
    let name = found.first().and_then(common_name).ok_or(TlsError::NoCertificate)?;
    let mut params = CertificateParams::default();
    params.distinguished_name = called(&name);
    be_authority(&mut params);
    Ok(Issuer::new(params, KeyPair::from_pem(key).map_err(TlsError::refused)?))
}

fn called(name: &str) -> DistinguishedName {
    let mut subject = DistinguishedName::new();
    subject.push(DnType::CommonName, name);
    subject
}

fn be_authority(params: &mut CertificateParams) {
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
}
