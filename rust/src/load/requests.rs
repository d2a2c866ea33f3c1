//! Request templates: requests built once, sent as copies with a few changed digits.
//!
//! Offsets are padded with zeros; unique ids end in a counter of eight hexadecimal digits.

use rmqpy_load::{LoadError, Plan, Position, Target, Work};

use super::answers::StoredHalf;
use super::options::RocketMqOptions;
use super::popping;
use super::prepared::{Place, Prepared, decimal};
use crate::message::batch::InnerMessage;
use crate::message::sysflag::PREPARED;
use crate::remoting::codes::request;
use crate::requests::end_transaction::{COMMIT, EndTransactionHeader};
use crate::requests::pull::{PullHeader, SUBSCRIPTION};
use crate::requests::send::{SendHeader, SendOrigin};

/// Placeholder of a pull's offset, as long as any offset.
const OFFSET_MARK: i64 = i64::MAX;
const OFFSET_DIGITS: usize = 19;
/// The constant part of a unique id: an arbitrary address and process, in the layout of clients.
const ID_PREFIX: &str = "AC1100010001";
/// Placeholder of a unique id's counter; topics and groups cannot contain these characters.
const ID_MARK: &str = "!!!!!!!!";

/// The messages of each queue of a connection have their own millisecond of the second in which all are due.
const SECOND_MS: u64 = 1_000;

/// A request, complete except for its numbers.
#[derive(Debug)]
pub(super) struct Template {
    frame: Prepared,
    /// Counters of unique ids: one for a message, or one for a batch and each message in it.
    ids_at: Vec<Place>,
    offset_at: Option<Place>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Numbers<'a> {
    pub(super) opaque: u32,
    pub(super) offset: u64,
    /// The counter of the connection's unique ids.
    pub(super) id: &'a std::cell::Cell<u32>,
}

impl Template {
    /// Builds the request of `plan` to one queue. Ids of different `writers` differ. Fails when it does not fit a
    /// frame.
    pub(super) fn new(
        plan: &Plan,
        options: &RocketMqOptions,
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
                let frame =
                    Prepared::new(options, send.code(), &body, |header| send.encode(&origin, header))?;
                let ids_at = frame.places(ID_MARK.as_bytes());
                Ok(Self { frame, ids_at, offset_at: None })
            }
            Work::Consume { messages_max } => {
                // The subscription is part of the pull; the pull neither commits nor waits.
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
                let frame = Prepared::new(options, request::PULL_MESSAGE, &[], |header| pull.encode(header))?;
                // The last place: a topic named like the placeholder comes before it.
                let offset_at = frame.places(OFFSET_MARK.to_string().as_bytes()).pop();
                Ok(Self { frame, ids_at: Vec::new(), offset_at })
            }
            Work::Pop { messages_max } => {
                let frame = popping::pop(plan, options, messages_max)?;
                Ok(Self { frame, ids_at: Vec::new(), offset_at: None })
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

/// The commit of a half message, complete except for its numbers.
#[derive(Debug)]
pub(super) struct Commit {
    frame: Prepared,
    queue_offset_at: Option<Place>,
    position_at: Option<Place>,
}

impl Commit {
    /// Fails when it does not fit a frame.
    pub(super) fn new(plan: &Plan, options: &RocketMqOptions) -> Result<Self, LoadError> {
        // Two different placeholders with all digits of an offset; 0 and -1 have too few.
        let marks = [OFFSET_MARK, OFFSET_MARK - 1];
        let [queue_offset, offset] = marks;
        let end = EndTransactionHeader {
            group: &plan.group,
            queue_offset,
            offset,
            decision: COMMIT,
            is_checked: false,
        };
        // Brokers require an id and ignore it.
        let frame =
            Prepared::new(options, request::END_TRANSACTION, &[], |header| end.encode(ID_PREFIX, header))?;
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
        Work::Consume { .. } | Work::Pop { .. } => (0, 1),
    };
    // Text that compresses poorly and contains no placeholder.
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
