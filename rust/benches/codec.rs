//! What the codecs of a send cost, in nanoseconds for each: `cargo bench --bench codec`. Numbers to look at, not a
//! gate; the best of many rounds, since the machine has other things to do.

#![allow(clippy::unwrap_used, reason = "a benchmark that cannot go on should panic")]

use std::hint::black_box;
use std::time::Instant;

use rmqpy::message::id::OffsetMessageId;
use rmqpy::message::record::{RecordFields, RecordView, Stamp};
use rmqpy::message::tag::{self, TagFilter};
use rmqpy::positions::{PhysicalOffset, QueueOffset};
use rmqpy::remoting::codes::{flag, response};
use rmqpy::remoting::frame::{Encoding, FrameLimits, split};
use rmqpy::remoting::header::{Header, HeaderWriter};

/// Rounds are short, so that some run undisturbed on a busy machine.
const ROUNDS: u32 = 500;
const TIMES: u32 = 1_000;

const PROPERTIES: &str = "KEYS\u{1}key1 key2\u{2}UNIQ_KEY\u{1}FD000000000000000000000000000002584E30946E096946E6DC0000\u{2}WAIT\u{1}true\u{2}TAGS\u{1}TagA\u{2}";

fn measure(name: &str, mut work: impl FnMut()) {
    let best = (0..ROUNDS)
        .map(|_| {
            let start = Instant::now();
            (0..TIMES).for_each(|_| work());
            start.elapsed() / TIMES
        })
        .min();
    println!("{name:<28} {:>6} ns", best.unwrap_or_default().as_nanos());
}

fn send_frame(encoding: Encoding) -> Vec<u8> {
    let mut out = Vec::new();
    let mut writer = HeaderWriter::begin(&mut out, encoding, 310, 7, 0, None);
    writer.ext("a", "group").ext("b", "T1").ext("c", "TBW102").ext("d", "4").ext("e", "0").ext("f", "0");
    writer.ext_i64("g", 1_795_257_454_301).ext("h", "0").ext("i", PROPERTIES);
    writer.ext("j", "0").ext_bool("k", false).ext_bool("m", false).ext("n", "broker-a");
    writer.finish(0).unwrap();
    out
}

fn main() {
    for encoding in [Encoding::Json, Encoding::Binary] {
        let bytes = send_frame(encoding);
        let mut header = Header::new();
        measure(&format!("read a send header, {encoding:?}"), || {
            let (frame, _) = split(black_box(&bytes), &FrameLimits::default()).unwrap().unwrap();
            header.decode(&frame).unwrap();
            black_box(header.code);
        });
        let id =
            OffsetMessageId { store_host: ([127, 0, 0, 1], 10911).into(), physical: PhysicalOffset(1 << 40) };
        let mut out = Vec::new();
        measure(&format!("write a send reply, {encoding:?}"), || {
            out.clear();
            let mut reply =
                HeaderWriter::begin(&mut out, encoding, response::SUCCESS, 7, flag::RESPONSE, None);
            reply.ext("msgId", &black_box(id).text()).ext("queueId", "0").ext_u64("queueOffset", 77);
            reply.ext_bool("TRACE_ON", true).ext("MSG_REGION", "DefaultRegion");
            reply.finish(0).unwrap();
        });
    }

    let body = [7; 1024];
    let fields = RecordFields {
        queue_id: 1,
        flag: 0,
        sys_flag: 0,
        born_timestamp_ms: 1_795_257_454_301,
        born_host: ([127, 0, 0, 1], 5000).into(),
        store_host: ([127, 0, 0, 1], 10911).into(),
        reconsume_times: 0,
        prepared_transaction_offset: 0,
        body: &body,
        body_crc: RecordFields::body_crc(&body),
        topic: b"T1",
        properties: PROPERTIES.as_bytes(),
    };
    let stamp = Stamp {
        physical: PhysicalOffset(1 << 40),
        queue: QueueOffset(77),
        store_timestamp_ms: 1_795_257_454_302,
    };
    let mut record = vec![0; fields.encoded_len()];
    measure("check a record", || black_box(&fields).check().unwrap());
    measure("lay out a record of 1 KiB", || black_box(&fields).encode(&mut record, stamp));
    measure("CRC of 1 KiB", || {
        black_box(RecordFields::body_crc(black_box(&body)));
    });
    measure("parse a record", || {
        black_box(RecordView::parse(black_box(&record)).unwrap());
    });
    let filter = TagFilter::parse("TagX || TagY || TagA");
    let code = tag::tags_code(PROPERTIES.as_bytes());
    measure("filter by hash, third of three", || {
        black_box(black_box(&filter).matches_code(black_box(code)));
    });
    measure("filter by name, third of three", || {
        black_box(black_box(&filter).matches_tag(black_box(Some(b"TagA"))));
    });
    measure("find and hash the tag", || {
        black_box(tag::tags_code(black_box(PROPERTIES.as_bytes())));
    });
}
