//! Kafka's protocol, as a load speaks it: Produce (version 3) with `acks=1`, and Fetch (version 4) that waits for nothing.
//!
//! A request is made once; sending it is a copy with the correlation id, and for a fetch the offset, in its place. Old
//! versions of both requests, of those that every broker takes: they have fixed places, and the batches in them are
//! the same.

use std::time::{Duration, Instant, SystemTime};

use rmqpy::load::{Answer, LoadError, Outcome, Plan, Protocol, Target, Work};
use rmqpy::tls::BlockingStream;

use crate::greeting::Greeting;
use crate::{body, record_batch};

const PRODUCE: (i16, i16) = (0, 3);
const FETCH: (i16, i16) = (1, 4);
/// Makes a topic that there is not, with as many partitions as the broker's settings say.
const METADATA: (i16, i16) = (3, 1);
const CLIENT_ID: &str = "bench";
const CORRELATION_AT: usize = 8;
const ACKS: i16 = 1;
const TIMEOUT_MS: i32 = 10_000;
/// Messages whose sizes the limit of a fetch is made of: of 128 bytes, stored one by one, as the comparison has them.
const FETCHED_BODY_BYTES: usize = 128;
const LOOK_INTERVAL: Duration = Duration::from_millis(20);
const FRAME_BYTES_MAX: usize = 64 << 20;

/// One connection's requests, and where its readers are.
pub struct Kafka {
    work: Work,
    /// One for each partition.
    requests: Vec<Vec<u8>>,
    places: Vec<Place>,
    turn: usize,
    topic_bytes: usize,
}

#[derive(Clone, Copy)]
struct Place {
    partition: usize,
    offset: u64,
}

impl Protocol for Kafka {
    fn open(
        plan: &Plan,
        target: &Target,
        number: usize,
        stream: &mut BlockingStream,
    ) -> Result<Self, LoadError> {
        if let Work::Transact { .. } = plan.work {
            return Err(LoadError::Plan("Kafka has no half messages"));
        }
        let mut greeting = Greeting::new(stream, &target.address);
        let partitions = target.queues.len();
        (0..partitions).try_for_each(|partition| readable(&mut greeting, plan, partition))?;
        let request = |partition: usize| match plan.work {
            Work::Produce { body_bytes, batch } => produce(&plan.topic, partition, &body(body_bytes), batch),
            Work::Transact { .. } => Vec::new(),
            Work::Consume { messages_max } => fetch(&plan.topic, partition, messages_max),
        };
        let place = |slot: usize| Place { partition: (number * plan.window + slot) % partitions, offset: 0 };
        Ok(Self {
            work: plan.work,
            requests: (0..partitions).map(request).collect(),
            places: (0..plan.window).map(place).collect(),
            turn: number,
            topic_bytes: plan.topic.len(),
        })
    }

    fn ask(&mut self, slot: usize, out: &mut Vec<u8>) {
        let Some(place) = self.places.get(slot) else { return };
        let is_fetch = matches!(self.work, Work::Consume { .. });
        let partition = if is_fetch { place.partition } else { self.turn % self.requests.len() };
        self.turn = partition + 1;
        let Some(request) = self.requests.get(partition) else { return };
        let start = out.len();
        out.extend_from_slice(request);
        put(out, start + CORRELATION_AT, &(slot as i32).to_be_bytes());
        if is_fetch {
            // In front of the limit, which ends the request.
            put(out, start + request.len() - 12, &place.offset.to_be_bytes());
        }
    }

    fn size(bytes: &[u8]) -> Result<Option<usize>, String> {
        let Some(length) = bytes.first_chunk() else { return Ok(None) };
        match usize::try_from(i32::from_be_bytes(*length)) {
            Ok(length) if (4..FRAME_BYTES_MAX).contains(&length) => Ok(Some(4 + length)),
            _ => Err("an answer of an impossible size".to_owned()),
        }
    }

    fn read(&mut self, frame: &[u8], _: &mut Vec<u8>) -> Result<Option<Answer>, String> {
        let read = match self.work {
            Work::Produce { .. } | Work::Transact { .. } => {
                produced(frame, self.topic_bytes).map(|(slot, code)| (slot, code, &[][..]))
            }
            Work::Consume { .. } => fetched(frame, self.topic_bytes),
        };
        let (slot, code, records) = read.ok_or("an answer that ends too early")?;
        let slot = usize::try_from(slot).map_err(|_| "an answer to nothing that was asked")?;
        let outcome = match (self.work, code) {
            (Work::Produce { body_bytes, batch }, 0) => {
                Outcome::Done { messages: batch as u64, bytes: (batch * body_bytes) as u64 }
            }
            (Work::Consume { .. }, 0) => self.arrived(slot, records),
            (_, code) => Outcome::Refused(code.into()),
        };
        Ok(Some(Answer { slot, outcome }))
    }

