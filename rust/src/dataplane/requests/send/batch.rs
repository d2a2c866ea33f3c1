//! Batches: messages of one send, stored together and answered once.

use std::sync::Arc;

use super::super::admission;
use super::super::attributes::MessageAttributes;
use super::super::session::Session;
use super::{Broker, StagedRecord, StagedSend};
use crate::dataplane::state::metadata::Topic;
use crate::dataplane::state::rejection::{ErrorReply, Rejection};
use crate::message::batch;
use crate::message::properties::{self, name};
use crate::message::record::RecordFields;
use crate::message::topic::RETRY_PREFIX;
use crate::remoting::Outbox;
use crate::remoting::codes::response;
use crate::requests::send::SendHeader;
use crate::store::Put;

/// The initial capacity; growth moves the members.
const MEMBERS_USUAL: usize = 64;

impl Broker {
    pub(super) fn stage_batch<'f>(
        &self,
        arena: &mut Vec<u8>,
        outer: &StagedRecord<'f>,
        fields: &SendHeader<'_>,
        topic: &Topic,
    ) -> Result<StagedSend<'f>, ErrorReply> {
        if fields.topic.starts_with(RETRY_PREFIX) {
            return Err(ErrorReply::new(
                response::MESSAGE_ILLEGAL,
                "batch request does not support retry group",
            ));
        }
        admission::body(&self.metadata, outer.body)?;
        let mut messages = Vec::with_capacity(MEMBERS_USUAL);
        // Reserved in one call for all properties: growth with each member moves the arena repeatedly, and the
        // allocator keeps the old memory.
        arena.reserve(outer.body.len());
        for inner in batch::inner_messages(outer.body) {
            let inner = inner.map_err(|error| {
                ErrorReply::new(response::MESSAGE_ILLEGAL, format!("the batch cannot be read: {error}"))
            })?;
            // Stored verbatim, as in Apache's broker: members get no region, trace switch or cluster.
            let attributes = MessageAttributes::read(arena, fields.topic, inner.properties)?;
            admission::key(topic, inner.properties)?;
            let message_type = attributes.message_type();
            self.check_type(topic, message_type)?;
            messages.push(StagedRecord {
                queue: Arc::clone(&outer.queue),
                flag: inner.flag,
                body: inner.body,
                body_crc: RecordFields::body_crc(inner.body),
                attributes,
                message_type,
                recall_handle: None,
                logical: outer.logical.clone(),
                ..*outer
            });
        }
        let unique_key = properties::get(fields.properties.as_bytes(), name::UNIQ_KEY);
        let unique_key = unique_key.and_then(|key| std::str::from_utf8(key).ok()).map(Box::from);
        Ok(StagedSend::Batch(messages, unique_key))
    }

    /// Stores the messages of a batch together and answers once.
    pub(in crate::dataplane) fn append_batch(
        &self,
        session: &mut Session,
        messages: &[StagedRecord<'_>],
        unique_key: Option<&str>,
        out: &mut Outbox,
    ) -> Result<(), Rejection> {
        let Some(first) = messages.first() else { return Ok(()) };
        // Earlier sends of the burst may be parked by now.
        if !session.parked_sends.frames.is_empty() {
            return Err(Rejection::NoRoom);
        }
        let Session { link, arena, held, latency, .. } = session;
        let puts = messages.iter().enumerate();
        let mut puts: Vec<Put<'_>> =
            puts.map(|(index, staged)| self.put(staged, arena, link.peer(), index > 0)).collect();
        if self.store.try_append(&mut puts) == 0 {
            return Err(Rejection::NoRoom);
        }
        let end = self.answer(first, &puts, unique_key.map(str::as_bytes), held, latency, out);
        drop(puts);
        if let Some(end) = end {
            self.wait_for_promises(session, end, out);
        }
        Ok(())
    }
}
