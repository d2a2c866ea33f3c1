//! Faults: error texts for failed handshakes and sessions, with the remedy.

use std::io;

use rustls::{AlertDescription, CertificateError, Error};

/// Explains an error of a session.
pub(super) fn explain(error: &Error) -> String {
    match error {
        Error::InvalidCertificate(error) => certificate(error),
        Error::AlertReceived(alert) => refused(*alert),
        Error::NoCertificatesPresented => {
            "the client showed no certificate, and tls.server.need.client.auth requires one".to_owned()
        }
        Error::PeerIncompatible(why) => format!(
            "no common protocol and cipher (tls.protocols, tls.ciphers; TLS 1.2 or 1.3 is needed): {why:?}"
        ),
        Error::InvalidMessage(why) => {
            format!("the peer did not send TLS ({why:?}): TLS may be disabled there")
        }
        other => other.to_string(),
    }
}

/// Explains it as the end of a connection.
pub(super) fn broken(error: &Error) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("TLS: {}", explain(error)))
}

/// The peer closed the connection in the middle of the handshake.
pub(super) fn unanswered() -> io::Error {
    let why =
        "TLS: closed during the handshake: this port may not support TLS, or requires client certificates";
    io::Error::new(io::ErrorKind::UnexpectedEof, why)
}

/// The peer sent more than a handshake needs.
pub(super) fn too_long(has_hello: bool, bytes_max: usize) -> io::Error {
    let what = if has_hello { "the handshake" } else { "the hello" };
    let why = format!("TLS: {what} exceeds {bytes_max} bytes");
    io::Error::new(io::ErrorKind::InvalidData, why)
}

/// The peer was silent in the middle of the handshake.
pub(super) fn silent() -> io::Error {
    io::Error::new(
        io::ErrorKind::TimedOut,
        "TLS: no answer during the handshake: this port may not support TLS",
    )
}

fn certificate(error: &CertificateError) -> String {
    use CertificateError as E;
    match error {
        E::Expired | E::ExpiredContext { .. } => {
            "the certificate has expired: replace it with a new one, which is read without a restart"
                .to_owned()
        }
        E::NotValidYet | E::NotValidYetContext { .. } => {
            "the certificate is not valid yet: compare the clocks of both machines".to_owned()
        }
        E::NotValidForNameContext { expected, presented } => format!(
            "the certificate is not for {}, but for {}: connect by a name that it has, have this one added to \
             it, or say which name is right (server_name)",
            expected.to_str(),
            if presented.is_empty() { "no name at all".to_owned() } else { presented.join(", ") }
        ),
        E::NotValidForName => "the certificate is for another name".to_owned(),
        // Another authority may have the same name.
        E::UnknownIssuer | E::BadSignature => {
            "no trusted authority has signed the certificate: set the certificate of its \
                             authority (ca, tls.client.trustCertPath, tls.server.trustCertPath)"
                .to_owned()
        }
        E::Revoked => "the certificate was revoked".to_owned(),
        E::InvalidPurpose | E::InvalidPurposeContext { .. } => {
            "the certificate is not meant for this side of a connection (extended key usage)".to_owned()
        }
        E::Other(other) if other.to_string().contains("CaUsedAsEndEntity") => {
            "the certificate is an authority's own (CA:TRUE): a server or client needs one with CA:FALSE"
                .to_owned()
        }
        other => format!("the certificate cannot be used: {other}"),
    }
}

fn refused(alert: AlertDescription) -> String {
    use AlertDescription as A;
    match alert {
        A::CertificateRequired | A::NoCertificate => {
            "a certificate of this client is required: give it one (cert and key)".to_owned()
        }
        A::UnknownCA | A::BadCertificate | A::CertificateUnknown | A::UnsupportedCertificate => {
            format!(
                "the peer refused this side's certificate ({alert:?}): it does not trust the authority, or the name"
            )
        }
        A::CertificateExpired | A::CertificateRevoked => {
            format!("the peer refused this side's certificate ({alert:?}): replace it")
        }
        A::HandshakeFailure | A::ProtocolVersion => {
            format!("no common TLS version, cipher or certificate ({alert:?})")
        }
        other => format!("the peer ended the session ({other:?})"),
    }
}
