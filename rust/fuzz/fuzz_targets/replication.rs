//! Fuzz target: the streams between a master and its slaves, independent of how they are cut.
#![no_main]

use libfuzzer_sys::fuzz_target;
use rmqpy::fuzzing::{reports, transfers};

fuzz_target!(|bytes: &[u8]| {
    let Some((cut, stream)) = bytes.split_first() else { return };
    if cut & 1 == 0 { transfers(stream, usize::from(cut >> 1)) } else { reports(stream, usize::from(cut >> 1)) };
});
