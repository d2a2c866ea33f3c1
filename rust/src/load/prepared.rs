//! Prepared frames: frames built once and sent as copies with other numbers.
//!
//! Numbers have a fixed width, so a copy is as long as its frame: opaque values have ten digits, other numbers
//! overwrite a placeholder of their length. The signed text is kept next to the frame and gets the same numbers, so
//! signing a copy costs only its hash: a load measures servers, not itself.

use std::cell::RefCell;

use memchr::memmem;
use rmqpy_load::LoadError;

use super::options::RocketMqOptions;
use crate::remoting::codes::language;
use crate::remoting::frame::PREFIX_BYTES;
use crate::remoting::header::HeaderWriter;
use crate::remoting::{Encoding, FrameError};
use crate::requests::credentials::Credentials;

/// Opaque of slot 0. JSON numbers have no leading zeros, so all values have ten digits.
pub(super) const OPAQUE_BASE: u32 = 1_000_000_000;
/// Position of the opaque in a binary header: after code, language and version.
const BINARY_OPAQUE_AT: usize = PREFIX_BYTES + 5;

/// A frame to copy.
#[derive(Debug)]
pub(super) struct Prepared {
    bytes: Vec<u8>,
    encoding: Encoding,
    opaque_at: usize,
    signing: Option<Signing>,
}

/// How copies are signed.
#[derive(Debug)]
struct Signing {
    credentials: Credentials,
    signature_at: usize,
    /// The signed text of the last copy.
    text: RefCell<Vec<u8>>,
}

/// The position of a number in the frame and in the signed text.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    in_frame: usize,
    in_text: Option<usize>,
}

/// A copy whose numbers are being set.
pub(super) struct Copy<'a> {
    frame: &'a mut [u8],
    text: &'a mut [u8],
}

impl Copy<'_> {
    pub(super) fn write(&mut self, place: Place, characters: &[u8]) {
        write_at(self.frame, place.in_frame, characters);
        if let Some(at) = place.in_text {
            write_at(self.text, at, characters);
        }
    }
}

impl Prepared {
    /// Fails when it does not fit a frame, or has too many fields to be signed.
    pub(super) fn new(
        options: &RocketMqOptions,
        code: i32,
        body: &[u8],
        encode: impl FnOnce(&mut HeaderWriter<'_>),
    ) -> Result<Self, LoadError> {
        let refused = |error: FrameError| LoadError::TooLarge(error.to_string());
        let mut bytes = Vec::new();
        let opaque = OPAQUE_BASE as i32;
        let mut header =
            HeaderWriter::begin_as(language::JAVA, &mut bytes, options.encoding, code, opaque, 0, None);
        encode(&mut header);
        if let Some(credentials) = &options.credentials {
            credentials.announce(&mut header);
        }
        header.finish(body.len()).map_err(refused)?;
        let signing = |credentials: &Credentials| {
            let (signature_at, text) = credentials.prepare(&bytes, body).map_err(refused)?;
            Ok(Signing { credentials: credentials.clone(), signature_at, text: RefCell::new(text) })
        };
        let signing = options.credentials.as_ref().map(signing).transpose()?;
        bytes.extend_from_slice(body);
        // A code beyond 16 bits, as of a pop, has a JSON header in any case.
        let is_binary = i16::try_from(code).is_ok() && options.encoding == Encoding::Binary;
        let encoding = if is_binary { Encoding::Binary } else { Encoding::Json };
        let opaque_at = opaque_at(&bytes, encoding);
        Ok(Self { bytes, encoding, opaque_at, signing })
    }

    /// Returns every position of a placeholder, in the order of the frame. The signed text orders values differently,
    /// so all positions of one placeholder must be in one field or the body.
    pub(super) fn places(&self, mark: &[u8]) -> Vec<Place> {
        let text = self.signing.as_ref().map(|signing| signing.text.borrow());
        let mut in_text = text.iter().flat_map(|text| memmem::find_iter(text.as_slice(), mark));
        let in_frame = memmem::find_iter(&self.bytes, mark);
        in_frame.map(|at| Place { in_frame: at, in_text: in_text.next() }).collect()
    }

    /// Appends a copy, with the changes that `change` makes.
    pub(super) fn put(&self, out: &mut Vec<u8>, opaque: u32, change: impl FnOnce(&mut Copy<'_>)) {
        let start = out.len();
        out.extend_from_slice(&self.bytes);
        let Some(frame) = out.get_mut(start..) else { return };
        write_opaque(frame, self.encoding, self.opaque_at, opaque);
        if let Some(Signing { credentials, signature_at, text }) = &self.signing {
            let text = &mut *text.borrow_mut();
            change(&mut Copy { frame, text });
            write_at(frame, *signature_at, credentials.sign_text(text).as_bytes());
        } else {
            change(&mut Copy { frame, text: &mut [] });
        }
    }
}

fn opaque_at(frame: &[u8], encoding: Encoding) -> usize {
    match encoding {
        Encoding::Binary => BINARY_OPAQUE_AT,
        Encoding::Json => {
            let key = b"\"opaque\":";
            memmem::find(frame, key).map_or(0, |at| at + key.len())
        }
    }
}

fn write_opaque(frame: &mut [u8], encoding: Encoding, at: usize, opaque: u32) {
    match encoding {
        Encoding::Binary => write_at(frame, at, &opaque.to_be_bytes()),
        Encoding::Json => write_at(frame, at, &decimal::<10>(opaque.into())),
    }
}

fn write_at(bytes: &mut [u8], at: usize, characters: &[u8]) {
    if let Some(place) = bytes.get_mut(at..at + characters.len()) {
        place.copy_from_slice(characters);
    }
}

/// Formats a number with leading zeros.
pub(super) fn decimal<const DIGITS: usize>(mut number: u64) -> [u8; DIGITS] {
    let mut text = [b'0'; DIGITS];
    for digit in text.iter_mut().rev() {
        *digit = b'0' + (number % 10) as u8;
        number /= 10;
    }
    text
}
