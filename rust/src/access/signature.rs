//! Signatures: Base64 of an HMAC-SHA1, with the user's secret, over what a request says.
//!
//! Signed are the values of all header fields but `Signature`, in the order of their names and with nothing between
//! them, and then the body. Code, number and flags are not signed, so that a recorded request can be sent again by
//! whoever recorded it: what keeps it secret on its way is TLS.
//!
//! The secret's key schedule is made once (`SigningKey`); a request costs its own bytes. Signatures are compared in
//! constant time.

use std::fmt;

use arrayvec::ArrayVec;
use base64ct::{Base64, Encoding};
use hmac::{Hmac, KeyInit, Mac};
use sha1::Sha1;

/// The name of the user.
pub const ACCESS_KEY: &str = "AccessKey";
/// The signature itself.
pub const SIGNATURE: &str = "Signature";
/// A token that some services want beside the signature; signed like any other field.
pub const SECURITY_TOKEN: &str = "SecurityToken";
/// A field that releases up to `UNSIGNED_UP_TO` do not sign.
const UNIQUE_KEY_QUERY: &str = "_UNIQUE_KEY_QUERY";
/// The ordinal of release 4.9.3.
const UNSIGNED_UP_TO: i32 = 399;

/// Bytes of a SHA-1.
const DIGEST_BYTES: usize = 20;
/// Characters of a signature: those bytes in Base64.
pub const SIGNATURE_CHARS: usize = 28;
/// Header fields that may be signed; no frame has more.
const FIELDS_MAX: usize = 256;

/// A secret, ready to sign and to check signatures.
#[derive(Clone)]
pub struct SigningKey(Hmac<Sha1>);

/// More header fields than any frame has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooManyFields;

/// The fields of a request in the order in which they are signed. Filled where it lies: it is too large to be moved.
type Ordered<'a> = ArrayVec<(&'a str, &'a str), FIELDS_MAX>;

/// Puts the signed ones of a request of release `version` in order. Where a name stands twice the later one counts, as it
/// does for whoever reads the request.
fn order<'a>(
    ordered: &mut Ordered<'a>,
    fields: impl Iterator<Item = (&'a str, &'a str)>,
    version: i32,
) -> Result<(), TooManyFields> {
    for (name, value) in fields {
        let is_signed = name != SIGNATURE && (name != UNIQUE_KEY_QUERY || version > UNSIGNED_UP_TO);
        if !is_signed {
            continue;
        }
        let at = ordered.partition_point(|(before, _)| *before < name);
        match ordered.get_mut(at) {
            Some(same) if same.0 == name => same.1 = value,
            _ => ordered.try_insert(at, (name, value)).map_err(|_| TooManyFields)?,
        }
    }
    Ok(())
}

impl SigningKey {
    /// The key schedule of `secret`.
    #[must_use]
    pub fn new(secret: &str) -> Self {
        let schedule = Hmac::<Sha1>::new_from_slice(secret.as_bytes());
        #[expect(clippy::expect_used, reason = "an HMAC takes keys of any length")]
        Self(schedule.expect("any length will do"))
    }

    fn digest<'a>(
        &self,
        fields: impl Iterator<Item = (&'a str, &'a str)>,
        version: i32,
        body: &[u8],
    ) -> Result<Hmac<Sha1>, TooManyFields> {
        let mut ordered = Ordered::new();
        order(&mut ordered, fields, version)?;
        let mut mac = self.0.clone();
        for (_, value) in &ordered {
            mac.update(value.as_bytes());
        }
        mac.update(body);
        Ok(mac)
    }

    /// The signature of a request of release `version`.
    pub fn sign<'a>(
        &self,
        fields: impl Iterator<Item = (&'a str, &'a str)>,
        version: i32,
        body: &[u8],
    ) -> Result<String, TooManyFields> {
        let mac = self.digest(fields, version, body)?;
        Ok(Base64::encode_string(&mac.finalize().into_bytes()))
    }

    /// Whether `signature` is that of the request. The time it takes says nothing about where the two differ.
    pub fn verifies<'a>(
        &self,
        signature: &str,
        fields: impl Iterator<Item = (&'a str, &'a str)>,
        version: i32,
        body: &[u8],
    ) -> Result<bool, TooManyFields> {
        let mut given = [0; DIGEST_BYTES];
        let is_readable =
            Base64::decode(signature, &mut given).is_ok_and(|given| given.len() == DIGEST_BYTES);
        let is_equal = self.digest(fields, version, body)?.verify_slice(&given).is_ok();
        Ok(is_readable && is_equal)
    }
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SigningKey(..)")
    }
}
