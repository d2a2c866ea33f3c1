//! Prepared frames: written once, and sent as copies with other numbers.
//!
//! Numbers have a fixed width, so that a copy is as long as its frame: opaque values have ten digits, others are what is
//! written over a mark of their length. What a signature covers lies ready beside the frame and gets the same numbers,
//! so that signing costs a copy its hash and nothing else: a load is to measure servers, not itself.

use std::cell::RefCell;

use memchr::memmem;

use super::super::plan::{LoadError, Plan};
use crate::remoting::codes::language;
use crate::remoting::frame::PREFIX_BYTES;
use crate::remoting::header::HeaderWriter;
use crate::remoting::{Encoding, FrameError};
use crate::requests::credentials::Credentials;

/// Opaque of slot 0. JSON numbers have no leading zeros, so values are chosen that all have ten digits.
pub(super) const OPAQUE_BASE: u32 = 1_000_000_000;
/// Where a binary header has its opaque: behind code, language and version.
const BINARY_OPAQUE_AT: usize = PREFIX_BYTES + 5;

/// A frame to make copies of.
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
    /// What is signed of the last copy.
    text: RefCell<Vec<u8>>,
}

/// Where a number stands: in the frame, and in what is signed of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    in_frame: usize,
    in_text: Option<usize>,
}

/// A copy that gets its numbers.
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
    /// Fails when it does not fit a frame, or has more fields than can be signed.
    pub(super) fn new(
        plan: &Plan,
        code: i32,
        body: &[u8],
        encode: impl FnOnce(&mut HeaderWriter<'_>),
    ) -> Result<Self, LoadError> {
        let refused = |error: FrameError| LoadError::TooLarge(error.to_string());
        let mut bytes = Vec::new();
        let opaque = OPAQUE_BASE as i32;
        let mut header =
            HeaderWriter::begin_as(language::JAVA, &mut bytes, plan.encoding, code, opaque, 0, None);
        encode(&mut header);
        if let Some(credentials) = &plan.credentials {
            credentials.announce(&mut header);
        }
        header.finish(body.len()).map_err(refused)?;
        let signing = |credentials: &Credentials| {
            let (signature_at, text) = credentials.prepare(&bytes, body).map_err(refused)?;
            Ok(Signing { credentials: credentials.clone(), signature_at, text: RefCell::new(text) })
        };
        let signing = plan.credentials.as_ref().map(signing).transpose()?;
        bytes.extend_from_slice(body);
        let opaque_at = opaque_at(&bytes, plan.encoding);
        Ok(Self { bytes, encoding: plan.encoding, opaque_at, signing })
    }

    /// Every place of a mark, in the order of the frame. Between them what is signed has its values in an order of its
    /// own, so that all places of one mark must be in one field or the body.
    pub(super) fn places(&self, mark: &[u8]) -> Vec<Place> {
        let text = self.signing.as_ref().map(|signing| signing.text.borrow());
        let mut in_text = text.iter().flat_map(|text| memmem::find_iter(text.as_slice(), mark));
        let in_frame = memmem::find_iter(&self.bytes, mark);
        in_frame.map(|at| Place { in_frame: at, in_text: in_text.next() }).collect()
    }

    /// Appends a copy, with what `change` writes into it.
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

/// A number with leading zeros.
pub(super) fn decimal<const DIGITS: usize>(mut number: u64) -> [u8; DIGITS] {
    let mut text = [b'0'; DIGITS];
    for digit in text.iter_mut().rev() {
        *digit = b'0' + (number % 10) as u8;
        number /= 10;
    }
    text
}
