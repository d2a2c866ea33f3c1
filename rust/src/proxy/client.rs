//! Client: the state of one connected client, across its calls.
//!
//! It has one connection to each broker for requests and registration, and lends others to receives: a receive that the
//! client gives up ends its connection, and with it the pop that waits there.
//!
//! Threads: any; one short lock.

use std::sync::Arc;

use hashbrown::HashMap;
use parking_lot::Mutex;
use tokio::sync::mpsc::Sender;
use tokio::time::Instant;

use super::api_telemetry::{Settings, TelemetryCommand};
use super::caller::{Addresses, Caller};
use super::handle::ReceiptHandle;
use super::status::{Refused, code};
use crate::access::rules::User;
use crate::remoting::Peer;

/// Brokers of one client.
const BROKERS_MAX: usize = 256;
/// Connections for receives that are kept while no receive uses them.
const IDLE_MAX: usize = 32;
/// Messages of one client whose time is extended until it acknowledges them.
pub(super) const RENEWALS_MAX: usize = 10_000;
/// Streams of one client; a client opens one for each address of the server that it knows.
const STREAMS_MAX: usize = 8;

/// A part of a telemetry stream. Boxed, because an idle stream has room for 32 of them.
pub(super) type CommandPart = Box<Result<TelemetryCommand, tonic::Status>>;
/// The sending end of a telemetry stream.
pub(super) type CommandSender = Sender<CommandPart>;

/// A message of a consumer group, by its id and its place in the queue.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct RenewalKey {
    pub(super) group: String,
    pub(super) message_id: String,
    place: (u8, i64, i64),
}

impl RenewalKey {
    pub(super) fn of(group: &str, message_id: &str, handle: &ReceiptHandle) -> Self {
        let place = (handle.mark, handle.queue, handle.offset);
        Self { group: group.to_owned(), message_id: message_id.to_owned(), place }
    }
}

/// A message whose time is extended until the client acknowledges it.
#[derive(Debug, Clone)]
pub(super) struct Renewal {
    pub(super) handle: ReceiptHandle,
    pub(super) topic: String,
    /// When the client received it, in milliseconds since the epoch.
    pub(super) since_ms: i64,
    pub(super) count: usize,
    pub(super) failures: u32,
}

/// One connected client.
pub(super) struct ConnectedClient {
    pub(super) id: String,
    pub(super) language: u8,
    /// Its release, in remoting's numbering.
    pub(super) release: i32,
    state: Mutex<State>,
}

struct State {
    user: Option<Arc<User>>,
    addresses: Addresses,
    settings: Option<Arc<Settings>>,
    /// When its settings last changed, the version of its subscriptions.
    settings_ms: i64,
    streams: Vec<(u64, CommandSender)>,
    /// When its last stream ended, after it had one.
    left_at: Option<Instant>,
    seen_at: Instant,
    /// The connections for requests, by address.
    mains: Vec<(Box<str>, Arc<Peer>)>,
    /// The connections that no receive uses, by address.
    idle: Vec<(Box<str>, Arc<Peer>)>,
    renewals: HashMap<RenewalKey, Renewal>,
}

impl ConnectedClient {
    pub(super) fn new(caller: &Caller) -> Self {
        let state = State {
            user: caller.user.clone(),
            addresses: caller.addresses,
            settings: None,
            settings_ms: 0,
            streams: Vec::new(),
            left_at: None,
            seen_at: Instant::now(),
            mains: Vec::new(),
            idle: Vec::new(),
            renewals: HashMap::new(),
        };
        let (id, release) = (caller.client_id.clone(), caller.release());
        Self { id, language: caller.language, release, state: Mutex::new(state) }
    }

    /// Notes a call, and takes its user and address for requests of the client's own.
    pub(super) fn seen(&self, caller: &Caller) {
        let mut state = self.state.lock();
        state.seen_at = Instant::now();
        state.user = caller.user.clone();
        state.addresses = caller.addresses;
    }

    pub(super) fn user(&self) -> Option<Arc<User>> {
        self.state.lock().user.clone()
    }

    pub(super) fn addresses(&self) -> Addresses {
        self.state.lock().addresses
    }

    pub(super) fn settings(&self) -> Option<Arc<Settings>> {
        self.state.lock().settings.clone()
    }

    /// Keeps settings; returns the version of their subscriptions.
    pub(super) fn set_settings(&self, settings: Settings, now_ms: i64) -> i64 {
        let mut state = self.state.lock();
        if state.settings.as_deref() != Some(&settings) {
            state.settings = Some(Arc::new(settings));
            state.settings_ms = now_ms;
        }
        state.settings_ms
    }

    pub(super) fn settings_ms(&self) -> i64 {
        self.state.lock().settings_ms
    }

    /// Adds a stream; false if the client has too many.
    pub(super) fn add_stream(&self, id: u64, sender: CommandSender) -> bool {
        let mut state = self.state.lock();
        if state.streams.iter().all(|(known, _)| *known != id) {
            state.streams.retain(|(_, sender)| !sender.is_closed());
            if state.streams.len() >= STREAMS_MAX {
                return false;
            }
            state.streams.push((id, sender));
        }
        state.left_at = None;
        true
    }

    pub(super) fn remove_stream(&self, id: u64) {
        let mut state = self.state.lock();
        state.streams.retain(|(known, _)| *known != id);
        if state.streams.is_empty() {
            state.left_at = Some(Instant::now());
        }
    }

