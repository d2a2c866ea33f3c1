//! Guard: authentication and authorization of every request if access control is on.
//!
//! The thread that reads a request authenticates it over the bytes in the read buffer, and authorizes hot requests.
//! Cold requests are forwarded with the name of their user, and Python authorizes what it has decoded
//! (`DataPlane::authorize`), because two decoders of one body could disagree.
//!
//! A refusal of a wrong signature may be delayed; its connection is not read meanwhile.
//!
//! *Invariant*: while access control is off, a request costs one load and one branch.
//! Threads: requests on any I/O thread; Python publishes rules; the deadline thread sends delayed replies.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use arc_swap::ArcSwap;
use parking_lot::Mutex;

use super::session::Session;
use crate::access::failures::Failures;
use crate::access::limits::{Limits, UserConnection};
use crate::access::policy::Needed;
use crate::access::refusal::{Refusal, RefusalKind, shown};
use crate::access::rules::{Checks, Rules, Sender, Signed, User};
use crate::access::signature::{ACCESS_KEY, SIGNATURE};
use crate::clock::SharedClock;
use crate::dataplane::delivery::deadlines::Deadlines;
use crate::dataplane::state::principal::{Principal, Waiter};
use crate::dataplane::state::rejection::{ErrorReply, Rejection};
use crate::dataplane::waiting::event::{Event, Link, Owed};
use crate::remoting::codes::response;
use crate::remoting::frame::Frame;
use crate::requests::{fields, needs};

/// Requests that were refused since the start.
#[derive(Debug, Default)]
pub(crate) struct RefusalCounts {
    pub(crate) unauthenticated: AtomicU64,
    pub(crate) unauthorized: AtomicU64,
    /// Requests above the limits of their users.
    pub(crate) limited: AtomicU64,
    /// Requests with a delayed reply.
    pub(crate) delayed: AtomicU64,
}

/// Refusals kept for the log; further ones are only counted.
const REFUSALS_KEPT_MAX: usize = 256;

/// Code, peer address and error text of a refused request.
pub(crate) type RefusedRow = (i32, SocketAddr, String);

/// Refusals since the last call.
#[derive(Debug, Default)]
pub(crate) struct Refused {
    pub(crate) rows: Vec<RefusedRow>,
    /// The number of further refusals.
    pub(crate) more: u64,
}

/// Access control of one server.
pub(crate) struct Guard {
    is_on: AtomicBool,
    rules: ArcSwap<Rules>,
    failures: Mutex<Failures>,
    refused: Mutex<Refused>,
    late: OnceLock<Deadlines<(Owed, Vec<u8>)>>,
    pub(crate) counts: RefusalCounts,
    clock: SharedClock,
}

impl Guard {
    pub(in crate::dataplane) fn new(clock: SharedClock) -> Self {
        Self {
            is_on: AtomicBool::new(false),
            rules: ArcSwap::default(),
            failures: Mutex::default(),
            refused: Mutex::default(),
            late: OnceLock::new(),
            counts: RefusalCounts::default(),
            clock,
        }
    }

