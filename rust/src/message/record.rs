//! One message as it stands in the log and in the body of every pull.
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
//! 48  4/16 address of the born host           the system flag tells which
//! 52+v i32 port of the born host
//! 56+v i64 stored, ms
//! 64+v 4/16 address of the store host
//! ```
//!
//! Invariant: what [`RecordFields::encode`] writes [`RecordView::parse`] reads back equal; a view's lengths add up to
//! its size. The log's fillers ([`encode_blank`]) and its zeroed tail are told apart from records by [`scan`].

use std::net::{IpAddr, SocketAddr};

use super::error::RecordError;
use super::properties::PROPERTIES_BYTES_MAX;
use super::sysflag::{BORN_HOST_V6, STORE_HOST_V6};
use crate::positions::{PhysicalOffset, QueueOffset};

/// Magic of a record whose topic length takes one byte.
pub const MAGIC_V1: u32 = 0xDAA3_20A7;
/// Magic of a record whose topic length takes two bytes; only used where one byte, read signed, does not do.
pub const MAGIC_V2: u32 = 0xDAA3_20AB;
/// Magic of the filler at the end of a segment.
pub const BLANK_MAGIC: u32 = 0xCBD4_3194;
/// Size of a filler's head; what is behind it, up to its size, means nothing.
pub const BLANK_BYTES_MIN: usize = 8;
/// Size of an empty v1 record between IPv4 hosts.
pub const RECORD_BYTES_MIN: usize = 91;

const TOPIC_BYTES_MAX_V1: usize = 127;
const TOPIC_BYTES_MAX: usize = i16::MAX as usize;
const V6_EXTRA_BYTES: usize = 12;

/// Everything of a record that is known before its place in the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RecordFields<'a> {
    /// Queue of the topic.
    pub queue_id: u32,
    /// The application's flag.
    pub flag: i32,
    /// System flag; the two address bits are set from the hosts, whatever stands here.
    pub sys_flag: i32,
    /// When the producer made the message.
    pub born_timestamp_ms: i64,
    /// Where the producer is.
    pub born_host: SocketAddr,
    /// Where this broker is; part of the message id.
    pub store_host: SocketAddr,
    /// How often the message was returned.
    pub reconsume_times: i32,
    /// Physical offset of the half message, on the copy a commit makes; else 0.
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

/// What is known of a record only under the put lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stamp {
    /// Position of the record's first byte.
    pub physical: PhysicalOffset,
    /// Ordinal in its queue; 0 for half and rolled back messages.
    pub queue: QueueOffset,
    /// Now.
    pub store_timestamp_ms: i64,
}

impl RecordFields<'_> {
    /// CRC-32 of the stored bytes of a body, without the sign bit.
    #[must_use]
    pub fn body_crc(body: &[u8]) -> u32 {
        crc32fast::hash(body) & 0x7FFF_FFFF
    }

    /// Whether the fields fit a record and read back as one after a crash: recovery takes a record with NUL or
    /// broken UTF-8 in its text for torn, so none may be written.
    ///
    /// # Errors
    /// What does not fit.
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

    /// Size of the record.
    #[must_use]
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
    /// When `into` is not exactly [`encoded_len`](Self::encoded_len) long. Fields that did not pass
    /// [`check`](Self::check) make a record that cannot be read.
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

/// The part of a record still to be written.
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

/// A record in borrowed bytes. All lengths have been checked, the text and the CRC have not.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RecordView<'a> {
    bytes: &'a [u8],
    /// Where the store timestamp stands, right behind the born host.
    stored_at: usize,
    /// Where the reconsume times stand, right behind the store host.
    hosts_end: usize,
    body: &'a [u8],
    topic: &'a [u8],
    properties: &'a [u8],
}

impl<'a> RecordView<'a> {
    /// The record at the front of `bytes`.
    ///
    /// # Errors
    /// When there is none, or it is not whole.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, RecordError> {
        let (size, magic) = head(bytes).ok_or(RecordError::Length { at: 0 })?;
        let is_v2 = match magic {
            MAGIC_V1 => false,
            MAGIC_V2 => true,
            _ => return Err(RecordError::Magic(magic)),
        };
        let record_bytes = usize::try_from(size).ok().filter(|&bytes| bytes >= RECORD_BYTES_MIN);
        let record_bytes = record_bytes.ok_or(RecordError::Size(size))?;
        let available = bytes.len();
        let bytes = bytes.get(..record_bytes);
        let bytes = bytes.ok_or(RecordError::Truncated { record_bytes, bytes: available })?;

