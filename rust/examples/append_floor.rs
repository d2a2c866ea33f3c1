//! Append floor: the minimum cost of a send for a single thread that does nothing else.
//!
//! `append_floor PORT` parses a send, computes the checksum of its body, writes a RocketMQ record and a queue entry
//! into prefaulted memory, and responds: one thread, one read and one write per batch of input. It stores nothing
//! durably, checks no permission, knows one topic, and answers every other request with success. The comparison runs
//! it as a lower bound for any broker on the same machine.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a measurement that cannot go on should panic"
)]

use std::collections::HashMap;
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;

use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::io::retry_on_intr;

const LOG_BYTES: usize = 1 << 30;
const QUEUES: usize = 64;
const QUEUE_ENTRIES: usize = 300_000;
const ENTRY_BYTES: usize = 20;
const READ_BYTES: usize = 4 << 20;
const SENDS: [i32; 2] = [310, 320];
const BATCH: i32 = 320;
/// The request that a load sends first: the queues of its topic.
const TOPIC_STATISTICS: i32 = 202;
const TOPIC_QUEUES: usize = 4;
/// Size of a record before its body.
const RECORD_HEAD: usize = 88;
const BINARY: u8 = 1;

/// The fields of a send, as slices of its header.
#[derive(Default)]
struct Header<'a> {
    code: i32,
    opaque: i32,
    is_oneway: bool,
    topic: &'a [u8],
    queue: usize,
    properties: &'a [u8],
}

fn number(text: &[u8]) -> i32 {
    text.iter().filter(|byte| byte.is_ascii_digit()).fold(0, |sum, digit| sum * 10 + i32::from(digit - b'0'))
}

fn be32(bytes: &[u8], at: usize) -> usize {
    u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap()) as usize
}

fn be16(bytes: &[u8], at: usize) -> usize {
    usize::from(u16::from_be_bytes(bytes[at..at + 2].try_into().unwrap()))
}

impl<'a> Header<'a> {
    fn field(&mut self, name: &[u8], value: &'a [u8]) {
        match name {
            b"b" => self.topic = value,
            b"e" => self.queue = number(value) as usize % QUEUES,
            b"i" => self.properties = value,
            _ => {}
        }
    }

    /// Parses a flat object with one nested object of strings, `extFields`. Escapes are kept.
    fn json(text: &'a [u8]) -> Self {
        let mut header = Self::default();
        let mut rest = text;
        let quote = |text: &[u8]| text.iter().position(|byte| *byte == b'"');
        while let Some(begin) = quote(rest) {
            rest = &rest[begin + 1..];
            let end = quote(rest).unwrap();
            let name = &rest[..end];
            rest = &rest[end + 2..];
            match rest[0] {
                b'"' => {
                    let mut end = 1;
                    while rest[end] != b'"' {
                        end += if rest[end] == b'\\' { 2 } else { 1 };
                    }
                    header.field(name, &rest[1..end]);
                    rest = &rest[end + 1..];
                }
                b'{' => rest = &rest[1..],
                _ => {
                    let end = rest.iter().position(|byte| matches!(byte, b',' | b'}')).unwrap();
                    match name {
                        b"code" => header.code = number(&rest[..end]),
                        b"opaque" => header.opaque = number(&rest[..end]),
                        b"flag" => header.is_oneway = number(&rest[..end]) & 2 != 0,
                        _ => {}
                    }
                    rest = &rest[end..];
                }
            }
        }
        header
    }

    fn binary(bytes: &'a [u8]) -> Self {
        let mut header =
            Self { code: be16(bytes, 0) as i32, opaque: be32(bytes, 5) as i32, ..Self::default() };
        header.is_oneway = be32(bytes, 9) & 2 != 0;
        let mut at = 17 + be32(bytes, 13) + 4;
        while at < bytes.len() {
            let name = at + 2..at + 2 + be16(bytes, at);
            let value = name.end + 4..name.end + 4 + be32(bytes, name.end);
            at = value.end;
            header.field(&bytes[name], &bytes[value]);
        }
        header
    }
}

/// Log and queues, overwritten cyclically.
struct Memory {
    log: Vec<u8>,
    end: usize,
    queues: Vec<(Vec<u8>, usize)>,
}

impl Memory {
    /// Prefaults every page.
    fn prewritten() -> Self {
        let queues = (0..QUEUES).map(|_| (vec![1; QUEUE_ENTRIES * ENTRY_BYTES], 0)).collect();
        Self { log: vec![1; LOG_BYTES], end: 0, queues }
    }