    fn remark(&mut self, _: &[u8]) -> String {
        "see the table of error codes in Kafka's protocol guide".to_owned()
    }
}

impl Kafka {
    fn arrived(&mut self, slot: usize, records: &[u8]) -> Outcome {
        let (messages, next) = record_batch::count(records);
        if let Some(place) = self.places.get_mut(slot) {
            place.offset = next.unwrap_or_default();
        }
        if messages > 0 { Outcome::Done { messages, bytes: records.len() as u64 } } else { Outcome::Empty }
    }
}

/// Waits until there is the partition: its leader takes requests only some milliseconds after it is known.
fn readable(greeting: &mut Greeting<'_>, plan: &Plan, partition: usize) -> Result<(), LoadError> {
    let deadline = Instant::now() + plan.timeout;
    loop {
        // The answer to the first does not matter: it makes the topic.
        greeting.say(&metadata(&plan.topic))?;
        greeting.hear::<Kafka>()?;
        greeting.say(&fetch(&plan.topic, partition, 1))?;
        if let Some((_, 0, _)) = fetched(&greeting.hear::<Kafka>()?, plan.topic.len()) {
            return Ok(());
        }
        if Instant::now() > deadline {
            return Err(greeting.failed(&format!("partition {partition} of the topic cannot be read")));
        }
        std::thread::sleep(LOOK_INTERVAL);
    }
}

fn metadata(topic: &str) -> Vec<u8> {
    request(METADATA, |body| {
        body.extend_from_slice(&1_i32.to_be_bytes());
        string(body, topic);
    })
}

fn produce(topic: &str, partition: usize, message: &[u8], batch: usize) -> Vec<u8> {
    let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let records = record_batch::encode(message, batch, since_1970.as_millis() as i64);
    request(PRODUCE, |body| {
        // No transaction.
        body.extend_from_slice(&(-1_i16).to_be_bytes());
        body.extend_from_slice(&ACKS.to_be_bytes());
        body.extend_from_slice(&TIMEOUT_MS.to_be_bytes());
        one_partition(body, topic, partition);
        body.extend_from_slice(&(records.len() as i32).to_be_bytes());
        body.extend_from_slice(&records);
    })
}

fn fetch(topic: &str, partition: usize, messages_max: usize) -> Vec<u8> {
    let bytes_max = (messages_max * record_batch::encode(&body(FETCHED_BODY_BYTES), 1, 0).len()) as i32;
    request(FETCH, |body| {
        // A consumer, not a replica; nothing is waited for; what is not committed is read, too.
        body.extend_from_slice(&(-1_i32).to_be_bytes());
        body.extend_from_slice(&0_i32.to_be_bytes());
        body.extend_from_slice(&0_i32.to_be_bytes());
        body.extend_from_slice(&bytes_max.to_be_bytes());
        body.push(0);
        one_partition(body, topic, partition);
        body.extend_from_slice(&0_i64.to_be_bytes());
        body.extend_from_slice(&bytes_max.to_be_bytes());
    })
}

/// Size, key, version, correlation id, client id, and what `write` adds.
fn request((key, version): (i16, i16), write: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut frame = vec![0; 4];
    frame.extend_from_slice(&key.to_be_bytes());
    frame.extend_from_slice(&version.to_be_bytes());
    frame.extend_from_slice(&0_i32.to_be_bytes());
    string(&mut frame, CLIENT_ID);
    write(&mut frame);
    let length = (frame.len() - 4) as i32;
    put(&mut frame, 0, &length.to_be_bytes());
    frame
}

/// An array of one topic with an array of one partition.
fn one_partition(out: &mut Vec<u8>, topic: &str, partition: usize) {
    out.extend_from_slice(&1_i32.to_be_bytes());
    string(out, topic);
    out.extend_from_slice(&1_i32.to_be_bytes());
    out.extend_from_slice(&(partition as i32).to_be_bytes());
}

fn string(out: &mut Vec<u8>, text: &str) {
    out.extend_from_slice(&(text.len() as i16).to_be_bytes());
    out.extend_from_slice(text.as_bytes());
}

fn put(out: &mut [u8], at: usize, bytes: &[u8]) {
    if let Some(place) = out.get_mut(at..at + bytes.len()) {
        place.copy_from_slice(bytes);
    }
}

/// An answer, read from its front.
struct FrameReader<'a>(&'a [u8]);

impl<'a> FrameReader<'a> {
    fn take(&mut self, size: usize) -> Option<&'a [u8]> {
        let (front, rest) = self.0.split_at_checked(size)?;
        self.0 = rest;
        Some(front)
    }

    fn i16(&mut self) -> Option<i16> {
        self.take(2)?.first_chunk().map(|bytes| i16::from_be_bytes(*bytes))
    }

    fn i32(&mut self) -> Option<i32> {
        self.take(4)?.first_chunk().map(|bytes| i32::from_be_bytes(*bytes))
    }

    /// The length of what follows; what is null has none.
    fn length(&mut self) -> Option<usize> {
        self.i32().map(|length| usize::try_from(length).unwrap_or_default())
    }
}

