//! A pop or notification that waits for a message, as its session keeps it.

use std::sync::Arc;

use crate::dataplane::delivery::deadlines::DeadlineKey;
use crate::dataplane::state::request::OwnedFrame;
use crate::dataplane::waiting::pop_groups::{ParkedKey, PopGroup, Purpose};

/// A request that is served again when a message comes, or its time is over.
#[derive(Debug)]
pub(in crate::dataplane) struct PendingPop {
    pub(in crate::dataplane) frame: OwnedFrame,
    pub(in crate::dataplane) group: Arc<PopGroup>,
    pub(in crate::dataplane) purpose: Purpose,
    pub(in crate::dataplane) key: ParkedKey,
    pub(in crate::dataplane) deadline: DeadlineKey,
}