    /// Returns whether the client is there: it has a stream, or has called since it lost one. After a restart of this
    /// server some clients go on without a stream, for minutes.
    pub(super) fn is_connected(&self) -> bool {
        let state = self.state.lock();
        !state.streams.is_empty() || state.left_at.is_none_or(|at| state.seen_at > at)
    }

    /// Sends a command on the newest stream; returns whether there is one with room.
    pub(super) fn command(&self, command: TelemetryCommand) -> bool {
        let state = self.state.lock();
        state.streams.last().is_some_and(|(_, sender)| sender.try_send(Box::new(Ok(command))).is_ok())
    }

    /// Returns whether the client is gone: it has left, or has not called for too long.
    pub(super) fn is_gone(&self, left: std::time::Duration, silent: std::time::Duration) -> bool {
        let state = self.state.lock();
        match state.left_at {
            _ if !state.streams.is_empty() => false,
            Some(at) => at.elapsed() >= left && state.seen_at.elapsed() >= left,
            None => state.seen_at.elapsed() >= silent,
        }
    }

    /// Returns the connection for requests to this address, from `open` if there is none.
    pub(super) fn main(
        &self,
        address: &str,
        open: impl FnOnce() -> Result<Arc<Peer>, Refused>,
    ) -> Result<Arc<Peer>, Refused> {
        let mut state = self.state.lock();
        let known = state.mains.iter().find(|(known, peer)| &**known == address && peer.is_open());
        if let Some((_, peer)) = known {
            return Ok(Arc::clone(peer));
        }
        state.mains.retain(|(_, peer)| peer.is_open());
        if state.mains.len() >= BROKERS_MAX {
            return Err(Refused::new(code::TOO_MANY_REQUESTS, "too many brokers of one client"));
        }
        let peer = open()?;
        state.mains.push((address.into(), Arc::clone(&peer)));
        Ok(peer)
    }

    /// Returns a connection for one receive from this address, from `open` if none is idle.
    pub(super) fn lend(
        self: &Arc<Self>,
        address: &str,
        open: impl FnOnce() -> Result<Arc<Peer>, Refused>,
    ) -> Result<Lent, Refused> {
        let idle = {
            let mut state = self.state.lock();
            state.idle.retain(|(_, peer)| peer.is_open());
            let at = state.idle.iter().rposition(|(known, _)| &**known == address);
            at.map(|at| state.idle.swap_remove(at))
        };
        let (address, peer) = match idle {
            Some(idle) => idle,
            None => (address.into(), open()?),
        };
        Ok(Lent { client: Arc::clone(self), address, peer, is_done: false })
    }

    /// Closes every connection to brokers.
    pub(super) fn close(&self) {
        let mut state = self.state.lock();
        let mut peers = std::mem::take(&mut state.mains);
        peers.append(&mut state.idle);
        drop(state);
        peers.iter().for_each(|(_, peer)| peer.close());
    }

    /// Adds a message whose time is extended.
    pub(super) fn renew(&self, key: RenewalKey, renewal: Renewal) {
        let mut state = self.state.lock();
        if state.renewals.len() < RENEWALS_MAX {
            state.renewals.insert(key, renewal);
        }
    }

    /// Takes a message that the client acknowledges or whose time it sets itself.
    pub(super) fn take_renewal(&self, key: &RenewalKey) -> Option<Renewal> {
        self.state.lock().renewals.remove(key)
    }

    /// Takes a message by its id alone, for clients that lose handles.
    pub(super) fn take_renewal_of(&self, group: &str, message_id: &str) -> Option<Renewal> {
        let mut state = self.state.lock();
        let mut keys = state.renewals.keys();
        let key = keys.find(|key| key.group == group && key.message_id == message_id)?.clone();
        state.renewals.remove(&key)
    }

    /// Returns the messages that become visible before `due_ms`.
    pub(super) fn due_renewals(&self, due_ms: i64) -> Vec<(RenewalKey, Renewal)> {
        let state = self.state.lock();
        let due = state.renewals.iter().filter(|(_, renewal)| renewal.handle.due_ms() <= due_ms);
        due.map(|(key, renewal)| (key.clone(), renewal.clone())).collect()
    }

    /// Replaces a message that was extended, unless the client has acknowledged it meanwhile.
    pub(super) fn renewed(&self, key: &RenewalKey, next: Option<Renewal>) {
        let mut state = self.state.lock();
        match next {
            Some(next) => {
                if let Some(renewal) = state.renewals.get_mut(key) {
                    *renewal = next;
                }
            }
            None => drop(state.renewals.remove(key)),
        }
    }

    /// Returns the number of messages whose time is extended.
    pub(super) fn renewals(&self) -> usize {
        self.state.lock().renewals.len()
    }

    pub(super) fn take_renewals(&self) -> Vec<(RenewalKey, Renewal)> {
        self.state.lock().renewals.drain().collect()
    }
}

/// A connection lent to one receive. Dropping it before `done` closes it.
pub(super) struct Lent {
    client: Arc<ConnectedClient>,
    address: Box<str>,
    pub(super) peer: Arc<Peer>,
    is_done: bool,
}

impl Lent {
    /// Gives the connection back after the answer has come.
    pub(super) fn done(mut self) {
        self.is_done = true;
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        let mut state = self.client.state.lock();
        if self.is_done && state.idle.len() < IDLE_MAX {
            state.idle.push((self.address.clone(), Arc::clone(&self.peer)));
        } else {
            drop(state);
            self.peer.close();
        }
    }
}
