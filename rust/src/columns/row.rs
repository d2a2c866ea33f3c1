//! Row: one message of a pulled body, in its own record or in a batch.
//!
//! Invariant: every message has its own queue offset; the members of a batch count up from the record's. Pure; any
//! thread.

use std::borrow::Cow;

use crate::message::batch::{InnerMessage, inner_messages};
use crate::message::compression::decompress;
use crate::message::id::OffsetMessageId;
use crate::message::properties::{self, name};
use crate::message::record::RecordView;
use crate::message::sysflag::{INNER_BATCH, NEEDS_UNWRAP};

use super::error::RowError;

/// Maximum decompressed body size. Brokers accept 4 MiB by default; a compressed body may announce any size.
const BODY_BYTES_MAX: usize = 64 << 20;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Row<'a> {
    record: RecordView<'a>,
    inner: Option<(u32, InnerMessage<'a>)>,
}

/// Calls `visit` with every message of a pulled body, in order, and the position of its record. Fails when the bytes
/// are not records, or when `visit` fails.
pub(crate) fn each_row<'a, E: From<RowError>>(
    body: &'a [u8],
    mut visit: impl FnMut(usize, Row<'a>) -> Result<(), E>,
) -> Result<(), E> {
    let mut at = 0;
    while let Some(rest) = body.get(at..).filter(|rest| !rest.is_empty()) {
        let record = RecordView::parse(rest).map_err(|error| RowError::Record { at, error })?;
        let whole = Row { record, inner: None };
        if whole.is_batch() {
            for (index, inner) in inner_messages(record.body()).enumerate() {
                let inner =
                    inner.map_err(|error| RowError::Batch { queue_offset: whole.queue_offset(), error })?;
                visit(at, Row { record, inner: Some((index as u32, inner)) })?;
            }
        } else {
            visit(at, whole)?;
        }
        at += record.total_size();
    }
    Ok(())
}

impl<'a> Row<'a> {
    /// Reads the message at `index` of the record at the start of `bytes`; `None` for a record that is not a batch.
    /// Fails when the bytes are not such a record.
    pub(crate) fn reread(bytes: &'a [u8], index: Option<u32>) -> Result<Self, RowError> {
        let record = RecordView::parse(bytes).map_err(|error| RowError::Record { at: 0, error })?;
        let row = Self { record, inner: None };
        let Some(index) = index else { return Ok(row) };
        let queue_offset = row.queue_offset();
        match inner_messages(record.body()).nth(index as usize) {
            Some(Ok(inner)) => Ok(Self { record, inner: Some((index, inner)) }),
            Some(Err(error)) => Err(RowError::Batch { queue_offset, error }),
            None => Err(RowError::Member { queue_offset, index }),
        }
    }

    fn is_batch(&self) -> bool {
        self.record.sys_flag() & (INNER_BATCH | NEEDS_UNWRAP) == INNER_BATCH | NEEDS_UNWRAP
    }

    pub(crate) fn record(&self) -> &RecordView<'a> {
        &self.record
    }

    /// Returns the index in its batch.
    pub(crate) fn index(&self) -> Option<u32> {
        self.inner.map(|(index, _)| index)
    }

    pub(crate) fn queue_offset(&self) -> u64 {
        self.record.queue_offset().0 + u64::from(self.index().unwrap_or(0))
    }

    pub(crate) fn flag(&self) -> i32 {
        self.inner.map_or_else(|| self.record.flag(), |(_, inner)| inner.flag)
    }

    pub(crate) fn properties(&self) -> &'a [u8] {
        self.inner.map_or_else(|| self.record.properties(), |(_, inner)| inner.properties)
    }

    pub(crate) fn property(&self, name: &[u8]) -> Option<&'a [u8]> {
        properties::get(self.properties(), name)
    }

    /// Returns the body as the producer sent it. Fails when it cannot be decompressed.
    pub(crate) fn body(&self) -> Result<Cow<'a, [u8]>, RowError> {
        if let Some((_, inner)) = self.inner {
            return Ok(Cow::Borrowed(inner.body));
        }
        decompress(self.record.sys_flag(), self.record.body(), BODY_BYTES_MAX)
            .map_err(|error| RowError::Body { queue_offset: self.queue_offset(), error })
    }

    /// Returns the broker's id: its address and the position in its log.
    pub(crate) fn offset_message_id(&self) -> OffsetMessageId {
        OffsetMessageId { store_host: self.record.store_host(), physical: self.record.physical_offset() }
    }

    /// Returns the producer's id, or the broker's for a message without one.
    pub(crate) fn message_id(&self) -> Cow<'a, str> {
        self.property(name::UNIQ_KEY)
            .map_or_else(|| Cow::Owned(self.offset_message_id().to_string()), String::from_utf8_lossy)
    }
}
