//! Signatures: the Base64 of an HMAC-SHA1, keyed by the user's secret, over a request.
//!
//! The signature covers the values of all header fields but `Signature`, in the order of their names and without
//! separators, followed by the body. It does not cover names, the borders between values, code, number and flags: a
//! recorded request can be replayed, or have part of one value moved into the next field. Only TLS prevents that.
//!
//! The key schedule of a secret is computed once (`SigningKey`), so that a request costs only its own bytes.
//! Signatures are compared in constant time.

use std::fmt;

use arrayvec::{ArrayString, ArrayVec};
use base64ct::{Base64, Encoding};
use hmac::{Hmac, KeyInit, Mac};
use sha1::Sha1;

/// The name of the user.
pub const ACCESS_KEY: &str = "AccessKey";
/// The signature itself.
pub const SIGNATURE: &str = "Signature";
/// A token that some services require besides the signature; signed like any other field.
pub const SECURITY_TOKEN: &str = "SecurityToken";
/// A field that releases up to `UNSIGNED_UP_TO` do not sign.
const UNIQUE_KEY_QUERY: &str = "_UNIQUE_KEY_QUERY";
/// The ordinal of release 4.9.3.
const UNSIGNED_UP_TO: i32 = 399;

/// Bytes of a SHA-1.
const DIGEST_BYTES: usize = 20;
/// Characters of a signature: those bytes in Base64.
pub const SIGNATURE_CHARS: usize = 28;
/// Maximum number of signed header fields, which is also that of a frame.
const FIELDS_MAX: usize = 256;

/// A secret, prepared to sign and to verify.
#[derive(Clone)]
pub struct SigningKey(Hmac<Sha1>);

/// A signature as in a header.
pub type Signature = ArrayString<SIGNATURE_CHARS>;

/// More header fields than any frame has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooManyFields;

/// The fields of a request in signing order. Filled in place, because it is too large to move.
type Ordered<'a> = ArrayVec<Field<'a>, FIELDS_MAX>;

struct Field<'a> {
    place: Place<'a>,
    value: &'a str,
}

/// Sort key of a name: its first bytes, which usually differ and take one comparison, then the name.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Place<'a> {
    first_bytes: u64,
    name: &'a str,
}

impl<'a> Place<'a> {
    fn of(name: &'a str) -> Self {
        let mut first_bytes = [0; 8];
        first_bytes.iter_mut().zip(name.bytes()).for_each(|(place, byte)| *place = byte);
        Self { first_bytes: u64::from_be_bytes(first_bytes), name }
    }
}

/// Sorts the signed fields of a request of release `version` for `work`. Of fields with the same name the last one
/// counts, as for readers of the request.
fn in_order<'a, T>(
    fields: impl Iterator<Item = (&'a str, &'a str)>,
    version: i32,
    work: impl FnOnce(&[Field<'a>]) -> T,
) -> Result<T, TooManyFields> {
    let mut ordered = Ordered::new();
    for (name, value) in fields {
        let is_signed = name != SIGNATURE && (name != UNIQUE_KEY_QUERY || version > UNSIGNED_UP_TO);
        if !is_signed {
            continue;
        }
        let place = Place::of(name);
        // Most clients write most names in order.
        let at = match ordered.last() {
            Some(last) if last.place >= place => ordered.partition_point(|before| before.place < place),
            _ => ordered.len(),
        };
        match ordered.get_mut(at) {
            Some(same) if same.place == place => same.value = value,
            _ => ordered.try_insert(at, Field { place, value }).map_err(|_| TooManyFields)?,
        }
    }
    Ok(work(&ordered))
}

/// Returns the signed bytes of a request of release `version`, as one text.
pub fn signed_text<'a>(
    fields: impl Iterator<Item = (&'a str, &'a str)>,
    version: i32,
    body: &[u8],
) -> Result<Vec<u8>, TooManyFields> {
    in_order(fields, version, |ordered| {
        let values = ordered.iter().map(|field| field.value.as_bytes());
        values.chain([body]).flatten().copied().collect()
    })
}

fn encoded(mac: Hmac<Sha1>) -> Signature {
    let mut room = [0; SIGNATURE_CHARS];
    let characters = Base64::encode(&mac.finalize().into_bytes(), &mut room).ok();
    #[expect(clippy::expect_used, reason = "twenty bytes are twenty-eight characters")]
    characters.and_then(|characters| ArrayString::from(characters).ok()).expect("there is room")
}

impl SigningKey {
    /// Computes the key schedule of `secret`.
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
        in_order(fields, version, |ordered| {
            let mut mac = self.0.clone();
            for field in ordered {
                mac.update(field.value.as_bytes());
            }
            mac.update(body);
            mac
        })
    }

    /// Signs a request of release `version`.
    pub fn sign<'a>(
        &self,
        fields: impl Iterator<Item = (&'a str, &'a str)>,
        version: i32,
        body: &[u8],
    ) -> Result<Signature, TooManyFields> {
        self.digest(fields, version, body).map(encoded)
    }

    /// Returns whether `signature`, in hexadecimal digits, matches the text, checked in constant time. 5.x clients sign
    /// one header so.
    #[must_use]
    pub fn verifies_text(&self, signature: &str, text: &str) -> bool {
        let mut given = [0; DIGEST_BYTES];
        let digits = signature.as_bytes().chunks(2);
        let is_readable = signature.len() == 2 * DIGEST_BYTES
            && given.iter_mut().zip(digits).all(|(byte, digits)| {
                let digits = std::str::from_utf8(digits).ok().filter(|digits| !digits.starts_with('+'));
                digits
                    .and_then(|digits| u8::from_str_radix(digits, 16).ok())
                    .map(|read| *byte = read)
                    .is_some()
            });
        let is_equal = self.0.clone().chain_update(text).verify_slice(&given).is_ok();
        is_readable && is_equal
    }

    /// Signs a `signed_text`.
    #[must_use]
    pub fn sign_text(&self, text: &[u8]) -> Signature {
        encoded(self.0.clone().chain_update(text))
    }

    /// Returns whether `signature` matches the request, checked in constant time.
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
