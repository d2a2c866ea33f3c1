//! Suites: selects protocols and ciphers by the names in `tls.protocols` and `tls.ciphers`.
//!
//! A cipher has three names: rustls', Java's, which is the standard's, and OpenSSL's. All are accepted. Unsupported names are
//! refused, not ignored, because a list without them could be weaker than intended.

use std::sync::Arc;

use rustls::crypto::CryptoProvider;
use rustls::crypto::ring::{ALL_CIPHER_SUITES, default_provider};
use rustls::pki_types::PrivateKeyDer;
use rustls::version::{TLS12, TLS13};
use rustls::{CipherSuite, ProtocolVersion, SupportedCipherSuite, SupportedProtocolVersion};

use super::pem::TlsError;

/// Java's and OpenSSL's names of each suite; rustls' name is that of the constant.
const NAMES: [(CipherSuite, &str, &str); 9] = [
    (CipherSuite::TLS13_AES_256_GCM_SHA384, "TLS_AES_256_GCM_SHA384", "TLS_AES_256_GCM_SHA384"),
    (CipherSuite::TLS13_AES_128_GCM_SHA256, "TLS_AES_128_GCM_SHA256", "TLS_AES_128_GCM_SHA256"),
    (
        CipherSuite::TLS13_CHACHA20_POLY1305_SHA256,
        "TLS_CHACHA20_POLY1305_SHA256",
        "TLS_CHACHA20_POLY1305_SHA256",
    ),
    (
        CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
        "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
        "ECDHE-ECDSA-AES256-GCM-SHA384",
    ),
    (
        CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
        "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
        "ECDHE-ECDSA-AES128-GCM-SHA256",
    ),
    (
        CipherSuite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
        "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
        "ECDHE-ECDSA-CHACHA20-POLY1305",
    ),
    (
        CipherSuite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
        "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
        "ECDHE-RSA-AES256-GCM-SHA384",
    ),
    (
        CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
        "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
        "ECDHE-RSA-AES128-GCM-SHA256",
    ),
    (
        CipherSuite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
        "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
        "ECDHE-RSA-CHACHA20-POLY1305",
    ),
];
/// Names of the protocols: that of Java and OpenSSL first, then rustls'.
const PROTOCOLS: [(&SupportedProtocolVersion, [&str; 2]); 2] =
    [(&TLS12, ["TLSv1.2", "TLSv1_2"]), (&TLS13, ["TLSv1.3", "TLSv1_3"])];

/// The protocols and ciphers of a session.
#[derive(Clone, Debug)]
pub struct Suites {
    pub(super) provider: Arc<CryptoProvider>,
    pub(super) versions: Vec<&'static SupportedProtocolVersion>,
}

impl Default for Suites {
    /// Everything that is supported.
    fn default() -> Self {
        let versions = PROTOCOLS.iter().map(|(version, _)| *version).collect();
        Self { provider: Arc::new(default_provider()), versions }
    }
}

impl Suites {
    /// Selects from two lists, separated by commas, colons or spaces; an empty list selects everything.
    ///
    /// # Errors
    /// A name is not supported, or no combination is left.
    pub fn named(protocols: &str, ciphers: &str) -> Result<Self, TlsError> {
        let all = Self::default();
        let versions: Vec<_> = listed(protocols).map(version).collect::<Result<_, _>>()?;
        let suites: Vec<_> = listed(ciphers).map(suite).collect::<Result<_, _>>()?;
        let provider = if suites.is_empty() {
            all.provider
        } else {
            Arc::new(CryptoProvider { cipher_suites: suites, ..default_provider() })
        };
        let has_suite = |version: &SupportedProtocolVersion| {
            provider.cipher_suites.iter().any(|suite| suite.version().version == version.version)
        };
        if let Some(version) = versions.iter().find(|version| !has_suite(version)) {
            let name = protocol_name(version.version);
            return Err(TlsError::Refused(format!(
                "tls.protocols has {name}, but tls.ciphers has none of its ciphers: {}",
                known_ciphers(Some(version.version))
            )));
        }
        let versions = if versions.is_empty() { all.versions } else { versions };
        let versions: Vec<_> = versions.into_iter().filter(|version| has_suite(version)).collect();
        let is_usable = |suite: &&SupportedCipherSuite| {
            versions.iter().any(|version| version.version == suite.version().version)
        };
        if let Some(useless) = provider.cipher_suites.iter().find(|suite| !is_usable(suite))
            && !ciphers.trim().is_empty()
        {
            return Err(TlsError::Refused(format!(
                "tls.ciphers has {}, which is of {}, but tls.protocols does not have that",
                names(useless.suite()).0,
                protocol_name(useless.version().version)
            )));
        }
        Ok(Self { provider, versions })
    }

    /// Protocol and OpenSSL's name of each cipher.
    #[must_use]
    pub fn rows(&self) -> Vec<(&'static str, &'static str)> {
        let suites = self.provider.cipher_suites.iter();
        let spoken = suites
            .filter(|suite| self.versions.iter().any(|version| version.version == suite.version().version));
        spoken.map(|suite| (protocol_name(suite.version().version), names(suite.suite()).1)).collect()
    }

