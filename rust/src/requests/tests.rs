//! Header tests: encoded requests decode again, under the names shared with Python.

use proptest::prelude::*;

use super::pull::PullHeader;
use super::send::{SendHeader, SendOrigin};
use super::send_back::SendBackHeader;
use crate::remoting::codes::request;
use crate::remoting::frame::{Encoding, FrameLimits, split};
use crate::remoting::header::{Header, HeaderWriter};

const ORIGIN: SendOrigin<'_> = SendOrigin { group: "pg", template_queues: 4, broker: "broker-a" };

/// The names of `code` in the table that Python's tests also read.
fn names(code: i32) -> Vec<&'static str> {
    let table = include_str!("../../../tests/vectors/request_headers.txt");
    let mut lines = table.lines().map(|line| line.split(' '));
    lines.find(|line| line.clone().next() == Some(&code.to_string())).unwrap().skip(1).collect()
}

/// Decodes a header filled by `write`.
fn decoded(encoding: Encoding, code: i32, write: impl FnOnce(&mut HeaderWriter<'_>)) -> Header {
    let mut bytes = Vec::new();
    let mut writer = HeaderWriter::begin(&mut bytes, encoding, code, 1, 0, None);
    write(&mut writer);
    writer.finish(0).unwrap();
    let (frame, _) = split(&bytes, &FrameLimits::default()).unwrap().unwrap();
    let mut header = Header::new();
    header.decode(&frame).unwrap();
    header
}

fn encoding() -> impl Strategy<Value = Encoding> {
    prop_oneof![Just(Encoding::Json), Just(Encoding::Binary)]
}

proptest! {
    #[test]
    fn a_send_round_trips(
        encoding in encoding(),
        (topic, properties) in (".*", ".*"),
        (queue_id, sys_flag, flag, reconsume_times) in any::<(i32, i32, i32, i32)>(),
        (born_timestamp_ms, reconsume_max, is_batch) in any::<(i64, Option<i32>, bool)>(),
    ) {
        let (topic, properties) = (topic.as_str(), properties.as_str());
        let send = SendHeader {
            topic, queue_id, sys_flag, born_timestamp_ms, flag, properties, reconsume_times, reconsume_max, is_batch,
        };
        let header = decoded(encoding, send.code(), |out| send.encode(&ORIGIN, out));
        prop_assert_eq!(SendHeader::decode(&header).unwrap(), send);
        // The same fields with long names.
        let long = decoded(encoding, request::SEND_MESSAGE, |out| {
            for (letter, name) in names(request::SEND_MESSAGE_V2).iter().zip(names(request::SEND_MESSAGE)) {
                if let Some(value) = header.get(letter) {
                    out.ext(name, value);
                }
            }
        });
        prop_assert_eq!(SendHeader::decode(&long).unwrap(), send);
    }

    #[test]
    fn a_pull_round_trips(
        encoding in encoding(),
        (group, topic, expression_type) in (".*", ".*", ".*"),
        expression in prop::option::of(".+"),
        (queue_id, messages_max, sys_flag, bytes_max) in any::<(i32, i32, i32, Option<i32>)>(),
        (offset, commit_offset, subscription_version) in any::<(i64, i64, i64)>(),
        suspend_ms in 0..=i64::MAX as u64,
    ) {
        let pull = PullHeader {
            group: &group, topic: &topic, queue_id, offset, messages_max, bytes_max, sys_flag, commit_offset, suspend_ms,
            expression: expression.as_deref(), expression_type: &expression_type, subscription_version,
        };
        let header = decoded(encoding, request::PULL_MESSAGE, |out| pull.encode(out));
        prop_assert_eq!(PullHeader::decode(&header).unwrap(), pull);
    }
}

#[test]
fn headers_use_the_shared_names() {
    let check = |code, write: &dyn Fn(&mut HeaderWriter<'_>)| {
        let header = decoded(Encoding::Json, code, write);
        let written: Vec<&str> = header.ext().map(|(name, _)| name).collect();
        assert_eq!(written, names(code));
    };
    let send = SendHeader { reconsume_max: Some(16), ..SendHeader::default() };
    check(request::SEND_MESSAGE_V2, &|out| send.encode(&ORIGIN, out));
    let pull = PullHeader { expression: Some("*"), bytes_max: Some(1), ..PullHeader::default() };
    check(request::PULL_MESSAGE, &|out| pull.encode(out));

    let code = request::CONSUMER_SEND_MSG_BACK;
    let back = decoded(Encoding::Json, code, |out| {
        names(code).iter().zip(["g", "7", "3", "16"]).for_each(|(name, value)| _ = out.ext(name, value));
    });
    let expected = SendBackHeader { group: "g", offset: 7, delay_level: 3, reconsume_max: Some(16) };
    assert_eq!(SendBackHeader::decode(&back).unwrap(), expected);
}
