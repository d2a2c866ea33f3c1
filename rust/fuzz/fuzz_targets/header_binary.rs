//! Fuzz target: any readable UTF-8 binary header round-trips.
#![no_main]

use libfuzzer_sys::fuzz_target;
use rmqpy::remoting::frame::{Encoding, Frame, FrameLimits, split};
use rmqpy::remoting::header::{Header, HeaderWriter};

fuzz_target!(|bytes: &[u8]| {
    let mut header = Header::new();
    if header.decode(&Frame { encoding: Encoding::Binary, header: bytes, body: &[] }).is_err() {
        return;
    }
    let mut out = Vec::new();
    let (code, opaque, flag) = (header.code, header.opaque, header.flag);
    let mut writer = HeaderWriter::begin_as(
        header.language,
        &mut out,
        Encoding::Binary,
        code,
        opaque,
        flag,
        header.remark(),
    );
    for (name, value) in header.ext() {
        writer.ext(name, value);
    }
    if writer.finish(0).is_err() {
        return;
    }
    let Ok(Some((frame, _))) = split(&out, &FrameLimits::default()) else { return };
    let mut again = Header::new();
    again.decode(&frame).expect("a written header reads");
    assert_eq!(again.language, header.language);
    assert_eq!(again.remark(), header.remark());
    assert!(again.ext().eq(header.ext()));
});