/// Correlation id and error code of a Produce that named one partition.
fn produced(frame: &[u8], topic_bytes: usize) -> Option<(i32, i16)> {
    let mut reader = FrameReader(frame.get(4..)?);
    let correlation = reader.i32()?;
    // Counts of topics and partitions, a name with its length, the partition.
    reader.take(4 + 2 + topic_bytes + 4 + 4)?;
    Some((correlation, reader.i16()?))
}

/// Correlation id, error code and records of a Fetch that named one partition.
fn fetched(frame: &[u8], topic_bytes: usize) -> Option<(i32, i16, &[u8])> {
    let mut reader = FrameReader(frame.get(4..)?);
    let correlation = reader.i32()?;
    // As above, behind the time of throttling.
    reader.take(4 + 4 + 2 + topic_bytes + 4 + 4)?;
    let code = reader.i16()?;
    // High watermark and last stable offset; aborted transactions are pairs of numbers.
    reader.take(8 + 8)?;
    let aborted = reader.length()?;
    reader.take(16 * aborted)?;
    let length = reader.length()?;
    Some((correlation, code, reader.take(length)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(work: Work) -> Kafka {
        let requests = vec![match work {
            Work::Produce { body_bytes, batch } => produce("t", 0, &body(body_bytes), batch),
            Work::Transact { .. } => Vec::new(),
            Work::Consume { messages_max } => fetch("t", 0, messages_max),
        }];
        Kafka { work, requests, places: vec![Place { partition: 0, offset: 7 }; 2], turn: 0, topic_bytes: 1 }
    }

    /// An answer whose size is right.
    fn answer(parts: &[&[u8]]) -> Vec<u8> {
        let rest = parts.concat();
        [&(rest.len() as i32).to_be_bytes()[..], &rest].concat()
    }

    /// One topic called t, with one partition: number 0.
    const ONE: &[u8] = &[0, 0, 0, 1, 0, 1, b't', 0, 0, 0, 1, 0, 0, 0, 0];

    #[test]
    fn a_fetch_says_which_slot_asks_and_from_where() {
        let mut out = vec![9];
        one(Work::Consume { messages_max: 32 }).ask(1, &mut out);
        let limit = 32 * (61 + 2 + 5 + 2 + 128_i32);
        let expected = answer(&[
            &[0, 1, 0, 4, 0, 0, 0, 1, 0, 5],
            b"bench",
            &[0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0, 0],
            &limit.to_be_bytes(),
            &[0],
            ONE,
            &[0, 0, 0, 0, 0, 0, 0, 7],
            &limit.to_be_bytes(),
        ]);
        assert_eq!(out[1..], expected);
    }

    #[test]
    fn a_send_that_the_broker_refuses_does_not_count() {
        let mut kafka = one(Work::Produce { body_bytes: 10, batch: 4 });
        let mut outcome = |code: i16| {
            let frame = answer(&[&[0, 0, 0, 1], ONE, &code.to_be_bytes(), &[0; 20]]);
            kafka.read(&frame, &mut Vec::new()).unwrap().unwrap()
        };
        assert_eq!(outcome(0), Answer { slot: 1, outcome: Outcome::Done { messages: 4, bytes: 40 } });
        assert_eq!(outcome(2), Answer { slot: 1, outcome: Outcome::Refused(2) });
        assert_eq!(outcome(-1), Answer { slot: 1, outcome: Outcome::Refused(-1) });
        assert!(kafka.read(&answer(&[&[0, 0, 0, 1], ONE]), &mut Vec::new()).is_err());
    }

    #[test]
    fn a_reader_goes_on_behind_what_came_and_starts_again_at_the_end() {
        let mut kafka = one(Work::Consume { messages_max: 32 });
        let mut records = record_batch::encode(b"x", 5, 0);
        records[..8].copy_from_slice(&7_i64.to_be_bytes());
        let mut read = |records: &[u8]| {
            let length = (records.len() as i32).to_be_bytes();
            let frame =
                answer(&[&[0; 8], ONE, &[0, 0], &[0; 16], &[0xff, 0xff, 0xff, 0xff], &length, records]);
            let outcome = kafka.read(&frame, &mut Vec::new()).unwrap().unwrap().outcome;
            (outcome, kafka.places[0].offset)
        };
        let bytes = records.len() as u64;
        assert_eq!(read(&records), (Outcome::Done { messages: 5, bytes }, 12));
        assert_eq!(read(&[]), (Outcome::Empty, 0));
    }
}
