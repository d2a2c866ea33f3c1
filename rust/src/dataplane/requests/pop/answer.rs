//! Answers to POP_MESSAGE: the results of each read, as the strings from which clients build handles.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use bytes::Bytes;

use super::handle::{Handle, TopicMark};
use crate::dataplane::delivery::revive::records::push_list;
use crate::dataplane::state::metadata::Topic;
use crate::dataplane::state::reply;
use crate::dataplane::state::request::RequestContext;
use crate::message::properties::{self, name};
use crate::message::record::RecordView;
use crate::positions::QueueOffset;
use crate::remoting::Outbox;
use crate::remoting::codes::response;
use crate::store::ConsumeQueue;

/// Bytes of an entry in the list of offsets without these.
const ENTRY_BYTES: usize = 16;

/// The result of a pop: messages of some queues, and the number of remaining ones.
#[derive(Debug, Default)]
pub(super) struct PopAnswer {
    pub(in crate::dataplane) pop_ms: i64,
    pub(in crate::dataplane) invisible_ms: i64,
    pub(in crate::dataplane) revive_queue: u32,
    pub(super) is_ordered: bool,
    /// Messages behind those that were given.
    pub(in crate::dataplane) rest: u64,
    pub(super) reads: Vec<PopRead>,
}

/// Messages of one queue.
#[derive(Debug)]
pub(super) struct PopRead {
    pub(in crate::dataplane) mark: TopicMark,
    /// The topic that was read: the retry topic for redelivered messages.
    pub(in crate::dataplane) topic: Arc<Topic>,
    pub(super) queue: Arc<ConsumeQueue>,
    /// The start offset of the read.
    pub(in crate::dataplane) start: u64,
    pub(in crate::dataplane) offsets: Vec<u64>,
    /// The records, one behind the other.
    pub(in crate::dataplane) slices: Vec<Bytes>,
    /// The offset behind the read, which is committed.
    pub(in crate::dataplane) next: QueueOffset,
    /// Of a pop in order: earlier deliveries of the messages that had any.
    pub(super) counts: BTreeMap<u64, i32>,
}

impl PopRead {
    pub(super) fn queue_id(&self) -> u32 {
        self.queue.key().queue_id
    }

    /// Earlier deliveries of each message, and of all of them, as clients read them.
    fn order_counts(&self) -> String {
        let (mark, queue_id) = (self.mark as i32, self.queue_id());
        let mut text = String::new();
        for (offset, count) in &self.counts {
            // Writing to a string cannot fail.
            let _ = write!(text, "{mark} qo{queue_id}%{offset} {count};");
        }
        let is_whole = self.counts.len() == self.offsets.len();
        let least = self.counts.values().min().filter(|_| is_whole).copied().unwrap_or(0);
        let _ = write!(text, "{mark} {queue_id} {least}");
        text
    }
}

impl PopAnswer {
    pub(in crate::dataplane) fn count(&self) -> usize {
        self.reads.iter().map(|read| read.offsets.len()).sum()
    }

    pub(in crate::dataplane) fn bytes(&self) -> usize {
        self.slices().map(Bytes::len).sum()
    }

    /// Room for the list of offsets.
    fn offsets_bytes(&self) -> usize {
        let digits =
            |read: &PopRead| read.offsets.last().map_or(1, |last| last.max(&1).ilog10() as usize + 2);
        self.reads.iter().map(|read| ENTRY_BYTES + read.offsets.len() * digits(read)).sum()
    }

    fn slices(&self) -> impl Iterator<Item = &Bytes> {
        self.reads.iter().flat_map(|read| &read.slices)
    }

    /// Writes the header.
    pub(super) fn write_header(&self, out: &mut Vec<u8>, context: RequestContext, code: i32, remark: &str) {
        let (mut starts, mut offsets) = (String::new(), String::with_capacity(self.offsets_bytes()));
        for read in &self.reads {
            let (mark, queue_id) = (read.mark as i32, read.queue_id());
            for text in [&mut starts, &mut offsets] {
                text.push_str(if text.is_empty() { "" } else { ";" });
                // Writing to a string cannot fail.
                let _ = write!(text, "{mark} {queue_id} ");
            }
            push_list(&mut starts, [read.start]);
            push_list(&mut offsets, read.offsets.iter().copied());
        }
        let mut reply = reply::begin(out, context, code, Some(remark));
        reply.ext_i64("popTime", self.pop_ms);
        reply.ext_i64("invisibleTime", self.invisible_ms);
        reply.ext_u64("reviveQid", self.revive_queue.into());
        reply.ext_u64("restNum", self.rest);
        reply.ext("startOffsetInfo", &starts);
        reply.ext("msgOffsetInfo", &offsets);
        if self.is_ordered {
            let counts: Vec<String> = self.reads.iter().map(PopRead::order_counts).collect();
            reply.ext("orderCountInfo", &counts.join(";"));
        }
        reply::finish(reply, self.bytes());
    }

    /// Writes the header of messages of lite topics, each with its earlier deliveries, in their order.
    pub(super) fn write_lite(&self, out: &mut Vec<u8>, context: RequestContext) {
        let mut counts = String::new();
        for read in &self.reads {
            for offset in &read.offsets {
                counts.push_str(if counts.is_empty() { "0" } else { ";0" });
                if let Some(count) = read.counts.get(offset) {
                    // Writing to a string cannot fail.
                    let _ = write!(counts, " qo0%{offset} {count}");
                }
            }
        }
        let mut reply = reply::begin(out, context, response::SUCCESS, Some("FOUND"));
        reply.ext_i64("popTime", self.pop_ms);
        reply.ext_i64("invisibleTime", self.invisible_ms);
        reply.ext_u64("reviveQid", self.revive_queue.into());
        reply.ext("orderCountInfo", &counts);
        reply::finish(reply, self.bytes());
    }

    /// Writes the header of messages that are shown and not given, which have no handles.
    pub(super) fn write_peeked(&self, out: &mut Vec<u8>, context: RequestContext, code: i32, remark: &str) {
        let mut reply = reply::begin(out, context, code, Some(remark));
        for name in ["popTime", "invisibleTime", "reviveQid"] {
            reply.ext_i64(name, 0);
        }
        reply.ext_u64("restNum", self.rest);
        reply::finish(reply, self.bytes());
    }

    /// Adds the messages, without copying them.
    pub(super) fn push_messages(self, out: &mut Outbox) {
        self.reads.into_iter().flat_map(|read| read.slices).for_each(|slice| out.push_shared(slice));
    }

    /// Copies the messages behind a header that is kept.
    pub(super) fn copy_messages(&self, out: &mut Vec<u8>) {
        self.slices().for_each(|slice| out.extend_from_slice(slice));
    }
}

/// A message of a retry topic as its consumers expect it: under the topic they asked for, with its handle.
pub(super) fn renamed(record: &RecordView<'_>, topic: &str, handle: &Handle<'_>, mark: TopicMark) -> Bytes {
    let topic = topic.as_bytes();
    if properties::get(record.properties(), name::POP_CK).is_some() {
        return record.copied(topic, None);
    }
    let text = handle.text(mark, record.queue_id(), record.queue_offset().0);
    record.copied(topic, Some((name::POP_CK, text.as_bytes())))
}
