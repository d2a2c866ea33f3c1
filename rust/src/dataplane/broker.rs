//! Broker: everything its hot requests share.

use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;

use super::attributes::AddedProperties;
use super::deadlines::Deadlines;
use super::delays::Delays;
use super::deliveries::Deliveries;
use super::event::Link;
use super::latency::Latencies;
use super::long_poll::LongPolls;
use super::metadata::Metadata;
use super::offsets::Offsets;
use super::parked_frames::WaitId;
use super::rejection::Missing;
use crate::clock::SharedClock;
use crate::positions::PhysicalOffset;
use crate::remoting::header::ExtBlock;
use crate::store::Store;

/// An entry of `Broker::deadlines`.
#[derive(Debug)]
pub(super) enum Deadline {
    /// A parked pull, by its token, has waited long enough.
    Pull(Arc<Link>, u64),
    /// Python did not make this in time.
    Missing(Missing, String, WaitId),
}

/// What the hot requests of a broker work on.
pub(crate) struct Broker {
    pub(crate) store: Arc<Store>,
    pub(super) metadata: Arc<Metadata>,
    pub(super) offsets: Arc<Offsets>,
    pub(crate) deliveries: Deliveries,
    pub(crate) polls: LongPolls,
    pub(super) latencies: Arc<Latencies>,
    pub(super) deadlines: Deadlines<Deadline>,
    pub(super) flush_waiters: Mutex<Vec<(PhysicalOffset, Arc<Link>)>>,
    pub(super) clock: SharedClock,
    pub(super) added_properties: AddedProperties,
    pub(super) delays: OnceLock<Delays>,
    /// Region and trace, which every answer to a send carries.
    pub(super) send_answer_fields: ExtBlock,
}
