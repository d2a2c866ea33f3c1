//! Fuzz target: headers, requests, receipt handles and deliveries of 5.x clients are read or refused.
#![no_main]

use libfuzzer_sys::fuzz_target;
use rmqpy::fuzzing::{grpc_deliveries, grpc_handle, grpc_metadata, grpc_requests, grpc_sends};

fuzz_target!(|bytes: &[u8]| {
    let Some((kind, content)) = bytes.split_first() else { return };
    match kind % 5 {
        0 => grpc_metadata(content),
        1 => grpc_sends(content),
        2 => grpc_deliveries(content),
        3 => std::str::from_utf8(content).is_ok_and(grpc_handle),
        _ => grpc_requests(content),
    };
});
