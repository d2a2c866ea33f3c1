//! Requests made once: a template knows where its numbers stand, and sending one is a copy and a few digits.
//!
//! Numbers have a fixed width, so that a frame never changes its size: opaque values have ten digits, offsets are
//! padded with zeros, unique ids end in a counter of eight hexadecimal digits. Where requests are signed, each copy is
//! read again for its signature, which does allocate.

use memchr::memmem;

use super::super::plan::{LoadError, Plan, Position, Target, Work};
use super::answers::StoredHalf;
use crate::message::batch::InnerMessage;
use crate::message::sysflag::PREPARED;
use crate::remoting::codes::{language, request};
use crate::remoting::frame::PREFIX_BYTES;
use crate::remoting::header::HeaderWriter;
use crate::remoting::{Encoding, FrameError};
use crate::requests::credentials::Credentials;
use crate::requests::end_transaction::{COMMIT, EndTransactionHeader};
use crate::requests::pull::{PullHeader, SUBSCRIPTION};
use crate::requests::send::{SendHeader, SendOrigin};

/// Opaque of slot 0. JSON numbers have no leading zeros, so values are chosen that all have ten digits.
pub(super) const OPAQUE_BASE: u32 = 1_000_000_000;
/// Where a binary header has its opaque: behind code, language and version.
const BINARY_OPAQUE_AT: usize = PREFIX_BYTES + 5;
/// Stands where the offset of a pull will be, and has as many digits as any offset may have.
const OFFSET_MARK: i64 = i64::MAX;
const OFFSET_DIGITS: usize = 19;
/// The part of a unique id that stays: an address and a process, as clients write them, that mean nothing here.
const ID_PREFIX: &str = "AC1100010001";
/// Stands where the counter of a unique id will be; neither topics nor groups can hold such characters.
const ID_MARK: &str = "!!!!!!!!";

/// Queues of a connection have messages of their own millisecond of the second in which all are due.
const SECOND_MS: u64 = 1_000;

/// A frame, written once; what is sent are copies with other numbers, signed where the plan has credentials.
#[derive(Debug)]
struct Prepared {
    bytes: Vec<u8>,
    encoding: Encoding,
    opaque_at: usize,
    /// Where its body begins.
    body_at: usize,
    credentials: Option<Credentials>,
}

impl Prepared {
    /// Fails when it does not fit a frame, or has more fields than can be signed.
    fn new(
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
        let body_at = bytes.len();
        if let Some(credentials) = &plan.credentials {
            credentials.sign_head(&mut bytes.clone(), body).map_err(refused)?;
        }
        bytes.extend_from_slice(body);
        let opaque_at = opaque_at(&bytes, plan.encoding);
        let (encoding, credentials) = (plan.encoding, plan.credentials.clone());
        Ok(Self { bytes, encoding, opaque_at, body_at, credentials })
    }

    /// Appends a copy that `change` has given its numbers.
    fn put(&self, out: &mut Vec<u8>, opaque: u32, change: impl FnOnce(&mut [u8])) {
        let start = out.len();
        out.extend_from_slice(&self.bytes);
        let Some(frame) = out.get_mut(start..) else { return };
        write_opaque(frame, self.encoding, self.opaque_at, opaque);
        change(frame);
        if let (Some(credentials), Some((head, body))) =
            (&self.credentials, frame.split_at_mut_checked(self.body_at))
        {
            // It has as many fields as the one that was signed at first; a server that misses the signature says so.
            let _ = credentials.sign_head(head, body);
        }
    }
}

/// One request, ready but for its numbers.
#[derive(Debug)]
pub(super) struct Template {
    frame: Prepared,
    /// Counters of unique ids: one for a message, one for a batch and each message in it.
    ids_at: Vec<usize>,
    offset_at: Option<usize>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Numbers<'a> {
    pub(super) opaque: u32,
    pub(super) offset: u64,
    /// Counts the unique ids of the connection.
    pub(super) id: &'a std::cell::Cell<u32>,
}

