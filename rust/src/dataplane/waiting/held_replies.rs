//! Held replies: the replies of a connection that wait for the disk, for slaves, or for both.
//!
//! A reply is encoded once when its message is stored, and copied out when it is released. A reply that reports late
//! slaves is encoded again, which is rare and not urgent.
//!
//! Threads: the connection's I/O thread.

use std::collections::VecDeque;
use std::time::Duration;

use crate::dataplane::state::reply;
use crate::dataplane::state::request::RequestContext;
use crate::positions::PhysicalOffset;
use crate::remoting::codes::response;

/// The condition of a held reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::dataplane) struct Wait {
    /// The response code when the wait ends.
    pub(in crate::dataplane) code: i32,
    pub(in crate::dataplane) is_held: bool,
    /// The end of the wait for slaves; `None` if only the disk counts.
    pub(in crate::dataplane) until: Option<Duration>,
}

#[derive(Debug)]
struct Held {
    end: PhysicalOffset,
    context: RequestContext,
    wait: Wait,
    bytes: usize,
}

/// Replies in the order of their records, so that only the first must be checked.
#[derive(Debug, Default)]
pub(in crate::dataplane) struct HeldReplies {
    replies: VecDeque<Held>,
    /// The encoded replies in order, with the released ones in front.
    bytes: Vec<u8>,
    gone: usize,
    /// The time of the registered deadline.
    pub(in crate::dataplane) due: Option<Duration>,
}

impl HeldReplies {
    pub(in crate::dataplane) fn is_empty(&self) -> bool {
        self.replies.is_empty()
    }

    pub(in crate::dataplane) fn bytes(&self) -> usize {
        self.bytes.len() - self.gone
    }

    /// Holds the reply that `write` appends, with the code of `wait`, until the log is safe up to `end`.
    pub(in crate::dataplane) fn hold(
        &mut self,
        end: PhysicalOffset,
        context: RequestContext,
        wait: Wait,
        write: impl FnOnce(&mut Vec<u8>),
    ) {
        let before = self.bytes.len();
        write(&mut self.bytes);
        self.replies.push_back(Held { end, context, wait, bytes: self.bytes.len() - before });
    }

    /// Returns the first position that a reply waits for slaves to reach, and the end of that wait.
    pub(in crate::dataplane) fn first_wait(&self) -> Option<(PhysicalOffset, Duration)> {
        self.replies.iter().find_map(|held| Some((held.end, held.wait.until?)))
    }

    /// Moves ready replies into `out` and calls `released` with the context and code of each.
    pub(in crate::dataplane) fn release(
        &mut self,
        on_disk: PhysicalOffset,
        confirmed: PhysicalOffset,
        now: Duration,
        out: &mut Vec<u8>,
        mut released: impl FnMut(RequestContext, i32),
    ) {
        let is_late = |held: &Held| held.wait.until.is_some_and(|until| held.end > confirmed && until <= now);
        let is_ready =
            |held: &Held| held.wait.until.is_none_or(|until| held.end <= confirmed || until <= now);
        while let Some(held) = self.replies.pop_front_if(|held| held.end <= on_disk && is_ready(held)) {
            let end = self.gone + held.bytes;
            let frame = self.bytes.get(self.gone..end).unwrap_or_default();
            self.gone = end;
            let code = if is_late(&held) { response::FLUSH_SLAVE_TIMEOUT } else { held.wait.code };
            if code == held.wait.code {
                out.extend_from_slice(frame);
            } else {
                reply::write_with_code(out, frame, code);
            }
            released(held.context, code);
        }
        // Amortized, so that each byte is moved at most once.
        if self.gone * 2 > self.bytes.len() {
            self.bytes.drain(..self.gone);
            self.gone = 0;
        }
    }

    pub(in crate::dataplane) fn kept_bytes(&self) -> usize {
        self.replies.capacity() * size_of::<Held>() + self.bytes.capacity()
    }

    pub(in crate::dataplane) fn shrink(&mut self) {
        self.replies.shrink_to_fit();
        self.bytes.shrink_to_fit();
    }

    /// Removes the remaining replies, whose records will never be durable, and returns their contexts.
    pub(in crate::dataplane) fn revoke(&mut self) -> impl Iterator<Item = RequestContext> + '_ {
        self.bytes.clear();
        self.gone = 0;
        self.replies.drain(..).map(|held| held.context)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::remoting::codes::request;
    use crate::remoting::frame::Encoding;

    fn context(opaque: i32, encoding: Encoding) -> RequestContext {
        RequestContext {
            code: request::SEND_MESSAGE_V2,
            came_at: Duration::ZERO,
            opaque,
            encoding,
            is_oneway: false,
        }
    }

    fn reply_to(context: RequestContext, code: i32) -> Vec<u8> {
        let mut out = Vec::new();
        let id = format!("id \"{}\u{1}\" \u{e9}", context.opaque);
        reply::write(&mut out, context, code, None, &[("msgId", &id), ("queueOffset", "7")]);
        out
    }

    proptest! {
        #[test]
        fn replies_leave_in_order_with_the_code_of_their_result(
            // Whether each reply waits for slaves, and whether it is binary.
            messages in prop::collection::vec((any::<bool>(), any::<bool>()), 1..40),
            // Each step: how far disk and slaves have the log, and the time.
            steps in prop::collection::vec((0_u64..45, 0_u64..45, 0_u64..12), 1..20),
        ) {
            let mut held = HeldReplies::default();
            let mut waiting = VecDeque::new();
            for (number, (waits, is_binary)) in messages.iter().enumerate() {
                let encoding = if *is_binary { Encoding::Binary } else { Encoding::Json };
                let context = context(number as i32, encoding);
                let until = waits.then_some(Duration::from_secs(10));
                let wait = Wait { code: response::SUCCESS, is_held: true, until };
                let end = number as u64 + 1;
                held.hold(PhysicalOffset(end), context, wait, |out| {
                    out.extend(reply_to(context, response::SUCCESS));
                });
                waiting.push_back((end, *waits, context));
            }
            let (mut on_disk, mut confirmed, mut now) = (0, 0, 0);
            for (disk, copies, time) in steps {
                (on_disk, confirmed, now) = (on_disk.max(disk), confirmed.max(copies), now.max(time));
                let mut expected = Vec::new();
                while let Some((_, waits, context)) =
                    waiting.pop_front_if(|(end, waits, _)| *end <= on_disk && (!*waits || *end <= confirmed || now >= 10))
                {
                    let is_late = waits && context.opaque as u64 + 1 > confirmed;
                    let code = if is_late { response::FLUSH_SLAVE_TIMEOUT } else { response::SUCCESS };
                    expected.extend(reply_to(context, code));
                }
                let mut out = Vec::new();
                let [on_disk, confirmed] = [on_disk, confirmed].map(PhysicalOffset);
                held.release(on_disk, confirmed, Duration::from_secs(now), &mut out, |_, _| {});
                prop_assert_eq!(out, expected);
                let left: usize =
                    waiting.iter().map(|(_, _, context)| reply_to(*context, response::SUCCESS).len()).sum();
                prop_assert_eq!(held.bytes(), left);
            }
        }
    }
}
