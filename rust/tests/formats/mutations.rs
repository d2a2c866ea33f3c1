//! Mutations: internal decoders against golden bytes with a few changes.
//!
//! Goal: run with every test briefly what `make fuzz` runs for hours, so that a decoder that panics or does not
//! round-trip is noticed immediately. Method: the header and body of each capture, whole and mutated by a seeded
//! generator.

use crate::vectors::golden_frames;
use rmqpy::fuzzing::{
    columns, grpc_deliveries, grpc_handle, grpc_metadata, grpc_requests, grpc_sends, pop_headers, pop_texts,
    pull_header, receipt, send_back_header, send_header, store_files, tls_hello, tls_session,
};
use rmqpy::remoting::frame::{Encoding, FrameLimits, split};

const MUTANTS: u64 = 12;

/// A generator of SplitMix64: the same numbers from the same seed.
struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end.max(1) as u64) as usize
    }

    /// Returns the bytes with up to four changes: one byte flipped, set to an extreme, removed or doubled, or the
    /// rest cut off.
    fn mutated(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut bytes = bytes.to_vec();
        for _ in 0..=self.below(4) {
            let at = self.below(bytes.len());
            match (self.below(6), bytes.get(at).copied()) {
                (0, Some(byte)) => bytes[at] = byte ^ 1 << self.below(8),
                (1, Some(_)) => bytes[at] = 0xFF,
                (2, Some(_)) => bytes[at] = 0,
                (3, Some(_)) => drop(bytes.remove(at)),
                (4, Some(byte)) => bytes.insert(at, byte),
                _ => bytes.truncate(at),
            }
        }
        bytes
    }
}

/// Returns the header and body of every capture.
fn captured() -> Vec<(Encoding, Vec<u8>, Vec<u8>)> {
    let limits = FrameLimits::default();
    let frames = golden_frames();
    let whole = frames.iter().filter_map(|vector| split(&vector.bytes, &limits).ok().flatten());
    whole.map(|(frame, _)| (frame.encoding, frame.header.to_vec(), frame.body.to_vec())).collect()
}

#[test]
fn headers_of_hot_requests_round_trip() {
    let mut rng = Rng(14);
    let mut accepted = [0_u32; 5];
    for (encoding, header, _) in captured() {
        for mutant in 0..MUTANTS {
            let header = if mutant == 0 { header.clone() } else { rng.mutated(&header) };
            let taken = [
                send_header(encoding, &header),
                pull_header(encoding, &header),
                send_back_header(encoding, &header),
                receipt(encoding, &header, mutant % 2 == 0),
                pop_headers(encoding, &header),
            ];
            for (count, is_taken) in accepted.iter_mut().zip(taken) {
                *count += u32::from(is_taken);
            }
        }
    }
    assert!(accepted.iter().all(|count| *count > 10), "most mutants are read no further: {accepted:?}");
}

#[test]
fn handles_and_records_of_pops_are_read_or_refused() {
    let mut rng = Rng(46);
    let handle = b"17 1795849648394 12000 7 1 broker-p 0 19";
    let batch = br#"{"acks":[{"b":"AQI=","c":"g","it":60000,"pt":5,"q":1,"r":"0","rq":2,"so":10,"t":"T"}]}"#;
    let checkpoint =
        br#"{"bm":0,"bn":"b","c":"g","d":[0,2],"it":9,"n":2,"pt":5,"q":0,"ro":0,"so":7,"t":"T"}"#;
    let ack = br#"{"ao":8,"bn":"b","c":"g","pt":5,"q":0,"so":7,"t":"T"}"#;
    let texts: [(&[u8], &[u8]); 4] =
        [(b"", handle), (b"", batch), (b"TAGS\x01ck\x02", checkpoint), (b"TAGS\x01ack\x02", ack)];
    let mut accepted = 0;
    for (properties, text) in texts {
        assert!(pop_texts(properties, text));
        accepted += (0..500).filter(|_| pop_texts(properties, &rng.mutated(text))).count();
    }
    assert!(accepted > 5, "{accepted}");
}

/// A decoder, which returns whether it accepts the bytes.
type Reads = fn(&[u8]) -> bool;

/// Returns a field of protobuf with these bytes.
fn part(number: u8, bytes: &[u8]) -> Vec<u8> {
    [&[number << 3 | 2, bytes.len() as u8], bytes].concat()
}

