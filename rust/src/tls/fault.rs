//! Faults: why a handshake or a session failed, and what its operator or user does about it.

use std::io;

use rustls::{AlertDescription, CertificateError, Error};

/// The sentence for an error of a session.
pub(super) fn explain(error: &Error) -> String {
    match error {
        Error::InvalidCertificate(error) => certificate(error),
        Error::AlertReceived(alert) => refused(*alert),
        Error::NoCertificatesPresented => {
            "no certificate was shown, and one is required (tls.server.need.client.auth)".to_owned()
        }
        Error::PeerIncompatible(why) => format!(
            "no protocol and cipher that both sides take (tls.protocols, tls.ciphers; TLS 1.2 or 1.3 is needed): {why:?}"
        ),
        Error::InvalidMessage(why) => {
            format!("what came is not TLS ({why:?}): the other side may not have it switched on")
        }
        other => other.to_string(),
    }
}

/// The same, as the end of a connection.
pub(super) fn broken(error: &Error) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("TLS: {}", explain(error)))
}

/// The other side closed the connection in the middle of the handshake.
pub(super) fn unanswered() -> io::Error {
    let why = "TLS: closed during the handshake: this port may not speak TLS, or wants a certificate of its clients";
    io::Error::new(io::ErrorKind::UnexpectedEof, why)
}

/// The other side sends more than a handshake takes.
pub(super) fn too_long(has_hello: bool, bytes_max: usize) -> io::Error {
    let what = if has_hello { "the handshake" } else { "the hello" };
    let why = format!("TLS: {what} has more than {bytes_max} bytes, which no usual client sends");
    io::Error::new(io::ErrorKind::InvalidData, why)
}

/// The other side says nothing in the middle of the handshake.
pub(super) fn silent() -> io::Error {
    io::Error::new(
        io::ErrorKind::TimedOut,
        "TLS: no answer during the handshake: this port may not speak TLS",
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
            "nobody who is trusted vouches for the certificate: name the certificate of its \
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
                "our certificate is not accepted ({alert:?}): the other side does not trust who made it, or its name"
            )
        }
        A::CertificateExpired | A::CertificateRevoked => {
            format!("our certificate is not accepted ({alert:?}): replace it")
        }
        A::HandshakeFailure | A::ProtocolVersion => {
            format!("there is no TLS version, cipher or certificate that both sides take ({alert:?})")
        }
        other => format!("the other side ended it ({other:?})"),
    }
}
