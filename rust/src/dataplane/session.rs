//! Session: what one connection carries from burst to burst.
//!
//! A session lives on its connection's I/O thread and never leaves it. Its buffers are reused, which is what keeps
//! the steady state free of allocations.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hashbrown::HashMap;

use super::deadlines::DeadlineKey;
use super::deliveries::{Delivery, KeptDeliveries};
use super::event::{KnownHeartbeat, Link};
use super::filter::Filter;
use super::held_replies::HeldReplies;
use super::latency::LatencyBuffer;
use super::metadata::{Group, Topic};
use super::principal::{Principal, Waiter};
use super::request::{OwnedFrame, RequestContext};
use super::scanned_ranges::ScannedRanges;
use crate::remoting::frame::{Encoding, Frame};
use crate::remoting::header::Header;
use crate::store::{ConsumeQueue, Get, GetResult};

/// A pull that passed admission: what it takes to execute it, now or later.
#[derive(Debug)]
pub(super) struct PendingPull {
    pub(super) context: RequestContext,
    pub(super) group: Arc<Group>,
    pub(super) topic: Arc<Topic>,
    pub(super) queue: Arc<ConsumeQueue>,
    pub(super) get: Get,
    pub(super) filter: Arc<Filter>,
    pub(super) delivery: Arc<Delivery>,
    /// Who asked for it, where that has to be allowed still when it is answered.
    pub(super) waiter: Option<Waiter>,
    pub(super) deadline: Option<DeadlineKey>,
}

/// Sends, and returned messages, for which the log had no room, oldest first. While there are any, the sends that come
/// later wait behind them: those of a connection are stored in the order they came.
#[derive(Debug, Default)]
pub(super) struct ParkedSends {
    /// Each with the time until which it waits, on the data plane's clock.
    pub(super) frames: VecDeque<(Duration, OwnedFrame)>,
    /// The time for which there is a deadline.
    pub(super) due: Option<Duration>,
}

/// The body of a large frame, apart from the frame.
#[derive(Debug)]
pub(super) enum DetachedBody {
    /// The memory that it came in.
    Owned(Bytes),
    /// So many bytes, which are not kept.
    Skipped(usize),
}

/// As long as its usual bursts are no larger, the arena of a connection is allocated once.
const ARENA_BYTES_KEPT: usize = 256 << 10;

/// The state of one connection.
#[derive(Debug)]
pub struct Session {
    pub(super) link: Arc<Link>,
    /// Decodes every request of this connection in turn.
    pub(super) header: Header,
    /// Properties of the sends of one burst, as they will be stored.
    pub(super) arena: Vec<u8>,
    /// What the last pull found.
    pub(super) found: GetResult,
    pub(super) parked: HashMap<u64, PendingPull>,
    pub(super) parked_sends: ParkedSends,
    pub(super) next_token: u64,
    /// The filter of the last pull that carried an expression: the next one has the same, nearly always.
    pub(super) filter: Option<(Box<str>, Arc<Filter>)>,
    pub(super) scanned: ScannedRanges,
    /// What evaluations of filters have cost since the service was asked for it.
    pub(super) filter_cost: usize,
    pub(super) deliveries: KeptDeliveries,
    pub(super) latency: LatencyBuffer,
    pub(super) held: HeldReplies,
    pub(super) heartbeat: Option<KnownHeartbeat>,
    pub(super) principal: Principal,
    /// Of the frame that is under way, if it is a large one.
    pub(super) detached: Option<DetachedBody>,
    /// Something of the burst went up to Python.
    pub(super) has_sent_up: bool,
    /// Something of this connection ever did.
    pub(super) is_known_above: bool,
    /// So much waits for Python that no more is taken.
    pub(super) is_held: bool,
    /// Spreads sends without a wish over queues.
    pub(super) random: Random,
}

/// Cheap numbers without pattern (xorshift64).
#[derive(Debug)]
pub(super) struct Random(u64);

impl Random {
    pub(super) fn seeded(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    /// A number below `bound`, evenly spread; 0 for a bound of 0.
    pub(super) fn below(&mut self, bound: u32) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (((self.0 >> 32) * u64::from(bound)) >> 32) as u32
    }
}

impl Session {
    pub(super) fn new(link: Arc<Link>) -> Self {
        let random = Random::seeded(link.id().0);
        Self {
            link,
            header: Header::new(),
            arena: Vec::new(),
            found: GetResult::default(),
            parked: HashMap::new(),
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

    /// After each burst. An arena that a large batch needed goes back at once: one for each connection that sent some
    /// lately is more than all batches under way need, and room that is freed bit by bit stays with the allocator.
    pub(super) fn clear_arena(&mut self) {
        if self.arena.capacity() > ARENA_BYTES_KEPT {
            self.arena = Vec::new();
        } else {
            self.arena.clear();
        }
    }

    /// Memory kept from burst to burst, filled or not.
    pub(super) fn kept_bytes(&self) -> usize {
        self.header.kept_bytes()
            + self.arena.capacity()
            + self.held.kept_bytes()
            + self.found.kept_bytes()
            + self.parked.capacity() * size_of::<(u64, PendingPull)>()
            + self.deliveries.kept_bytes()
            + self.principal.kept_bytes()
    }

    /// Gives back what only the next burst would use.
    pub(super) fn shrink(&mut self) {
        self.header.shrink();
        self.arena.shrink_to_fit();
        self.held.shrink();
        self.found.shrink();
        self.parked.shrink_to_fit();
        self.deliveries.shrink();
        self.principal.shrink();
        self.filter = None;
        self.scanned.clear();
    }

    /// Something goes up to Python, which hears of the connection's end from now on.
    pub(super) fn sends_up(&mut self) {
        self.has_sent_up = true;
        self.is_known_above = true;
    }

    /// Bytes of the body of the frame that is under way, as it came.
    pub(super) fn body_bytes(&self, frame: &Frame<'_>) -> usize {
        match self.detached {
            Some(DetachedBody::Skipped(bytes)) => bytes,
            _ => frame.body.len(),
        }
    }

    /// That body, to be kept: copied, unless its memory came with it.
    pub(super) fn owned_body(&self, frame: &Frame<'_>) -> Bytes {
        match &self.detached {
            Some(DetachedBody::Owned(memory)) => memory.slice_ref(frame.body),
            _ => Bytes::copy_from_slice(frame.body),
        }
    }

    /// The request of the last decoded header.
    pub(super) fn context(&self, encoding: Encoding) -> RequestContext {
        RequestContext {
            code: self.header.code,
            came_at: self.latency.began,
            opaque: self.header.opaque,
            encoding,
            is_oneway: self.header.is_oneway(),
        }
    }
}
