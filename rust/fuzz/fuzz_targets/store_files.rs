//! Fuzz target: a store with arbitrary files opens or reports why not, and reads, stores and stops.
#![no_main]

use libfuzzer_sys::fuzz_target;
use rmqpy::fuzzing::store_files;

fuzz_target!(|edits: &[u8]| {
    store_files(edits);
});
