//! Send hot path: allocates nothing after its first round (decode the header in either encoding, walk the properties,
//! lay out the record, write the response).

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should panic")]
#![allow(unsafe_code, reason = "a counting allocator cannot be written without it")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::hint::black_box;

use rmqpy::message::id::OffsetMessageId;
use rmqpy::message::record::{RecordFields, RecordView, Stamp};
use rmqpy::message::{properties, sysflag, tag};
use rmqpy::positions::{PhysicalOffset, QueueOffset};
use rmqpy::remoting::codes::{flag, request, response};
use rmqpy::remoting::frame::{self, Encoding, FrameLimits};
use rmqpy::remoting::header::{Header, HeaderWriter};

struct Counting;

thread_local! {
    static COUNT: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: every call goes to the system allocator unchanged; counting uses a thread-local without a destructor and
// allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        COUNT.set(COUNT.get() + 1);
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: `block` came from `System`, through `alloc` or `realloc` here.
        unsafe { System.dealloc(block, layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        COUNT.set(COUNT.get() + 1);
        // SAFETY: `block` came from `System`, through `alloc` or `realloc` here.
        unsafe { System.realloc(block, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Builds a send as clients do, in either encoding.
fn send_frame(encoding: Encoding) -> Vec<u8> {
    let mut out = Vec::new();
    let mut writer = HeaderWriter::begin(&mut out, encoding, request::SEND_MESSAGE_V2, 7, 0, None);
    writer.ext("a", "group").ext("b", "T1").ext("c", "TBW102").ext("d", "4").ext("e", "0").ext("f", "0");
    writer.ext_i64("g", 1_795_257_454_301).ext("h", "0");
    writer.ext(
        "i",
        "KEYS\u{1}key1 key2\u{2}UNIQ_KEY\u{1}FD000000000000000000000000000002584E30946E096946E6DC0000\u{2}WAIT\u{1}true\u{2}TAGS\u{1}订单\u{2}",
    );
    writer.ext("j", "0").ext_bool("k", false).ext_bool("m", false).ext("n", "broker-a");
    writer.finish(100).unwrap();
    out.extend_from_slice(&[b'x'; 100]);
    out
}

/// Buffers that a connection keeps between frames.
#[derive(Default)]
struct ConnectionBuffers {
    header: Header,
    properties: Vec<u8>,
    record: Vec<u8>,
    out: Vec<u8>,
}

fn serve(bytes: &[u8], buffers: &mut ConnectionBuffers) {
    let (frame, _) = frame::split(bytes, &FrameLimits::default()).unwrap().unwrap();
    buffers.header.decode(&frame).unwrap();
    let header = &buffers.header;

    buffers.properties.clear();
    properties::Writer::copy(&mut buffers.properties, header.get("i").unwrap().as_bytes())
        .append(properties::name::TRACE_ON, b"true");
    black_box(tag::tags_code(&buffers.properties));
    black_box(tag::key_hash(
        b"T1",
        properties::get(&buffers.properties, properties::name::UNIQ_KEY).unwrap(),
    ));

    let fields = RecordFields {
        queue_id: header.get("e").unwrap().parse().unwrap(),
        flag: 0,
        sys_flag: sysflag::from_client(header.get("f").unwrap().parse().unwrap()),
        born_timestamp_ms: header.get("g").unwrap().parse().unwrap(),
        born_host: ([127, 0, 0, 1], 1).into(),
        store_host: ([127, 0, 0, 1], 10911).into(),
        reconsume_times: 0,
        prepared_transaction_offset: 0,
        body: frame.body,
        body_crc: RecordFields::body_crc(frame.body),
        topic: header.get("b").unwrap().as_bytes(),
        properties: &buffers.properties,
    };
    fields.check().unwrap();
    buffers.record.resize(fields.encoded_len(), 0);
    let stamp = Stamp { physical: PhysicalOffset(256), queue: QueueOffset(3), store_timestamp_ms: 1 };
    fields.encode(&mut buffers.record, stamp);
    assert!(RecordView::parse(&buffers.record).unwrap().body_crc_matches());

    buffers.out.clear();
    let id = OffsetMessageId { store_host: fields.store_host, physical: stamp.physical };
    let opaque = header.opaque;
    let mut reply = HeaderWriter::begin(
        &mut buffers.out,
        frame.encoding,
        response::SUCCESS,
        opaque,
        flag::RESPONSE,
        None,
    );
    reply.ext("msgId", &id.text()).ext("queueId", "0").ext_u64("queueOffset", stamp.queue.0);
    reply.ext_bool("TRACE_ON", true).ext("MSG_REGION", "DefaultRegion");
    reply.finish(0).unwrap();
}

#[test]
fn a_send_in_steady_state_allocates_nothing() {
    for encoding in [Encoding::Json, Encoding::Binary] {
        let bytes = send_frame(encoding);
        let mut buffers = ConnectionBuffers::default();
        serve(&bytes, &mut buffers);
        let before = COUNT.get();
        for _ in 0..1_000 {
            serve(black_box(&bytes), &mut buffers);
        }
        assert_eq!(COUNT.get() - before, 0, "{encoding:?}");
        assert!(before > 0, "the counter counts");
    }
}
