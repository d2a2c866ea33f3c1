//! Broker: everything its hot requests share.

use std::collections::VecDeque;
use std::sync::Arc;

use arc_swap::ArcSwapOption;
use hashbrown::HashMap;
use parking_lot::Mutex;

use super::attributes::AddedProperties;
use super::deadlines::Deadlines;
use super::delays::Delays;
use super::deliveries::Deliveries;
use super::escapes::Escapes;
use super::event::{Event, Link, Owed};
use super::guard::Guard;
use super::latency::Latencies;
use super::long_poll::LongPolls;
use super::metadata::Metadata;
use super::offsets::Offsets;
use super::parked_frames::{ParkedFrames, WaitId};
use super::rejection::{ErrorReply, Missing, overload};
use super::request::OwnedFrame;
use super::session::Session;
use super::timers::Timers;
use super::transactions::Transactions;
use crate::clock::SharedClock;
use crate::message::record::RecordView;
use crate::positions::PhysicalOffset;
use crate::remoting::LinkId;
use crate::remoting::frame::Frame;
use crate::remoting::header::ExtBlock;
use crate::store::{ConsumeQueue, Store};

/// An entry of `Broker::deadlines`.
#[derive(Debug)]
pub(super) enum Deadline {
    /// A pull that is parked for a queue, by its connection and token, has waited long enough.
    Pull(Arc<ConsumeQueue>, LinkId, u64),
    /// The oldest parked send of a connection has waited long enough.
    Send(Arc<Link>),
    /// Python did not make this in time.
    Missing(Missing, String, WaitId),
}

/// Delivery of messages that wait for a time.
pub(super) struct Waiting {
    pub(super) delays: Delays,
    pub(super) timers: Option<Timers>,
}

impl Waiting {
    /// Ends the delivery; when this returns no message is on its way.
    pub(super) fn stop(&self) {
        self.delays.stop();
        self.timers.iter().for_each(Timers::stop);
    }
}

/// What the hot requests of a broker work on.
pub(crate) struct Broker {
    pub(crate) store: Arc<Store>,
    pub(super) metadata: Arc<Metadata>,
    pub(super) offsets: Arc<Offsets>,
    pub(crate) deliveries: Deliveries,
    pub(crate) polls: Arc<LongPolls>,
    pub(super) latencies: Arc<Latencies>,
    pub(super) deadlines: Deadlines<Deadline>,
    pub(super) guard: Arc<Guard>,
    pub(super) flush_waiters: Mutex<Vec<(PhysicalOffset, Arc<Link>)>>,
    /// Connections by their id, with replies that wait for slaves to have the log up to a position.
    pub(super) copy_waiters: Mutex<HashMap<u64, (PhysicalOffset, Arc<Link>)>>,
    pub(super) clock: SharedClock,
    pub(super) added_properties: AddedProperties,
    pub(super) parked: Arc<ParkedFrames>,
    /// What waits for a time, while this broker delivers it.
    pub(super) waiting: ArcSwapOption<Waiting>,
    /// Messages on their way to another broker, while this one acts for its master.
    pub(crate) escapes: Arc<Escapes>,
    pub(super) transactions: Transactions,
    /// Halves that were given up and taken up again lately.
    pub(super) resumed: Mutex<VecDeque<PhysicalOffset>>,
    /// Region and trace, which every answer to a send carries.
    pub(super) send_answer_fields: ExtBlock,
}

impl Broker {
    /// Has `read` done on the store's own thread, where it may wait for the disk; what it returns goes to `link`, with
    /// room for `bytes` of it. False where there is no room, or too many wait already.
    pub(super) fn read_first(
        &self,
        link: &Arc<Link>,
        bytes: usize,
        read: impl FnOnce(&Store) -> Event + Send + 'static,
    ) -> bool {
        let Some(owed) = link.owe(bytes) else { return false };
        // What is owed is ours again if the read is not taken.
        let ours = Arc::new(Mutex::new(Some(owed)));
        let theirs = Arc::clone(&ours);
        let is_taken = self.store.read_later(move |store| {
            let event = read(store);
            if let Some(owed) = theirs.lock().take() {
                owed.post(event);
            }
        });
        if !is_taken {
            ours.lock().take().into_iter().for_each(Owed::settle);
        }
        is_taken
    }

    /// Has the record that a request names read on the store's own thread; the frame comes back as `Event::Found`.
    pub(super) fn look_up_first(
        &self,
        session: &Session,
        frame: &Frame<'_>,
        at: PhysicalOffset,
    ) -> Result<(), ErrorReply> {
        let frame = OwnedFrame::of(frame, 0, session.latency.began);
        let is_taken = self.read_first(&session.link, frame.size(), move |store| {
            // Parsing its length and summing its body touches every page of it.
            let record = store.lookup(at);
            let record = record.as_deref().and_then(|bytes| RecordView::parse(bytes).ok());
            std::hint::black_box(record.is_some_and(|record| record.body_crc_matches()));
            Event::Found(frame)
        });
        if is_taken { Ok(()) } else { Err(overload()) }
    }
}
