//! Caller: the client of one call, from the headers of the call.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http::HeaderMap;
use tokio::time::Instant;

use super::status::{Refused, code};
use crate::access::rules::User;
use crate::dataplane::service::data_plane::DataPlane;
use crate::remoting::codes::{VERSION, language};
use crate::requests::credentials::Credentials;

/// Longest id of a client.
pub(super) const CLIENT_ID_BYTES_MAX: usize = 255;
/// Longest deadline that is kept; longer ones are none.
pub(super) const DEADLINE_MAX: Duration = Duration::from_secs(30 * 86_400);
/// The number of release 5.0.0.
const RELEASE_5_0_0: i32 = 413;
const ALGORITHM: &str = "MQv2-HMAC-SHA1";

/// The addresses of a connection.
#[derive(Debug, Clone, Copy)]
pub(super) struct Addresses {
    pub(super) peer: SocketAddr,
    pub(super) local: SocketAddr,
}

/// The client of one call.
#[derive(Debug, Clone)]
pub(super) struct Caller {
    pub(super) client_id: String,
    /// The user, if the call is signed and the user exists.
    pub(super) user: Option<Arc<User>>,
    /// The code of its language in remoting.
    pub(super) language: u8,
    pub(super) version: String,
    pub(super) deadline: Option<Instant>,
    pub(super) addresses: Addresses,
}

/// A call that its headers refuse, after a delay.
pub(super) struct RefusedCall {
    pub(super) refused: Refused,
    pub(super) delay: Duration,
}

impl From<Refused> for RefusedCall {
    fn from(refused: Refused) -> Self {
        Self { refused, delay: Duration::ZERO }
    }
}

impl Caller {
    /// Reads the headers: first the signature of the call, then the client.
    pub(super) fn read(
        headers: &HeaderMap,
        addresses: Addresses,
        data_plane: &DataPlane,
    ) -> Result<Self, RefusedCall> {
        let user = signer(headers, addresses.peer, data_plane)?;
        Ok(Self::of(headers, addresses, user)?)
    }

    /// Reads the client of a call of this user.
    pub(super) fn of(
        headers: &HeaderMap,
        addresses: Addresses,
        user: Option<Arc<User>>,
    ) -> Result<Self, Refused> {
        let client_id = last(headers, "x-mq-client-id").unwrap_or_default().trim();
        if client_id.is_empty() || client_id.len() > CLIENT_ID_BYTES_MAX {
            let text = "client id cannot be empty";
            return Err(Refused::new(code::CLIENT_ID_REQUIRED, text));
        }
        let timeout = last(headers, "grpc-timeout").and_then(timeout);
        Ok(Self {
            client_id: client_id.to_owned(),
            user,
            language: language::from_name(last(headers, "x-mq-language").unwrap_or_default()),
            version: last(headers, "x-mq-client-version").unwrap_or_default().to_owned(),
            deadline: timeout.map(|timeout| Instant::now() + timeout),
            addresses,
        })
    }

    /// Returns the release of the client in remoting's numbering, which lists those of Java's client. Others, such as
    /// 1.0.8 of Node.js, have no number: then it is that of this proxy, because brokers refuse some requests to old
    /// clients.
    pub(super) fn release(&self) -> i32 {
        release(&self.version).unwrap_or(VERSION)
    }

    /// Returns the time until the client gives up.
    pub(super) fn remaining(&self) -> Option<Duration> {
        self.deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()))
    }

    /// Returns what signs requests to the broker in the name of this user.
    pub(super) fn credentials(&self) -> Option<Credentials> {
        self.user.as_ref().map(|user| Credentials::of(&user.name, user.key.clone()))
    }
}

/// Returns the last value of a header: clients repeat headers when they retry.
fn last<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get_all(name).iter().next_back()?.to_str().ok()
}

fn signer(
    headers: &HeaderMap,
    peer: SocketAddr,
    data_plane: &DataPlane,
) -> Result<Option<Arc<User>>, RefusedCall> {
    if !data_plane.guard.is_on() {
        return Ok(None);
    }
    let Some((signed, date)) = signed(headers)? else { return Ok(None) };
    let user = data_plane.guard.signer_of_text(peer, signed.user, signed.signature, date);
    user.map_err(|(refusal, delay)| RefusedCall { refused: unauthorized(refusal.to_string()), delay })
}

/// Returns the signature of a call and the date that it signs; `None` if the call names no user.
pub(super) fn signed(headers: &HeaderMap) -> Result<Option<(Signed<'_>, &str)>, Refused> {
    let Some(text) = last(headers, "authorization").filter(|text| !text.is_empty()) else { return Ok(None) };
    let signed = Signed::parse(text).ok_or_else(|| {
        unauthorized(format!("the authorization header is not '{ALGORITHM} Credential=…, Signature=…'"))
    })?;
    if signed.user.is_empty() {
        return Ok(None);
    }
    let date = last(headers, "x-mq-date-time")
        .ok_or_else(|| unauthorized("the signed header x-mq-date-time is missing".to_owned()))?;
    Ok(Some((signed, date)))
}