impl Template {
    /// The request of `plan` to one queue. Ids of different `writers` differ. Fails when it does not fit a frame.
    pub(super) fn new(
        plan: &Plan,
        target: &Target,
        at: Position,
        writer: u32,
        now_ms: u64,
    ) -> Result<Self, LoadError> {
        let id = format!("{ID_PREFIX}{writer:04X}{:08X}{ID_MARK}", now_ms as u32);
        match plan.work {
            Work::Produce { .. } | Work::Transact { .. } => {
                let is_half = matches!(plan.work, Work::Transact { .. });
                let body = produce_body(plan, &id);
                let mut properties = properties(&id);
                if let Some(due_ms) = plan.due_ms {
                    let within = (u64::from(writer) * 37 + u64::from(at.queue) * 251) % SECOND_MS;
                    properties += &format!("TIMER_DELIVER_MS\u{1}{}\u{2}", due_ms + within);
                }
                if is_half {
                    properties += &format!("TRAN_MSG\u{1}true\u{2}PGROUP\u{1}{}\u{2}", plan.group);
                }
                let send = SendHeader {
                    topic: &plan.topic,
                    queue_id: at.queue as i32,
                    sys_flag: if is_half { PREPARED } else { 0 },
                    born_timestamp_ms: now_ms as i64,
                    properties: &properties,
                    is_batch: plan.messages_each() > 1,
                    ..SendHeader::default()
                };
                let origin = SendOrigin { group: &plan.group, template_queues: 4, broker: &target.broker };
                let frame = Prepared::new(plan, send.code(), &body, |header| send.encode(&origin, header))?;
                let ids_at = memmem::find_iter(&frame.bytes, ID_MARK.as_bytes()).collect();
                Ok(Self { frame, ids_at, offset_at: None })
            }
            Work::Consume { messages_max } => {
                // The subscription travels with the pull; nothing is committed, nothing waits.
                let pull = PullHeader {
                    group: &plan.group,
                    topic: &plan.topic,
                    queue_id: at.queue as i32,
                    offset: OFFSET_MARK,
                    messages_max: messages_max as i32,
                    sys_flag: SUBSCRIPTION,
                    expression: Some("*"),
                    expression_type: "TAG",
                    ..PullHeader::default()
                };
                let frame = Prepared::new(plan, request::PULL_MESSAGE, &[], |header| pull.encode(header))?;
                // The last: a topic that is called like the mark stands before it.
                let offset_at = memmem::rfind(&frame.bytes, OFFSET_MARK.to_string().as_bytes());
                Ok(Self { frame, ids_at: Vec::new(), offset_at })
            }
        }
    }

    pub(super) fn put(&self, out: &mut Vec<u8>, numbers: Numbers<'_>) {
        self.frame.put(out, numbers.opaque, |frame| {
            for &at in &self.ids_at {
                let id = numbers.id.get();
                numbers.id.set(id.wrapping_add(1));
                write_at(frame, at, &hexadecimal(id));
            }
            if let Some(at) = self.offset_at {
                write_at(frame, at, &decimal::<OFFSET_DIGITS>(numbers.offset));
            }
        });
    }
}

/// The commit of a half message, ready but for its numbers.
#[derive(Debug)]
pub(super) struct Commit {
    frame: Prepared,
    queue_offset_at: usize,
    position_at: usize,
}

impl Commit {
    /// Fails when it does not fit a frame.
    pub(super) fn new(plan: &Plan) -> Result<Self, LoadError> {
        // Two marks that differ and have all digits of an offset; 0, and -1 where there is none, have too few.
        let marks = [OFFSET_MARK, OFFSET_MARK - 1];
        let [queue_offset, offset] = marks;
        let end = EndTransactionHeader {
            group: &plan.group,
            queue_offset,
            offset,
            decision: COMMIT,
            is_checked: false,
        };
        // Brokers want an id, and do not look at it.
        let frame =
            Prepared::new(plan, request::END_TRANSACTION, &[], |header| end.encode(ID_PREFIX, header))?;
        let [queue_offset_at, position_at] = marks.map(|mark| {
            memmem::rfind(&frame.bytes, mark.to_string().as_bytes()).unwrap_or(frame.bytes.len())
        });
        Ok(Self { frame, queue_offset_at, position_at })
    }

    pub(super) fn put(&self, out: &mut Vec<u8>, opaque: u32, half: StoredHalf) {
        self.frame.put(out, opaque, |frame| {
            write_at(frame, self.queue_offset_at, &decimal::<OFFSET_DIGITS>(half.queue_offset));
            write_at(frame, self.position_at, &decimal::<OFFSET_DIGITS>(half.position));
        });
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

fn properties(id: &str) -> String {
    format!("UNIQ_KEY\u{1}{id}\u{2}WAIT\u{1}true\u{2}")
}

fn produce_body(plan: &Plan, id: &str) -> Vec<u8> {
    let (body_bytes, batch) = match plan.work {
        Work::Produce { body_bytes, batch } => (body_bytes, batch),
        Work::Transact { body_bytes } => (body_bytes, 1),
        Work::Consume { .. } => (0, 1),
    };
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
