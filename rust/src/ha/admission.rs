//! Admission: the decision which connections at the replication port are slaves.
//!
//! With access control a slave first shows a ticket, which it got at the ordinary port (`expect`). Without access
//! control every connection is trusted, as in Apache's broker. Apache's slaves have no tickets and report the
//! end of their log only after `haSendHeartbeatInterval`; `haTrustedAddresses` lists their addresses. In a set with a
//! controller they begin with a handshake, which has their id.
//!
//! *Invariant*: a pending connection occupies no slave's place, and its bytes change nothing before it is admitted.
//! There are at most `WAITING_MAX` pending connections; beyond that, the address with most of them loses its oldest.
//! Threads: the listener's; `expect` from any.

use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::time::timeout;

use crate::positions::PhysicalOffset;
use crate::replication::elected::Hello;
use crate::replication::master::{ConnectionId, Standing};
use crate::replication::stream::{
    MARK_BYTES, Protocol, REPORT_BYTES_MAX, ReportReader, TICKET_BYTES, TICKET_TAKEN, Ticket,
    announces_ticket, read_report,
};
use crate::tls::{ServerTls, Stream};

use super::ended::Ended;

/// Maximum number of connections that are not admitted yet.
const WAITING_MAX: usize = 256;
/// Time limit for showing a ticket.
const INTRODUCTION_MAX: Duration = Duration::from_secs(1);
/// Time limit for a TLS handshake before that.
const WELCOME_MAX: Duration = Duration::from_secs(5);
/// Maximum number of tickets not shown yet; the oldest are evicted.
const TICKETS_MAX: usize = 1_024;
/// Lifetime of a ticket. The slave compares its log meanwhile, which takes at most 15 s.
const TICKET_LIFE: Duration = Duration::from_secs(30);
/// Interval between reports of refused connections from one address.
const REPORT_INTERVAL: Duration = Duration::from_secs(60);
/// Maximum number of addresses remembered for that.
const REPORTED_MAX: usize = 64;

/// The rule for admission.
#[derive(Debug, Clone, Default)]
pub struct AdmissionRules {
    /// Whether a slave must show a ticket, because access control is on.
    pub needs_ticket: bool,
    /// Addresses of slaves without tickets (`haTrustedAddresses`).
    pub trusted: Vec<IpAddr>,
    /// Whether a controller elected this master, so that Apache's slaves of its set begin with a handshake.
    pub is_elected: bool,
}

/// Decides which connections are slaves.
#[derive(Debug, Default)]
pub struct Admission {
    rules: AdmissionRules,
    tickets: Mutex<VecDeque<GivenTicket>>,
    waiting: Mutex<Vec<Waiting>>,
    reported: Mutex<VecDeque<(IpAddr, Instant)>>,
}

/// A ticket that was not shown yet.
#[derive(Debug)]
struct GivenTicket {
    ticket: Ticket,
    given: Instant,
    /// The broker id of the slave it was given to, if it named one.
    broker_id: Option<u64>,
    standing: Standing,
}

/// A connection that is a slave's.
pub(super) struct Introduced {
    pub(super) stream: Stream,
    /// The end of its log.
    pub(super) end: PhysicalOffset,
    /// Its broker id, if its ticket shows it.
    pub(super) broker_id: Option<u64>,
    /// Whether its copy counts: only a ticket can make it an observer.
    pub(super) standing: Standing,
    /// The form of its reports.
    pub(super) protocol: Protocol,
}

#[derive(Debug)]
struct Waiting {
    id: ConnectionId,
    address: IpAddr,
    leave: Arc<Notify>,
}

/// The place of a pending connection; dropping it frees the place.
struct Place<'a> {
    admission: &'a Admission,
    id: ConnectionId,
    leave: Arc<Notify>,
}

impl Admission {
    /// Creates an admission with these rules.
    #[must_use]
    pub fn new(rules: AdmissionRules) -> Self {
        Self { rules, ..Self::default() }
    }