#[test]
fn calls_of_5x_clients_are_read_or_refused() {
    let mut rng = Rng(47);
    let signature = "473d96c18eab59b30d9795e2f1b30c8d737182dc";
    let headers = format!(
        "x-mq-client-id:host@1@0\nx-mq-language:JAVA\nx-mq-client-version:5.1.2\ngrpc-timeout:3S\n\
         x-mq-date-time:20260102T030405Z\n\
         authorization:MQv2-HMAC-SHA1 Credential=alice, SignedHeaders=x-mq-date-time, Signature={signature}"
    );
    let topic = part(1, &part(2, b"orders"));
    let property = part(2, &[part(1, b"color"), part(2, b"blue")].concat());
    let system = part(3, &[part(1, b"tag"), part(2, b"key"), part(3, b"01AB")].concat());
    let message = [&*topic, &property, &system, &part(4, b"hello")].concat();
    let request = part(1, &message);
    let handle = "10 1000 60000 3 0 broker-a 2 12 4711";
    let calls: [(&[u8], Reads); 4] = [
        (headers.as_bytes(), grpc_metadata),
        (&request, grpc_sends),
        (&topic, grpc_requests),
        (handle.as_bytes(), |bytes| std::str::from_utf8(bytes).is_ok_and(grpc_handle)),
    ];
    for (bytes, read) in calls {
        assert!(read(bytes), "{}", bytes.escape_ascii());
        let accepted = (0..1_000).filter(|_| read(&rng.mutated(bytes))).count();
        assert!((20..1_000).contains(&accepted), "{accepted}: {}", bytes.escape_ascii());
    }
    let mut delivered = 0;
    for (_, _, body) in captured() {
        delivered += usize::from(grpc_deliveries(&body));
        delivered += (0..MUTANTS).filter(|_| grpc_deliveries(&rng.mutated(&body))).count();
    }
    assert!(delivered > 5, "{delivered}");
}

#[test]
fn a_pulled_body_becomes_equal_columns_without_the_bad_message() {
    let mut rng = Rng(15);
    let mut accepted = 0;
    for (_, _, body) in captured() {
        for mutant in 0..MUTANTS {
            let body = if mutant == 0 { body.clone() } else { rng.mutated(&body) };
            accepted += u32::from(columns(&body, mutant as u8));
        }
    }
    assert!(accepted > 10, "{accepted}");
}

#[test]
fn a_store_opens_on_any_edit_of_its_files() {
    let mut rng = Rng(16);
    let mut opened = 0;
    for _ in 0..200 {
        let edits: Vec<u8> = (0..=rng.below(40)).map(|_| rng.next() as u8).collect();
        opened += u32::from(store_files(&edits));
    }
    assert!(opened > 150, "{opened}");
}

#[test]
fn a_checkpoint_may_name_any_time() {
    for lost in 0..16 {
        // The first file is the checkpoint: two times, then positions. Another file is emptied.
        let times = [i64::MIN.to_be_bytes(), i64::MIN.to_be_bytes()].concat();
        let edits = [&[0, 0, 0, 0, 48], &times[..], &[0; 32], &[lost, 2, 0, 0, 0]].concat();
        store_files(&edits);
    }
}

#[test]
fn bytes_changed_in_transit_are_never_accepted_through_tls() {
    let mut rng = Rng(22);
    let hello = [b"\x16\x03\x01\x00\x2f\x01\x00\x00\x2b\x03\x03".to_vec(), vec![0; 37]].concat();
    assert!((0..200).filter(|_| tls_hello(&rng.mutated(&hello))).count() > 100);
    assert!(!tls_hello(b"\0\0\0\x10"), "a frame");
    for read_bytes in [1, 97, 1 << 16] {
        assert!(tls_session(b"what was said", 63, &[], read_bytes));
        assert!(tls_session(&[7; 512], 63, &[], read_bytes), "two records");
    }
    let mut refused = 0;
    for _ in 0..200 {
        let edit = (rng.below(900) as u16, 1 + rng.below(255) as u8);
        refused += u32::from(!tls_session(b"what was said", rng.below(64), &[edit], 1 + rng.below(2000)));
    }
    assert!(refused > 150, "most changes are refused: {refused}");
}
