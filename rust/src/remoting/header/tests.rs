//! Header codec tests: tolerated and refused input, and the bytes written.

use super::decode::TEXT_KEPT_BYTES;
use super::scanner::DEPTH_MAX;
use super::*;
use crate::remoting::codes::{VERSION, flag, language};
use crate::remoting::error::{FrameError, HeaderError};
use crate::remoting::frame::{Encoding, Frame, FrameLimits, split};

fn decode(encoding: Encoding, header: &[u8]) -> Result<Header, HeaderError> {
    let mut decoded = Header::new();
    decoded.decode(&Frame { encoding, header, body: &[] }).map(|()| decoded)
}

fn json(text: &str) -> Header {
    decode(Encoding::Json, text.as_bytes()).unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn check_ext(text: &str, expected: &[(&str, &str)]) {
    assert_eq!(json(text).ext().collect::<Vec<_>>(), expected, "{text}");
}

fn check_refused(header: &[u8], expected: HeaderError) {
    assert_eq!(decode(Encoding::Json, header).err(), Some(expected), "{}", header.escape_ascii());
}

/// Builds a binary header around the given remark and extension block.
fn binary(remark_bytes: i32, remark: &[u8], ext_bytes: i32, ext: &[u8]) -> Vec<u8> {
    let mut header = vec![0, 11, 0, 2, 1, 0, 0, 0, 7, 0, 0, 0, 0];
    header.extend(remark_bytes.to_be_bytes());
    header.extend(remark);
    header.extend(ext_bytes.to_be_bytes());
    header.extend(ext);
    header
}

// --- reading JSON -----------------------------------------------------------------------------------------------

#[test]
fn names_are_read_in_any_case_but_extension_names_are_exact() {
    let header = json(r#"{"CODE":11,"Opaque":-3,"FLAG":2,"VERSION":317,"extfields":{"queueId":"1"}}"#);
    assert_eq!((header.code, header.opaque, header.flag, header.version), (11, -3, 2, 317));
    assert_eq!((header.get("queueId"), header.get("queueid")), (Some("1"), None));
}

#[test]
fn numbers_are_read_from_text_and_missing_ones_are_zero() {
    let header = json(r#"{"code":"34","version":null,"flag":""}"#);
    assert_eq!((header.code, header.version, header.flag, header.opaque), (34, 0, 0, 0));
    assert_eq!(json(r#"{"opaque":-2147483648}"#).opaque, i32::MIN);
}

#[test]
fn extension_numbers_and_booleans_become_text() {
    check_ext(
        r#"{"extFields":{"queueId":3,"order":true,"rate":-1.5e3,"gone":null,"list":[1, "]"],"map":{"a":1}}}"#,
        &[
            ("queueId", "3"),
            ("order", "true"),
            ("rate", "-1.5e3"),
            ("list", r#"[1, "]"]"#),
            ("map", r#"{"a":1}"#),
        ],
    );
}

#[test]
fn languages_are_read_by_name_in_any_case_or_by_ordinal() {
    for (text, expected) in [
        (r#"{"language":"CPP"}"#, 1),
        (r#"{"language":"go"}"#, 9),
        (r#"{"language":3}"#, language::PYTHON),
        (r#"{"language":"COBOL"}"#, language::OTHER),
        (r#"{"language":99}"#, language::OTHER),
        ("{}", language::JAVA),
    ] {
        assert_eq!(json(text).language, expected, "{text}");
    }
}

#[test]
fn quotes_comments_blanks_bare_names_and_a_last_line_feed_are_accepted() {
    let header = json("/* hand */ {code : 30, // written\n 'extFields':{'topic' : 'T\"1' } }\r\n");
    assert_eq!((header.code, header.get("topic")), (30, Some("T\"1")));
}

#[test]
fn unknown_members_are_skipped_whatever_they_hold() {
    let header = json(r#"{"a":{"code":1,"b":[{},[],"}\"",null,-1.5]},"code":34,"c":'x',"d":true}"#);
    assert_eq!(header.code, 34);
}

#[test]
fn a_null_map_is_absent_and_an_empty_map_is_present() {
    assert!(!json("{}").has_ext());
    assert!(!json(r#"{"extFields":null}"#).has_ext());
    assert!(json(r#"{"extFields":{}}"#).has_ext());
}

#[test]
fn an_empty_text_is_a_value_in_json() {
    let header = json(r#"{"remark":"","extFields":{"expressionType":""}}"#);
    assert_eq!((header.remark(), header.get("expressionType")), (Some(""), Some("")));
    assert_eq!(json(r#"{"remark":null}"#).remark(), None);
}

#[test]
fn escapes_are_undone() {
    check_ext(
        r#"{"extFields":{"i":"KEYS\u0001a b\u0002","\u0065":"\"\\\/\b\f\n\r\t\'\v","pair":"\ud83D\uDe00","half":"\ud83d!\udc00\udc00","torn":"\ud83d\u0041"}}"#,
        &[
            ("i", "KEYS\u{1}a b\u{2}"),
            ("e", "\"\\/\u{8}\u{c}\n\r\t'\u{b}"),
            ("pair", "\u{1F600}"),
            ("half", "\u{FFFD}!\u{FFFD}\u{FFFD}"),
            ("torn", "\u{FFFD}A"),
        ],
    );
}

#[test]
fn text_in_another_encoding_is_read_with_replacement_characters() {
    let json =
        b"{\"remark\":\"a\xD6\xD0b\",\"extFields\":{\"k\":\"\\u0001\xFF\\u0002\xE9\x9F\xB3\",\"l\":\"ok\"}}";
    let header = decode(Encoding::Json, json).unwrap();
    assert_eq!(header.remark(), Some("a\u{FFFD}\u{FFFD}b"));
    assert_eq!(header.ext().collect::<Vec<_>>(), [("k", "\u{1}\u{FFFD}\u{2}音"), ("l", "ok")]);

    let header = decode(Encoding::Binary, &binary(2, b"a\xD6", 9, b"\0\x01k\0\0\0\x02\xFFb")).unwrap();
    assert_eq!((header.remark(), header.get("k")), (Some("a\u{FFFD}"), Some("\u{FFFD}b")));
}

#[test]
fn the_later_of_two_values_counts() {
    let header = json(r#"{"code":1,"extFields":{"a":"1","b":"2","a":"3"},"code":2}"#);
    assert_eq!((header.code, header.get("a")), (2, Some("3")));
}

#[test]
fn anything_but_a_json_object_is_refused() {
    check_refused(b"", HeaderError::Truncated { at: 0 });
    check_refused(b"[]", HeaderError::Syntax { at: 0 });
    check_refused(b"{\"code\":1", HeaderError::Truncated { at: 9 });
    check_refused(b"{\"code", HeaderError::Truncated { at: 6 });
    check_refused(b"{\"code\" 1}", HeaderError::Syntax { at: 8 });
    check_refused(b"{\"code\":1,}", HeaderError::Syntax { at: 10 });
    check_refused(b"{\"code\":1}x", HeaderError::Syntax { at: 10 });
    check_refused(b"{\"code\":one}", HeaderError::Syntax { at: 8 });
    check_refused(b"{\"code\":2147483648}", HeaderError::Number { at: 8 });
    check_refused(b"{\"code\":1.5}", HeaderError::Number { at: 8 });
    check_refused(b"{\"extFields\":[]}", HeaderError::Syntax { at: 13 });
    check_refused(b"{\"remark\":\"\\q\"}", HeaderError::Syntax { at: 12 });
    check_refused(b"{\"remark\":\"\\u00g0\"}", HeaderError::Syntax { at: 13 });
    check_refused(b"{\"a\":\"\\", HeaderError::Truncated { at: 8 });
    check_refused(b"{/*", HeaderError::Truncated { at: 3 });
}

#[test]
fn nesting_and_the_number_of_fields_are_bounded() {
    let nested = |depth: usize| format!(r#"{{"a":{}{}}}"#, "[".repeat(depth), "]".repeat(depth));
    assert!(decode(Encoding::Json, nested(DEPTH_MAX - 1).as_bytes()).is_ok());
    check_refused(nested(DEPTH_MAX).as_bytes(), HeaderError::TooDeep { at: 5 + DEPTH_MAX - 1 });
    check_refused("[".repeat(100_000).as_bytes(), HeaderError::Syntax { at: 0 });
    check_refused(nested(100_000).as_bytes(), HeaderError::TooDeep { at: 5 + DEPTH_MAX - 1 });

    let fields = |count: usize| format!(r#"{{"extFields":{{{}}}}}"#, vec![r#""a":1"#; count].join(","));
    assert_eq!(json(&fields(EXT_FIELDS_MAX)).ext().len(), EXT_FIELDS_MAX);
    check_refused(fields(EXT_FIELDS_MAX + 1).as_bytes(), HeaderError::TooManyFields);
}

// --- reading binary ---------------------------------------------------------------------------------------------

#[test]
fn an_empty_text_is_absent_in_binary() {
    let header = decode(Encoding::Binary, &binary(0, b"", 14, b"\0\x01a\0\0\0\0\0\0\0\0\0\x01x")).unwrap();
    assert_eq!((header.remark(), header.get("a"), header.ext().len()), (None, None, 0));
    assert!(header.has_ext());
    assert!(!decode(Encoding::Binary, &binary(0, b"", 0, b"")).unwrap().has_ext());
}

#[test]
fn the_later_of_two_binary_values_counts() {
    let header = binary(0, b"", 16, b"\0\x01a\0\0\0\x011\0\x01a\0\0\0\x012");
    assert_eq!(decode(Encoding::Binary, &header).unwrap().get("a"), Some("2"));
}

#[test]
fn binary_lengths_that_leave_their_block_are_refused() {
    for header in [
        binary(1, b"", 0, b"")[..20].to_vec(),
        binary(-1, b"", 0, b""),
        binary(i32::MAX, b"", 0, b""),
        binary(0, b"", -1, b""),
        binary(0, b"", 8, b"\0\x01a\0\0\0\x01"),
        binary(0, b"", 7, b"\0\x01a\0\0\0\x01"),
        binary(0, b"", 8, b"\xFF\xFFa\0\0\0\x01x"),
        binary(0, b"", 8, b"\0\x01a\0\0\0\x01xy"),
        binary(0, b"", 1, b"\0"),
        binary(0, b"", 8, b"\0\x01a\0\0\0\x01xleft over"),
    ] {
        assert!(decode(Encoding::Binary, &header).is_err(), "{header:02x?}");
    }
}

// --- writing ----------------------------------------------------------------------------------------------------

/// Writes a reply with `write` in `encoding` and reads it back.
fn written(encoding: Encoding, remark: Option<&str>, write: impl Fn(&mut HeaderWriter<'_>)) -> Header {
    let mut out = b"earlier frame".to_vec();
    let mut writer = HeaderWriter::begin(&mut out, encoding, 17, -9, flag::RESPONSE, remark);
    write(&mut writer);
    writer.finish(4).unwrap();
    out.extend_from_slice(b"body");
    let (frame, size) = split(&out[13..], &FrameLimits::default()).unwrap().unwrap();
    assert_eq!((frame.encoding, frame.body, size), (encoding, &b"body"[..], out.len() - 13));
    let mut header = Header::new();
    header.decode(&frame).unwrap();
    header
}

#[test]
fn a_reply_carries_our_version_and_language_in_both_encodings() {
    for encoding in [Encoding::Json, Encoding::Binary] {
        let header = written(encoding, Some("no \"such\" topic\n"), |_| {});
        assert_eq!((header.version, header.language), (VERSION, language::OTHER));
        assert_eq!((header.code, header.opaque), (17, -9));
        assert!(header.is_response());
        assert_eq!(header.remark(), Some("no \"such\" topic\n"));
        assert!(!header.has_ext());
    }
}

#[test]
fn a_request_may_name_another_release_in_both_encodings() {
    for encoding in [Encoding::Json, Encoding::Binary] {
        let mut out = b"earlier frame".to_vec();
        let mut writer =
            HeaderWriter::begin_as(language::PYTHON, &mut out, encoding, 34, 5, 0, None).version(437);
        writer.ext("name", "value");
        writer.finish(0).unwrap();
        let (frame, _) = split(&out[13..], &FrameLimits::default()).unwrap().unwrap();
        let mut header = Header::new();
        header.decode(&frame).unwrap();
        assert_eq!((header.version, header.language, header.opaque), (437, language::PYTHON, 5));
        assert_eq!(header.get("name"), Some("value"));
    }
}

#[test]
fn every_extension_value_is_written_as_a_json_string() {
    let mut out = Vec::new();
    let mut writer = HeaderWriter::begin(&mut out, Encoding::Json, 0, 1, flag::RESPONSE, None);
    writer.ext_i64("nextBeginOffset", i64::MIN).ext_u64("maxOffset", u64::MAX);
    writer
        .ext_bool("TRACE_ON", true)
        .ext_plain_list("msgId", ["A", "B"])
        .ext("properties", "a\u{1}b\u{1f}/é");
    writer.finish(0).unwrap();
    let expected = r#"{"code":0,"extFields":{"nextBeginOffset":"-9223372036854775808","maxOffset":"18446744073709551615","TRACE_ON":"true","msgId":"A,B","properties":"a\u0001b\u001F/é"},"flag":1,"language":"OTHER","opaque":1,"serializeTypeCurrentRPC":"JSON","version":513}"#;
    assert_eq!(std::str::from_utf8(&out[8..]).unwrap(), expected);
}

#[test]
fn both_encodings_carry_the_same_fields() {
    let fields = |writer: &mut HeaderWriter<'_>| {
        writer.ext("topic", "T").ext_plain_list("msgId", ["A", "B", "C"]).ext_i64("queueOffset", -1);
    };
    let both = [Encoding::Json, Encoding::Binary].map(|encoding| written(encoding, None, fields));
    let [json, binary] = both.each_ref().map(|header| header.ext().collect::<Vec<_>>());
    assert_eq!(json, binary);
    assert_eq!(json, [("topic", "T"), ("msgId", "A,B,C"), ("queueOffset", "-1")]);
}

/// The binary header has 16 bits for the code and POP's codes need 18. Peers go by the encoding byte of each frame.
#[test]
fn a_code_too_large_for_binary_is_written_as_json() {
    let mut out = Vec::new();
    HeaderWriter::begin(&mut out, Encoding::Binary, 200_050, 1, 0, None).finish(0).unwrap();
    let (frame, _) = split(&out, &FrameLimits::default()).unwrap().unwrap();
    assert_eq!(frame.encoding, Encoding::Json);
    assert_eq!(json(std::str::from_utf8(frame.header).unwrap()).code, 200_050);
}

#[test]
fn an_overlong_header_or_frame_leaves_nothing_in_the_buffer() {
    let long = "x".repeat(1 << 24);
    for encoding in [Encoding::Json, Encoding::Binary] {
        let mut out = b"kept".to_vec();
        let mut writer = HeaderWriter::begin(&mut out, encoding, 0, 1, 0, None);
        writer.ext("a", &long);
        assert!(matches!(writer.finish(0), Err(FrameError::HeaderTooLong { .. })));
        assert_eq!(out, b"kept");
        let writer = HeaderWriter::begin(&mut out, encoding, 0, 1, 0, None);
        assert!(matches!(writer.finish(i32::MAX as usize), Err(FrameError::TooLong { .. })));
        assert_eq!(out, b"kept");
    }
}

#[test]
fn memory_of_an_unusual_header_is_released_by_the_next() {
    let mut header = Header::new();
    let long = format!(r#"{{"remark":"{}"}}"#, "x".repeat(200_000));
    header.decode(&Frame { encoding: Encoding::Json, header: long.as_bytes(), body: &[] }).unwrap();
    assert_eq!(header.remark().map(str::len), Some(200_000));
    header.decode(&Frame { encoding: Encoding::Json, header: b"{}", body: &[] }).unwrap();
    assert!(header.text.capacity() <= TEXT_KEPT_BYTES);
    assert_eq!(header.remark(), None);
}

#[test]
fn a_block_of_fields_reads_like_the_fields_one_by_one() {
    let fields = [("MSG_REGION", "a \"b\"\n"), ("TRACE_ON", "true")];
    let block = ExtBlock::new(fields[0], &fields[1..]);
    for encoding in [Encoding::Json, Encoding::Binary] {
        for before in [&[][..], &[("queueId", "3")]] {
            let write = |fill: &dyn Fn(&mut HeaderWriter<'_>)| {
                let mut out = Vec::new();
                let mut header = HeaderWriter::begin(&mut out, encoding, 0, 7, flag::RESPONSE, None);
                for (name, value) in before {
                    header.ext(name, value);
                }
                fill(&mut header);
                header.finish(0).map(|()| out)
            };
            let singly = write(&|header| fields.iter().for_each(|(name, value)| _ = header.ext(name, value)));
            assert_eq!(write(&|header| _ = header.ext_block(&block)), singly);
        }
    }
}
