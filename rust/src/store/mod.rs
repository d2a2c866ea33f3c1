//! stub
#![allow(missing_docs, unused)]
use crate::message::record::RecordFields;
use crate::positions::*;
use bytes::Bytes;
use std::sync::Arc;
#[derive(Debug)]
pub struct Store;
#[derive(Debug)]
pub struct ConsumeQueue {
    key: QueueKey,
}
#[derive(Debug, Clone, Default)]
pub struct KeyHashes;
impl KeyHashes {
    pub fn push(&mut self, h: i32) {}
}
#[derive(Debug, thiserror::Error)]
#[error("x")]
pub struct StoreError;
#[derive(Debug, Clone, Copy, thiserror::Error)]
#[error("x")]
pub enum PutError {
    Pending,
    TooLarge,
    Busy,
    QueueGone,
    ReadOnly,
}
pub struct Put<'a> {
    pub queue: Arc<ConsumeQueue>,
    pub record: RecordFields<'a>,
    pub tags_code: i64,
    pub keys: KeyHashes,
    pub joined: bool,
    pub outcome: Result<Stored, PutError>,
}
#[derive(Clone, Copy, Debug)]
pub struct Stored {
    pub physical: PhysicalOffset,
    pub queue_offset: QueueOffset,
    pub store_timestamp_ms: i64,
    pub end: PhysicalOffset,
}
#[derive(Debug, Clone, Copy)]
pub struct Get {
    pub offset: QueueOffset,
    pub messages_max: u32,
    pub bytes_max: usize,
}
#[derive(Debug, Clone, Copy, Default)]
pub enum GetStatus {
    #[default]
    Found,
    NoMatchedMessage,
    MessageWasRemoving,
    NoMatchedLogicQueue,
    NoMessageInQueue,
    OffsetFoundNull,
    OffsetOverflowOne,
    OffsetOverflowBadly,
    OffsetTooSmall,
    OffsetReset,
}
impl GetStatus {
    pub fn name(self) -> &'static str {
        ""
    }
}
#[derive(Debug, Default)]
pub struct GetResult {
    pub status: GetStatus,
    pub next_begin: QueueOffset,
    pub min: QueueOffset,
    pub max: QueueOffset,
    pub slices: Vec<Bytes>,
    pub bytes: usize,
    pub count: u32,
    pub is_far_behind: bool,
}
impl GetResult {
    pub fn clear(&mut self) {}
}
pub trait Arrivals: Send + Sync {
    fn arrived(&self, queue: &ConsumeQueue, max: QueueOffset, tags_code: i64);
    fn durable(&self, position: PhysicalOffset);
    fn latched(&self);
}
impl ConsumeQueue {
    pub fn key(&self) -> &QueueKey {
        &self.key
    }
    pub fn min(&self) -> QueueOffset {
        QueueOffset(0)
    }
    pub fn max(&self) -> QueueOffset {
        QueueOffset(0)
    }
    pub fn set_awaited(&self, b: bool) {}
}
impl Store {
    pub fn queue(&self, t: &str, q: u32) -> Option<Arc<ConsumeQueue>> {
        None
    }
    pub fn queue_or_create(&self, t: &str, q: u32) -> Result<Arc<ConsumeQueue>, StoreError> {
        Err(StoreError)
    }
    pub fn append(&self, p: &mut [Put<'_>]) {}
    pub fn is_sync(&self) -> bool {
        false
    }
    pub fn durable(&self) -> PhysicalOffset {
        PhysicalOffset(0)
    }
    pub fn is_latched(&self) -> bool {
        false
    }
    pub fn release_after(&self, e: PhysicalOffset) {}
    pub fn get(&self, q: &ConsumeQueue, g: &Get, a: &mut dyn FnMut(i64) -> bool, r: &mut GetResult) {}
    pub fn is_hot(&self, q: &ConsumeQueue, o: QueueOffset) -> bool {
        false
    }
    pub fn set_arrivals(&self, a: Arc<dyn Arrivals>) {}
}
