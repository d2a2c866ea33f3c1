//! Fuzz target: a byte stream is cut into frames that add up to the input.
#![no_main]

use libfuzzer_sys::fuzz_target;
use rmqpy::remoting::frame::{FrameLimits, PREFIX_BYTES, size, split};
use rmqpy::remoting::header::Header;

fuzz_target!(|bytes: &[u8]| {
    let limits = FrameLimits { frame_bytes_max: 4096, header_bytes_max: 1024 };
    let mut header = Header::new();
    let mut rest = bytes;
    while let Ok(Some((frame, frame_bytes))) = split(rest, &limits) {
        assert_eq!(frame_bytes, PREFIX_BYTES + frame.header.len() + frame.body.len());
        assert_eq!(size(rest, &limits), Ok(Some(frame_bytes)));
        assert!(frame_bytes <= limits.frame_bytes_max && frame.header.len() <= limits.header_bytes_max);
        let _ = header.decode(&frame);
        rest = &rest[frame_bytes..];
    }
});