    /// Appends a record; returns its position and queue offset.
    fn append(&mut self, header: &Header<'_>, body: &[u8], properties: &[u8]) -> (usize, usize) {
        let size = RECORD_HEAD + body.len() + 1 + header.topic.len() + 2 + properties.len();
        if self.end + size > LOG_BYTES {
            self.end = 0;
        }
        let (entries, next) = &mut self.queues[header.queue];
        let (offset, position) = (*next, self.end);
        *next += 1;
        self.end += size;
        let record = &mut self.log[position..position + size];
        let (head, rest) = record.split_at_mut(RECORD_HEAD);
        head[16..].fill(0);
        for (at, word) in [(0, size), (4, 0xDAA3_20A7), (8, crc32fast::hash(body) as usize & 0x7FFF_FFFF)] {
            head[at..at + 4].copy_from_slice(&(word as u32).to_be_bytes());
        }
        head[12..16].copy_from_slice(&(header.queue as u32).to_be_bytes());
        head[20..28].copy_from_slice(&(offset as u64).to_be_bytes());
        head[28..36].copy_from_slice(&(position as u64).to_be_bytes());
        head[84..88].copy_from_slice(&(body.len() as u32).to_be_bytes());
        let (stored, rest) = rest.split_at_mut(body.len());
        stored.copy_from_slice(body);
        rest[0] = header.topic.len() as u8;
        let (topic, rest) = rest[1..].split_at_mut(header.topic.len());
        topic.copy_from_slice(header.topic);
        rest[..2].copy_from_slice(&(properties.len() as u16).to_be_bytes());
        rest[2..].copy_from_slice(properties);
        let entry = &mut entries[offset % QUEUE_ENTRIES * ENTRY_BYTES..][..ENTRY_BYTES];
        entry[..8].copy_from_slice(&(position as u64).to_be_bytes());
        entry[8..12].copy_from_slice(&(size as u32).to_be_bytes());
        entry[12..].fill(0);
        (position, offset)
    }

    /// Appends the messages of a batch, each size, magic, CRC, flag, body, properties.
    fn append_batch(&mut self, header: &Header<'_>, mut messages: &[u8]) -> (usize, usize) {
        let mut last = (0, 0);
        while !messages.is_empty() {
            let (message, rest) = messages.split_at(be32(messages, 0));
            let body = 20..20 + be32(message, 16);
            let properties = body.end + 2..body.end + 2 + be16(message, body.end);
            last = self.append(header, &message[body], &message[properties]);
            messages = rest;
        }
        last
    }
}

fn answer(out: &mut Vec<u8>, header: &Header<'_>, (position, offset): (usize, usize), is_binary: bool) {
    let begin = out.len();
    out.extend_from_slice(&[0; 8]);
    if is_binary {
        out.extend_from_slice(&[0, 0, 0, 1, 145]);
        for word in [header.opaque, 1, 0] {
            out.extend_from_slice(&word.to_be_bytes());
        }
        let fields = out.len();
        out.extend_from_slice(&[0; 4]);
        let field = |out: &mut Vec<u8>, name: &str, value: std::fmt::Arguments<'_>| {
            out.extend_from_slice(&(name.len() as u16).to_be_bytes());
            out.extend_from_slice(name.as_bytes());
            let begin = out.len();
            out.extend_from_slice(&[0; 4]);
            out.write_fmt(value).unwrap();
            let size = (out.len() - begin - 4) as u32;
            out[begin..begin + 4].copy_from_slice(&size.to_be_bytes());
        };
        field(out, "msgId", format_args!("7F00000100002A9F{position:016X}"));
        field(out, "queueId", format_args!("{}", header.queue));
        field(out, "queueOffset", format_args!("{offset}"));
        let size = (out.len() - fields - 4) as u32;
        out[fields..fields + 4].copy_from_slice(&size.to_be_bytes());
    } else {
        write!(
            out,
            r#"{{"code":0,"extFields":{{"queueId":"{}","TRACE_ON":"true","MSG_REGION":"DefaultRegion","msgId":"7F00000100002A9F{position:016X}","queueOffset":"{offset}"}},"flag":1,"language":"RUST","opaque":{},"serializeTypeCurrentRPC":"JSON","version":401}}"#,
            header.queue, header.opaque
        )
        .unwrap();
    }
    let size = (out.len() - begin - 8) as u32;
    let mark = if is_binary { u32::from(BINARY) << 24 } else { 0 };
    out[begin..begin + 4].copy_from_slice(&(size + 4).to_be_bytes());
    out[begin + 4..begin + 8].copy_from_slice(&(size | mark).to_be_bytes());
}

