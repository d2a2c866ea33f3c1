//! Record: one message in the log and in the body of every pull.
//!
//! ```text
//! 0   i32  size of all of this            68+v  i32  port of the store host
//! 4   u32  magic                          72+v  i32  reconsume times
//! 8   i32  body CRC, 31 bits              76+v  i64  prepared transaction offset
//! 12  i32  queue id                       84+v  i32  body length B, then B bytes
//! 16  i32  flag                           ..    i8   topic length (v1) or i16 (v2), then topic
//! 20  i64  queue offset                   ..    i16  properties length, then properties
//! 28  i64  physical offset
//! 36  i32  system flag
//! 40  i64  born, ms                       v = 12 for each host with a 16-byte address;
//! 48  4/16 address of the born host           see the system flag
//! 52+v i32 port of the born host
//! 56+v i64 stored, ms
//! 64+v 4/16 address of the store host
//! ```
//!
//! Invariant: [`RecordView::parse`] reads back exactly what [`RecordFields::encode`] writes; a view's lengths add up
//! to its size. [`scan`] distinguishes records from the log's fillers ([`encode_blank`]) and its zeroed tail.

mod shift;
mod view;

use std::net::{IpAddr, SocketAddr};

pub(crate) use shift::{in_light_queue, shifted};
pub use view::RecordView;

use super::error::RecordError;
use super::properties::PROPERTIES_BYTES_MAX;
use super::sysflag::{BORN_HOST_V6, STORE_HOST_V6};
use crate::positions::{PhysicalOffset, QueueOffset};

/// Magic of a record whose topic length takes one byte.
pub const MAGIC_V1: u32 = 0xDAA3_20A7;
/// Magic of a record whose topic length takes two bytes; used only when one signed byte is too small.
pub const MAGIC_V2: u32 = 0xDAA3_20AB;
/// Magic of the filler at the end of a segment.
pub(crate) const BLANK_MAGIC: u32 = 0xCBD4_3194;
/// Size of a filler's head; the bytes after it, up to its size, are meaningless.
pub(crate) const BLANK_BYTES_MIN: usize = 8;
/// Size of an empty v1 record between IPv4 hosts.
pub const RECORD_BYTES_MIN: usize = 91;

const TOPIC_BYTES_MAX_V1: usize = 127;
const TOPIC_BYTES_MAX: usize = i16::MAX as usize;
const V6_EXTRA_BYTES: usize = 12;

/// The fields of a record that are known before it has a position in the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RecordFields<'a> {
    /// Queue of the topic.
    pub queue_id: u32,
    /// The application's flag.
    pub flag: i32,
    /// System flag; the two address bits are set from the hosts, whatever is given here.
    pub sys_flag: i32,
    /// The time when the producer made the message.
    pub born_timestamp_ms: i64,
    /// The producer's address.
    pub born_host: SocketAddr,
    /// This broker's address, part of the message id.
    pub store_host: SocketAddr,
    /// The number of times that the message was sent back.
    pub reconsume_times: i32,
    /// Physical offset of the half message, on the copy that a commit makes; otherwise 0.
    pub prepared_transaction_offset: i64,
    /// Body as stored, compressed or not.
    pub body: &'a [u8],
    /// [`body_crc`](Self::body_crc) of `body`.
    pub body_crc: u32,
    /// Topic the record is stored under.
    pub topic: &'a [u8],
    /// Properties, verbatim.
    pub properties: &'a [u8],
}

/// The fields of a record that are known only under the put lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stamp {
    /// Position of the record's first byte.
    pub physical: PhysicalOffset,
    /// Offset in its queue; 0 for half and rolled back messages.
    pub queue: QueueOffset,
    /// The current time.
    pub store_timestamp_ms: i64,
}

