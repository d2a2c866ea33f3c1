//! Code → handler: what a server does with each frame.
//!
//! A `DataPlane` without a broker sends every request up; that is the name server. With one, the hot requests end
//! here and Python never sees them.
//!
//! Threads: each call runs on the connection's I/O thread; nothing here blocks.

use std::collections::BTreeMap;
use std::hash::BuildHasher;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use arrayvec::ArrayVec;
use hashbrown::HashMap;
use parking_lot::Mutex;

use super::admission::Rejection;
use super::ask::{is_send, not_made, upcall};
use super::attributes::added_properties;
use super::deadlines::Deadlines;
use super::delays::Delays;
use super::deliveries::Deliveries;
use super::latency::Latencies;
use super::long_poll::LongPolls;
use super::metadata::Metadata;
use super::offsets::Offsets;
use super::reply::ErrorReply;
use super::send::{Burst, StagedSend, send_answer_fields};
use super::session::{Event, Link, Session};
use super::upcall::{Cause, Missing, Upcalls, WaitId};
use crate::clock::SharedClock;
use crate::message::id::UniqueIds;
use crate::positions::{PhysicalOffset, QueueOffset};
use crate::remoting::codes::request;
use crate::remoting::frame::Frame;
use crate::remoting::header::ExtBlock;
use crate::remoting::{Close, LinkId, Outbox, Service};
use crate::store::{Arrivals, ConsumeQueue, Store};

/// What a deadline is about.
#[derive(Debug)]
pub enum Due {
    /// A parked pull has waited long enough.
    Pull(Arc<Link>, u64),
    /// Python did not make this in time.
    Missing(Missing, String, WaitId),
}

/// Everything the hot requests of a broker need.
pub struct Broker {
    /// Messages.
    pub store: Arc<Store>,
    /// Topics, groups, settings.
    pub metadata: Arc<Metadata>,
    /// Committed offsets.
    pub offsets: Arc<Offsets>,
    /// What groups took from queues.
    pub deliveries: Deliveries,
    pub(super) latencies: Arc<Latencies>,
    pub(super) polls: LongPolls,
    pub(super) deadlines: Deadlines<Due>,
    pub(super) flush_waiters: Mutex<Vec<(PhysicalOffset, Arc<Link>)>>,
    pub(super) ids: UniqueIds,
    pub(super) clock: SharedClock,
    pub(super) added_properties: Vec<u8>,
    delays: OnceLock<Delays>,
    /// Region and trace, which every answer to a send carries.
    pub(super) send_answer_fields: ExtBlock,
}

/// Figures since the start, each added to once per burst.
#[derive(Debug, Default)]
pub struct Counters {
    /// Frames that came in.
    pub requests: AtomicU64,
    /// Requests that went up to Python.
    pub upcalls: AtomicU64,
    /// Sends, batches counted once.
    pub sends: AtomicU64,
    /// Pulls, without their second execution.
    pub pulls: AtomicU64,
    /// Requests refused because the ring to Python was full, or because they waited in it for too long.
    pub overloads: AtomicU64,
}

/// The service behind a server.
pub struct DataPlane {
    /// The way up.
    pub upcalls: Arc<Upcalls>,
    /// The hot requests, for a broker.
    pub broker: Option<Broker>,
    /// Figures.
    pub counters: Counters,
    /// How long answers took.
    pub latencies: Arc<Latencies>,
    pub(super) clock: SharedClock,
    heartbeat_epoch: AtomicU64,
    pub(super) heartbeats: Mutex<HashMap<u64, Duration>>,
}

impl Broker {
    /// Pulls that wait for a message.
    #[must_use]
    pub fn parked_pulls(&self) -> usize {
        self.polls.count()
    }
}

impl DataPlane {
    /// A server that sends everything up.
    ///
    /// # Errors
    /// When the system has no descriptor left.
    pub fn new(clock: SharedClock) -> std::io::Result<Self> {
        Ok(Self {
            upcalls: Arc::new(Upcalls::new()?),
            broker: None,
            counters: Counters::default(),
            latencies: Arc::default(),
            clock,
            heartbeat_epoch: AtomicU64::new(0),
            heartbeats: Mutex::default(),
        })
    }

