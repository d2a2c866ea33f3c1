//! Stored replies: replies to requests as messages of their topic, for operators, after Python has sent them to the
//! requester.
//!
//! No consumer reads them, so a reply that names a time or a delay is stored unchanged.
//!
//! Threads: any that may wait for the disk.

use std::net::SocketAddr;
use std::sync::Arc;

use super::admission;
use super::attributes::MessageAttributes;
use super::broker::Broker;
use crate::dataplane::state::rejection::{
    ErrorReply, Rejection, missing_reply, no_room, put_refused, unavailable,
};
use crate::message::id::OffsetMessageId;
use crate::message::record::RecordFields;
use crate::message::sysflag;
use crate::positions::QueueOffset;
use crate::requests::send::SendHeader;
use crate::store::Put;

impl Broker {
    /// Stores a reply from `born_host` and returns its message id and queue offset. Waits for the disk if sends do.
    pub(crate) fn store_reply(
        &self,
        fields: &SendHeader<'_>,
        body: &[u8],
        born_host: SocketAddr,
    ) -> Result<(String, QueueOffset), ErrorReply> {
        let (topic, queue_id) =
            admission::send(&self.metadata, fields).map_err(|rejection| match rejection {
                Rejection::Refused(error_reply) => error_reply,
                Rejection::Missing(missing, name) => missing_reply(missing, &name),
                Rejection::Late(error_reply, _) => error_reply,
                // A reply topic is never static.
                Rejection::NoRoom | Rejection::Elsewhere => no_room(),
            })?;
        let queue = topic.queue(&self.store, queue_id.unwrap_or(0)).map_err(unavailable)?;
        admission::body(&self.metadata, body)?;
        let mut arena = Vec::new();
        let attributes = MessageAttributes::rewrite(
            &self.added_properties,
            &mut arena,
            &topic.name,
            fields.properties,
            None,
        )?;
        let key = queue.key();
        let record = RecordFields {
            queue_id: key.queue_id,
            flag: fields.flag,
            sys_flag: sysflag::from_client(fields.sys_flag) & !sysflag::TRANSACTION_MASK,
            born_timestamp_ms: fields.born_timestamp_ms,
            born_host,
            store_host: self.metadata.identity.store_host,
            reconsume_times: fields.reconsume_times,
            prepared_transaction_offset: 0,
            body,
            body_crc: RecordFields::body_crc(body),
            topic: key.topic.as_bytes(),
            properties: arena.get(attributes.properties.clone()).unwrap_or_default(),
        };
        let mut puts = [Put::new(Arc::clone(&queue), record, attributes.tags_code, attributes.keys)];
        self.store.append(&mut puts);
        let [put] = puts;
        let stored = put.outcome.map_err(|error| put_refused(&error))?;
        if self.store.is_sync() {
            self.store.flush().map_err(unavailable)?;
        }
        let id = OffsetMessageId { store_host: self.metadata.identity.store_host, physical: stored.physical };
        Ok((id.to_string(), stored.queue_offset))
    }
}
