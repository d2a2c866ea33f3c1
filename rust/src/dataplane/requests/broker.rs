//! Broker: the state that hot requests share, and reads that may block on the disk.

use std::collections::VecDeque;
use std::sync::Arc;

use arc_swap::ArcSwapOption;
use hashbrown::HashMap;
use parking_lot::Mutex;

use super::attributes::AddedProperties;
use super::guard::Guard;
use super::lites::Lites;
use super::session::Session;
use crate::clock::SharedClock;
use crate::dataplane::delivery::deadlines::Deadlines;
use crate::dataplane::delivery::delays::Delays;
use crate::dataplane::delivery::escapes::Escapes;
use crate::dataplane::delivery::revive::Revive;
use crate::dataplane::delivery::timers::Timers;
use crate::dataplane::delivery::transactions::Transactions;
use crate::dataplane::state::deliveries::Deliveries;
use crate::dataplane::state::latency::Latencies;
use crate::dataplane::state::metadata::Metadata;
use crate::dataplane::state::offsets::Offsets;
use crate::dataplane::state::rejection::{ErrorReply, Missing, overload};
use crate::dataplane::state::request::OwnedFrame;
use crate::dataplane::state::settled::Settled;
use crate::dataplane::waiting::event::{Event, Link, Owed};
use crate::dataplane::waiting::long_poll::{LongPolls, WaiterId};
use crate::dataplane::waiting::parked_frames::{ParkedFrames, WaitId};
use crate::dataplane::waiting::pop_groups::{ParkedKey, PopGroup, PopGroups, Purpose};
use crate::message::record::RecordView;
use crate::positions::PhysicalOffset;
use crate::remoting::LinkId;
use crate::remoting::frame::Frame;
use crate::remoting::header::ExtBlock;
use crate::store::{ConsumeQueue, Store};

/// An entry of `Broker::deadlines`.
#[derive(Debug)]
pub(in crate::dataplane) enum Deadline {
    /// The timeout of a pull parked at a queue, by connection and token.
    Pull(Arc<ConsumeQueue>, LinkId, u64),
    /// The next step of waking a crowd of pulls parked at a queue.
    Crowd(Arc<ConsumeQueue>, WaiterId),
    /// The timeout of a pop or notification parked at a group.
    Pop(Arc<PopGroup>, Purpose, ParkedKey),
    /// The end of a block: a group that pops in order may have more of a queue.
    Free(Arc<PopGroup>, u32),
    /// The end of a block: the group may have more of the queue of a lite topic.
    Lite(Arc<str>, Arc<str>),
    /// The timeout of the oldest parked send of a connection.
    Send(Arc<Link>),
    /// The timeout of a topic or group that Python is to create.
    Missing(Missing, String, WaitId),
}

/// Delivery of delayed, timed and popped messages.
pub(in crate::dataplane) struct Waiting {
    pub(in crate::dataplane) delays: Delays,
    pub(in crate::dataplane) timers: Option<Arc<Timers>>,
    /// Redelivers messages that were popped and not acknowledged. `None` unless messages go to this broker's own
    /// log.
    pub(in crate::dataplane) revive: Option<Revive>,
}

impl Waiting {
    /// Stops the delivery and waits for a delivery in progress.
    pub(in crate::dataplane) fn stop(&self) {
        self.revive.iter().for_each(Revive::stop);
        self.delays.stop();
        self.timers.iter().for_each(|timers| timers.stop());
    }
}

/// The state that the hot requests of a broker share.
pub(crate) struct Broker {
    pub(crate) store: Arc<Store>,
    pub(in crate::dataplane) metadata: Arc<Metadata>,
    pub(in crate::dataplane) offsets: Arc<Offsets>,
    pub(crate) deliveries: Arc<Deliveries>,
    pub(crate) polls: Arc<LongPolls>,
    pub(crate) pops: Arc<PopGroups>,
    pub(crate) lites: Arc<Lites>,
    pub(in crate::dataplane) latencies: Arc<Latencies>,
    pub(in crate::dataplane) deadlines: Deadlines<Deadline>,
    pub(in crate::dataplane) guard: Arc<Guard>,
    pub(in crate::dataplane) flush_waiters: Mutex<Vec<(PhysicalOffset, Arc<Link>)>>,
    /// Connections by id, with the position that the slaves must reach before their next reply.
    pub(in crate::dataplane) copy_waiters: Mutex<HashMap<u64, (PhysicalOffset, Arc<Link>)>>,
    pub(in crate::dataplane) clock: SharedClock,
    pub(in crate::dataplane) added_properties: AddedProperties,
    pub(in crate::dataplane) parked: Arc<ParkedFrames>,
    /// Delivery of delayed, timed and popped messages; `None` while another broker does it.
    pub(in crate::dataplane) waiting: ArcSwapOption<Waiting>,
    /// Messages in transfer to another broker, while this one acts for its master.
    pub(crate) escapes: Arc<Escapes>,
    /// Pops that are acknowledged, whose records need no delivery.
    pub(in crate::dataplane) settled: Arc<Settled>,
    pub(in crate::dataplane) transactions: Transactions,
    /// Halves that were discarded and reopened recently.
    pub(in crate::dataplane) resumed: Mutex<VecDeque<PhysicalOffset>>,
    /// Region and trace switch, which every reply to a send contains.
    pub(in crate::dataplane) send_answer_fields: ExtBlock,
}

impl Broker {
    /// Runs `read` on the store's read thread, which may wait for the disk, and posts the result to `link`, with
    /// `bytes` of its outbox reserved. Returns false without space, or if too many reads are pending.
    pub(super) fn read_first(
        &self,
        link: &Arc<Link>,
        bytes: usize,
        read: impl FnOnce(&Store) -> Event + Send + 'static,
    ) -> bool {
        let Some(owed) = link.owe(bytes) else { return false };
        // The reservation comes back if the read is refused.
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

    /// Reads the record that a request names on the store's read thread; the frame returns as `Event::Found`.
    pub(super) fn look_up_first(
        &self,
        session: &Session,
        frame: &Frame<'_>,
        at: PhysicalOffset,
    ) -> Result<(), ErrorReply> {
        let frame = OwnedFrame::of(frame, 0, session.latency.began);
        let is_taken = self.read_first(&session.link, frame.size(), move |store| {
            // Parsing and the checksum of the body touch all its pages.
            let record = store.lookup(at);
            let record = record.as_deref().and_then(|bytes| RecordView::parse(bytes).ok());
            std::hint::black_box(record.is_some_and(|record| record.body_crc_matches()));
            Event::Found(frame)
        });
        if is_taken { Ok(()) } else { Err(overload()) }
    }
}