impl RecordFields<'_> {
    /// CRC-32 of the stored bytes of a body, without the sign bit.
    pub fn body_crc(body: &[u8]) -> u32 {
        crc32fast::hash(body) & 0x7FFF_FFFF
    }

    /// Checks that the fields fit a record and survive recovery, which takes a record with NUL or invalid UTF-8 in
    /// its text for torn.
    pub fn check(&self) -> Result<(), RecordError> {
        let bounds = [
            ("body", self.body.len(), i32::MAX as usize / 2),
            ("topic", self.topic.len(), TOPIC_BYTES_MAX),
            ("properties", self.properties.len(), PROPERTIES_BYTES_MAX),
        ];
        for (field, bytes, bytes_max) in bounds {
            if bytes > bytes_max {
                return Err(RecordError::TooLarge { field, bytes, bytes_max });
            }
        }
        check_text(self.topic, self.properties)
    }

    /// Returns the size of the record.
    pub fn encoded_len(&self) -> usize {
        let is_v6 = |host: &SocketAddr| usize::from(host.ip().to_canonical().is_ipv6());
        RECORD_BYTES_MIN
            + V6_EXTRA_BYTES * (is_v6(&self.born_host) + is_v6(&self.store_host))
            + usize::from(self.topic.len() > TOPIC_BYTES_MAX_V1)
            + self.body.len()
            + self.topic.len()
            + self.properties.len()
    }

    /// Writes the record.
    ///
    /// # Panics
    /// When `into` is not exactly [`encoded_len`](Self::encoded_len) long. Fields that fail [`check`](Self::check)
    /// produce an unreadable record.
    pub fn encode(&self, into: &mut [u8], stamp: Stamp) {
        let size = self.encoded_len();
        assert_eq!(into.len(), size, "a record is written into exactly its own bytes");
        let (born_ip, store_ip) = (self.born_host.ip().to_canonical(), self.store_host.ip().to_canonical());
        let mut sys_flag = self.sys_flag & !(BORN_HOST_V6 | STORE_HOST_V6);
        sys_flag |= if born_ip.is_ipv6() { BORN_HOST_V6 } else { 0 };
        sys_flag |= if store_ip.is_ipv6() { STORE_HOST_V6 } else { 0 };
        let is_v2 = self.topic.len() > TOPIC_BYTES_MAX_V1;

        let mut out = Out(into);
        out.put(&(size as u32).to_be_bytes());
        out.put(&(if is_v2 { MAGIC_V2 } else { MAGIC_V1 }).to_be_bytes());
        out.put(&self.body_crc.to_be_bytes());
        out.put(&self.queue_id.to_be_bytes());
        out.put(&self.flag.to_be_bytes());
        out.put(&stamp.queue.0.to_be_bytes());
        out.put(&stamp.physical.0.to_be_bytes());
        out.put(&sys_flag.to_be_bytes());
        out.put(&self.born_timestamp_ms.to_be_bytes());
        out.put_host(born_ip, self.born_host.port());
        out.put(&stamp.store_timestamp_ms.to_be_bytes());
        out.put_host(store_ip, self.store_host.port());
        out.put(&self.reconsume_times.to_be_bytes());
        out.put(&self.prepared_transaction_offset.to_be_bytes());
        out.put(&(self.body.len() as u32).to_be_bytes());
        out.put(self.body);
        if is_v2 {
            out.put(&(self.topic.len() as u16).to_be_bytes());
        } else {
            out.put(&[self.topic.len() as u8]);
        }
        out.put(self.topic);
        out.put(&(self.properties.len() as u16).to_be_bytes());
        out.put(self.properties);
    }
}

/// The unwritten rest of a record.
struct Out<'a>(&'a mut [u8]);

impl Out<'_> {
    fn put(&mut self, bytes: &[u8]) {
        let (head, rest) = std::mem::take(&mut self.0).split_at_mut(bytes.len());
        head.copy_from_slice(bytes);
        self.0 = rest;
    }

    fn put_host(&mut self, ip: IpAddr, port: u16) {
        match ip {
            IpAddr::V4(ip) => self.put(&ip.octets()),
            IpAddr::V6(ip) => self.put(&ip.octets()),
        }
        self.put(&u32::from(port).to_be_bytes());
    }
}

/// The content at a position of the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scanned<'a> {
    /// A record with consistent lengths. The caller checks CRC and text, as far as it trusts the source.
    Record(RecordView<'a>),
    /// The rest of the segment is filler.
    Blank {
        /// The size the filler announces: the rest of its segment.
        size: u32,
    },
    /// The end: zeros, or too few bytes for a head.
    End,
    /// Bytes that are not a record.
    Broken(RecordError),
}

