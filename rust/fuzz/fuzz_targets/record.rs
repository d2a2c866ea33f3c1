//! Fuzz target: scans any bytes as recovery does, and rewrites valid records byte for byte.
#![no_main]

use libfuzzer_sys::fuzz_target;
use rmqpy::message::record::{MAGIC_V2, Scanned, records, scan};

fuzz_target!(|bytes: &[u8]| {
    let _ = records(bytes).count();
    let Scanned::Record(view) = scan(bytes) else { return };
    assert!(view.total_size() <= bytes.len());
    let _ = view.body_crc_matches();
    let fields = view.fields();
    // Other writers may use v2 for a short topic, or 16 bytes for an IPv4 host; we read both and write neither.
    let is_ours =
        (view.magic() == MAGIC_V2) == (view.topic().len() > 127) && fields.encoded_len() == view.total_size();
    if view.check_text().is_ok() && is_ours {
        fields.check().expect("what is read can be written");
        let mut out = vec![0; fields.encoded_len()];
        fields.encode(&mut out, view.stamp());
        assert_eq!(out, view.bytes());
    }
});
