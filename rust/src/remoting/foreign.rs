//! Foreign protocols: what a server speaks that was called by mistake, told from the first bytes it sent.
//!
//! None of these beginnings is one of a frame: the first is a length beyond any, an HTTP/2 frame has no header, and a
//! header is never empty.

use std::fmt;

/// What another server speaks, and which server that often is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ForeignProtocol {
    Http,
    Http2,
    Tls,
    Ssh,
}

impl ForeignProtocol {
    /// The protocol of a stream that begins with `bytes`, if it is one that is known.
    pub(super) fn of(bytes: &[u8]) -> Option<Self> {
        match bytes {
            [b'H', b'T', b'T', b'P', b'/', ..] => Some(Self::Http),
            // Settings come first: 24 bits of length, type 4, no flags, stream 0.
            [0, _, _, 4, 0, 0, 0, 0, 0, ..] => Some(Self::Http2),
            // An alert or a handshake of SSL 3 up to TLS 1.3, all of which say they are 3.x here.
            [0x15 | 0x16, 3, ..] => Some(Self::Tls),
            [b'S', b'S', b'H', b'-', ..] => Some(Self::Ssh),
            _ => None,
        }
    }
}

impl fmt::Display for ForeignProtocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, server) = match self {
            Self::Http => ("HTTP", "a dashboard's or a metrics port"),
            Self::Http2 => ("HTTP/2", "the gRPC port of a proxy, often 8081"),
            Self::Tls => ("TLS", "a port that wants TLS: give this client tls"),
            Self::Ssh => ("SSH", "the port of an SSH server"),
        };
        write!(
            f,
            "it answers {name}, not RocketMQ's remoting protocol; this may be {server}: \
             name servers have 9876 and brokers 10911 unless configured otherwise"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::ForeignProtocol::{self, Http, Http2, Ssh, Tls};

    #[test]
    fn a_foreign_protocol_is_known_by_its_first_bytes() {
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