    /// A broker over `store`, whose arrivals it listens to from now on.
    ///
    /// # Errors
    /// When the system has no descriptor or no thread left.
    pub fn with_broker(
        clock: SharedClock,
        store: Arc<Store>,
        metadata: Arc<Metadata>,
        offsets: Arc<Offsets>,
    ) -> std::io::Result<Arc<Self>> {
        let mut data_plane = Self::new(Arc::clone(&clock))?;
        let upcalls = Arc::clone(&data_plane.upcalls);
        let deadlines = Deadlines::start("deadlines", clock, move |due| {
            match due {
                Due::Pull(link, token) => {
                    link.post(Event::Wake(token));
                }
                Due::Missing(missing, name, wait) => {
                    upcalls.expire(missing, &name, wait, not_made(missing, &name));
                }
            }
            None
        })?;
        data_plane.broker = Some(Broker {
            added_properties: added_properties(&metadata.identity),
            send_answer_fields: send_answer_fields(&metadata.identity),
            ids: unique_ids(&metadata),
            clock: Arc::clone(&data_plane.clock),
            deliveries: Deliveries::default(),
            latencies: Arc::clone(&data_plane.latencies),
            polls: LongPolls::default(),
            flush_waiters: Mutex::default(),
            deadlines,
            metadata,
            offsets,
            store: Arc::clone(&store),
            delays: OnceLock::new(),
        });
        let data_plane = Arc::new(data_plane);
        store.set_arrivals(Arc::clone(&data_plane) as Arc<dyn Arrivals>);
        Ok(data_plane)
    }

    /// Begins to deliver delayed messages, each level from its offset in `from`. Only the first call counts, and only
    /// a broker's.
    ///
    /// # Errors
    /// When the system refuses a thread.
    pub fn deliver(&self, from: &BTreeMap<u32, u64>) -> std::io::Result<()> {
        if let Some(broker) = self.broker.as_ref().filter(|broker| broker.delays.get().is_none()) {
            let delays = Delays::start(&broker.store, Arc::clone(&self.clock), from)?;
            if let Err(late) = broker.delays.set(delays) {
                late.stop();
            }
        }
        Ok(())
    }

    /// The offset of each delay level that has delivered something: see `Delays::offsets`.
    #[must_use]
    pub fn delay_offsets(&self) -> BTreeMap<u32, u64> {
        let delays = self.broker.as_ref().and_then(|broker| broker.delays.get());
        delays.map(Delays::offsets).unwrap_or_default()
    }

    /// Ends the data plane's own threads, after its server has stopped.
    pub fn stop(&self) {
        if let Some(broker) = &self.broker {
            broker.deadlines.stop();
            broker.delays.get().into_iter().for_each(Delays::stop);
        }
    }

    /// Makes the next heartbeat of every connection go up again.
    pub fn forget_heartbeats(&self) {
        self.heartbeat_epoch.fetch_add(1, Ordering::AcqRel);
    }

    /// The registry's epoch: heartbeats accepted in an older one are forgotten.
    #[must_use]
    pub fn heartbeat_epoch(&self) -> u64 {
        self.heartbeat_epoch.load(Ordering::Acquire)
    }

    /// Time since the connection's last accepted heartbeat.
    #[must_use]
    pub fn heartbeat_age(&self, link: LinkId) -> Option<Duration> {
        let last = *self.heartbeats.lock().get(&link.0)?;
        Some(self.clock.elapsed().saturating_sub(last))
    }

    /// Counts what was answered since `session.tally.began`.
    fn settle(&self, session: &mut Session) {
        if !session.latency.is_empty() {
            session.latency.settle(&self.latencies, self.clock.elapsed());
        }
    }

    fn serve<'f>(
        &self,
        session: &mut Session,
        frame: &Frame<'f>,
        burst: &mut Burst<'f>,
        out: &mut Outbox,
    ) -> Result<(), Rejection> {
        let Some(broker) = &self.broker else {
            self.ask(session, frame, out);
            return Ok(());
        };
        let code = session.header.code;
        if is_send(code) {
            self.counters.sends.fetch_add(1, Ordering::Relaxed);
            match broker.stage(session, frame)? {
                StagedSend::Message(staged) => burst.push(staged),
                StagedSend::Batch(messages, unique_key) => {
                    broker.append(session, burst, out);
                    broker.append_batch(session, &messages, unique_key.as_deref(), out);
                }
            }
            return Ok(());
        }
        match code {
            request::PULL_MESSAGE | request::LITE_PULL_MESSAGE => {
                self.counters.pulls.fetch_add(1, Ordering::Relaxed);
                broker.append(session, burst, out);
                broker.pull(session, frame.encoding, out)
            }
            request::CONSUMER_SEND_MSG_BACK => broker.send_back(session, frame, false, out),
            request::QUERY_CONSUMER_OFFSET => broker.query_offset(session, frame.encoding, out),
            request::UPDATE_CONSUMER_OFFSET => broker.update_offset(session, frame.encoding, out),
            request::HEART_BEAT if self.repeat_heartbeat(session, frame, out) => Ok(()),
            _ => {
                self.ask(session, frame, out);
                Ok(())
            }
        }
    }
}

