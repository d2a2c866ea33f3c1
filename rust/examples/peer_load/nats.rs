//! NATS with JetStream, as a load speaks it: publishes that are acknowledged, and batches asked of pull consumers.
//!
//! A stream of its own stands for each queue, `TOPIC-0` and so on, with a subject of the same name. A publish names an
//! inbox that ends in its slot, where the acknowledgement comes. A batch comes as that many messages under their own
//! subject, to the subscription of its slot; the server remembers where a consumer is, and readers that come to
//! the end make a new one. Nothing is acknowledged by readers. There is no request that publishes several messages.

use memchr::{memchr, memmem};
use rmqpy::load::{Answer, LoadError, Outcome, Plan, Protocol, Target, Work};
use rmqpy::tls::BlockingStream;

use crate::greeting::Greeting;
use crate::{body, line};

const CONNECT: &[u8] =
    b"CONNECT {\"verbose\":false,\"pedantic\":false,\"headers\":true,\"no_responders\":true,\"protocol\":1}\r\n";
/// Statuses of a pull that brings no more.
const NO_MESSAGES: i32 = 404;
const REQUEST_TIMEOUT: i32 = 408;

/// One connection's requests, and what has come for those under way.
pub struct Nats {
    work: Work,
    inbox: String,
    /// The request of each slot without its payload, which is the same for all.
    heads: Vec<Vec<u8>>,
    payload: Vec<u8>,
    streams: Vec<String>,
    batches: Vec<Batch>,
    /// Consumers made so far; part of their names.
    consumers: usize,
}

#[derive(Clone, Copy, Default)]
struct Batch {
    messages: u64,
    bytes: u64,
}

impl Protocol for Nats {
    fn open(
        plan: &Plan,
        target: &Target,
        number: usize,
        stream: &mut BlockingStream,
    ) -> Result<Self, LoadError> {
        match plan.work {
            Work::Produce { batch: 2.., .. } => {
                return Err(LoadError::Plan("NATS has no request that publishes several messages"));
            }
            Work::Transact { .. } => return Err(LoadError::Plan("NATS has no half messages")),
            Work::Produce { .. } | Work::Consume { .. } => {}
        }
        let streams = target.queues.iter().map(|at| format!("{}-{}", plan.topic, at.queue)).collect();
        let mut nats = Self::new(plan.work, plan.window, number, streams);
        let mut greeting = Greeting::new(stream, &target.address);
        greeting.say(CONNECT)?;
        greeting.say(&nats.subscriptions())?;
        for stream in &nats.streams {
            nats.agree(&mut greeting, &create_stream(stream, &nats.reply_to(0)))?;
        }
        if let Work::Consume { .. } = plan.work {
            for slot in 0..plan.window {
                let request = nats.create_consumer(slot);
                nats.agree(&mut greeting, &request)?;
            }
        }
        Ok(nats)
    }

    fn ask(&mut self, slot: usize, out: &mut Vec<u8>) {
        if let Some(head) = self.heads.get(slot) {
            out.extend_from_slice(head);
            out.extend_from_slice(&self.payload);
        }
    }

    fn size(bytes: &[u8]) -> Result<Option<usize>, String> {
        let Some(end) = line::end(bytes)? else { return Ok(None) };
        let line = bytes.get(..end).unwrap_or_default();
        if !(line.starts_with(b"MSG ") || line.starts_with(b"HMSG ")) {
            return Ok(Some(end + 1));
        }
        // The last word is the size of everything behind the line, but for the end of line there.
        let payload = line.trim_ascii_end().rsplit(|byte| *byte == b' ').next().and_then(number);
        payload
            .map(|payload| Some(end + 1 + payload + 2))
            .ok_or_else(|| "a message without a size".to_owned())
    }

