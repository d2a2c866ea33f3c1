//! Record view: reads a record in place.

use std::net::{IpAddr, SocketAddr};

use bytes::Bytes;

use super::{MAGIC_V1, MAGIC_V2, RECORD_BYTES_MIN, RecordFields, Stamp, check_text, head};
use crate::message::error::RecordError;
use crate::message::properties::{self, PROPERTIES_BYTES_MAX};
use crate::message::sysflag::{BORN_HOST_V6, STORE_HOST_V6};
use crate::positions::{PhysicalOffset, QueueOffset};

/// A record in borrowed bytes. Its lengths are checked, its text and CRC are not.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RecordView<'a> {
    bytes: &'a [u8],
    /// Position of the store timestamp, after the born host.
    stored_at: usize,
    /// Position of the reconsume times, after the store host.
    hosts_end: usize,
    body: &'a [u8],
    topic: &'a [u8],
    properties: &'a [u8],
}

impl<'a> RecordView<'a> {
    /// Parses the record at the front of `bytes`. Fails if it is invalid or incomplete.
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

    /// Returns all bytes of the record.
    pub const fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Returns the size of the record.
    pub const fn total_size(&self) -> usize {
        self.bytes.len()
    }

    /// [`MAGIC_V1`] or [`MAGIC_V2`].
    pub fn magic(&self) -> u32 {
        u32::from_be_bytes(self.array(4))
    }

    /// Returns the CRC of the body as stored in the record.
    pub fn body_crc(&self) -> u32 {
        u32::from_be_bytes(self.array(8))
    }

    /// Returns whether the body matches its CRC. An empty body has CRC 0.
    pub fn body_crc_matches(&self) -> bool {
        RecordFields::body_crc(self.body) == self.body_crc()
    }

    /// Returns the queue of the topic.
    pub fn queue_id(&self) -> u32 {
        u32::from_be_bytes(self.array(12))
    }

    /// Returns the application's flag.
    pub fn flag(&self) -> i32 {
        i32::from_be_bytes(self.array(16))
    }

    /// Returns the offset in its queue.
    pub fn queue_offset(&self) -> QueueOffset {
        QueueOffset(u64::from_be_bytes(self.array(20)))
    }

    /// Returns the position of the record in the log it was written to.
    pub fn physical_offset(&self) -> PhysicalOffset {
        PhysicalOffset(u64::from_be_bytes(self.array(28)))
    }

    /// Returns the system flag.
    pub fn sys_flag(&self) -> i32 {
        i32::from_be_bytes(self.array(36))
    }

    /// Returns the time when the producer made the message.
    pub fn born_timestamp_ms(&self) -> i64 {
        i64::from_be_bytes(self.array(40))
    }

    /// Returns the producer's address.
    pub fn born_host(&self) -> SocketAddr {
        self.host(48, BORN_HOST_V6)
    }

    /// Returns the time when the broker stored it.
    pub fn store_timestamp_ms(&self) -> i64 {
        i64::from_be_bytes(self.array(self.stored_at))
    }

    /// Returns the broker that stored it.
    pub fn store_host(&self) -> SocketAddr {
        self.host(self.stored_at + 8, STORE_HOST_V6)
    }

    /// Returns how often the message was sent back.
    pub fn reconsume_times(&self) -> i32 {
        i32::from_be_bytes(self.array(self.hosts_end))
    }

    /// Returns the physical offset of the half message, on the copy that a commit made; otherwise 0.
    pub fn prepared_transaction_offset(&self) -> i64 {
        i64::from_be_bytes(self.array(self.hosts_end + 4))
    }

    /// Returns the body as stored, compressed or not.
    pub const fn body(&self) -> &'a [u8] {
        self.body
    }

    /// Returns the topic under which the record is stored.
    pub const fn topic(&self) -> &'a [u8] {
        self.topic
    }

    /// Returns the properties, verbatim.
    pub const fn properties(&self) -> &'a [u8] {
        self.properties
    }

    /// Checks that topic and properties are text as a broker writes it. The body CRC does not cover them: beyond the
    /// durable position this distinguishes a torn record from a whole one.
    pub fn check_text(&self) -> Result<(), RecordError> {
        check_text(self.topic, self.properties)
    }

    /// Returns the fields, for writing the record elsewhere.
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

    /// Returns a copy under `topic`, with one more property where the properties have room for it.
    pub(crate) fn copied(&self, topic: &[u8], added: Option<(&[u8], &[u8])>) -> Bytes {
        let mut properties = Vec::new();
        let mut writer = properties::Writer::copy(&mut properties, self.properties);
        if let Some((name, value)) = added {
            writer.append(name, value);
        }
        let has_room = properties.len() <= PROPERTIES_BYTES_MAX;
        let properties = if has_room { &*properties } else { self.properties };
        let fields = RecordFields { topic, properties, ..self.fields() };
        let mut bytes = vec![0; fields.encoded_len()];
        fields.encode(&mut bytes, self.stamp());
        bytes.into()
    }

    /// Returns the stored position in the log.
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

    /// Returns `N` bytes at a position that `parse` has checked.
    fn array<const N: usize>(&self, at: usize) -> [u8; N] {
        self.bytes.get(at..).and_then(<[u8]>::first_chunk).copied().unwrap_or([0; N])
    }
}

/// The state of [`RecordView::parse`].
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