    /// Admits the first connection that shows this ticket in time.
    pub(super) fn expect(&self, ticket: Ticket, broker_id: Option<u64>, standing: Standing) {
        let mut tickets = self.tickets.lock();
        tickets.retain(|known| known.given.elapsed() < TICKET_LIFE);
        if tickets.len() == TICKETS_MAX {
            tickets.pop_front();
        }
        tickets.push_back(GivenTicket { ticket, given: Instant::now(), broker_id, standing });
    }

    /// Removes a ticket and returns it if it was valid.
    fn takes(&self, ticket: &Ticket) -> Option<GivenTicket> {
        let mut tickets = self.tickets.lock();
        tickets.retain(|known| known.given.elapsed() < TICKET_LIFE);
        let place = tickets.iter().position(|known| known.ticket == *ticket)?;
        tickets.remove(place)
    }

    fn needs_ticket(&self, address: IpAddr) -> bool {
        self.rules.needs_ticket && !self.rules.trusted.contains(&address.to_canonical())
    }

    /// Returns whether to report a refused connection from this address. Known slaves are always reported.
    pub(super) fn should_report(&self, address: IpAddr, is_slave: bool) -> bool {
        let mut reported = self.reported.lock();
        reported.retain(|(_, at)| at.elapsed() < REPORT_INTERVAL);
        let is_known = reported.iter().any(|(known, _)| *known == address);
        if is_slave || is_known {
            return is_slave;
        }
        if reported.len() == REPORTED_MAX {
            return false;
        }
        reported.push_back((address, Instant::now()));
        true
    }

    fn enter(&self, id: ConnectionId, address: IpAddr) -> Place<'_> {
        let leave = Arc::new(Notify::new());
        let mut waiting = self.waiting.lock();
        if waiting.len() == WAITING_MAX
            && let Some(oldest) = oldest_of_most(&waiting)
        {
            waiting.remove(oldest).leave.notify_one();
        }
        waiting.push(Waiting { id, address, leave: Arc::clone(&leave) });
        Place { admission: self, id, leave }
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.admission.waiting.lock().retain(|waiting| waiting.id != self.id);
    }
}

/// Returns the index of the oldest connection of the address with most of them.
fn oldest_of_most(waiting: &[Waiting]) -> Option<usize> {
    let count = |address| waiting.iter().filter(|other| other.address == address).count();
    let most = waiting.iter().map(|one| one.address).max_by_key(|address| count(*address))?;
    waiting.iter().position(|one| one.address == most)
}

/// Returns an admitted slave. A slave without a ticket has `silence_max` to
/// report it, because Apache's slaves send nothing at first. `state` returns the answer to a handshake.
pub(super) async fn introduced(
    admission: &Admission,
    silence_max: Duration,
    tls: Option<Arc<ServerTls>>,
    socket: TcpStream,
    id: ConnectionId,
    address: SocketAddr,
    state: impl Fn() -> Vec<u8>,
) -> Result<Introduced, Ended> {
    let place = admission.enter(id, address.ip());
    let needs_ticket = admission.needs_ticket(address.ip());
    let introduction_max = if needs_ticket { INTRODUCTION_MAX } else { silence_max };
    let introducing = async {
        let mut stream = match tls {
            Some(tls) => {
                let welcomed = timeout(WELCOME_MAX, tls.welcome(socket, address, |_| ())).await;
                welcomed.map_err(|_| Ended::Mute)?.map_err(Ended::Io)?
            }
            None => Stream::Plain(socket),
        };
        let saying = introduce(admission, &mut stream, needs_ticket, state);
        let (end, broker_id, standing, protocol) =
            timeout(introduction_max, saying).await.map_err(|_| Ended::Mute)??;
        Ok(Introduced { stream, end, broker_id, standing, protocol })
    };
    tokio::select! {
        introduced = introducing => introduced,
        () = place.leave.notified() => Err(Ended::Crowded),
    }
}

