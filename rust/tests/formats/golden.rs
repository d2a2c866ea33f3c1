//! Golden tests: the codecs against bytes written by Apache RocketMQ 5.5.0, and against small vectors to check by
//! eye.

use std::net::SocketAddr;

use crate::vectors::{Vector, golden, golden_frames, worked};
use rmqpy::message::batch::{InnerMessage, inner_messages};
use rmqpy::message::id::OffsetMessageId;
use rmqpy::message::record::{self, MAGIC_V1, MAGIC_V2, RecordFields, RecordView, Scanned, Stamp};
use rmqpy::message::{properties, sysflag, tag};
use rmqpy::positions::{PhysicalOffset, QueueOffset};
use rmqpy::remoting::codes::{VERSION, language, request, response};
use rmqpy::remoting::frame::{self, Encoding, Frame, FrameLimits};
use rmqpy::remoting::header::{Header, HeaderWriter};
use serde_json::Value;

fn decode(frame: &Frame<'_>) -> Header {
    let mut header = Header::new();
    header.decode(frame).unwrap();
    header
}

/// Returns the frame of a vector that holds a whole one.
fn whole(bytes: &[u8]) -> (Header, &[u8]) {
    let (frame, size) = frame::split(bytes, &FrameLimits::default()).unwrap().unwrap();
    assert_eq!(size, bytes.len());
    (decode(&frame), frame.body)
}

fn host(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

// --- frames -----------------------------------------------------------------------------------------------------

/// A general JSON parser reads the same fields from every captured JSON header.
#[test]
fn every_captured_json_header_reads_as_a_strict_parser_reads_it() {
    let mut count = 0;
    for Vector { origin, bytes } in golden_frames() {
        let frame = crate::vectors::frame(&bytes);
        if frame.encoding == Encoding::Binary {
            continue;
        }
        let header = decode(&frame);
        let strict: Value = serde_json::from_slice(frame.header).unwrap();
        let number = |name: &str| strict[name].as_i64().map(|n| n as i32);
        assert_eq!(Some(header.code), number("code"), "{origin}");
        assert_eq!(Some(header.opaque), number("opaque"), "{origin}");
        assert_eq!(Some(header.flag), number("flag"), "{origin}");
        assert_eq!(Some(header.version), number("version"), "{origin}");
        assert_eq!(Some(language::name(header.language)), strict["language"].as_str(), "{origin}");
        assert_eq!(header.remark(), strict["remark"].as_str(), "{origin}");
        let ext = strict.get("extFields").and_then(Value::as_object);
        assert_eq!(header.has_ext(), ext.is_some(), "{origin}");
        assert_eq!(header.ext().len(), ext.map_or(0, serde_json::Map::len), "{origin}");
        for (name, value) in ext.into_iter().flatten() {
            assert_eq!(header.get(name), value.as_str(), "{origin} {name}");
        }
        count += 1;
    }
    assert!(count > 200, "{count} frames are not the collection");
}

/// Given the same fields in the same order, our writer produces Apache's bytes.
#[test]
fn every_captured_header_of_our_version_is_written_back_byte_for_byte() {
    let mut count = 0;
    for Vector { origin, bytes } in golden_frames() {
        let frame = crate::vectors::frame(&bytes);
        let header = decode(&frame);
        // Our writer never writes an empty map; every client treats it like an absent one.
        if header.version != VERSION || header.has_ext() && header.ext().len() == 0 {
            continue;
        }
        let mut out = Vec::new();
        let mut writer = HeaderWriter::begin_as(
            header.language,
            &mut out,
            frame.encoding,
            header.code,
            header.opaque,
            header.flag,
            header.remark(),
        );
        for (name, value) in header.ext() {
            writer.ext(name, value);
        }
        writer.finish(frame.body.len()).unwrap();
        // The length word of a truncated frame counts missing bytes.
        let from = if crate::vectors::is_cut(&bytes) { 4 } else { 0 };
        assert_eq!(out[from..], bytes[from..out.len()], "{origin}");
        count += 1;
    }
    assert!(count > 200, "{count} headers are not the collection");
}

#[test]
fn a_captured_binary_send_reads_like_its_json_twin() {
    let send = golden("310_send_v2_binary", "request");
    let (header, body) = whole(&send);
    assert_eq!(
        (header.code, header.language, header.version),
        (request::SEND_MESSAGE_V2, language::JAVA, VERSION)
    );
    assert_eq!((header.opaque, header.flag, header.remark()), (70_595, 0, None));
    assert_eq!(header.get("b"), Some("T1"));
    assert_eq!(header.get("i"), Some("TAGS\u{1}TagB\u{2}"));
    assert_eq!(body, b"hello-bin");
    let twin = golden("310_send_v2", "request");
    let (twin, _) = whole(&twin);
    let names = |header: &Header| header.ext().map(|(name, _)| name.to_owned()).collect::<Vec<_>>();
    assert_eq!(names(&header), names(&twin));
}

#[test]
fn the_worked_frames_read_as_described() {
    let json = worked("frame_json", "request");
    let (header, body) = whole(&json);
    assert_eq!((header.code, header.opaque, header.version), (105, 7, 479));
    assert_eq!((header.get("topic"), body), (Some("T"), &b""[..]));

    let binary = worked("frame_binary", "request");
    let (header, body) = whole(&binary);
    assert_eq!((header.code, header.language, header.version, header.opaque), (14, 12, 479, 7));
    assert_eq!((header.remark(), header.get("topic"), body), (Some("hi"), Some("T"), &[1, 2][..]));
}

#[test]
fn a_captured_send_answer_names_the_record_it_stored() {
    let reply = golden("310_send_v2", "reply");
    let (header, _) = whole(&reply);
    assert!(header.is_response());
    assert_eq!(header.code, response::SUCCESS);
    let id = OffsetMessageId::decode(header.get("msgId").unwrap()).unwrap();
    assert_eq!(id.store_host, host("127.0.0.1:48911"));
    assert_eq!(id.physical, PhysicalOffset(0xD3));
    assert_eq!(id.text().as_str(), header.get("msgId").unwrap());
}

#[test]
fn captured_one_way_calls_have_their_flag() {
    for name in ["client_37_oneway_C2S", "client_39_oneway_B2C", "client_15_oneway_C2S"] {
        let request = golden(name, "request");
        let (header, _) = whole(&request);
        assert!(header.is_oneway() && !header.is_response(), "{name}");
    }
}

// --- records ----------------------------------------------------------------------------------------------------

/// Parses a captured record and writes its fields again.
fn rewritten(bytes: &[u8]) -> RecordView<'_> {
    let view = RecordView::parse(bytes).unwrap();
    assert!(view.body_crc_matches());
    assert_eq!(view.check_text(), Ok(()));
    let fields = view.fields();
    assert_eq!(fields.check(), Ok(()));
    let mut out = vec![0xAA; fields.encoded_len()];
    fields.encode(&mut out, view.stamp());
    assert_eq!(out, bytes);
    view
}

