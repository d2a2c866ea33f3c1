//! Format laws: on generated input, encodings round-trip, equivalent encodings agree, and no bytes make a decoder
//! panic.

use std::net::{IpAddr, SocketAddr};

use proptest::collection::vec;
use proptest::prelude::*;
use rmqpy::message::batch::{InnerMessage, inner_messages};
use rmqpy::message::id::OffsetMessageId;
use rmqpy::message::record::{self, RecordFields, RecordView, Scanned, Stamp};
use rmqpy::message::sysflag::{self, Compression};
use rmqpy::message::{compression, properties, tag};
use rmqpy::positions::{PhysicalOffset, QueueOffset};
use rmqpy::remoting::frame::{self, Encoding, Frame, FrameLimits};
use rmqpy::remoting::header::{Header, HeaderWriter};

fn hosts() -> impl Strategy<Value = SocketAddr> {
    (any::<IpAddr>(), any::<u16>()).prop_map(|(ip, port)| SocketAddr::new(ip.to_canonical(), port))
}

/// Text with many characters that need escapes.
fn text() -> impl Strategy<Value = String> {
    prop_oneof!["[\\x00-\\x1f\"\\\\/a-c]{1,40}", "[a-zA-Z0-9%|_-]{1,40}", "\\PC{1,20}"]
}

prop_compose! {
    fn stamps()(physical in any::<u64>(), queue in any::<u64>(), store_timestamp_ms in any::<i64>()) -> Stamp {
        Stamp { physical: PhysicalOffset(physical), queue: QueueOffset(queue), store_timestamp_ms }
    }
}

/// Everything a record can hold, owned.
#[derive(Debug)]
struct Owned {
    numbers: (u32, i32, i32, i64, i32, i64),
    hosts: (SocketAddr, SocketAddr),
    body: Vec<u8>,
    topic: String,
    properties: String,
}

prop_compose! {
    fn records()(
        numbers in any::<(u32, i32, i32, i64, i32, i64)>(),
        hosts in (hosts(), hosts()),
        body in vec(any::<u8>(), 0..300),
        topic in "[%|a-zA-Z0-9_-]{1,255}",
        properties in "[^\\x00]{0,200}",
    ) -> Owned {
        Owned { numbers, hosts, body, topic, properties }
    }
}

impl Owned {
    fn fields(&self) -> RecordFields<'_> {
        let (queue_id, flag, sys_flag, born_timestamp_ms, reconsume_times, prepared) = self.numbers;
        RecordFields {
            queue_id,
            flag,
            sys_flag,
            born_timestamp_ms,
            born_host: self.hosts.0,
            store_host: self.hosts.1,
            reconsume_times,
            prepared_transaction_offset: prepared,
            body: &self.body,
            body_crc: RecordFields::body_crc(&self.body),
            topic: self.topic.as_bytes(),
            properties: self.properties.as_bytes(),
        }
    }

    fn encoded(&self, stamp: Stamp) -> Vec<u8> {
        let mut bytes = vec![0; self.fields().encoded_len()];
        self.fields().encode(&mut bytes, stamp);
        bytes
    }
}

/// A transcription of the Java clients' parser.
fn java_entries(properties: &[u8]) -> Vec<(&[u8], &[u8])> {
    let find = |from: usize, byte: u8| properties[from..].iter().position(|&b| b == byte).map(|at| from + at);
    let mut found = Vec::new();
    let mut index = 0;
    while index < properties.len() {
        let end = find(index, 2).unwrap_or(properties.len());
        if end - index >= 3
            && let Some(middle) = find(index, 1).filter(|&middle| middle > index && middle + 1 < end)
        {
            found.push((&properties[index..middle], &properties[middle + 1..end]));
        }
        index = end + 1;
    }
    found
}

