//! RocketMQ load protocol: sends (codes 310 and 320), transactions (310 and 37), pulls (11) and pops (200050 and 200051
//! or 200151), in either header encoding, for the load generator of the crate `rmqpy-load`.

mod answers;
mod options;
mod popping;
mod prepared;
mod requests;

use std::cell::Cell;
use std::io;
use std::net::TcpStream;

use rmqpy_load::{Answer, LoadError, Outcome, Plan, Position, Protocol, Stream, Target, Work};

use crate::clock::SystemClock;
use crate::remoting::codes::response;
use crate::remoting::frame::{self, Frame, FrameLimits};
use crate::tls::BlockingStream;
pub use options::RocketMqOptions;

use answers::{AnswerReader, records};
use popping::Acknowledger;
use prepared::OPAQUE_BASE;
use requests::{Commit, Numbers, Template};

/// One connection's requests, and the positions of its readers.
#[derive(Debug)]
pub struct RocketMq {
    work: Work,
    queues: Vec<Queue>,
    places: Vec<Place>,
    /// Of transactions.
    commit: Option<Commit>,
    /// Slots whose half message is stored and whose commit is in flight.
    committing: Vec<bool>,
    /// Of pops.
    acknowledger: Option<Acknowledger>,
    /// Slots whose acknowledgement is in flight, with the number of messages and their bytes.
    acknowledging: Vec<Option<(u64, u64)>>,
    /// The next queue of a sending connection.
    turn: usize,
    id: Cell<u32>,
    reader: AnswerReader,
}

/// The request to one queue.
#[derive(Debug)]
struct Queue {
    template: Template,
    /// The first offset of its readers.
    begin: u64,
}

/// The position of one slot's pulls.
#[derive(Clone, Copy, Debug)]
struct Place {
    queue: usize,
    offset: u64,
}

impl Stream for BlockingStream {
    fn socket(&self) -> &TcpStream {
        self.socket()
    }
}

impl Protocol for RocketMq {
    type Stream = BlockingStream;
    type Options = RocketMqOptions;

    fn stream(options: &RocketMqOptions, socket: TcpStream, address: &str) -> io::Result<BlockingStream> {
        match &options.tls {
            Some(tls) => BlockingStream::through(socket, tls, address),
            None => Ok(BlockingStream::plain(socket)),
        }
    }

    fn open(
        plan: &Plan,
        options: &RocketMqOptions,
        target: &Target,
        number: usize,
        _: &mut BlockingStream,
    ) -> Result<Self, LoadError> {
        let now_ms = SystemClock::shared().wall_ms();
        let queue = |at: &Position| {
            let template = Template::new(plan, options, target, *at, number as u32, now_ms)?;
            Ok(Queue { template, begin: at.begin })
        };
        let queues = target.queues.iter().map(queue).collect::<Result<Vec<_>, _>>()?;
        // Connections of one broker begin with different queues.
        let turn = number / plan.targets.len();
        let place = |slot: usize| {
            let queue = (turn * plan.window + slot) % queues.len();
            Place { queue, offset: queues.get(queue).map_or(0, |queue| queue.begin) }
        };
        let commits = matches!(plan.work, Work::Transact { .. });
        let pops = matches!(plan.work, Work::Pop { .. });
        Ok(Self {
            work: plan.work,
            commit: commits.then(|| Commit::new(plan, options)).transpose()?,
            committing: vec![false; if commits { plan.window } else { 0 }],
            acknowledger: pops.then(|| Acknowledger::new(plan, options, target)),
            acknowledging: vec![None; if pops { plan.window } else { 0 }],
            places: (0..plan.window).map(place).collect(),
            queues,
            turn,
            id: Cell::new(0),
            reader: AnswerReader::new(),
        })
    }

    fn ask(&mut self, slot: usize, out: &mut Vec<u8>) {
        let Some(place) = self.places.get(slot) else { return };
        let queue = match self.work {
            Work::Produce { .. } | Work::Transact { .. } => {
                let next = self.turn % self.queues.len();
                self.turn = next + 1;
                next
            }
            Work::Consume { .. } | Work::Pop { .. } => place.queue,
        };
        if let Some(queue) = self.queues.get(queue) {
            let numbers = Numbers { opaque: OPAQUE_BASE + slot as u32, offset: place.offset, id: &self.id };
            queue.template.put(out, numbers);
        }
    }

