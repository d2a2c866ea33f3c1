//! Codec benchmarks of a send, and filter benchmarks of a pull: `make bench NAME=micro`.

#![allow(clippy::unwrap_used, reason = "a benchmark that cannot go on should panic")]
#![allow(missing_docs, reason = "criterion's macros create public functions")]

use std::hint::black_box;
use std::time::Duration;

use criterion::{Criterion, criterion_group, criterion_main};
use rmqpy::message::id::OffsetMessageId;
use rmqpy::message::record::{RecordFields, RecordView, Stamp};
use rmqpy::message::sql::SqlFilter;
use rmqpy::message::tag::{self, TagCodes, TagFilter};
use rmqpy::positions::{PhysicalOffset, QueueOffset};
use rmqpy::remoting::codes::{flag, request, response};
use rmqpy::remoting::frame::{Encoding, FrameLimits, split};
use rmqpy::remoting::header::{Header, HeaderWriter};

const PROPERTIES: &str = "KEYS\u{1}key1 key2\u{2}UNIQ_KEY\u{1}FD000000000000000000000000000002584E30946E096946E6DC0000\u{2}WAIT\u{1}true\u{2}TAGS\u{1}TagA\u{2}";

fn send_frame(encoding: Encoding) -> Vec<u8> {
    let mut out = Vec::new();
    let mut writer = HeaderWriter::begin(&mut out, encoding, request::SEND_MESSAGE_V2, 7, 0, None);
    writer.ext("a", "group").ext("b", "T1").ext("c", "TBW102").ext("d", "4").ext("e", "0").ext("f", "0");
    writer.ext_i64("g", 1_795_257_454_301).ext("h", "0").ext("i", PROPERTIES);
    writer.ext("j", "0").ext_bool("k", false).ext_bool("m", false).ext("n", "broker-a");
    writer.finish(0).unwrap();
    out
}

fn headers(criterion: &mut Criterion) {
    for encoding in [Encoding::Json, Encoding::Binary] {
        let mut group = criterion.benchmark_group(format!("{encoding:?}"));
        let bytes = send_frame(encoding);
        let limits = FrameLimits::default();
        group.bench_function("split a frame", |bench| {
            bench.iter(|| split(black_box(&bytes), &limits).unwrap().unwrap().1);
        });
        let mut header = Header::new();
        group.bench_function("read a send header", |bench| {
            bench.iter(|| {
                let (frame, _) = split(black_box(&bytes), &limits).unwrap().unwrap();
                header.decode(&frame).unwrap();
                header.code
            });
        });
        let id =
            OffsetMessageId { store_host: ([127, 0, 0, 1], 10911).into(), physical: PhysicalOffset(1 << 40) };
        let mut out = Vec::new();
        group.bench_function("write a send reply", |bench| {
            bench.iter(|| {
                out.clear();
                let mut reply =
                    HeaderWriter::begin(&mut out, encoding, response::SUCCESS, 7, flag::RESPONSE, None);
                reply.ext("msgId", &black_box(id).text()).ext("queueId", "0").ext_u64("queueOffset", 77);
                reply.ext_bool("TRACE_ON", true).ext("MSG_REGION", "DefaultRegion");
                reply.finish(0).unwrap();
            });
        });
        group.finish();
    }
}

fn records(criterion: &mut Criterion) {
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
    let mut group = criterion.benchmark_group("record of 1 KiB");
    group.bench_function("check", |bench| bench.iter(|| black_box(&fields).check().unwrap()));
    group.bench_function("lay out", |bench| bench.iter(|| black_box(&fields).encode(&mut record, stamp)));
    group.bench_function("CRC", |bench| bench.iter(|| RecordFields::body_crc(black_box(&body))));
    group.bench_function("parse", |bench| {
        bench.iter(|| RecordView::parse(black_box(&record)).unwrap().total_size());
    });
    group.finish();
}

fn filters(criterion: &mut Criterion) {
    let expression = "TagX || TagY || TagA";
    let (filter, codes) = (TagFilter::parse(expression), TagCodes::parse(expression).unwrap());
    let code = tag::tags_code(PROPERTIES.as_bytes());
    let mut group = criterion.benchmark_group("filter, third of three tags");
    group.bench_function("by hash", |bench| {
        bench.iter(|| black_box(&codes).matches(black_box(code)));
    });
    group.bench_function("by name", |bench| {
        bench.iter(|| black_box(&filter).matches_tag(black_box(Some(b"TagA"))));
    });
    group.bench_function("find and hash a tag", |bench| {
        bench.iter(|| tag::tags_code(black_box(PROPERTIES.as_bytes())));
    });
    group.finish();
}

/// An order message: its application properties are among those that clients and brokers add.
const ORDER: &str = "KEYS\u{1}A-1\u{2}UNIQ_KEY\u{1}FD000000000000000000000000000002584E30946E096946E6DC0000\u{2}\
     WAIT\u{1}true\u{2}TAGS\u{1}paid\u{2}region\u{1}EU\u{2}price\u{1}120\u{2}customer\u{1}c-4711\u{2}\
     channel\u{1}web\u{2}coupon\u{1}X1\u{2}MSG_REGION\u{1}DefaultRegion\u{2}TRACE_ON\u{1}true\u{2}\
     CLUSTER\u{1}DefaultCluster\u{2}";

fn expressions(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("filter by SQL92");
    group.bench_function("none", |bench| bench.iter(|| black_box(ORDER.as_bytes()).len()));
    for (name, expression) in [
        ("one text", "region = 'EU'"),
        ("one number", "price > 100"),
        ("no such property", "missing > 100"),
        (
            "five comparisons",
            "price BETWEEN 100 AND 200 AND region IN ('DE', 'EU') AND coupon IS NOT NULL \
             AND customer STARTSWITH 'c-' AND NOT (channel = 'shop')",
        ),
    ] {
        let filter = SqlFilter::parse(expression, true).unwrap();
        group.bench_function(name, |bench| {
            bench.iter(|| filter.matches(black_box(ORDER.as_bytes())));
        });
        group.bench_function(format!("{name}, read"), |bench| {
            bench.iter(|| SqlFilter::parse(black_box(expression), true).unwrap());
        });
    }
    group.finish();
}

criterion_group! {
    name = codec;
    config = Criterion::default().warm_up_time(Duration::from_millis(300)).measurement_time(Duration::from_secs(1));
    targets = headers, records, filters, expressions
}
criterion_main!(codec);