#[test]
fn the_worked_record_is_read_and_written() {
    let bytes = worked("record", "record");
    let view = rewritten(&bytes);
    let expected = RecordFields {
        queue_id: 1,
        flag: 0,
        sys_flag: 0,
        born_timestamp_ms: 1_700_000_000_000,
        born_host: host("10.0.0.1:5000"),
        store_host: host("10.0.0.2:10911"),
        reconsume_times: 0,
        prepared_transaction_offset: 0,
        body: b"hello",
        body_crc: 907_060_870,
        topic: b"T",
        properties: b"TAGS1\x01A\x02",
    };
    assert_eq!(view.fields(), expected);
    let stamp =
        Stamp { physical: PhysicalOffset(256), queue: QueueOffset(2), store_timestamp_ms: 1_700_000_000_001 };
    assert_eq!(view.stamp(), stamp);
    let id = OffsetMessageId { store_host: view.store_host(), physical: view.physical_offset() };
    assert_eq!(id.to_string(), "0A00000200002A9F0000000000000100");
}

#[test]
fn captured_records_of_every_layout_are_written_back_byte_for_byte() {
    let v1 = golden("commitlog_record_v1", "record");
    let v1 = rewritten(&v1);
    assert_eq!((v1.magic(), v1.total_size(), v1.body()), (MAGIC_V1, 211, &b"hello"[..]));
    assert_eq!(properties::get(v1.properties(), properties::name::KEYS), Some(&b"k1 k2"[..]));

    let v2 = golden("commitlog_record_v2", "record");
    let v2 = rewritten(&v2);
    assert_eq!((v2.magic(), v2.topic().len()), (MAGIC_V2, 0x94));
    assert_eq!((v2.reconsume_times(), v2.store_timestamp_ms()), (1, 0x01A1_FDB6_8EDB));

    let v6 = golden("commitlog_record_v1_born_ipv6", "record");
    let v6 = rewritten(&v6);
    assert_eq!((v6.born_host(), v6.store_host()), (host("[::1]:59072"), host("127.0.0.1:48911")));
    assert_eq!(v6.sys_flag(), sysflag::BORN_HOST_V6);

    let crc = golden("commitlog_record_v1_prop_crc", "record");
    let crc = rewritten(&crc);
    assert_eq!(properties::get(crc.properties(), properties::name::CRC32), Some(&b"3266880841"[..]));
}

