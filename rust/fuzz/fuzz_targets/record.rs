//! Any bytes are scanned as recovery does; a record that is sound is written back byte for byte.
#![no_main]

use libfuzzer_sys::fuzz_target;
use rmqpy::message::record::{MAGIC_V2, Scanned, records, scan};

fuzz_target!(|bytes: &[u8]| {
    let _ = records(bytes).count();
    let Scanned::Record(view) = scan(bytes) else { return };
    assert!(view.total_size() <= bytes.len());
    let _ = view.body_crc_matches();
    let fields = view.fields();
    // Others may write a short topic as v2, or an IPv4 host into 16 bytes; we read both and write neither.
    let is_ours =
        (view.magic() == MAGIC_V2) == (view.topic().len() > 127) && fields.encoded_len() == view.total_size();
    if view.check_text().is_ok() && is_ours {
        fields.check().expect("what is read can be written");
        let mut out = vec![0; fields.encoded_len()];
        fields.encode(&mut out, view.stamp());
        assert_eq!(out, view.bytes());
    }
});
