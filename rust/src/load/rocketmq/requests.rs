//! Requests made once: a template knows where its numbers stand, and sending one is a copy and a few digits.
//!
//! Offsets are padded with zeros; unique ids end in a counter of eight hexadecimal digits.

use super::super::plan::{LoadError, Plan, Position, Target, Work};
use super::answers::StoredHalf;
use super::prepared::{Place, Prepared, decimal};
use crate::message::batch::InnerMessage;
use crate::message::sysflag::PREPARED;
use crate::remoting::codes::request;
use crate::requests::end_transaction::{COMMIT, EndTransactionHeader};
use crate::requests::pull::{PullHeader, SUBSCRIPTION};
use crate::requests::send::{SendHeader, SendOrigin};

/// Stands where the offset of a pull will be, and has as many digits as any offset may have.
const OFFSET_MARK: i64 = i64::MAX;
const OFFSET_DIGITS: usize = 19;
/// The part of a unique id that stays: an address and a process, as clients write them, that mean nothing here.
const ID_PREFIX: &str = "AC1100010001";
/// Stands where the counter of a unique id will be; neither topics nor groups can hold such characters.
const ID_MARK: &str = "!!!!!!!!";

/// Queues of a connection have messages of their own millisecond of the second in which all are due.
const SECOND_MS: u64 = 1_000;

/// One request, ready but for its numbers.
#[derive(Debug)]
pub(super) struct Template {
    frame: Prepared,
    /// Counters of unique ids: one for a message, one for a batch and each message in it.
    ids_at: Vec<Place>,
    offset_at: Option<Place>,
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
                let ids_at = frame.places(ID_MARK.as_bytes());
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
                let offset_at = frame.places(OFFSET_MARK.to_string().as_bytes()).pop();
                Ok(Self { frame, ids_at: Vec::new(), offset_at })
            }
        }
    }

    pub(super) fn put(&self, out: &mut Vec<u8>, numbers: Numbers<'_>) {
        self.frame.put(out, numbers.opaque, |copy| {
            for &at in &self.ids_at {
                let id = numbers.id.get();
                numbers.id.set(id.wrapping_add(1));
                copy.write(at, &hexadecimal(id));
            }
            if let Some(at) = self.offset_at {
                copy.write(at, &decimal::<OFFSET_DIGITS>(numbers.offset));
            }
        });
    }
}

/// The commit of a half message, ready but for its numbers.
#[derive(Debug)]
pub(super) struct Commit {
    frame: Prepared,
    queue_offset_at: Option<Place>,
    position_at: Option<Place>,
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
        let [queue_offset_at, position_at] =
            marks.map(|mark| frame.places(mark.to_string().as_bytes()).pop());
        Ok(Self { frame, queue_offset_at, position_at })
    }

    pub(super) fn put(&self, out: &mut Vec<u8>, opaque: u32, half: StoredHalf) {
        self.frame.put(out, opaque, |copy| {
            for (place, number) in
                [(self.queue_offset_at, half.queue_offset), (self.position_at, half.position)]
            {
                place.into_iter().for_each(|place| copy.write(place, &decimal::<OFFSET_DIGITS>(number)));
            }
        });
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

fn hexadecimal(mut number: u32) -> [u8; 8] {
    let mut text = [0; 8];
    for digit in text.iter_mut().rev() {
        let nibble = (number & 15) as u8;
        *digit = nibble + if nibble < 10 { b'0' } else { b'A' - 10 };
        number >>= 4;
    }
    text
}
