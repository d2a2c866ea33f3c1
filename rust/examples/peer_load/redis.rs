//! Redis with streams, as a load speaks it: entries that are added one by one, and read in pieces.
//!
//! A stream stands for each queue, `TOPIC-0` and so on. Answers come in the order of the requests and name none, so that
//! the slots under way are kept in a line. A reader remembers the last entry it was given; at the end it begins anew.

use std::collections::VecDeque;

use memchr::memchr;
use rmqpy::load::{Answer, LoadError, Outcome, Plan, Protocol, Target, Work};
use rmqpy::tls::BlockingStream;

use crate::{body, line};

/// Before the first entry.
const BEGIN: &[u8] = b"0-0";
/// All that Redis says of a refusal is text.
const REFUSED: i32 = 1;

/// One connection's requests, and the slots they are of.
pub struct Redis {
    work: Work,
    /// The stream of each slot.
    streams: Vec<String>,
    /// Where the reader of each slot is.
    last: Vec<Vec<u8>>,
    payload: Vec<u8>,
    asked: VecDeque<usize>,
}

impl Protocol for Redis {
    fn open(plan: &Plan, target: &Target, number: usize, _: &mut BlockingStream) -> Result<Self, LoadError> {
        match plan.work {
            Work::Produce { batch: 2.., .. } => {
                return Err(LoadError::Plan("Redis has no request that adds several entries"));
            }
            Work::Transact { .. } => return Err(LoadError::Plan("Redis has no half messages")),
            Work::Produce { .. } | Work::Consume { .. } => {}
        }
        let names: Vec<_> = target.queues.iter().map(|at| format!("{}-{}", plan.topic, at.queue)).collect();
        Ok(Self::new(plan.work, plan.window, number, &names))
    }

    fn ask(&mut self, slot: usize, out: &mut Vec<u8>) {
        let (Some(stream), Some(last)) = (self.streams.get(slot), self.last.get(slot)) else { return };
        match self.work {
            Work::Consume { messages_max } => {
                let count = messages_max.to_string();
                command(out, &[b"XREAD", b"COUNT", count.as_bytes(), b"STREAMS", stream.as_bytes(), last]);
            }
            _ => command(out, &[b"XADD", stream.as_bytes(), b"*", b"b", &self.payload]),
        }
        self.asked.push_back(slot);
    }

    fn size(bytes: &[u8]) -> Result<Option<usize>, String> {
        let (mut at, mut missing) = (0, 1_usize);
        while missing > 0 {
            let rest = bytes.get(at..).unwrap_or_default();
            let Some(end) = line::end(rest)? else { return Ok(None) };
            let line = rest.get(..end).unwrap_or_default();
            at += end + 1;
            missing -= 1;
            match line.split_first() {
                // What is announced as -1 is not there.
                Some((b'*', count)) => missing += usize::try_from(number(count)?).unwrap_or(0),
                Some((b'$', bytes)) => at += usize::try_from(number(bytes)?).map_or(0, |bytes| bytes + 2),
                Some((b'+' | b'-' | b':', _)) => {}
                _ => return Err("an answer of no known kind".to_owned()),
            }
        }
        Ok(Some(at))
    }

    fn read(&mut self, frame: &[u8], _: &mut Vec<u8>) -> Result<Option<Answer>, String> {
        let slot = self.asked.pop_front().ok_or("an answer to nothing that was asked")?;
        let outcome = match (frame.first(), self.work) {
            (Some(b'-'), _) => Outcome::Refused(REFUSED),
            (_, Work::Produce { body_bytes, .. } | Work::Transact { body_bytes }) => {
                Outcome::Done { messages: 1, bytes: body_bytes as u64 }
            }
            (_, Work::Consume { .. }) => self.found(slot, frame)?,
        };
        Ok(Some(Answer { slot, outcome }))
    }

    fn remark(&mut self, frame: &[u8]) -> String {
        String::from_utf8_lossy(frame).trim_end().to_owned()
    }
}

impl Redis {
    fn new(work: Work, window: usize, number: usize, names: &[String]) -> Self {
        let payload = match work {
            Work::Produce { body_bytes, .. } | Work::Transact { body_bytes } => body(body_bytes),
            Work::Consume { .. } => Vec::new(),
        };
        let stream =
            |slot: usize| names.get((number * window + slot) % names.len()).cloned().unwrap_or_default();
        Self {
            work,
            streams: (0..window).map(stream).collect(),
            last: vec![BEGIN.to_vec(); window],
            payload,
            asked: VecDeque::with_capacity(window),
        }
    }

    /// Entries of one stream: each has an id and one field with its value.
    fn found(&mut self, slot: usize, frame: &[u8]) -> Result<Outcome, String> {
        let Some(last) = self.last.get_mut(slot) else { return Err("an answer to no slot".to_owned()) };
        let mut parts = Parts(frame);
        if parts.announced()? < 0 {
            last.clear();
            last.extend_from_slice(BEGIN);
            return Ok(Outcome::Empty);
        }
        parts.announced()?;
        parts.text()?;
        let messages = parts.announced()?.unsigned_abs();
        for _ in 0..messages {
            parts.announced()?;
            let id = parts.text()?;
            last.clear();
            last.extend_from_slice(id);
            parts.announced()?;
            parts.text()?;
            parts.text()?;
        }
        Ok(Outcome::Done { messages, bytes: frame.len() as u64 })
    }
}

