//! Foreign protocols: recognizes another protocol by the first bytes of a connection.
//!
//! None of these beginnings can begin a frame: the first would be a length beyond any limit, an HTTP/2 frame would
//! have no header, and a header is never empty. A server notes clients that speak another protocol, each address once
//! a minute.

use std::collections::HashMap;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// A protocol that another server speaks, and the server that usually speaks it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ForeignProtocol {
    Http,
    Http2,
    Tls,
    Ssh,
}

impl ForeignProtocol {
    /// Returns the known protocol of a stream that begins with `bytes`.
    pub(super) fn of(bytes: &[u8]) -> Option<Self> {
        match bytes {
            [b'H', b'T', b'T', b'P', b'/', ..] => Some(Self::Http),
            // SETTINGS come first: 24 bits of length, type 4, no flags, stream 0.
            [0, _, _, 4, 0, 0, 0, 0, 0, ..] => Some(Self::Http2),
            // An alert or a handshake; SSL 3 to TLS 1.3 all report version 3.x here.
            [0x15 | 0x16, 3, ..] => Some(Self::Tls),
            [b'S', b'S', b'H', b'-', ..] => Some(Self::Ssh),
            _ => None,
        }
    }
}

impl fmt::Display for ForeignProtocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, server) = match self {
            Self::Http => ("HTTP", "a dashboard or metrics port"),
            Self::Http2 => ("HTTP/2", "the gRPC port of a proxy, often 8081"),
            Self::Tls => ("TLS", "a port that requires TLS: enable TLS in this client"),
            Self::Ssh => ("SSH", "the port of an SSH server"),
        };
        write!(
            f,
            "it answers {name}, not RocketMQ's remoting protocol; this may be {server}: \
             name servers have 9876 and brokers 10911 unless configured otherwise"
        )
    }
}

/// Method names that begin HTTP requests.
const METHODS: [&[u8]; 8] =
    [b"GET ", b"POST ", b"HEAD ", b"PUT ", b"DELETE ", b"OPTIONS ", b"PATCH ", b"CONNECT "];

/// Describes a foreign client's protocol for an operator. Only the first bytes of a method may have arrived.
fn called_with(bytes: &[u8]) -> &'static str {
    let is_http = METHODS.iter().any(|method| {
        let size = method.len().min(bytes.len());
        size >= METHOD_BYTES_MIN && method.get(..size) == bytes.get(..size)
    });
    match bytes {
        _ if is_http => "HTTP: health and metrics are at httpPort",
        // The preface of HTTP/2 is not a valid HTTP/1 request.
        [b'P', b'R', b'I', b' ', ..] => {
            "HTTP/2, as 5.x clients (gRPC) do: their port is grpcServerPort, 8081 unless it is set"
        }
        [0x15 | 0x16, 3, ..] => {
            "TLS, and this port has no certificate: set tls.server.certPath, or disable TLS in the client"
        }
        [b'S', b'S', b'H', b'-', ..] => "SSH",
        _ => "a protocol other than RocketMQ remoting",
    }
}

/// Bytes that identify a method: a server reads at least a length word.
const METHOD_BYTES_MIN: usize = 4;

/// Minimum time between two notes of the same address.
const QUIET: Duration = Duration::from_secs(60);
/// Maximum number of untaken notes, and of remembered addresses.
const NOTES_MAX: usize = 16;
const ADDRESSES_MAX: usize = 1024;

/// Closed clients of other protocols that are not logged yet.
#[derive(Default)]
pub(super) struct ForeignClients(Mutex<Notes>);

#[derive(Default)]
struct Notes {
    rows: Vec<ForeignClient>,
    noted: HashMap<IpAddr, Instant>,
}

/// The address of a client, and the protocol it speaks.
pub type ForeignClient = (SocketAddr, &'static str);

impl ForeignClients {
    /// Notes a connection that was closed because its last bytes were not a frame. Leaves out an address noted
    /// within the last minute, and any beyond the limit of notes.
    pub(super) fn note(&self, peer: SocketAddr, bytes: &[u8], now: Instant) {
        let mut notes = self.0.lock();
        notes.noted.retain(|_, noted| now.saturating_duration_since(*noted) < QUIET);
        let has_room = notes.rows.len() < NOTES_MAX && notes.noted.len() < ADDRESSES_MAX;
        if has_room && !notes.noted.contains_key(&peer.ip()) {
            notes.noted.insert(peer.ip(), now);
            notes.rows.push((peer, called_with(bytes)));
        }
    }

    /// Returns the notes since the last call.
    pub(super) fn take(&self) -> Vec<ForeignClient> {
        std::mem::take(&mut self.0.lock().rows)
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr, SocketAddr};
    use std::time::{Duration, Instant};

    use super::ForeignProtocol::{self, Http, Http2, Ssh, Tls};
    use super::{ForeignClients, NOTES_MAX};

    fn peer(machine: u8, port: u16) -> SocketAddr {
        (IpAddr::from(Ipv4Addr::new(10, 0, 0, machine)), port).into()
    }

    #[test]
    fn an_address_is_noted_once_a_minute_with_its_protocol() {
        let (clients, start) = (ForeignClients::default(), Instant::now());
        clients.note(peer(1, 1), b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", start);
        clients.note(peer(1, 2), b"GET / HTTP/1.1\r\n", start + Duration::from_secs(59));
        clients.note(peer(2, 1), b"\x16\x03\x01\x02\0", start);
        let rows = clients.take();
        assert_eq!(rows.iter().map(|(peer, _)| *peer).collect::<Vec<_>>(), [peer(1, 1), peer(2, 1)]);
        assert!(rows[0].1.contains("gRPC") && rows[1].1.contains("no certificate"));
        assert!(clients.take().is_empty());
        clients.note(peer(1, 3), b"GET / HTTP/1.1\r\n", start + Duration::from_secs(60));
        assert!(clients.take()[0].1.starts_with("HTTP:"));
        for machine in 0..u8::MAX {
            clients.note(peer(machine, 1), b"\0", start + Duration::from_secs(61));
        }
        assert_eq!(clients.take().len(), NOTES_MAX);
    }

    #[test]
    fn first_bytes_identify_a_foreign_protocol() {
        let rows: [(&[u8], Option<ForeignProtocol>); 9] = [
            (b"HTTP/1.1 400 Bad Request\r\n", Some(Http)),
            (b"\0\0\x12\x04\0\0\0\0\0\0\x03\0\0\0\x64", Some(Http2)),
            (b"\x15\x03\x03\0\x02\x02\x16", Some(Tls)),
            (b"\x16\x03\x01\x02\0", Some(Tls)),
            (b"SSH-2.0-OpenSSH_9.6\r\n", Some(Ssh)),
            (b"", None),
            (b"HTT", None),
            (b"\0\0\x12\x04\0\0\0\x05{}", None),
            (b"\xff\xff\xff\xff", None),
        ];
        for (bytes, expected) in rows {
            assert_eq!(ForeignProtocol::of(bytes), expected, "{bytes:02x?}");
        }
    }
}