    /// Returns whether access control is on.
    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Relaxed)
    }

    /// Replaces the rules for requests decoded from now on.
    pub(in crate::dataplane) fn publish(
        &self,
        checks: Checks,
        users: impl IntoIterator<Item = User>,
    ) -> std::io::Result<()> {
        if checks.is_any() && self.late.get().is_none() {
            let late = Deadlines::start("refusals", Arc::clone(&self.clock), |(owed, frame): (Owed, _)| {
                owed.post(Event::Late(frame));
                None
            })?;
            if let Err(second) = self.late.set(late) {
                second.stop();
            }
        }
        let is_on = checks.is_any();
        let before = self.rules.load();
        let with_usage = |user: User| match before.user(&user.name) {
            Some(known) => User { usage: Arc::clone(&known.usage), ..user },
            None => user,
        };
        let users = users.into_iter().map(with_usage);
        self.rules.store(Arc::new(Rules::new(checks, before.generation + 1, users)));
        self.is_on.store(is_on, Ordering::Release);
        Ok(())
    }

    pub(in crate::dataplane) fn stop(&self) {
        self.late.get().into_iter().for_each(Deadlines::stop);
    }

    /// Authenticates the request decoded last, and authorizes it if it is hot.
    #[cold]
    #[inline(never)]
    pub(in crate::dataplane) fn admit(
        &self,
        session: &mut Session,
        frame: &Frame<'_>,
    ) -> Result<(), Rejection> {
        let rules = self.rules.load();
        let Session { header, principal, link, heartbeat, .. } = session;
        let (code, peer) = (header.code, link.peer());
        let source = peer.ip();
        let is_counted = std::mem::take(&mut principal.is_counted);
        if principal.is_delayed {
            let source_address = source.to_canonical();
            return Err(self.refuse(code, peer, Refusal::Guessing { source_address }));
        }
        if principal.generation != rules.generation {
            let Principal { is_delayed, ref mut counted, .. } = *principal;
            let counted = counted.take();
            *principal =
                Principal { generation: rules.generation, is_delayed, counted, ..Principal::default() };
        }
        let signed = Signed {
            code: header.code,
            version: header.version,
            access_key: header.get(ACCESS_KEY).unwrap_or_default(),
            certificate_name: link.certificate_name(),
            signature: header.get(SIGNATURE).unwrap_or_default(),
            body: frame.body,
            source,
        };
        let found = rules.authenticate(signed, principal.user.as_ref(), header.ext());
        let Sender { user, is_trusted } = found.map_err(|refusal| self.refuse(code, peer, refusal))?;
        let is_signed =
            !is_trusted && user.is_some() && header.get(ACCESS_KEY).is_some_and(|key| !key.is_empty());
        if is_signed && let Some(field) = fields::undeclared(header) {
            return Err(self.refuse(code, peer, Refusal::Undeclared { field: shown(field) }));
        }
        let is_same = match (&principal.user, &user) {
            (Some(before), Some(now)) => Arc::ptr_eq(before, now),
            (None, None) => true,
            _ => false,
        };
        if !is_same {
            principal.permits.clear();
            // Another user sent the remembered heartbeat.
            *heartbeat = None;
            principal.user = user;
        }
        if rules.checks.limits.is_any() && !is_counted {
            let bytes = frame.header.len() + frame.body.len();
            limit(principal, rules.checks.limits, bytes, self.clock.elapsed())
                .map_err(|refusal| self.refuse(code, peer, refusal))?;
        }
        let user = principal.user.as_deref();
        principal.is_guarded = !is_trusted && rules.guards(header.code, user);
        if principal.is_guarded {
            let permits = &mut principal.permits;
            needs::each(header, |needed| rules.authorize(user, needed, source, Some(&mut *permits)))
                .map_err(|refusal| self.refuse(code, peer, refusal))?;
        }
        Ok(())
    }

    /// Checks a further permission of the sender of the current request.
    pub(super) fn permit(
        &self,
        principal: &mut Principal,
        link: &Link,
        code: i32,
        needed: Needed<'_>,
    ) -> Result<(), Rejection> {
        if !self.is_on() || !principal.is_guarded {
            return Ok(());
        }
        let peer = link.peer();
        let permits = Some(&mut principal.permits);
        let permitted = self.rules.load().authorize(principal.user.as_deref(), needed, peer.ip(), permits);
        permitted.map_err(|refusal| self.refuse(code, peer, refusal))
    }

    /// Checks that a parked pull of `topic` is still permitted.
    pub(super) fn still_permits(
        &self,
        waiter: &Waiter,
        code: i32,
        topic: &str,
        peer: SocketAddr,
    ) -> Result<(), ErrorReply> {
        let Waiter { user, group } = waiter;
        let rules = self.rules.load();
        let known = rules.user(&user.name);
        if known.is_some_and(|known| Arc::ptr_eq(known, user)) {
            // The user entry is replaced with any change, so the permissions are unchanged.
            return Ok(());
        }
        let check = || -> Result<(), Refusal> {
            let user = known.ok_or_else(|| Refusal::Mismatch { user: user.name.clone() })?;
            if !user.is_enabled {
                return Err(Refusal::Disabled { user: user.name.clone() });
            }
            if rules.guards(code, Some(user)) && !user.trusted_from.has(peer.ip()) {
                rules.authorize(Some(user), needs::to_receive(topic), peer.ip(), None)?;
                rules.authorize(Some(user), needs::to_join(group), peer.ip(), None)?;
            }
            Ok(())
        };
        check().map_err(|refusal| {
            self.note(code, peer, &refusal);
            ErrorReply::new(response::NO_PERMISSION, refusal.to_string())
        })
    }

    /// Checks all permissions of a named user for a cold request, and records a refusal.
    pub(crate) fn authorize<'a>(
        &self,
        code: i32,
        user: Option<&str>,
        peer: SocketAddr,
        needed: impl IntoIterator<Item = Needed<'a>>,
    ) -> Result<(), Refusal> {
        self.decide(user, peer, needed).inspect_err(|refusal| self.note(code, peer, refusal))
    }

    /// Checks the same for the broker's own actions, without recording a refusal.
    pub(crate) fn decide<'a>(
        &self,
        user: Option<&str>,
        peer: SocketAddr,
        needed: impl IntoIterator<Item = Needed<'a>>,
    ) -> Result<(), Refusal> {
        let rules = self.rules.load();
        let user = user.and_then(|name| rules.user(name));
        let mut needed = needed.into_iter();
        match user {
            Some(user) if !user.is_enabled => Err(Refusal::Disabled { user: user.name.clone() }),
            Some(user) if user.is_super => Ok(()),
            user => needed
                .try_for_each(|needed| rules.authorize(user.map(|user| &**user), needed, peer.ip(), None)),
        }
    }

    /// Returns the user that signed a text, in hexadecimal digits, as 5.x clients do; `None` while access control is off
    /// or the user is unknown and not required.
    ///
    /// # Errors
    /// The reason for the refusal, and the delay of its reply.
    pub(crate) fn signer_of_text(
        &self,
        peer: SocketAddr,
        user: &str,
        signature: &str,
        text: &str,
    ) -> Result<Option<Arc<User>>, (Refusal, Duration)> {
        let rules = self.rules.load();
        let known = rules.user(user);
        if !self.is_on() || !rules.checks.authenticates {
            return Ok(known.cloned());
        }
        if known.is_some_and(|known| known.key.verifies_text(signature, text)) {
            return Ok(known.cloned());
        }
        let refusal = Refusal::Mismatch { user: shown(user) };
        self.note(0, peer, &refusal);
        let delay = self.failures.lock().add(peer.ip(), self.clock.elapsed());
        Err((refusal, delay))
    }

    /// Checks one need of a request that is answered from metadata alone.
    pub(crate) fn permits(
        &self,
        code: i32,
        user: Option<&Arc<User>>,
        peer: SocketAddr,
        needed: Needed<'_>,
    ) -> Result<(), Refusal> {
        let (rules, source) = (self.rules.load(), peer.ip());
        let is_trusted =
            rules.checks.trusted_from.has(source) || user.is_some_and(|user| user.trusted_from.has(source));
        if !self.is_on() || is_trusted {
            return Ok(());
        }
        let permitted = match user {
            None if rules.checks.authenticates => Err(Refusal::Unsigned),
            Some(user) if !user.is_enabled => Err(Refusal::Disabled { user: user.name.clone() }),
            user if rules.guards(code, user.map(|user| &**user)) => {
                rules.authorize(user.map(|user| &**user), needed, source, None)
            }
            _ => Ok(()),
        };
        permitted.inspect_err(|refusal| self.note(code, peer, refusal))
    }

    /// Takes the refusals since the last call.
    pub(crate) fn take_refused(&self) -> Refused {
        std::mem::take(&mut *self.refused.lock())
    }

    #[cold]
    fn note(&self, code: i32, peer: SocketAddr, refusal: &Refusal) {
        let counter = match refusal.kind() {
            // Only counted: the request is permitted and will pass later.
            RefusalKind::Limited => {
                self.counts.limited.fetch_add(1, Ordering::Relaxed);
                return;
            }
            RefusalKind::Unauthenticated => &self.counts.unauthenticated,
            RefusalKind::Unauthorized => &self.counts.unauthorized,
        };
        counter.fetch_add(1, Ordering::Relaxed);
        let mut refused = self.refused.lock();
        if refused.rows.len() < REFUSALS_KEPT_MAX {
            refused.rows.push((code, peer, refusal.to_string()));
        } else {
            refused.more += 1;
        }
    }

    #[cold]
    fn refuse(&self, code: i32, peer: SocketAddr, refusal: Refusal) -> Rejection {
        self.note(code, peer, &refusal);
        let is_guess = matches!(refusal, Refusal::Mismatch { .. });
        let delay =
            if is_guess { self.failures.lock().add(peer.ip(), self.clock.elapsed()) } else { Duration::ZERO };
        let is_limited = matches!(refusal.kind(), RefusalKind::Limited);
        let reply_code = if is_limited { response::SYSTEM_BUSY } else { response::NO_PERMISSION };
        let error_reply = ErrorReply::new(reply_code, refusal.to_string());
        if delay.is_zero() { error_reply.into() } else { Rejection::Late(error_reply, delay) }
    }

    /// Sends `frame`, empty for a one-way request, after `delay`, and pauses reading from its connection until then.
    /// Returns the frame if the connection's outbox has no space for it.
    pub(in crate::dataplane) fn answer_late(
        &self,
        session: &mut Session,
        frame: Vec<u8>,
        delay: Duration,
    ) -> Result<(), Vec<u8>> {
        let (Some(late), Some(owed)) = (self.late.get(), session.link.owe(frame.len())) else {
            return Err(frame);
        };
        self.counts.delayed.fetch_add(1, Ordering::Relaxed);
        session.principal.is_delayed = true;
        late.add(delay, (owed, frame));
        Ok(())
    }
}

/// Charges a request of `bytes`, and its connection, to its user.
fn limit(principal: &mut Principal, limits: Limits, bytes: usize, now: Duration) -> Result<(), Refusal> {
    let Principal { user, counted, .. } = principal;
    let Some(user) = user.as_ref().filter(|user| !user.is_super) else {
        *counted = None;
        return Ok(());
    };
    let over = |(what, limit)| Refusal::Limited { user: user.name.clone(), what, limit };
    if !counted.as_ref().is_some_and(|counted| counted.is_of(&user.usage)) {
        *counted = UserConnection::of(&user.usage, limits.connections);
        if counted.is_none() {
            return Err(over(("connections", limits.connections.into())));
        }
    }
    user.usage.take(limits, bytes, now).map_err(over)
}