    /// Checks that a server with this key can use one of the ciphers.
    ///
    /// # Errors
    /// It cannot, or the key cannot be used at all.
    pub(super) fn fit(&self, key: &PrivateKeyDer<'static>) -> Result<(), TlsError> {
        let signing =
            self.provider.key_provider.load_private_key(key.clone_key()).map_err(TlsError::refused)?;
        let algorithm = signing.algorithm();
        let mut suites = self.provider.cipher_suites.iter();
        if suites.any(|suite| suite.usable_for_signature_algorithm(algorithm)) {
            return Ok(());
        }
        Err(TlsError::Refused(format!("none of tls.ciphers fits the server's key, which is {algorithm:?}")))
    }
}

fn listed(text: &str) -> impl Iterator<Item = &str> {
    text.split(|char: char| matches!(char, ',' | ':') || char.is_whitespace()).filter(|name| !name.is_empty())
}

fn version(name: &str) -> Result<&'static SupportedProtocolVersion, TlsError> {
    let found =
        PROTOCOLS.iter().find(|(_, names)| names.iter().any(|known| known.eq_ignore_ascii_case(name)));
    found.map(|(version, _)| *version).ok_or_else(|| {
        TlsError::Refused(format!("tls.protocols: {name:?} is not supported, only TLSv1.2 and TLSv1.3"))
    })
}

fn suite(name: &str) -> Result<SupportedCipherSuite, TlsError> {
    let is_named = |suite: &&SupportedCipherSuite| {
        let (java, openssl) = names(suite.suite());
        let known = [java, openssl].iter().any(|known| known.eq_ignore_ascii_case(name));
        known || format!("{:?}", suite.suite()).eq_ignore_ascii_case(name)
    };
    ALL_CIPHER_SUITES.iter().find(is_named).copied().ok_or_else(|| {
        TlsError::Refused(format!("tls.ciphers: {name:?} is not supported, only {}", known_ciphers(None)))
    })
}

/// Returns Java's and OpenSSL's names.
fn names(suite: CipherSuite) -> (&'static str, &'static str) {
    let found = NAMES.iter().find(|(known, ..)| *known == suite);
    found.map_or(("", ""), |(_, java, openssl)| (java, openssl))
}

fn protocol_name(version: ProtocolVersion) -> &'static str {
    let found = PROTOCOLS.iter().find(|(known, _)| known.version == version);
    found.map_or("", |(_, [name, _])| name)
}

fn known_ciphers(of: Option<ProtocolVersion>) -> String {
    let suites = ALL_CIPHER_SUITES.iter().filter(|suite| of.is_none_or(|of| suite.version().version == of));
    suites.map(|suite| names(suite.suite()).0).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ciphers(protocols: &str, ciphers: &str) -> Vec<&'static str> {
        let suites = Suites::named(protocols, ciphers).expect("supported names");
        suites.rows().into_iter().map(|(_, name)| name).collect()
    }

    fn refusal(protocols: &str, ciphers: &str) -> String {
        Suites::named(protocols, ciphers).expect_err("an unsupported name").to_string()
    }

    #[test]
    fn every_cipher_is_known_by_each_of_its_names() {
        for suite in ALL_CIPHER_SUITES {
            let (java, openssl) = names(suite.suite());
            assert!(!java.is_empty(), "{suite:?} has names");
            for name in [java, openssl, &format!("{:?}", suite.suite()), &java.to_lowercase()] {
                assert_eq!(ciphers("", name), [openssl], "{name}");
            }
        }
        assert_eq!(ciphers("", " ,").len(), ALL_CIPHER_SUITES.len(), "an empty list selects everything");
    }

    #[test]
    fn lists_are_kept_in_their_order_and_limit_each_other() {
        assert_eq!(
            ciphers("", "ECDHE-RSA-AES128-GCM-SHA256:TLS_AES_128_GCM_SHA256"),
            ["ECDHE-RSA-AES128-GCM-SHA256", "TLS_AES_128_GCM_SHA256"]
        );
        assert!(ciphers("TLSv1.3", "").iter().all(|name| name.starts_with("TLS_")));
        assert_eq!(ciphers("tlsv1.2, TLSv1.3", "").len(), ALL_CIPHER_SUITES.len());
    }

    #[test]
    fn an_unsupported_name_is_refused() {
        assert!(refusal("TLSv1.1", "").contains("\"TLSv1.1\" is not supported, only TLSv1.2 and TLSv1.3"));
        assert!(refusal("", "TLS_RSA_WITH_AES_128_CBC_SHA").contains("TLS_AES_256_GCM_SHA384"));
        assert!(refusal("TLSv1.3", "ECDHE-RSA-AES128-GCM-SHA256").contains("none of its ciphers"));
        assert!(
            refusal("TLSv1.3", "TLS_AES_128_GCM_SHA256,ECDHE-RSA-AES128-GCM-SHA256")
                .contains("TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256, which is of TLSv1.2")
        );
    }
}