        let mut walk = Walk { bytes, at: 36 };
        let sys_flag = i32::from_be_bytes(walk.array()?);
        walk.take(8)?;
        walk.host(sys_flag & BORN_HOST_V6 != 0)?;
        let stored_at = walk.at;
        walk.take(8)?;
        walk.host(sys_flag & STORE_HOST_V6 != 0)?;
        let hosts_end = walk.at;
        walk.take(12)?;
        let body_bytes = i32::from_be_bytes(walk.array()?);
        let body = walk.take_signed(body_bytes)?;
        let topic_bytes = if is_v2 {
            i16::from_be_bytes(walk.array()?)
        } else {
            i16::from(i8::from_be_bytes(walk.array()?))
        };
        let topic = walk.take_signed(topic_bytes.into())?;
        let properties_bytes = i16::from_be_bytes(walk.array()?);
        let properties = walk.take_signed(properties_bytes.into())?;
        if walk.at != record_bytes {
            return Err(RecordError::Length { at: walk.at });
        }
        Ok(Self { bytes, stored_at, hosts_end, body, topic, properties })
    }

    /// The bytes of the record, all of them.
    #[must_use]
    pub const fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Size of the record.
    #[must_use]
    pub const fn total_size(&self) -> usize {
        self.bytes.len()
    }

    /// [`MAGIC_V1`] or [`MAGIC_V2`].
    #[must_use]
    pub fn magic(&self) -> u32 {
        u32::from_be_bytes(self.array(4))
    }

    /// CRC of the body as stored in the record.
    #[must_use]
    pub fn body_crc(&self) -> u32 {
        u32::from_be_bytes(self.array(8))
    }

    /// Whether the body is the one its CRC was made of. An empty body has CRC 0.
    #[must_use]
    pub fn body_crc_matches(&self) -> bool {
        RecordFields::body_crc(self.body) == self.body_crc()
    }

    /// Queue of the topic.
    #[must_use]
    pub fn queue_id(&self) -> u32 {
        u32::from_be_bytes(self.array(12))
    }

    /// The application's flag.
    #[must_use]
    pub fn flag(&self) -> i32 {
        i32::from_be_bytes(self.array(16))
    }

    /// Ordinal in its queue.
    #[must_use]
    pub fn queue_offset(&self) -> QueueOffset {
        QueueOffset(u64::from_be_bytes(self.array(20)))
    }

    /// Position of the record's first byte in the log it was written to.
    #[must_use]
    pub fn physical_offset(&self) -> PhysicalOffset {
        PhysicalOffset(u64::from_be_bytes(self.array(28)))
    }

    /// System flag.
    #[must_use]
    pub fn sys_flag(&self) -> i32 {
        i32::from_be_bytes(self.array(36))
    }

    /// When the producer made the message.
    #[must_use]
    pub fn born_timestamp_ms(&self) -> i64 {
        i64::from_be_bytes(self.array(40))
    }

    /// Where the producer is.
    #[must_use]
    pub fn born_host(&self) -> SocketAddr {
        self.host(48, BORN_HOST_V6)
    }

    /// When the broker stored it.
    #[must_use]
    pub fn store_timestamp_ms(&self) -> i64 {
        i64::from_be_bytes(self.array(self.stored_at))
    }

    /// The broker that stored it.
    #[must_use]
    pub fn store_host(&self) -> SocketAddr {
        self.host(self.stored_at + 8, STORE_HOST_V6)
    }

    /// How often the message was returned.
    #[must_use]
    pub fn reconsume_times(&self) -> i32 {
        i32::from_be_bytes(self.array(self.hosts_end))
    }

    /// Physical offset of the half message, on the copy a commit made; else 0.
    #[must_use]
    pub fn prepared_transaction_offset(&self) -> i64 {
        i64::from_be_bytes(self.array(self.hosts_end + 4))
    }

    /// Body as stored, compressed or not.
    #[must_use]
    pub const fn body(&self) -> &'a [u8] {
        self.body
    }

    /// Topic the record is stored under.
    #[must_use]
    pub const fn topic(&self) -> &'a [u8] {
        self.topic
    }

    /// Properties, verbatim.
    #[must_use]
    pub const fn properties(&self) -> &'a [u8] {
        self.properties
    }

    /// Whether topic and properties are text as a broker writes it. The body CRC does not cover them: behind the
    /// durable position this is what tells a torn record from a whole one.
    ///
    /// # Errors
    /// The field that is not.
    pub fn check_text(&self) -> Result<(), RecordError> {
        check_text(self.topic, self.properties)
    }

    /// The fields, to write the record again elsewhere.
    #[must_use]
    pub fn fields(&self) -> RecordFields<'a> {
        RecordFields {
            queue_id: self.queue_id(),
            flag: self.flag(),
            sys_flag: self.sys_flag(),
            born_timestamp_ms: self.born_timestamp_ms(),
            born_host: self.born_host(),
            store_host: self.store_host(),
            reconsume_times: self.reconsume_times(),
            prepared_transaction_offset: self.prepared_transaction_offset(),
            body: self.body,
            body_crc: self.body_crc(),
            topic: self.topic,
            properties: self.properties,
        }
    }

    /// The place in the log the record says it has.
    #[must_use]
    pub fn stamp(&self) -> Stamp {
        let store_timestamp_ms = self.store_timestamp_ms();
        Stamp { physical: self.physical_offset(), queue: self.queue_offset(), store_timestamp_ms }
    }

    fn host(&self, at: usize, v6: i32) -> SocketAddr {
        let (ip, port_at) = if self.sys_flag() & v6 == 0 {
            (IpAddr::from(self.array::<4>(at)), at + 4)
        } else {
            (IpAddr::from(self.array::<16>(at)), at + 16)
        };
        // `parse` has refused ports of more than 16 bits.
        SocketAddr::new(ip, u32::from_be_bytes(self.array(port_at)) as u16)
    }

    /// `N` bytes at a place that `parse` has walked over.
    fn array<const N: usize>(&self, at: usize) -> [u8; N] {
        self.bytes.get(at..).and_then(<[u8]>::first_chunk).copied().unwrap_or([0; N])
    }
}

