//! Fuzzing: one function per internal decoder, for the targets of `rust/fuzz`.
//!
//! Each function takes any bytes, returns whether they were accepted, and asserts properties of accepted input. A
//! cargo feature, not part of the wheel. Pure; any thread.

#![allow(clippy::expect_used, reason = "assertions of fuzz targets")]

mod grpc;
mod store_files;
mod tls;

pub use grpc::{grpc_deliveries, grpc_handle, grpc_metadata, grpc_requests, grpc_sends};
pub use store_files::store_files;
pub use tls::{tls_hello, tls_session};

use crate::access::network::Network;
use crate::access::resource::ResourcePattern;
use crate::access::signature::SigningKey;
use crate::client::receipt::judge;
use crate::client::route_cache::Target;
use crate::columns::{BadText, COLUMNS, Column, Origin, Table};
use crate::dataplane::delivery::revive::records;
use crate::dataplane::requests::pop;
use crate::message::tag::TagFilter;
use crate::remoting::codes::request;
use crate::remoting::frame::{Encoding, Frame, FrameLimits, split};
use crate::remoting::header::{Header, HeaderWriter};
use crate::remoting::{FrameError, Reply};
use crate::replication::stream::{Piece, ReportReader, StreamError, TransferReader};
use crate::requests::pop::{AckHeader, PopHeader};
use crate::requests::pull::PullHeader;
use crate::requests::send::{SendHeader, SendOrigin};
use crate::requests::send_back::SendBackHeader;

/// Builds the header of a frame with this content, if it is valid.
fn header_of(encoding: Encoding, content: &[u8]) -> Option<Header> {
    let mut header = Header::new();
    header.decode(&Frame { encoding, header: content, body: &[] }).ok()?;
    Some(header)
}

/// Decodes the fields of a send; encoding and decoding them again gives the same. Only in JSON: binary cannot
/// represent an empty text.
pub fn send_header(encoding: Encoding, content: &[u8]) -> bool {
    let Some(header) = header_of(encoding, content) else { return false };
    let Ok(fields) = SendHeader::decode(&header) else { return false };
    let origin = SendOrigin { group: "g", template_queues: 4, broker: "b" };
    let again = rewritten(fields.code(), |out| fields.encode(&origin, out));
    if let Some(again) = again {
        assert_eq!(SendHeader::decode(&again), Ok(fields));
    }
    true
}

/// Checks the header of a pull the same way.
pub fn pull_header(encoding: Encoding, content: &[u8]) -> bool {
    let Some(header) = header_of(encoding, content) else { return false };
    let Ok(fields) = PullHeader::decode(&header) else { return false };
    if let Some(again) = rewritten(request::PULL_MESSAGE, |out| fields.encode(out)) {
        assert_eq!(PullHeader::decode(&again), Ok(fields));
    }
    true
}

/// Decodes the fields of a message that is sent back.
pub fn send_back_header(encoding: Encoding, content: &[u8]) -> bool {
    let Some(header) = header_of(encoding, content) else { return false };
    SendBackHeader::decode(&header).is_ok()
}