    fn read(&mut self, frame: &[u8], out: &mut Vec<u8>) -> Result<Option<Answer>, String> {
        let (line, payload) = cut(frame);
        let mut words = line.trim_ascii_end().split(|byte| *byte == b' ');
        match words.next() {
            Some(b"MSG" | b"HMSG") => {}
            Some(b"PING") => {
                out.extend_from_slice(b"PONG\r\n");
                return Ok(None);
            }
            Some(b"-ERR") => return Err(String::from_utf8_lossy(line).trim_end().to_owned()),
            _ => return Ok(None),
        }
        let (Some(subject), Some(subscription)) = (words.next(), words.next().and_then(number)) else {
            return Err("a message without a subscription".to_owned());
        };
        let answer = match subject.strip_prefix(self.inbox.as_bytes()) {
            Some(slot) => {
                let slot = number(slot).ok_or("an answer to nothing that was asked")?;
                self.replied(slot, payload, out).map(|outcome| Answer { slot, outcome })
            }
            None => {
                // Subscriptions are numbered from 1.
                let slot = subscription.saturating_sub(1);
                self.arrived(slot, payload).map(|outcome| Answer { slot, outcome })
            }
        };
        Ok(answer)
    }

    fn remark(&mut self, frame: &[u8]) -> String {
        String::from_utf8_lossy(frame).trim_end().to_owned()
    }
}

impl Nats {
    fn new(work: Work, window: usize, number: usize, streams: Vec<String>) -> Self {
        let inbox = format!("_INBOX.{}-{number}.", std::process::id());
        let payload = match work {
            Work::Produce { body_bytes, .. } | Work::Transact { body_bytes } => body(body_bytes),
            Work::Consume { messages_max } => {
                format!("{{\"batch\":{messages_max},\"no_wait\":true}}").into_bytes()
            }
        };
        let head = |slot: usize| {
            let stream = streams.get((number * window + slot) % streams.len()).map_or("", String::as_str);
            format!("PUB {stream} {inbox}{slot} {}\r\n", payload.len()).into_bytes()
        };
        Self {
            work,
            heads: (0..window).map(head).collect(),
            payload: [&payload, &b"\r\n"[..]].concat(),
            batches: vec![Batch::default(); window],
            inbox,
            streams,
            consumers: 0,
        }
    }

    /// One inbox for all acknowledgements, or one for each slot that reads.
    fn subscriptions(&self) -> Vec<u8> {
        match self.work {
            Work::Produce { .. } | Work::Transact { .. } => format!("SUB {}* 1\r\n", self.inbox).into_bytes(),
            Work::Consume { .. } => (0..self.heads.len())
                .flat_map(|slot| format!("SUB {}{slot} {}\r\n", self.inbox, slot + 1).into_bytes())
                .collect(),
        }
    }

    fn reply_to(&self, slot: usize) -> String {
        format!("{}{slot}", self.inbox)
    }

    /// The request for a new consumer of this slot, which its next batches are asked of.
    fn create_consumer(&mut self, slot: usize) -> Vec<u8> {
        let inbox = self.reply_to(slot);
        let name = format!("{}-{}", inbox.replace('.', "-"), self.consumers);
        let stream = self.streams.get(self.consumers % self.streams.len()).map_or("", String::as_str);
        self.consumers += 1;
        let subject = format!("$JS.API.CONSUMER.MSG.NEXT.{stream}.{name}");
        if let Some(head) = self.heads.get_mut(slot) {
            // The payload has its end of line.
            *head = format!("PUB {subject} {inbox} {}\r\n", self.payload.len() - 2).into_bytes();
        }
        let config = format!(
            r#"{{"stream_name":"{stream}","config":{{"name":"{name}","deliver_policy":"all","ack_policy":"none"}}}}"#
        );
        publish(&format!("$JS.API.CONSUMER.CREATE.{stream}.{name}"), &inbox, &config)
    }

    /// Asks the server for what has to be there, and waits for it.
    fn agree(&self, greeting: &mut Greeting<'_>, request: &[u8]) -> Result<(), LoadError> {
        greeting.say(request)?;
        loop {
            let frame = greeting.hear::<Self>()?;
            let (line, payload) = cut(&frame);
            let is_reply = memmem::find(line, self.inbox.as_bytes()).is_some();
            if line.starts_with(b"-ERR") || (is_reply && failure(payload).is_some()) {
                return Err(greeting.failed(&String::from_utf8_lossy(&frame)));
            }
            if is_reply {
                return Ok(());
            }
        }
    }