impl Service for DataPlane {
    type Session = Session;
    type Event = Event;

    fn open(&self, link: Arc<Link>) -> Session {
        Session::new(link)
    }

    fn burst(&self, session: &mut Session, frames: &[Frame<'_>], out: &mut Outbox) -> Result<(), Close> {
        self.counters.requests.fetch_add(frames.len() as u64, Ordering::Relaxed);
        session.latency.began = self.clock.elapsed();
        let mut burst: Burst<'_> = ArrayVec::new();
        for frame in frames {
            session.header.decode(frame)?;
            if session.header.is_response() {
                self.answered(session, frame);
                continue;
            }
            if let Err(halt) = self.serve(session, frame, &mut burst, out) {
                self.halt(session, frame, halt, 0, out);
            }
        }
        if let Some(broker) = &self.broker {
            broker.append(session, &mut burst, out);
        }
        self.settle(session);
        session.arena.clear();
        Ok(())
    }

    fn event(&self, session: &mut Session, event: Event, out: &mut Outbox) -> Result<(), Close> {
        match event {
            Event::Write(frame) => out.bytes().extend_from_slice(&frame),
            Event::Frame(owned, error_reply) => {
                let frame = owned.frame();
                session.latency.began = owned.came_at;
                session.header.decode(&frame)?;
                let mut burst: Burst<'_> = ArrayVec::new();
                let served = match error_reply {
                    None => self.serve(session, &frame, &mut burst, out),
                    Some((code, remark)) => Err(ErrorReply::new(code, remark.to_string()).into()),
                };
                match served {
                    Err(halt) => self.halt(session, &frame, halt, owned.parkings, out),
                    Ok(()) => self.broker.iter().for_each(|broker| broker.append(session, &mut burst, out)),
                }
                self.settle(session);
                session.arena.clear();
            }
            Event::Returned(owned) => {
                let frame = owned.frame();
                session.latency.began = owned.came_at;
                session.header.decode(&frame)?;
                let broker = self.broker.as_ref();
                let returned = broker.map_or(Ok(()), |broker| broker.send_back(session, &frame, true, out));
                if let Err(halt) = returned {
                    self.halt(session, &frame, halt, owned.parkings, out);
                }
                self.settle(session);
                session.arena.clear();
            }
            Event::Wake(token) => self.broker.iter().for_each(|broker| broker.wake(session, token, out)),
            Event::Read(token, found) => {
                if let Some(broker) = &self.broker {
                    broker.answer_read(session, token, *found, out);
                }
            }
            Event::Durable => self.broker.iter().for_each(|broker| broker.release_held(session, out)),
            Event::Heartbeat(known) => {
                self.heartbeats.lock().insert(session.link.id().0, self.clock.elapsed());
                session.heartbeat = Some(known);
            }
        }
        Ok(())
    }

    fn is_settled(&self, session: &Session) -> bool {
        session.held.is_empty()
    }

    fn close(&self, mut session: Session) {
        if let Some(broker) = &self.broker {
            broker.forget_parked(&mut session);
        }
        self.heartbeats.lock().remove(&session.link.id().0);
        self.upcalls.tell(upcall(&session, Cause::Closed));
    }
}

impl Arrivals for DataPlane {
    fn arrived(&self, queue: &ConsumeQueue, max: QueueOffset, tags_code: i64) {
        if let Some(broker) = &self.broker {
            broker.polls.arrived(queue, max, tags_code);
        }
    }

    fn durable(&self, position: PhysicalOffset) {
        let Some(broker) = &self.broker else { return };
        let mut waiters = broker.flush_waiters.lock();
        let is_latched = broker.store.is_latched();
        for (_, link) in waiters.extract_if(.., |(end, _)| is_latched || *end <= position) {
            link.post(Event::Durable);
        }
    }

    fn latched(&self) {
        self.durable(PhysicalOffset(u64::MAX));
    }
}

/// Ids for messages whose client made none: told apart from other brokers by address, process and time of start.
fn unique_ids(metadata: &Metadata) -> UniqueIds {
    let address = match metadata.identity.store_host.ip().to_canonical() {
        IpAddr::V4(address) => address,
        IpAddr::V6(_) => Ipv4Addr::LOCALHOST,
    };
    let salt = foldhash::fast::RandomState::default().hash_one(address) as u32;
    UniqueIds::new(address, std::process::id(), salt)
}