    fn size(bytes: &[u8]) -> Result<Option<usize>, String> {
        frame::size(bytes, &FrameLimits::default()).map_err(|error| error.to_string())
    }

    fn read(&mut self, frame: &[u8], out: &mut Vec<u8>) -> Result<Option<Answer>, String> {
        let frame = split(frame)?;
        let head = self.reader.read(&frame).map_err(|error| error.to_string())?;
        let slot = u32::try_from(head.opaque).ok().and_then(|opaque| opaque.checked_sub(OPAQUE_BASE));
        let slot = slot.ok_or("a response without a request")? as usize;
        let outcome = match (self.work, head.code) {
            (Work::Produce { body_bytes, batch }, code) if is_stored(code) => {
                Outcome::Done { messages: batch as u64, bytes: (batch * body_bytes) as u64 }
            }
            (Work::Transact { body_bytes }, code) => {
                let Some(is_committing) = self.committing.get_mut(slot) else {
                    return Err("a response without a request".to_owned());
                };
                let was_committing = std::mem::take(is_committing);
                if was_committing && code == response::SUCCESS {
                    Outcome::Done { messages: 1, bytes: body_bytes as u64 }
                } else if !was_committing && is_stored(code) {
                    *is_committing = true;
                    let half = self.reader.half(&frame)?;
                    if let Some(commit) = &self.commit {
                        commit.put(out, OPAQUE_BASE + slot as u32, half);
                    }
                    return Ok(None);
                } else {
                    Outcome::Refused(code)
                }
            }
            (Work::Consume { .. }, response::SUCCESS) => {
                let messages = records(frame.body);
                self.advance(slot, messages);
                Outcome::Done { messages, bytes: frame.body.len() as u64 }
            }
            (
                Work::Consume { .. },
                response::PULL_NOT_FOUND | response::PULL_RETRY_IMMEDIATELY | response::PULL_OFFSET_MOVED,
            ) => {
                self.rewind(slot);
                Outcome::Empty
            }
            (Work::Pop { .. }, code) => match self.popped(slot, code, &frame, out)? {
                Some(outcome) => outcome,
                None => return Ok(None),
            },
            (_, code) => Outcome::Refused(code),
        };
        Ok(Some(Answer { slot, outcome }))
    }

    fn remark(&mut self, frame: &[u8]) -> String {
        split(frame).map_or_else(|error| error, |frame| self.reader.remark(&frame))
    }
}

impl RocketMq {
    fn advance(&mut self, slot: usize, messages: u64) {
        if let Some(place) = self.places.get_mut(slot) {
            place.offset += messages;
        }
    }

    /// Reads the answer to a pop or to its acknowledgement; `None` where the acknowledgement is sent now.
    fn popped(
        &mut self,
        slot: usize,
        code: i32,
        frame: &Frame<'_>,
        out: &mut Vec<u8>,
    ) -> Result<Option<Outcome>, String> {
        let Some(acknowledging) = self.acknowledging.get_mut(slot) else {
            return Err("a response without a request".to_owned());
        };
        let outcome = match (acknowledging.take(), code, &self.acknowledger) {
            (Some((messages, bytes)), response::SUCCESS, _) => Outcome::Done { messages, bytes },
            (None, response::SUCCESS, Some(acknowledger)) => {
                let messages = acknowledger.put(self.reader.header(frame)?, slot, out)?;
                *acknowledging = Some((messages, frame.body.len() as u64));
                return Ok(None);
            }
            (None, response::POLLING_TIMEOUT | response::POLLING_FULL | response::PULL_NOT_FOUND, _) => {
                Outcome::Empty
            }
            (_, code, _) => Outcome::Refused(code),
        };
        Ok(Some(outcome))
    }

    fn rewind(&mut self, slot: usize) {
        if let Some(place) = self.places.get_mut(slot) {
            place.offset = self.queues.get(place.queue).map_or(0, |queue| queue.begin);
        }
    }
}

/// Returns whether the message was stored. The last three codes report a slow disk or replica.
fn is_stored(code: i32) -> bool {
    matches!(
        code,
        response::SUCCESS
            | response::FLUSH_DISK_TIMEOUT
            | response::SLAVE_NOT_AVAILABLE
            | response::FLUSH_SLAVE_TIMEOUT
    )
}

fn split(frame: &[u8]) -> Result<Frame<'_>, String> {
    match frame::split(frame, &FrameLimits::default()) {
        Ok(Some((frame, _))) => Ok(frame),
        Ok(None) => Err("a frame without a header".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}