    /// The server has answered the request of a slot.
    fn replied(&mut self, slot: usize, payload: &[u8], out: &mut Vec<u8>) -> Option<Outcome> {
        match (self.work, failure(payload)) {
            (Work::Produce { body_bytes, .. } | Work::Transact { body_bytes }, None) => {
                Some(Outcome::Done { messages: 1, bytes: body_bytes as u64 })
            }
            // A consumer has been made.
            (Work::Consume { .. }, None) => Some(Outcome::Empty),
            (Work::Consume { .. }, Some(NO_MESSAGES | REQUEST_TIMEOUT)) => {
                let part = self.batches.get_mut(slot).map(std::mem::take).unwrap_or_default();
                if part.messages > 0 {
                    return Some(Outcome::Done { messages: part.messages, bytes: part.bytes });
                }
                out.extend_from_slice(&self.create_consumer(slot));
                None
            }
            (_, Some(code)) => Some(Outcome::Refused(code)),
        }
    }

    /// A message has come for a slot that reads.
    fn arrived(&mut self, slot: usize, payload: &[u8]) -> Option<Outcome> {
        let Work::Consume { messages_max } = self.work else { return None };
        let batch = self.batches.get_mut(slot)?;
        batch.messages += 1;
        batch.bytes += payload.len() as u64;
        if batch.messages < messages_max as u64 {
            return None;
        }
        let Batch { messages, bytes } = std::mem::take(batch);
        Some(Outcome::Done { messages, bytes })
    }
}

fn create_stream(stream: &str, inbox: &str) -> Vec<u8> {
    let config = format!(
        r#"{{"name":"{stream}","subjects":["{stream}"],"retention":"limits","storage":"file","num_replicas":1,"max_consumers":-1,"max_msgs":-1,"max_bytes":-1}}"#
    );
    publish(&format!("$JS.API.STREAM.CREATE.{stream}"), inbox, &config)
}

fn publish(subject: &str, inbox: &str, payload: &str) -> Vec<u8> {
    format!("PUB {subject} {inbox} {}\r\n{payload}\r\n", payload.len()).into_bytes()
}

/// The line of a frame, and what it announces.
fn cut(frame: &[u8]) -> (&[u8], &[u8]) {
    frame.split_at(memchr(b'\n', frame).map_or(frame.len(), |end| end + 1))
}

/// The code in a status line or in the error of an answer; `None` where there is neither.
fn failure(payload: &[u8]) -> Option<i32> {
    let status = payload.strip_prefix(b"NATS/1.0 ");
    let error = || {
        let error = payload.get(memmem::find(payload, b"\"error\":")?..)?;
        error.get(memmem::find(error, b"\"code\":")? + 7..)
    };
    let digits = status.or_else(error)?;
    let length = digits.iter().take_while(|byte| byte.is_ascii_digit()).count();
    digits.get(..length).and_then(number).map(|code| code as i32)
}

