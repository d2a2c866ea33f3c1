//! Session: the state of one connection between bursts.
//!
//! A session stays on its connection's I/O thread. It reuses its buffers, so that the steady state allocates
//! nothing.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hashbrown::HashMap;

use super::logical::Logical;
use super::pop::pending::PendingPop;
use crate::dataplane::delivery::deadlines::DeadlineKey;
use crate::dataplane::state::deliveries::{Delivery, KeptDeliveries};
use crate::dataplane::state::filter::Filter;
use crate::dataplane::state::latency::LatencyBuffer;
use crate::dataplane::state::metadata::{Group, Topic};
use crate::dataplane::state::principal::{Principal, Waiter};
use crate::dataplane::state::request::{OwnedFrame, RequestContext};
use crate::dataplane::state::scanned_ranges::ScannedRanges;
use crate::dataplane::waiting::event::{KnownHeartbeat, Link};
use crate::dataplane::waiting::held_replies::HeldReplies;
use crate::remoting::frame::{Encoding, Frame};
use crate::remoting::header::Header;
use crate::store::{ConsumeQueue, Get, GetResult};

/// A pull that passed admission, with the data to execute it.
#[derive(Debug)]
pub(in crate::dataplane) struct PendingPull {
    pub(in crate::dataplane) context: RequestContext,
    pub(in crate::dataplane) group: Arc<Group>,
    pub(in crate::dataplane) topic: Arc<Topic>,
    pub(in crate::dataplane) queue: Arc<ConsumeQueue>,
    pub(in crate::dataplane) get: Get,
    pub(in crate::dataplane) filter: Arc<Filter>,
    pub(in crate::dataplane) delivery: Arc<Delivery>,
    /// The user, if the permission is checked again before the reply.
    pub(in crate::dataplane) waiter: Option<Waiter>,
    pub(in crate::dataplane) deadline: Option<DeadlineKey>,
    /// The logical queue, of a static topic.
    pub(super) logical: Option<Logical>,
}

/// Sends and returned messages for which the log had no space, oldest first. Later sends are parked behind them,
/// because the sends of a connection are stored in order.
#[derive(Debug, Default)]
pub(in crate::dataplane) struct ParkedSends {
    /// The frames with their timeouts on the data plane's clock.
    pub(in crate::dataplane) frames: VecDeque<(Duration, OwnedFrame)>,
    /// The time of the registered deadline.
    pub(in crate::dataplane) due: Option<Duration>,
}

/// The body of a large frame, kept apart from the frame.
#[derive(Debug)]
pub(in crate::dataplane) enum DetachedBody {
    /// The memory that received it.
    Owned(Bytes),
    /// The size of a body that is not stored.
    Skipped(usize),
}

/// The arena's capacity between bursts; usual bursts fit, so it is allocated once.
const ARENA_BYTES_KEPT: usize = 256 << 10;

/// The state of one connection.
#[derive(Debug)]
pub struct Session {
    pub(in crate::dataplane) link: Arc<Link>,
    /// The decoder for every request of this connection.
    pub(in crate::dataplane) header: Header,
    /// The properties of a burst's sends as they will be stored.
    pub(super) arena: Vec<u8>,
    /// The result of the last pull.
    pub(in crate::dataplane) found: GetResult,
    pub(in crate::dataplane) parked: HashMap<u64, PendingPull>,
    pub(super) parked_pops: HashMap<u64, PendingPop>,
    pub(in crate::dataplane) parked_sends: ParkedSends,
    pub(in crate::dataplane) next_token: u64,
    /// The filter of the last pull with an expression, which the next pull usually repeats.
    pub(in crate::dataplane) filter: Option<(Box<str>, Arc<Filter>)>,
    pub(in crate::dataplane) scanned: ScannedRanges,
    /// The cost of filter evaluations since the service last took it.
    pub(in crate::dataplane) filter_cost: usize,
    pub(in crate::dataplane) deliveries: KeptDeliveries,
    pub(in crate::dataplane) latency: LatencyBuffer,
    pub(in crate::dataplane) held: HeldReplies,
    pub(in crate::dataplane) heartbeat: Option<KnownHeartbeat>,
    pub(in crate::dataplane) principal: Principal,
    /// The body of the current frame, if it is large.
    pub(in crate::dataplane) detached: Option<DetachedBody>,
    /// Whether a request of the burst was forwarded to Python.
    pub(in crate::dataplane) has_sent_up: bool,
    /// Whether any request of this connection was forwarded to Python.
    pub(in crate::dataplane) is_known_above: bool,
    /// Whether reading is paused because of too many pending upcalls.
    pub(in crate::dataplane) is_held: bool,
    /// Picks a queue for sends that name none.
    pub(super) random: Random,
}