/// The walk of [`RecordView::parse`] over a record's bytes.
struct Walk<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Walk<'a> {
    fn take(&mut self, length: usize) -> Result<&'a [u8], RecordError> {
        let taken = self.bytes.get(self.at..).and_then(|rest| rest.get(..length));
        let taken = taken.ok_or(RecordError::Length { at: self.at })?;
        self.at += length;
        Ok(taken)
    }

    fn take_signed(&mut self, length: i32) -> Result<&'a [u8], RecordError> {
        self.take(usize::try_from(length).map_err(|_| RecordError::Length { at: self.at })?)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], RecordError> {
        let at = self.at;
        self.take(N)?.first_chunk().copied().ok_or(RecordError::Length { at })
    }

    fn host(&mut self, is_v6: bool) -> Result<(), RecordError> {
        self.take(if is_v6 { 16 } else { 4 })?;
        let at = self.at;
        match u32::from_be_bytes(self.array()?) {
            0..=0xFFFF => Ok(()),
            _ => Err(RecordError::Port { at }),
        }
    }
}

/// What begins at a position of the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scanned<'a> {
    /// A record whose lengths agree. CRC and text are for the caller to check, as far as it trusts its source.
    Record(RecordView<'a>),
    /// The rest of the segment is filler.
    Blank {
        /// Size the filler announces: all the rest of its segment.
        size: u32,
    },
    /// Nothing: zeros, or fewer bytes than a head takes.
    End,
    /// Something that is no record.
    Broken(RecordError),
}

/// Looks at the front of `bytes`.
#[must_use]
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

/// The records of a pull's body, one after another; an error, or bytes left over, end them with an error.
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

/// Writes a filler's head at the front of `into`; `size` is all the rest of the segment.
///
/// # Panics
/// When `into` has no room for a head: an append keeps that much free behind every record.
pub fn encode_blank(into: &mut [u8], size: u32) {
    let (head, _) = into.split_at_mut(BLANK_BYTES_MIN);
    head[..4].copy_from_slice(&size.to_be_bytes());
    head[4..].copy_from_slice(&BLANK_MAGIC.to_be_bytes());
}

/// Size and magic at the front of `bytes`.
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