proptest! {
    // --- records ------------------------------------------------------------------------------------------------

    #[test]
    fn a_record_reads_back_as_it_was_written(owned in records(), stamp in stamps()) {
        let fields = owned.fields();
        let bytes = owned.encoded(stamp);
        prop_assert_eq!(fields.check(), Ok(()));
        let Scanned::Record(view) = record::scan(&bytes) else { panic!("no record") };
        prop_assert_eq!(view.total_size(), bytes.len());
        prop_assert_eq!(view.stamp(), stamp);
        prop_assert!(view.body_crc_matches());
        prop_assert_eq!(view.check_text(), Ok(()));
        // The record sets only the address bits.
        let own = sysflag::BORN_HOST_V6 | sysflag::STORE_HOST_V6;
        prop_assert_eq!(view.sys_flag() & !own, fields.sys_flag & !own);
        prop_assert_eq!(view.sys_flag() & sysflag::BORN_HOST_V6 != 0, fields.born_host.is_ipv6());
        prop_assert_eq!(view.sys_flag() & sysflag::STORE_HOST_V6 != 0, fields.store_host.is_ipv6());
        prop_assert_eq!(view.fields(), RecordFields { sys_flag: view.sys_flag(), ..fields });
        prop_assert_eq!(view.magic() == record::MAGIC_V2, owned.topic.len() > 127);
    }

    #[test]
    fn records_end_to_end_are_read_one_by_one(many in vec(records(), 0..5), stamp in stamps()) {
        let bytes: Vec<u8> = many.iter().flat_map(|owned| owned.encoded(stamp)).collect();
        let views: Vec<_> = record::records(&bytes).collect::<Result<_, _>>().unwrap();
        prop_assert_eq!(views.len(), many.len());
        for (view, owned) in views.iter().zip(&many) {
            prop_assert_eq!(view.body(), owned.body.as_slice());
        }
    }

    #[test]
    fn a_truncated_record_is_invalid(owned in records(), stamp in stamps(), part in 0.0..1.0) {
        let bytes = owned.encoded(stamp);
        let end = (bytes.len() as f64 * part) as usize;
        prop_assert!(!matches!(record::scan(&bytes[..end]), Scanned::Record(_)));
    }

    /// Recovery reads records that may be damaged anywhere: whatever parses stays within its bounds.
    #[test]
    fn a_damaged_record_never_leaves_its_bounds(
        owned in records(),
        stamp in stamps(),
        damage in vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let mut bytes = owned.encoded(stamp);
        for (at, byte) in damage {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        if let Ok(view) = RecordView::parse(&bytes) {
            prop_assert!(view.total_size() <= bytes.len());
            let parts = view.body().len() + view.topic().len() + view.properties().len();
            prop_assert!(parts + record::RECORD_BYTES_MIN <= view.total_size());
            let _ = (view.fields(), view.stamp(), view.check_text());
        }
    }

    #[test]
    fn a_filler_reads_back(size in 8..=i32::MAX as u32) {
        let mut bytes = [0; 16];
        record::encode_blank(&mut bytes, size);
        prop_assert_eq!(record::scan(&bytes), Scanned::Blank { size });
    }

    // --- headers ------------------------------------------------------------------------------------------------

    #[test]
    fn json_and_binary_agree(
        (code, opaque, flag) in any::<(i16, i32, i32)>(),
        remark in proptest::option::of(text()),
        ext in vec((text(), text()), 0..20),
    ) {
        for encoding in [Encoding::Json, Encoding::Binary] {
            let mut out = Vec::new();
            let mut writer =
                HeaderWriter::begin(&mut out, encoding, code.into(), opaque, flag, remark.as_deref());
            for (name, value) in &ext {
                writer.ext(name, value);
            }
            writer.finish(0).unwrap();
            let (frame, size) = frame::split(&out, &FrameLimits::default()).unwrap().unwrap();
            prop_assert_eq!((frame.encoding, size), (encoding, out.len()));
            let mut header = Header::new();
            header.decode(&frame).unwrap();
            prop_assert_eq!((header.code, header.opaque, header.flag), (code.into(), opaque, flag));
            prop_assert_eq!(header.remark(), remark.as_deref());
            let read: Vec<_> = header.ext().map(|(n, v)| (n.to_owned(), v.to_owned())).collect();
            prop_assert_eq!(&read, &ext);
        }
    }

    /// Whatever a general parser accepts, ours reads as the same text.
    #[test]
    fn text_reads_as_a_general_json_parser_reads_it(value in "\\PC{0,20}[\\x00-\\x1f\"\\\\]{0,5}") {
        let header_text = serde_json::json!({ "remark": value, "extFields": { value.clone(): value } }).to_string();
        let mut header = Header::new();
        let frame = Frame { encoding: Encoding::Json, header: header_text.as_bytes(), body: &[] };
        header.decode(&frame).unwrap();
        prop_assert_eq!(header.remark(), Some(value.as_str()));
        prop_assert_eq!(header.get(&value), Some(value.as_str()));
    }

    #[test]
    fn a_header_decoded_twice_forgets_the_first(first in "\\PC{0,30}", second in "[a-z]{1,8}") {
        let mut header = Header::new();
        for value in [&first, &second] {
            let text = serde_json::json!({ "extFields": { value.clone(): value } }).to_string();
            let frame = Frame { encoding: Encoding::Json, header: text.as_bytes(), body: &[] };
            header.decode(&frame).unwrap();
        }
        prop_assert_eq!(header.ext().collect::<Vec<_>>(), [(second.as_str(), second.as_str())]);
    }

    // --- parts --------------------------------------------------------------------------------------------------

    #[test]
    fn properties_read_as_java_reads_them(bytes in vec(prop_oneof![0u8..4, any::<u8>()], 0..60)) {
        prop_assert_eq!(properties::entries(&bytes).collect::<Vec<_>>(), java_entries(&bytes));
        for (name, _) in java_entries(&bytes) {
            let last = java_entries(&bytes).into_iter().rfind(|(other, _)| *other == name).unwrap();
            prop_assert_eq!(properties::get(&bytes, name), Some(last.1));
        }
    }

    #[test]
    fn appended_properties_read_back_after_existing_ones(
        before in vec(prop_oneof![0u8..4, any::<u8>()], 0..40),
        added in vec(("[^\\x01\\x02]{1,9}", "[^\\x01\\x02]{1,9}"), 1..6),
    ) {
        let mut out = Vec::new();
        let mut writer = properties::Writer::copy(&mut out, &before);
        for (name, value) in &added {
            writer.append(name.as_bytes(), value.as_bytes());
        }
        let mut expected = java_entries(&before);
        expected.extend(added.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes())));
        prop_assert_eq!(properties::entries(&out).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn a_batch_reads_back_as_it_was_written(
        messages in vec((any::<i32>(), vec(any::<u8>(), 0..50), vec(any::<u8>(), 0..50)), 0..10),
    ) {
        let messages: Vec<_> = messages
            .iter()
            .map(|(flag, body, properties)| InnerMessage { flag: *flag, body, properties })
            .collect();
        let mut body = Vec::new();
        messages.iter().for_each(|message| message.encode(&mut body));
        prop_assert_eq!(inner_messages(&body).collect::<Result<Vec<_>, _>>(), Ok(messages));
    }

    #[test]
    fn an_id_reads_back(store_host in hosts(), physical in 0..=i64::MAX as u64) {
        let id = OffsetMessageId { store_host, physical: PhysicalOffset(physical) };
        prop_assert_eq!(OffsetMessageId::decode(&id.text()), Ok(id));
    }

    #[test]
    fn a_hash_is_a_sum_over_utf16_units(value in any::<String>(), topic in "[a-z]{1,9}") {
        let hash = |text: &str| {
            text.encode_utf16().fold(0i32, |h, unit| h.wrapping_mul(31).wrapping_add(unit.into()))
        };
        prop_assert_eq!(tag::java_hash(value.as_bytes()), hash(&value));
        let key = hash(&format!("{topic}#{value}")).checked_abs().unwrap_or(0);
        prop_assert_eq!(tag::key_hash(topic.as_bytes(), value.as_bytes()), key);
    }

    #[test]
    fn a_compressed_body_unpacks_to_itself(
        body in vec(prop_oneof![Just(0u8), any::<u8>()], 0..5_000),
        level in -1..12,
    ) {
        for kind in [Compression::Zlib, Compression::Lz4, Compression::Zstd] {
            let small = compression::compress(kind, level, &body).unwrap();
            let plain = compression::decompress(kind.sys_flag(), &small, body.len()).unwrap();
            prop_assert_eq!(plain.as_ref(), body.as_slice());
        }
    }

    // --- anything at all ----------------------------------------------------------------------------------------

    #[test]
    fn no_bytes_make_a_decoder_panic(bytes in vec(any::<u8>(), 0..400), sys_flag in any::<i32>()) {
        let _ = frame::split(&bytes, &FrameLimits::default());
        let mut header = Header::new();
        for encoding in [Encoding::Json, Encoding::Binary] {
            let _ = header.decode(&Frame { encoding, header: &bytes, body: &[] });
        }
        let _ = record::scan(&bytes);
        let _ = record::records(&bytes).count();
        let _ = inner_messages(&bytes).count();
        let _ = properties::entries(&bytes).count();
        let _ = tag::tags_code(&bytes);
        if let Ok(plain) = compression::decompress(sys_flag, &bytes, 4_000) {
            prop_assert!(plain.len() <= usize::max(bytes.len(), 4_000));
        }
        let text = String::from_utf8_lossy(&bytes);
        let _ = OffsetMessageId::decode(&text);
        let _ = tag::TagFilter::parse(&text);
    }

    #[test]
    fn almost_json_makes_no_decoder_panic(
        text in "[\\[\\]{}:,\"'\\\\/* \\n\\tunltrfaeds0-9.+-]{0,80}",
        tail in "(\"(code|flag|extFields|remark|language)\":)?[\\[\\]{}\"0-9]{0,9}",
    ) {
        let mut header = Header::new();
        for text in [&text, &format!("{{{text}"), &format!("{{\"extFields\":{{{text}"), &format!("{{{tail}}}")] {
            let _ = header.decode(&Frame { encoding: Encoding::Json, header: text.as_bytes(), body: &[] });
        }
    }
}