/// Identifies the content at the front of `bytes`.
pub fn scan(bytes: &[u8]) -> Scanned<'_> {
    match head(bytes) {
        None | Some((0, 0)) => Scanned::End,
        Some((size, BLANK_MAGIC)) => match u32::try_from(size) {
            Ok(blank) if blank as usize >= BLANK_BYTES_MIN => Scanned::Blank { size: blank },
            _ => Scanned::Broken(RecordError::Size(size)),
        },
        Some(_) => match RecordView::parse(bytes) {
            Ok(record) => Scanned::Record(record),
            Err(error) => Scanned::Broken(error),
        },
    }
}

/// Iterates over the records of a pull's body; an invalid record or leftover bytes end it with an error.
pub fn records(bytes: &[u8]) -> impl Iterator<Item = Result<RecordView<'_>, RecordError>> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let record = RecordView::parse(rest);
        rest = match &record {
            Ok(record) => rest.get(record.total_size()..).unwrap_or_default(),
            Err(_) => &[],
        };
        Some(record)
    })
}

/// Writes a filler's head at the front of `into`; `size` is the whole rest of the segment.
///
/// # Panics
/// When `into` has no room for a head; an append leaves that much free after every record.
pub fn encode_blank(into: &mut [u8], size: u32) {
    let (head, _) = into.split_at_mut(BLANK_BYTES_MIN);
    head[..4].copy_from_slice(&size.to_be_bytes());
    head[4..].copy_from_slice(&BLANK_MAGIC.to_be_bytes());
}

/// Returns the size and magic at the front of `bytes`.
fn head(bytes: &[u8]) -> Option<(i32, u32)> {
    let (size, rest) = bytes.split_first_chunk()?;
    Some((i32::from_be_bytes(*size), u32::from_be_bytes(*rest.first_chunk()?)))
}

