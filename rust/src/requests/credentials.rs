//! Credentials: sign a client's requests.
//!
//! A frame reserves space for its signature as the last header field and is signed in place, over the fields as the
//! server will read them. Any thread.

use std::fmt;

use memchr::memmem;

use crate::access::signature::{
    ACCESS_KEY, SECURITY_TOKEN, SIGNATURE, SIGNATURE_CHARS, Signature, SigningKey, signed_text,
};
use crate::remoting::FrameError;
use crate::remoting::frame::{Encoding, Frame, PREFIX_BYTES};
use crate::remoting::header::{Header, HeaderWriter};

/// The placeholder of a signature until the rest is written. JSON escapes none of its characters.
const ROOM: &str = "############################";
const _: () = assert!(ROOM.len() == SIGNATURE_CHARS);

/// A user's access key and secret key.
#[derive(Clone)]
pub struct Credentials {
    access_key: Box<str>,
    key: SigningKey,
    token: Option<Box<str>>,
}

impl Credentials {
    /// Creates credentials; some services also need a `token`.
    pub fn new(access_key: &str, secret_key: &str, token: Option<&str>) -> Self {
        Self { access_key: access_key.into(), key: SigningKey::new(secret_key), token: token.map(Into::into) }
    }

    /// Creates credentials of a user whose key is known.
    pub(crate) fn of(access_key: &str, key: SigningKey) -> Self {
        Self { access_key: access_key.into(), key, token: None }
    }

    /// Adds the fields of a signed request, the last of the header, with a placeholder for the signature.
    pub(crate) fn announce(&self, header: &mut HeaderWriter<'_>) {
        header.ext(ACCESS_KEY, &self.access_key);
        if let Some(token) = &self.token {
            header.ext(SECURITY_TOKEN, token);
        }
        header.ext(SIGNATURE, ROOM);
    }

    /// Signs the frame that begins at `start` of `out`, whose header is finished and whose body comes next.
    ///
    /// # Errors
    /// When it has more fields than a server reads. The frame is then removed from the buffer.
    pub(crate) fn sign(&self, out: &mut Vec<u8>, start: usize, body: &[u8]) -> Result<(), FrameError> {
        let head = out.get_mut(start..).unwrap_or_default();
        let signature = read(head, |header| self.key.sign(header.ext(), header.version, body).ok());
        let room = room(head).and_then(|at| head.get_mut(at..at + SIGNATURE_CHARS));
        if let (Some(signature), Some(room)) = (signature, room)
            && signature.len() == SIGNATURE_CHARS
        {
            room.copy_from_slice(signature.as_bytes());
            Ok(())
        } else {
            out.truncate(start);
            Err(FrameError::Unsignable)
        }
    }

    /// Prepares the signing of many frames that differ in a few characters: returns the position of the signature in
    /// `head`, the whole frame before `body`, and the text to sign.
    ///
    /// # Errors
    /// As `sign`.
    pub(crate) fn prepare(&self, head: &[u8], body: &[u8]) -> Result<(usize, Vec<u8>), FrameError> {
        let text = read(head, |header| signed_text(header.ext(), header.version, body).ok());
        room(head).zip(text).ok_or(FrameError::Unsignable)
    }

    /// Returns the signature of a prepared text.
    pub(crate) fn sign_text(&self, text: &[u8]) -> Signature {
        self.key.sign_text(text)
    }
}

/// Returns the position of a frame's placeholder.
fn room(head: &[u8]) -> Option<usize> {
    memmem::rfind(head, ROOM.as_bytes())
}

/// Calls `work` with the header as a server will read it.
fn read<T>(head: &[u8], work: impl FnOnce(&Header) -> Option<T>) -> Option<T> {
    let encoding = Encoding::from_byte(*head.get(4)?)?;
    let mut header = Header::new();
    header.decode(&Frame { encoding, header: head.get(PREFIX_BYTES..)?, body: &[] }).ok()?;
    work(&header)
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Credentials({})", self.access_key)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::remoting::frame::{FrameLimits, split};

    fn signed(credentials: &Credentials, encoding: Encoding, ext: &[(&str, &str)], body: &[u8]) -> Vec<u8> {
        let mut out = b"before".to_vec();
        let start = out.len();
        let mut header = HeaderWriter::begin(&mut out, encoding, 30, 1, 0, None).version(437);
        ext.iter().for_each(|(name, value)| _ = header.ext(name, value));
        credentials.announce(&mut header);
        header.finish(body.len()).unwrap();
        credentials.sign(&mut out, start, body).unwrap();
        out.extend_from_slice(body);
        out.split_off(start)
    }

    proptest! {
        #[test]
        fn a_server_with_the_secret_verifies_signed_requests(
            values in prop::collection::vec(".+", 0..4), body in prop::collection::vec(any::<u8>(), 0..64),
            is_binary in any::<bool>(), token in prop::option::of("[a-z]+"),
        ) {
            let credentials = Credentials::new("alice", "secret", token.as_deref());
            let encoding = if is_binary { Encoding::Binary } else { Encoding::Json };
            let ext: Vec<_> = ["topic", "Zone", "a", "properties"].into_iter().zip(values.iter().map(String::as_str)).collect();
            let bytes = signed(&credentials, encoding, &ext, &body);
            let (frame, _) = split(&bytes, &FrameLimits::default()).unwrap().unwrap();
            let mut header = Header::new();
            header.decode(&frame).unwrap();
            prop_assert_eq!(header.get(ACCESS_KEY), Some("alice"));
            let (key, signature) = (SigningKey::new("secret"), header.get(SIGNATURE).unwrap());
            prop_assert_eq!(key.verifies(signature, header.ext(), header.version, frame.body), Ok(true));
        }
    }

    #[test]
    fn a_value_equal_to_the_placeholder_is_kept() {
        let credentials = Credentials::new("alice", "secret", None);
        let bytes = signed(&credentials, Encoding::Json, &[("topic", ROOM)], b"");
        let (frame, _) = split(&bytes, &FrameLimits::default()).unwrap().unwrap();
        let mut header = Header::new();
        header.decode(&frame).unwrap();
        assert_eq!(header.get("topic"), Some(ROOM));
        assert_ne!(header.get(SIGNATURE), Some(ROOM));
    }
}