/// Responds with the queues of topic `bench` at `broker-a`, all empty.
fn answer_statistics(out: &mut Vec<u8>, opaque: i32) {
    let queues: Vec<String> = (0..TOPIC_QUEUES)
        .map(|queue| {
            let key = format!(r#"{{"brokerName":"broker-a","queueId":{queue},"topic":"bench"}}"#);
            format!(r#"{key}:{{"lastUpdateTimestamp":0,"maxOffset":0,"minOffset":0}}"#)
        })
        .collect();
    let body = format!(r#"{{"offsetTable":{{{}}}}}"#, queues.join(","));
    let header = format!(
        r#"{{"code":0,"flag":1,"language":"RUST","opaque":{opaque},"serializeTypeCurrentRPC":"JSON","version":401}}"#
    );
    out.extend_from_slice(&((4 + header.len() + body.len()) as u32).to_be_bytes());
    out.extend_from_slice(&(header.len() as u32).to_be_bytes());
    out.extend_from_slice(header.as_bytes());
    out.extend_from_slice(body.as_bytes());
}

struct Connection {
    stream: TcpStream,
    read: Vec<u8>,
    filled: usize,
    out: Vec<u8>,
}

impl Connection {
    /// Handles all available bytes; false at end of stream.
    fn serve(&mut self, memory: &mut Memory) -> bool {
        match self.stream.read(&mut self.read[self.filled..]) {
            Ok(0) => return false,
            Ok(count) => self.filled += count,
            Err(error) => return error.kind() == ErrorKind::WouldBlock,
        }
        let mut done = 0;
        while self.filled - done >= 8 {
            let size = be32(&self.read, done) + 4;
            assert!(size <= READ_BYTES, "larger than a load sends");
            if self.filled - done < size {
                break;
            }
            let frame = &self.read[done..done + size];
            let mark = be32(frame, 4);
            let (header_bytes, body) = frame[8..].split_at(mark & 0xFF_FFFF);
            let is_binary = mark >> 24 == usize::from(BINARY);
            let header = if is_binary { Header::binary(header_bytes) } else { Header::json(header_bytes) };
            let place = match header.code {
                BATCH => memory.append_batch(&header, body),
                code if SENDS.contains(&code) => memory.append(&header, body, header.properties),
                _ => (0, 0),
            };
            if header.code == TOPIC_STATISTICS {
                answer_statistics(&mut self.out, header.opaque);
            } else if !header.is_oneway {
                answer(&mut self.out, &header, place, is_binary);
            }
            done += size;
        }
        self.read.copy_within(done..self.filled, 0);
        self.filled -= done;
        let mut left = self.out.as_slice();
        while !left.is_empty() {
            match self.stream.write(left) {
                Ok(count) => left = &left[count..],
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(_) => return false,
            }
        }
        self.out.clear();
        true
    }
}

fn main() {
    let port: u16 = std::env::args().nth(1).and_then(|port| port.parse().ok()).expect("append_floor PORT");
    let mut memory = Memory::prewritten();
    let listener = TcpListener::bind(("127.0.0.1", port)).unwrap();
    let poll = epoll::create(CreateFlags::CLOEXEC).unwrap();
    let watch = |of: &dyn AsFd, id: u64| {
        epoll::add(&poll, of.as_fd(), EventData::new_u64(id), EventFlags::IN).unwrap();
    };
    watch(&listener, 0);
    let (mut connections, mut last_id) = (HashMap::new(), 0);
    let mut events = Vec::with_capacity(256);
    loop {
        events.clear();
        // The process is stopped while others are measured; continuing interrupts the wait.
        retry_on_intr(|| epoll::wait(&poll, rustix::buffer::spare_capacity(&mut events), None)).unwrap();
        for event in &events {
            let id = event.data.u64();
            if id == 0 {
                let (stream, _) = listener.accept().unwrap();
                stream.set_nonblocking(true).unwrap();
                stream.set_nodelay(true).unwrap();
                last_id += 1;
                watch(&stream, last_id);
                let connection = Connection { stream, read: vec![0; READ_BYTES], filled: 0, out: Vec::new() };
                connections.insert(last_id, connection);
            } else if connections.get_mut(&id).is_some_and(|connection| !connection.serve(&mut memory)) {
                connections.remove(&id);
            }
        }
    }
}