/// Encodes and decodes a header; `None` if it does not fit a frame.
fn rewritten(code: i32, fields: impl FnOnce(&mut HeaderWriter<'_>)) -> Option<Header> {
    let mut out = Vec::new();
    let mut writer = HeaderWriter::begin(&mut out, Encoding::Json, code, 1, 0, None);
    fields(&mut writer);
    let written: Result<(), FrameError> = writer.finish(0);
    written.ok()?;
    let (frame, _) = split(&out, &FrameLimits::default()).ok()??;
    header_of(Encoding::Json, frame.header)
}

/// Decodes the fields of POP requests, which share most names.
pub fn pop_headers(encoding: Encoding, content: &[u8]) -> bool {
    let Some(header) = header_of(encoding, content) else { return false };
    PopHeader::decode(&header).is_ok() | AckHeader::decode(&header).is_ok()
}

/// Reads the texts of POP: a handle, the body of a batch of acknowledgements, and a record of the revive topic.
pub fn pop_texts(properties: &[u8], text: &[u8]) -> bool {
    let is_handle = std::str::from_utf8(text).is_ok_and(pop::reads_back);
    let is_batch = pop::batch_entries(text) > 0;
    is_handle | is_batch | records::reads_back(properties, text)
}

/// Interprets a broker's reply to a send.
pub fn receipt(encoding: Encoding, content: &[u8], retry_not_safe: bool) -> bool {
    let Some(header) = header_of(encoding, content) else { return false };
    let target = Target { address: "h:1".into(), broker: "b".into(), queue_id: 0 };
    judge(&Reply { header: &header, body: &[] }, &target, retry_not_safe).is_ok()
}

/// Signs the fields of a request; another body or signature must be refused.
pub fn signature(encoding: Encoding, content: &[u8], body: &[u8]) -> bool {
    let Some(header) = header_of(encoding, content) else { return false };
    let key = SigningKey::new("secret");
    let Ok(signature) = key.sign(header.ext(), header.version, body) else { return false };
    let verifies = |signature: &str, body: &[u8]| {
        key.verifies(signature, header.ext(), header.version, body).is_ok_and(|is_verified| is_verified)
    };
    assert!(verifies(&signature, body));
    assert!(!verifies(&signature, &[body, &[0]].concat()));
    header.ext().any(|(_, value)| value != &*signature && verifies(value, body))
}

/// Parses the texts of a policy; formatting and parsing them again gives the same.
pub fn policy_texts(text: &str) -> bool {
    let pattern = ResourcePattern::parse(text);
    if let Some(pattern) = &pattern {
        assert_eq!(ResourcePattern::parse(&pattern.to_string()).as_ref(), Some(pattern));
    }
    pattern.is_some() || Network::parse(text).is_some()
}

/// Reads a master's stream, cut into pieces of `cut` bytes; the result must equal that of one piece.
pub fn transfers(stream: &[u8], cut: usize) -> bool {
    let read = |cut: usize| {
        let mut reader = TransferReader::default();
        let (mut headers, mut log) = (Vec::new(), Vec::new());
        let ended = stream.chunks(cut).try_for_each(|mut bytes| {
            while let Some((piece, rest)) = reader.next(bytes)? {
                match piece {
                    Piece::Header(header) => headers.push(header),
                    Piece::Bytes(bytes) => log.extend_from_slice(bytes),
                }
                bytes = rest;
            }
            Ok::<_, StreamError>(())
        });
        (headers, log, ended)
    };
    let whole = read(stream.len().max(1));
    assert_eq!(read(cut.max(1)), whole);
    whole.2.is_ok()
}

/// Checks a slave's stream the same way.
pub fn reports(stream: &[u8], cut: usize) -> bool {
    let read = |cut: usize| {
        let mut reader = ReportReader::default();
        let mut ends = Vec::new();
        let ended = stream.chunks(cut).try_for_each(|mut bytes| {
            while let Some((end, rest)) = reader.next(bytes)? {
                ends.push(end);
                bytes = rest;
            }
            Ok::<_, StreamError>(())
        });
        (ends, ended)
    };
    let whole = read(stream.len().max(1));
    assert_eq!(read(cut.max(1)), whole);
    whole.1.is_ok()
}

/// Fills every column, of every possible type, from a pulled body.
pub fn columns(body: &[u8], bad_text: u8) -> bool {
    let columns = COLUMNS.iter().flat_map(|(_, source, types)| {
        types.iter().map(|column_type| Column { source: *source, column_type: *column_type })
    });
    let bad_text = match bad_text % 3 {
        0 => BadText::Fail,
        1 => BadText::Null,
        _ => BadText::Replace,
    };
    let Ok(mut table) = Table::new(columns.collect(), bad_text) else { return false };
    let origin = Origin { topic: "t", broker: "b", queue_id: 0 };
    let added = table.append(body, &origin, &(0..u64::MAX), &TagFilter::All);
    let rows = table.rows();
    let batch = table.finish().expect("columns of one length");
    assert_eq!(batch.num_rows(), rows);
    if let Ok(added) = added {
        assert_eq!(added, rows);
    }
    added.is_ok()
}
