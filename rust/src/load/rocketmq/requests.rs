//! Requests made once: a template knows where its numbers stand, and sending one is a copy and a few digits.
//!
//! Numbers have a fixed width, so that a frame never changes its size: opaque values have ten digits, offsets are
//! padded with zeros, unique ids end in a counter of eight hexadecimal digits.

use memchr::memmem;

use super::super::plan::{LoadError, Plan, Position, Target, Work};
use crate::message::batch::InnerMessage;
use crate::remoting::Encoding;
use crate::remoting::codes::{language, request};
use crate::remoting::frame::PREFIX_BYTES;
use crate::remoting::header::HeaderWriter;

/// Opaque of slot 0. JSON numbers have no leading zeros, so values are chosen that all have ten digits.
pub(super) const OPAQUE_BASE: u32 = 1_000_000_000;
/// Where a binary header has its opaque: behind code, language and version.
const BINARY_OPAQUE_AT: usize = PREFIX_BYTES + 5;
/// The subscription travels with the pull; nothing is committed, nothing waits.
const PULL_SYS_FLAG: &str = "4";
const OFFSET_DIGITS: usize = 19;
/// Stand where numbers will be; neither topics nor groups can hold such characters.
const OFFSET_MARK: &str = "~~~~~~~~~~~~~~~~~~~";
/// The part of a unique id that stays: an address and a process, as clients write them, that mean nothing here.
const ID_PREFIX: &str = "AC1100010001";
const ID_MARK: &str = "!!!!!!!!";

/// One request, ready but for its numbers.
#[derive(Debug)]
pub(super) struct Template {
    frame: Vec<u8>,
    encoding: Encoding,
    opaque_at: usize,
    /// Counters of unique ids: one for a message, one for a batch and each message in it.
    ids_at: Vec<usize>,
    offset_at: Option<usize>,
}

/// The numbers of one request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Numbers<'a> {
    /// Which answer will be this request's.
    pub(super) opaque: u32,
    /// Where a pull begins.
    pub(super) offset: u64,
    /// Counts the unique ids of the connection.
    pub(super) id: &'a std::cell::Cell<u32>,
}

impl Template {
    /// The request of `plan` to one queue. Ids of different `writers` differ.
    ///
    /// # Errors
    /// When it does not fit a frame.
    pub(super) fn new(
        plan: &Plan,
        target: &Target,
        at: Position,
        writer: u32,
        now_ms: u64,
    ) -> Result<Self, LoadError> {
        let id = format!("{ID_PREFIX}{writer:04X}{:08X}{ID_MARK}", now_ms as u32);
        let mut frame = Vec::new();
        match plan.work {
            Work::Produce { body_bytes, batch } => {
                let body = produce_body(body_bytes, batch, &id);
                let code = if batch > 1 { request::SEND_BATCH_MESSAGE } else { request::SEND_MESSAGE_V2 };
                let mut header = begin(&mut frame, plan.encoding, code);
                header.ext("a", &plan.group).ext("b", &plan.topic).ext("c", "TBW102").ext("d", "4");
                header.ext_u64("e", at.queue.into()).ext("f", "0").ext_u64("g", now_ms).ext("h", "0");
                header.ext("i", &properties(&id)).ext("j", "0").ext("k", "false").ext_bool("m", batch > 1);
                header.ext("n", &target.broker);
                header.finish(body.len()).map_err(|error| LoadError::TooLarge(error.to_string()))?;
                frame.extend_from_slice(&body);
            }
            Work::Consume { messages_max } => {
                let mut header = begin(&mut frame, plan.encoding, request::PULL_MESSAGE);
                header.ext("consumerGroup", &plan.group).ext("topic", &plan.topic);
                header.ext_u64("queueId", at.queue.into()).ext("queueOffset", OFFSET_MARK);
                header.ext_u64("maxMsgNums", messages_max as u64).ext("sysFlag", PULL_SYS_FLAG);
                header.ext("commitOffset", "0").ext("suspendTimeoutMillis", "0");
                header.ext("subscription", "*").ext("subVersion", "0").ext("expressionType", "TAG");
                header.finish(0).map_err(|error| LoadError::TooLarge(error.to_string()))?;
            }
        }
        let opaque_at = match plan.encoding {
            Encoding::Binary => BINARY_OPAQUE_AT,
            Encoding::Json => {
                let key = b"\"opaque\":";
                memmem::find(&frame, key).map_or(0, |at| at + key.len())
            }
        };
        let ids_at = memmem::find_iter(&frame, ID_MARK.as_bytes()).collect();
        let offset_at = memmem::find(&frame, OFFSET_MARK.as_bytes());
        Ok(Self { frame, encoding: plan.encoding, opaque_at, ids_at, offset_at })
    }

    /// Appends the request to `out`.
    pub(super) fn put(&self, out: &mut Vec<u8>, numbers: Numbers<'_>) {
        let start = out.len();
        out.extend_from_slice(&self.frame);
        let Some(frame) = out.get_mut(start..) else { return };
        match self.encoding {
            Encoding::Binary => write_at(frame, self.opaque_at, &numbers.opaque.to_be_bytes()),
            Encoding::Json => write_at(frame, self.opaque_at, &decimal::<10>(numbers.opaque.into())),
        }
        for &at in &self.ids_at {
            let id = numbers.id.get();
            numbers.id.set(id.wrapping_add(1));
            write_at(frame, at, &hexadecimal(id));
        }
        if let Some(at) = self.offset_at {
            write_at(frame, at, &decimal::<OFFSET_DIGITS>(numbers.offset));
        }
    }
}

fn begin(out: &mut Vec<u8>, encoding: Encoding, code: i32) -> HeaderWriter<'_> {
    HeaderWriter::begin_as(language::JAVA, out, encoding, code, OPAQUE_BASE as i32, 0, None)
}

fn properties(id: &str) -> String {
    format!("UNIQ_KEY\u{1}{id}\u{2}WAIT\u{1}true\u{2}")
}

fn produce_body(body_bytes: usize, batch: usize, id: &str) -> Vec<u8> {
    // Text that compresses badly enough, without any of the marks in it.
    let body: Vec<u8> = (0..body_bytes).map(|at| b'a' + (at * 7 % 26) as u8).collect();
    if batch == 1 {
        return body;
    }
    let mut whole = Vec::new();
    for _ in 0..batch {
        InnerMessage { flag: 0, body: &body, properties: properties(id).as_bytes() }.encode(&mut whole);
    }
    whole
}

fn write_at(frame: &mut [u8], at: usize, bytes: &[u8]) {
    if let Some(place) = frame.get_mut(at..at + bytes.len()) {
        place.copy_from_slice(bytes);
    }
}

fn decimal<const DIGITS: usize>(mut number: u64) -> [u8; DIGITS] {
    let mut text = [b'0'; DIGITS];
    for digit in text.iter_mut().rev() {
        *digit = b'0' + (number % 10) as u8;
        number /= 10;
    }
    text
}

fn hexadecimal(mut number: u32) -> [u8; 8] {
    let mut text = [0; 8];
    for digit in text.iter_mut().rev() {
        let nibble = (number & 15) as u8;
        *digit = nibble + if nibble < 10 { b'0' } else { b'A' - 10 };
        number >>= 4;
    }
    text
}