fn unauthorized(text: String) -> Refused {
    Refused::new(code::UNAUTHORIZED, text)
}

/// The parts of an `authorization` header.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Signed<'a> {
    pub(super) user: &'a str,
    pub(super) signature: &'a str,
}

impl<'a> Signed<'a> {
    fn parse(text: &'a str) -> Option<Self> {
        let (algorithm, rest) = text.split_once(' ')?;
        if algorithm != ALGORITHM {
            return None;
        }
        let parts = || rest.split(',').filter_map(|part| part.trim().split_once('='));
        let value = |wanted: &str| parts().find(|(name, _)| *name == wanted).map(|(_, value)| value);
        let user = value("Credential")?.split('/').next()?;
        Some(Self { user, signature: value("Signature")? })
    }
}

/// Returns the number of a release such as 5.1.2: each 5.x.y, up to 5.9.9, follows its snapshot.
fn release(text: &str) -> Option<i32> {
    let mut parts = text.trim().split(['-', '+']).next()?.split('.');
    let mut digit = || parts.next().filter(|part| part.len() == 1)?.parse::<u8>().ok();
    let (major, minor, patch) = (digit()?, digit()?, digit()?);
    let is_listed = major == 5 && parts.next().is_none();
    is_listed.then(|| RELEASE_5_0_0 + 2 * i32::from(minor * 10 + patch))
}

/// Reads `grpc-timeout`: up to eight digits and a unit. `None` if it is not one, or longer than any call.
fn timeout(text: &str) -> Option<Duration> {
    let (unit_at, unit) = text.char_indices().next_back()?;
    let digits = text.get(..unit_at).filter(|digits| (1..=8).contains(&digits.len()))?;
    let count: u64 = digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok())??;
    let timeout = match unit {
        'H' => Duration::from_secs(count * 3_600),
        'M' => Duration::from_secs(count * 60),
        'S' => Duration::from_secs(count),
        'm' => Duration::from_millis(count),
        'u' => Duration::from_micros(count),
        'n' => Duration::from_nanos(count),
        _ => return None,
    };
    (timeout <= DEADLINE_MAX).then_some(timeout)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::access::signature::SigningKey;

    #[test]
    fn a_signature_over_the_date_is_verified_in_either_case() {
        let text = "MQv2-HMAC-SHA1 Credential=alice//Rocketmq, SignedHeaders=x-mq-date-time, Signature=473d96c18eab59b30d9795e2f1b30c8d737182dc";
        let signed = Signed::parse(text).expect("an authorization");
        assert_eq!(signed.user, "alice");
        let key = SigningKey::new("secretKey1");
        assert!(key.verifies_text(signed.signature, "20260102T030405Z"));
        assert!(key.verifies_text(&signed.signature.to_uppercase(), "20260102T030405Z"));
        assert!(!key.verifies_text(signed.signature, "20260102T030406Z"));
        assert!(!key.verifies_text("", "20260102T030405Z"));
        assert!(!key.verifies_text(&"+f".repeat(20), "20260102T030405Z"));
        for broken in ["", "Basic x", "MQv2-HMAC-SHA1 Credential=a", "MQv2-HMAC-SHA1"] {
            assert_eq!(Signed::parse(broken), None);
        }
    }

    #[test]
    fn releases_have_the_numbers_of_javas_list() {
        let known = [("5.0.0", 413), ("5.3.1", 475), ("5.3.3", 479), ("5.5.0", 513), ("5.1.2-rc1", 437)];
        for (text, number) in known {
            assert_eq!(release(text), Some(number), "{text}");
        }
        for unknown in ["", "5", "5.0", "5.10.0", "5.0.0.1", "1.0.8", "6.0.0", "a.b.c", "5.+.1", "5.0.١"] {
            assert_eq!(release(unknown), None, "{unknown}");
        }
    }

    #[test]
    fn timeouts_of_any_unit_are_read_and_endless_ones_dropped() {
        assert_eq!(timeout("3S"), Some(Duration::from_secs(3)));
        assert_eq!(timeout("1500m"), Some(Duration::from_millis(1_500)));
        for none in ["99999999H", "31536000M", "", "S", "123456789S", "1x", "-1S", "١S"] {
            assert_eq!(timeout(none), None, "{none}");
        }
    }
    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "\\PC{0,60}", user in "[a-z/=, ]{0,12}", digits in "[0-9]{0,10}[HMSmun]?") {
            for text in [&text, &digits] {
                prop_assert!(timeout(text).is_none_or(|time| time <= DEADLINE_MAX));
                prop_assert!(Signed::parse(text).is_none_or(|signed| text.contains(signed.user)));
            }
            let header = format!("{ALGORITHM} Credential={user}, SignedHeaders=x, Signature={text}");
            if let Some(signed) = Signed::parse(&header) {
                // Commas end a part, and a slash the user.
                prop_assert!(user.starts_with(signed.user) || signed.user.is_empty());
            }
        }
    }
}
