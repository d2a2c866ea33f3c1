//! Fuzz target: any readable JSON header round-trips in both encodings.
#![no_main]

use libfuzzer_sys::fuzz_target;
use rmqpy::remoting::frame::{Encoding, Frame, FrameLimits, split};
use rmqpy::remoting::header::{EXT_FIELDS_MAX, Header, HeaderWriter};

fuzz_target!(|bytes: &[u8]| {
    let mut header = Header::new();
    if header.decode(&Frame { encoding: Encoding::Json, header: bytes, body: &[] }).is_err() {
        return;
    }
    assert!(header.ext().len() <= EXT_FIELDS_MAX);
    let limits = FrameLimits { header_bytes_max: usize::MAX, ..FrameLimits::default() };
    for encoding in [Encoding::Json, Encoding::Binary] {
        let mut out = Vec::new();
        let mut writer =
            HeaderWriter::begin(&mut out, encoding, header.code, header.opaque, header.flag, header.remark());
        for (name, value) in header.ext() {
            writer.ext(name, value);
        }
        if writer.finish(0).is_err() {
            continue;
        }
        let Ok(Some((frame, _))) = split(&out, &limits) else { panic!("a written frame is whole") };
        let mut again = Header::new();
        again.decode(&frame).expect("a written header reads");
        assert_eq!((again.code, again.opaque, again.flag), (header.code, header.opaque, header.flag));
        // In binary an empty text is an absent one.
        let is_there = |text: &&str| frame.encoding == Encoding::Json || !text.is_empty();
        assert_eq!(again.remark(), header.remark().filter(is_there));
        let expected = header.ext().filter(|(name, value)| is_there(name) && is_there(value));
        assert!(again.ext().eq(expected));
    }
});
