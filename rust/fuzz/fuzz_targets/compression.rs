//! Fuzz target: decompressed bodies stay within the limit.
#![no_main]

use libfuzzer_sys::fuzz_target;
use rmqpy::message::compression::decompress;
use rmqpy::message::sysflag::COMPRESSED;

const BYTES_MAX: usize = 64 << 10;

fuzz_target!(|input: (u8, &[u8])| {
    let (kind, body) = input;
    let sys_flag = COMPRESSED | i32::from(kind & 7) << 8;
    if let Ok(plain) = decompress(sys_flag, body, BYTES_MAX) {
        assert!(plain.len() <= BYTES_MAX);
    }
});