async fn introduce(
    admission: &Admission,
    stream: &mut Stream,
    needs_ticket: bool,
    state: impl Fn() -> Vec<u8>,
) -> Result<(PhysicalOffset, Option<u64>, Standing, Protocol), Ended> {
    let first = read(stream).await?;
    if announces_ticket(first) {
        let shown = read::<TICKET_BYTES>(stream).await?;
        let Some(ticket) = admission.takes(&shown) else { return Err(Ended::UnknownTicket) };
        stream.write_all(&TICKET_TAKEN).await.map_err(Ended::Io)?;
        stream.flush().await.map_err(Ended::Io)?;
        let end = read_report(read(stream).await?).map_err(Ended::Stream)?;
        return Ok((end, ticket.broker_id, ticket.standing, Protocol::Plain));
    }
    if admission.rules.is_elected && Hello::is_announced(first) && !needs_ticket {
        let hello = Hello::read(first, read(stream).await?);
        stream.write_all(&state()).await.map_err(Ended::Io)?;
        stream.flush().await.map_err(Ended::Io)?;
        let report = read::<REPORT_BYTES_MAX>(stream).await?;
        let said = ReportReader::new(Protocol::Elected).next(&report).map_err(Ended::Stream)?;
        let end = said.map_or(PhysicalOffset(0), |(end, _)| end);
        // A learner copies the log, but is not a replica of the set.
        let broker_id = (!hello.is_learner).then_some(hello.broker_id);
        return Ok((end, broker_id, Standing::Slave, Protocol::Elected));
    }
    let end = read_report(first).map_err(Ended::Stream)?;
    if needs_ticket { Err(Ended::NoTicket) } else { Ok((end, None, Standing::Slave, Protocol::Plain)) }
}

async fn read<const BYTES: usize>(stream: &mut Stream) -> Result<[u8; BYTES], Ended> {
    let mut bytes = [0; BYTES];
    match stream.read_exact(&mut bytes).await {
        Ok(_) => Ok(bytes),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Err(Ended::ByPeer),
        Err(error) => Err(Ended::Io(error)),
    }
}

const _: () = assert!(MARK_BYTES == crate::replication::stream::REPORT_BYTES);

#[cfg(test)]
mod tests {
    use super::*;

    fn address(last: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, last])
    }

    #[test]
    fn a_ticket_admits_one_connection() {
        let admission = Admission::default();
        admission.expect([1; TICKET_BYTES], Some(7), Standing::Slave);
        assert!(admission.takes(&[2; TICKET_BYTES]).is_none());
        assert_eq!(admission.takes(&[1; TICKET_BYTES]).unwrap().broker_id, Some(7));
        assert!(admission.takes(&[1; TICKET_BYTES]).is_none());
    }

    #[test]
    fn the_address_with_most_connections_makes_room_for_others() {
        let admission = Admission::default();
        let enter = |id, last| admission.enter(ConnectionId(id), address(last));
        let mut places = vec![enter(0, 1)];
        places.extend((1..WAITING_MAX as u64).map(|id| enter(id, 2)));
        let beyond = enter(1_000, 3);
        let ids: Vec<_> = admission.waiting.lock().iter().map(|waiting| waiting.id.0).collect();
        assert!(ids.contains(&0) && !ids.contains(&1) && ids.contains(&1_000));
        drop((places, beyond));
        assert!(admission.waiting.lock().is_empty());
    }

    #[test]
    fn trusted_addresses_need_no_ticket() {
        let rules = AdmissionRules { needs_ticket: true, trusted: vec![address(1)], is_elected: false };
        let admission = Admission::new(rules);
        assert!(!admission.needs_ticket(address(1)) && admission.needs_ticket(address(2)));
        let mapped = IpAddr::from(std::net::Ipv4Addr::new(10, 0, 0, 1).to_ipv6_mapped());
        assert!(!admission.needs_ticket(mapped));
        assert!(!Admission::default().needs_ticket(address(2)));
    }
}