#[test]
fn a_captured_inner_batch_carries_a_batch_body() {
    let bytes = golden("commitlog_record_inner_batch", "record");
    let view = rewritten(&bytes);
    assert_eq!(view.sys_flag(), sysflag::INNER_BATCH | sysflag::NEEDS_UNWRAP);
    assert_eq!(properties::get(view.properties(), properties::name::INNER_NUM), Some(&b"2"[..]));
    let bodies: Vec<_> = inner_messages(view.body()).map(|message| message.unwrap().body).collect();
    assert_eq!(bodies, [b"b1", b"b2"]);
}

#[test]
fn the_records_of_a_captured_pull_are_all_there() {
    for (name, expected) in [("11_pull_found", 2), ("11_pull_long_poll_wakeup", 1)] {
        let reply = golden(name, "reply");
        let (_, body) = whole(&reply);
        let views: Vec<_> = record::records(body).map(|view| view.unwrap()).collect();
        assert_eq!(views.len(), expected, "{name}");
        for view in views {
            rewritten(view.bytes());
        }
    }
}

#[test]
fn captured_fillers_end_their_segment() {
    for start in ["0", "65536", "131072", "196608"] {
        let bytes = golden(&format!("commitlog_blank_{start}"), "data");
        let Scanned::Blank { size } = record::scan(&bytes) else {
            panic!("segment {start} lacks its filler")
        };
        let mut out = [0xAA; 8];
        record::encode_blank(&mut out, size);
        assert_eq!(bytes, out, "segment {start}");
    }
}

// --- parts ------------------------------------------------------------------------------------------------------

#[test]
fn captured_batches_are_taken_apart_and_put_together() {
    for name in ["320_send_batch", "client_320_rpc_C2S"] {
        let request = golden(name, "request");
        let (header, body) = whole(&request);
        assert_eq!(header.get("m"), Some("true"), "{name}");
        let messages: Vec<InnerMessage<'_>> = inner_messages(body).map(|message| message.unwrap()).collect();
        assert!(messages.len() >= 2, "{name}");
        let mut out = Vec::new();
        messages.iter().for_each(|message| message.encode(&mut out));
        assert_eq!(out, body, "{name}");
    }
}

#[test]
fn the_worked_batch_element_is_read_and_written() {
    let bytes = worked("batch_element", "data");
    let expected =
        InnerMessage { flag: 0, body: b"x", properties: b"KEYS\x01k1\x02WAIT\x01true\x02TAGS\x01A\x02" };
    assert_eq!(inner_messages(&bytes).collect::<Vec<_>>(), [Ok(expected)]);
    let mut out = Vec::new();
    expected.encode(&mut out);
    assert_eq!(out, bytes);
}

#[test]
fn a_captured_queue_entry_holds_the_hash_of_its_tag() {
    let record = golden("commitlog_record_v1", "record");
    let view = RecordView::parse(&record).unwrap();
    let units = golden("consumequeue_entries", "units");
    let stored = i64::from_be_bytes(units[12..20].try_into().unwrap());
    assert_eq!(tag::tags_code(view.properties()), stored);
}

#[test]
fn a_captured_index_entry_holds_the_hash_of_topic_and_key() {
    let record = golden("commitlog_record_v1", "record");
    let view = RecordView::parse(&record).unwrap();
    let entries = golden("index_header_and_entries", "entries");
    let stored = |n: usize| i32::from_be_bytes(entries[20 * n..20 * n + 4].try_into().unwrap());
    let unique = properties::get(view.properties(), properties::name::UNIQ_KEY).unwrap();
    assert_eq!(tag::key_hash(view.topic(), unique), stored(1));
    assert_eq!(tag::key_hash(view.topic(), b"k1"), stored(2));
}