/// The parts of an answer, one behind the other.
struct Parts<'a>(&'a [u8]);

impl<'a> Parts<'a> {
    /// How many parts or bytes come next.
    fn announced(&mut self) -> Result<i64, String> {
        let end = memchr(b'\n', self.0).ok_or("an answer that ends early")?;
        let count = number(self.0.get(1..end).unwrap_or_default())?;
        self.0 = self.0.get(end + 1..).unwrap_or_default();
        Ok(count)
    }

    fn text(&mut self) -> Result<&'a [u8], String> {
        let bytes = usize::try_from(self.announced()?).map_err(|error| error.to_string())?;
        let (text, rest) = self.0.split_at_checked(bytes).ok_or("an answer that ends early")?;
        self.0 = rest.get(2..).unwrap_or_default();
        Ok(text)
    }
}

fn command(out: &mut Vec<u8>, words: &[&[u8]]) {
    out.extend_from_slice(format!("*{}\r\n", words.len()).as_bytes());
    for word in words {
        out.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        out.extend_from_slice(word);
        out.extend_from_slice(b"\r\n");
    }
}

fn number(digits: &[u8]) -> Result<i64, String> {
    let digits = std::str::from_utf8(digits.trim_ascii_end()).ok();
    digits.and_then(|digits| digits.parse().ok()).ok_or_else(|| "no number where one belongs".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::line::LINE_BYTES_MAX;

    fn one(work: Work) -> Redis {
        Redis::new(work, 3, 0, &["t-0".to_owned(), "t-1".to_owned()])
    }

    fn read(redis: &mut Redis, frame: &[u8]) -> Answer {
        assert_eq!(Redis::size(frame), Ok(Some(frame.len())));
        redis.read(frame, &mut Vec::new()).unwrap().unwrap()
    }

    #[test]
    fn an_answer_ends_with_the_last_part_it_announces() {
        assert_eq!(Redis::size(b"+OK\r\n$3"), Ok(Some(5)));
        assert_eq!(Redis::size(b"$3\r\n1"), Ok(Some(9)), "its size is known before it is there");
        assert_eq!(Redis::size(b"*-1\r\n"), Ok(Some(5)));
        assert_eq!(Redis::size(b"*2\r\n$1\r\na\r\n"), Ok(None));
        assert_eq!(Redis::size(b"*2\r\n$1\r\na\r\n:7\r\n+"), Ok(Some(15)));
        assert!(Redis::size(b"what\r\n").is_err());
        assert!(Redis::size(&[b'+'; LINE_BYTES_MAX]).is_err());
    }

    #[test]
    fn entries_are_added_to_the_streams_in_turn_and_answered_in_their_order() {
        let mut redis = one(Work::Produce { body_bytes: 2, batch: 1 });
        let mut out = Vec::new();
        redis.ask(1, &mut out);
        redis.ask(0, &mut out);
        assert!(out.starts_with(b"*5\r\n$4\r\nXADD\r\n$3\r\nt-1\r\n$1\r\n*\r\n$1\r\nb\r\n$2\r\nah\r\n*5"));
        let done = Outcome::Done { messages: 1, bytes: 2 };
        assert_eq!(read(&mut redis, b"$3\r\n1-1\r\n"), Answer { slot: 1, outcome: done });
        assert_eq!(read(&mut redis, b"-OOM\r\n"), Answer { slot: 0, outcome: Outcome::Refused(REFUSED) });
        assert!(redis.read(b"+OK\r\n", &mut Vec::new()).is_err(), "nothing more was asked");
    }

    #[test]
    fn a_reader_goes_on_behind_what_it_got_and_begins_anew_at_the_end() {
        let mut redis = one(Work::Consume { messages_max: 2 });
        let entry = |id: &str| format!("*2\r\n$3\r\n{id}\r\n*2\r\n$1\r\nb\r\n$2\r\nah\r\n");
        let two = format!("*1\r\n*2\r\n$3\r\nt-0\r\n*2\r\n{}{}", entry("1-1"), entry("1-2"));
        let asked = |redis: &mut Redis| {
            let mut out = Vec::new();
            redis.ask(0, &mut out);
            String::from_utf8(out).unwrap()
        };
        assert!(asked(&mut redis).ends_with("$3\r\n0-0\r\n"));
        let done = Outcome::Done { messages: 2, bytes: two.len() as u64 };
        assert_eq!(read(&mut redis, two.as_bytes()).outcome, done);
        assert!(asked(&mut redis).ends_with("$3\r\n1-2\r\n"));
        assert_eq!(read(&mut redis, b"*-1\r\n").outcome, Outcome::Empty);
        assert!(asked(&mut redis).ends_with("$3\r\n0-0\r\n"));
    }
}
