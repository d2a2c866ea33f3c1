//! Popped messages: the records of an answer to POP_MESSAGE, each with its handle among its properties.
//!
//! A broker says where each read began and when; the handle of a message is made of that. A redelivered message
//! has its handle already.

use bytes::Bytes;
use hashbrown::HashMap;

use crate::message::RecordError;
use crate::message::properties::{self, name};
use crate::message::record::RecordView;
use crate::requests::pop::HandleText;

/// The fields of an answer that handles are made of.
#[derive(Debug, Default)]
pub(crate) struct PopFields<'a> {
    pub(crate) pop_time: &'a str,
    pub(crate) invisible_time: &'a str,
    pub(crate) revive_queue: &'a str,
    /// `mark queue offset`, with a semicolon between them.
    pub(crate) starts: &'a str,
}

/// Calls `visit` with each record of an answer that `broker` has given, its handle among its properties.
///
/// # Errors
/// The bytes are not records; the error names the place.
pub(crate) fn each_popped(
    body: &Bytes,
    fields: &PopFields<'_>,
    broker: &str,
    mut visit: impl FnMut(Bytes, u32),
) -> Result<(), (usize, RecordError)> {
    let mut starts: HashMap<&str, &str> = HashMap::new();
    for read in fields.starts.split(';') {
        let mut parts = read.split(' ');
        if let (Some("0"), Some(queue), Some(start)) = (parts.next(), parts.next(), parts.next()) {
            starts.insert(queue, start);
        }
    }
    let mut at = 0;
    while let Some(rest) = body.get(at..).filter(|rest| !rest.is_empty()) {
        let record = RecordView::parse(rest).map_err(|error| (at, error))?;
        let size = record.total_size();
        let has_handle = properties::get(record.properties(), name::POP_CK).is_some();
        let bytes = if has_handle {
            body.slice(at..at + size)
        } else {
            let queue = record.queue_id().to_string();
            let offset = record.queue_offset().0.to_string();
            let start = starts.get(queue.as_str()).copied().unwrap_or(&offset);
            let handle = HandleText {
                start: &start,
                pop_ms: &fields.pop_time,
                invisible_ms: &fields.invisible_time,
                revive_queue: &fields.revive_queue,
                mark: &0,
                broker,
                queue: &queue,
                offset: &offset,
            };
            record.copied(record.topic(), Some((name::POP_CK, handle.to_string().as_bytes())))
        };
        visit(bytes, record.queue_id());
        at += size;
    }
    Ok(())
}