/// A cheap pseudo-random generator (xorshift64).
#[derive(Debug)]
pub(in crate::dataplane) struct Random(u64);

impl Random {
    pub(super) fn seeded(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    /// Returns an evenly distributed number below `bound`; 0 for a bound of 0.
    pub(super) fn below(&mut self, bound: u32) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (((self.0 >> 32) * u64::from(bound)) >> 32) as u32
    }
}

impl Session {
    pub(in crate::dataplane) fn new(link: Arc<Link>) -> Self {
        let random = Random::seeded(link.id().0);
        Self {
            link,
            header: Header::new(),
            arena: Vec::new(),
            found: GetResult::default(),
            parked: HashMap::new(),
            parked_pops: HashMap::new(),
            parked_sends: ParkedSends::default(),
            next_token: 0,
            filter: None,
            scanned: ScannedRanges::default(),
            filter_cost: 0,
            deliveries: KeptDeliveries::default(),
            latency: LatencyBuffer::default(),
            held: HeldReplies::default(),
            heartbeat: None,
            principal: Principal::default(),
            detached: None,
            has_sent_up: false,
            is_known_above: false,
            is_held: false,
            random,
        }
    }

    /// Clears the arena after each burst. A large arena is freed immediately: one for each connection would exceed
    /// the memory of all batches in progress.
    pub(in crate::dataplane) fn clear_arena(&mut self) {
        if self.arena.capacity() > ARENA_BYTES_KEPT {
            self.arena = Vec::new();
        } else {
            self.arena.clear();
        }
    }

    /// Returns the memory kept between bursts.
    pub(in crate::dataplane) fn kept_bytes(&self) -> usize {
        self.header.kept_bytes()
            + self.arena.capacity()
            + self.held.kept_bytes()
            + self.found.kept_bytes()
            + self.parked.capacity() * size_of::<(u64, PendingPull)>()
            + self.parked_pops.capacity() * size_of::<(u64, PendingPop)>()
            + self.deliveries.kept_bytes()
            + self.principal.kept_bytes()
    }

    /// Frees memory that only the next burst would use.
    pub(in crate::dataplane) fn shrink(&mut self) {
        self.header.shrink();
        self.arena.shrink_to_fit();
        self.held.shrink();
        self.found.shrink();
        self.parked.shrink_to_fit();
        self.parked_pops.shrink_to_fit();
        self.deliveries.shrink();
        self.principal.shrink();
        self.filter = None;
        self.scanned.clear();
    }

    /// Records that a request is forwarded to Python, which must be notified when the connection closes.
    pub(in crate::dataplane) fn sends_up(&mut self) {
        self.has_sent_up = true;
        self.is_known_above = true;
    }

    /// Returns the size of the body of the current frame as received.
    pub(in crate::dataplane) fn body_bytes(&self, frame: &Frame<'_>) -> usize {
        match self.detached {
            Some(DetachedBody::Skipped(bytes)) => bytes,
            _ => frame.body.len(),
        }
    }

    /// Returns the body of the current frame as owned memory, copied unless it is owned already.
    pub(in crate::dataplane) fn owned_body(&self, frame: &Frame<'_>) -> Bytes {
        match &self.detached {
            Some(DetachedBody::Owned(memory)) => memory.slice_ref(frame.body),
            _ => Bytes::copy_from_slice(frame.body),
        }
    }

    /// Calls `work` with the last decoded header, taken out of the session so that its other parts can be borrowed.
    pub(in crate::dataplane) fn with_header<T>(&mut self, work: impl FnOnce(&mut Self, &Header) -> T) -> T {
        let header = std::mem::replace(&mut self.header, Header::new());
        let done = work(self, &header);
        self.header = header;
        done
    }

    /// Returns the request of the last decoded header.
    pub(in crate::dataplane) fn context(&self, encoding: Encoding) -> RequestContext {
        RequestContext::of(&self.header, self.latency.began, encoding)
    }
}