fn check_text(topic: &[u8], properties: &[u8]) -> Result<(), RecordError> {
    let is_text = |bytes: &[u8]| memchr::memchr(0, bytes).is_none() && std::str::from_utf8(bytes).is_ok();
    if topic.is_empty() || !is_text(topic) || topic.iter().any(u8::is_ascii_control) {
        return Err(RecordError::Syntax { field: "topic" });
    }
    if !is_text(properties) {
        return Err(RecordError::Syntax { field: "properties" });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields() -> RecordFields<'static> {
        RecordFields {
            queue_id: 1,
            flag: 0,
            sys_flag: 0,
            born_timestamp_ms: 1,
            born_host: ([10, 0, 0, 1], 5000).into(),
            store_host: ([10, 0, 0, 2], 10911).into(),
            reconsume_times: 0,
            prepared_transaction_offset: 0,
            body: b"a",
            body_crc: RecordFields::body_crc(b"a"),
            topic: b"T",
            properties: b"",
        }
    }

    fn encoded(fields: &RecordFields<'_>) -> Vec<u8> {
        let mut bytes = vec![0; fields.encoded_len()];
        let stamp = Stamp { physical: PhysicalOffset(7), queue: QueueOffset(3), store_timestamp_ms: 9 };
        fields.encode(&mut bytes, stamp);
        bytes
    }

    #[test]
    fn the_body_crc_has_no_sign_bit() {
        assert_eq!(crc32fast::hash(b"a"), 0xE8B7_BE43);
        assert_eq!(RecordFields::body_crc(b"a"), 0x68B7_BE43);
        assert_eq!(RecordFields::body_crc(b""), 0);
    }

    #[test]
    fn the_address_bits_follow_the_hosts_whatever_the_flag_says() {
        let lying = RecordFields { sys_flag: BORN_HOST_V6 | STORE_HOST_V6 | 0x301, ..fields() };
        let bytes = encoded(&lying);
        let view = RecordView::parse(&bytes).unwrap();
        assert_eq!((view.sys_flag(), view.born_host()), (0x301, lying.born_host));
        assert_eq!(view.topic(), b"T");
    }

    /// A listener on `::` sees IPv4 peers as `::ffff:a.b.c.d`; C++ clients read only four address bytes.
    #[test]
    fn an_ipv4_peer_of_an_ipv6_listener_is_stored_as_ipv4() {
        let mapped = RecordFields { born_host: "[::ffff:10.0.0.1]:5000".parse().unwrap(), ..fields() };
        assert_eq!(encoded(&mapped), encoded(&fields()));
    }

    #[test]
    fn the_topic_length_takes_two_bytes_from_128_bytes_on() {
        for (length, magic) in [(127, MAGIC_V1), (128, MAGIC_V2), (255, MAGIC_V2)] {
            let topic = vec![b'T'; length];
            let bytes = encoded(&RecordFields { topic: &topic, ..fields() });
            let view = RecordView::parse(&bytes).unwrap();
            assert_eq!((view.magic(), view.topic()), (magic, topic.as_slice()));
        }
    }

    #[test]
    fn fields_that_recovery_would_take_for_torn_are_refused() {
        let check = |topic: &[u8], properties: &[u8]| RecordFields { topic, properties, ..fields() }.check();
        assert_eq!(check(b"T", "KEYS\u{1}订单\u{2}".as_bytes()), Ok(()));
        assert_eq!(check(b"", b""), Err(RecordError::Syntax { field: "topic" }));
        assert_eq!(check(b"T\n", b""), Err(RecordError::Syntax { field: "topic" }));
        assert_eq!(check(b"T", b"a\x01\0\x02"), Err(RecordError::Syntax { field: "properties" }));
        assert_eq!(check(b"T", b"a\x01\xD6\x02"), Err(RecordError::Syntax { field: "properties" }));
        let long = vec![b'p'; PROPERTIES_BYTES_MAX + 1];
        assert_eq!(check(b"T", &long[1..]), Ok(()));
        assert!(matches!(check(b"T", &long), Err(RecordError::TooLarge { field: "properties", .. })));
    }

    #[test]
    fn zeros_fillers_and_foreign_bytes_are_distinguished() {
        let check = |bytes: &[u8], expected: Scanned<'_>| assert_eq!(scan(bytes), expected, "{bytes:02x?}");
        check(&[], Scanned::End);
        check(&[0; 7], Scanned::End);
        check(&[0; 64], Scanned::End);
        check(&[0, 0, 0, 8, 0xCB, 0xD4, 0x31, 0x94], Scanned::Blank { size: 8 });
        check(&[0, 0, 0, 7, 0xCB, 0xD4, 0x31, 0x94], Scanned::Broken(RecordError::Size(7)));
        check(&[0, 0, 0, 91, 1, 2, 3, 4], Scanned::Broken(RecordError::Magic(0x0102_0304)));
        check(&[0, 0, 0, 90, 0xDA, 0xA3, 0x20, 0xA7], Scanned::Broken(RecordError::Size(90)));
        check(&[0xFF, 0, 0, 90, 0xDA, 0xA3, 0x20, 0xA7], Scanned::Broken(RecordError::Size(-16_777_126)));
        let bytes = encoded(&fields());
        let cut = RecordError::Truncated { record_bytes: bytes.len(), bytes: bytes.len() - 1 };
        check(&bytes[..bytes.len() - 1], Scanned::Broken(cut));
    }

    #[test]
    fn lengths_that_do_not_add_up_and_ports_of_more_than_16_bits_are_refused() {
        let bytes = encoded(&fields());
        for (at, byte, expected) in [
            (87, 2, RecordError::Length { at: 91 }),
            (84, 0xFF, RecordError::Length { at: 88 }),
            (89, 0xFF, RecordError::Length { at: 90 }),
            (52, 1, RecordError::Port { at: 52 }),
            (36 + 3, 0x10, RecordError::Port { at: 64 }),
        ] {
            let mut bytes = bytes.clone();
            bytes[at] = byte;
            assert_eq!(RecordView::parse(&bytes), Err(expected), "byte {at}");
        }
        let mut longer = bytes;
        longer.push(0);
        longer[3] += 1;
        assert_eq!(RecordView::parse(&longer), Err(RecordError::Length { at: 93 }));
    }
}