fn number(digits: &[u8]) -> Option<usize> {
    std::str::from_utf8(digits).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::line::LINE_BYTES_MAX;

    fn one(work: Work) -> Nats {
        Nats::new(work, 3, 0, vec!["t-0".to_owned(), "t-1".to_owned()])
    }

    fn to(nats: &Nats, slot: usize, payload: &str) -> Vec<u8> {
        format!("MSG {} 1 {}\r\n{payload}\r\n", nats.reply_to(slot), payload.len()).into_bytes()
    }

    fn message(subscription: usize) -> Vec<u8> {
        format!("MSG t-0 {subscription} $JS.ACK.t-0.c.1.1.1.1.1 3\r\nabc\r\n").into_bytes()
    }

    fn status(nats: &Nats, slot: usize, code: i32) -> Vec<u8> {
        let head = format!("NATS/1.0 {code} Said\r\n\r\n");
        let (inbox, size) = (nats.reply_to(slot), head.len());
        format!("HMSG {inbox} {} {size} {size}\r\n{head}\r\n", slot + 1).into_bytes()
    }

    fn read(nats: &mut Nats, frame: &[u8]) -> (Option<Answer>, Vec<u8>) {
        let mut out = Vec::new();
        assert_eq!(Nats::size(frame), Ok(Some(frame.len())));
        (nats.read(frame, &mut out).unwrap(), out)
    }

    #[test]
    fn a_frame_is_a_line_or_a_line_and_what_it_announces() {
        assert_eq!(Nats::size(b"MSG a 1 5"), Ok(None));
        assert_eq!(Nats::size(b"MSG a 1 5\r\n"), Ok(Some(18)));
        assert_eq!(Nats::size(b"HMSG a 1 b 9 12\r\nNATS"), Ok(Some(31)));
        assert_eq!(Nats::size(b"+OK\r\nMSG"), Ok(Some(5)));
        assert!(Nats::size(b"MSG a\r\n").is_err());
        assert!(Nats::size(&[b'x'; LINE_BYTES_MAX]).is_err());
    }

    #[test]
    fn slots_publish_to_the_streams_in_turn_and_are_answered_in_their_inboxes() {
        let mut nats = one(Work::Produce { body_bytes: 2, batch: 1 });
        let mut out = Vec::new();
        nats.ask(1, &mut out);
        assert_eq!(out, format!("PUB t-1 {} 2\r\nah\r\n", nats.reply_to(1)).into_bytes());
        let accepted = to(&nats, 1, r#"{"stream":"t-1", "seq":7}"#);
        let done = Outcome::Done { messages: 1, bytes: 2 };
        assert_eq!(read(&mut nats, &accepted).0, Some(Answer { slot: 1, outcome: done }));
    }

    #[test]
    fn a_publish_that_is_not_stored_does_not_count() {
        let mut nats = one(Work::Produce { body_bytes: 2, batch: 1 });
        let error = r#"{"error":{"code":400,"err_code":10077,"description":"full"},"stream":"t-0","seq":0}"#;
        let frames = [(to(&nats, 2, error), 400), (status(&nats, 2, 503), 503)];
        for (frame, code) in frames {
            let refused = Some(Answer { slot: 2, outcome: Outcome::Refused(code) });
            assert_eq!(read(&mut nats, &frame).0, refused);
        }
    }

    #[test]
    fn a_batch_ends_with_its_last_message_and_slots_do_not_mix() {
        let mut nats = one(Work::Consume { messages_max: 2 });
        assert_eq!(read(&mut nats, &message(1)).0, None);
        assert_eq!(read(&mut nats, &message(2)).0, None);
        let done = Outcome::Done { messages: 2, bytes: 10 };
        assert_eq!(read(&mut nats, &message(2)).0, Some(Answer { slot: 1, outcome: done }));
        let end = status(&nats, 0, NO_MESSAGES);
        let part = Outcome::Done { messages: 1, bytes: 5 };
        assert_eq!(read(&mut nats, &end).0, Some(Answer { slot: 0, outcome: part }));
    }

    #[test]
    fn a_reader_at_the_end_makes_a_new_consumer_and_asks_that_one() {
        let mut nats = one(Work::Consume { messages_max: 2 });
        let end = status(&nats, 0, NO_MESSAGES);
        let (answer, request) = read(&mut nats, &end);
        assert_eq!(answer, None);
        assert!(request.starts_with(b"PUB $JS.API.CONSUMER.CREATE.t-0."));
        let made = to(&nats, 0, r#"{"type":"io.nats.jetstream.api.v1.consumer_create_response"}"#);
        assert_eq!(read(&mut nats, &made).0, Some(Answer { slot: 0, outcome: Outcome::Empty }));
        let mut out = Vec::new();
        nats.ask(0, &mut out);
        assert!(out.starts_with(b"PUB $JS.API.CONSUMER.MSG.NEXT.t-0."));
        assert!(out.ends_with(b"\r\n{\"batch\":2,\"no_wait\":true}\r\n"));
    }

    #[test]
    fn the_server_is_told_that_we_are_alive_and_its_errors_end_the_load() {
        let mut nats = one(Work::Consume { messages_max: 2 });
        assert_eq!(read(&mut nats, b"PING\r\n"), (None, b"PONG\r\n".to_vec()));
        assert_eq!(read(&mut nats, b"INFO {}\r\n"), (None, Vec::new()));
        assert!(nats.read(b"-ERR 'Unknown'\r\n", &mut Vec::new()).is_err());
    }
}
