//! Fuzzed: decoders of calls, for the targets of `fuzzing`.
//!
//! Each function takes any bytes, returns whether they were accepted, and asserts properties of accepted input. Pure.

#![allow(clippy::expect_used, reason = "assertions of fuzz targets")]

use std::net::{Ipv4Addr, SocketAddr};

use http::{HeaderMap, HeaderName, HeaderValue};
use prost::Message;

use super::api::{self, Resource, SendMessageRequest, TopicMessage};
use super::api_telemetry::TelemetryCommand;
use super::caller::{Addresses, CLIENT_ID_BYTES_MAX, Caller, DEADLINE_MAX, signed};
use super::handle::ReceiptHandle;
use super::{messages, names};
use crate::access::signature::SigningKey;
use crate::message::MessageType;
use crate::message::properties::{self, name};
use crate::message::record::records;
use crate::message::sysflag;
use crate::remoting::codes::VERSION;

const BODY_BYTES_MAX: usize = 4 << 20;
const NOW_MS: i64 = 1_700_000_000_000;
const PEER: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 1);

/// Reads the headers of a call, a line `name:value` each; lines that HTTP does not allow are left out.
pub(crate) fn metadata(lines: &[u8]) -> bool {
    let mut headers = HeaderMap::new();
    for line in lines.split(|byte| *byte == b'\n') {
        let Some(middle) = line.iter().position(|byte| *byte == b':') else { continue };
        let named = HeaderName::from_bytes(&line[..middle]);
        if let (Ok(named), Ok(value)) = (named, HeaderValue::from_bytes(&line[middle + 1..])) {
            headers.append(named, value);
        }
    }
    if let Ok(Some((signed, date))) = signed(&headers) {
        assert!(!signed.user.is_empty());
        // A signature is right for its date only.
        let key = SigningKey::new("secret");
        let is_right = key.verifies_text(signed.signature, date);
        assert!(!is_right || !key.verifies_text(signed.signature, &format!("{date}x")));
    }
    let Ok(caller) = Caller::of(&headers, Addresses { peer: PEER, local: PEER }, None) else { return false };
    assert!((1..=CLIENT_ID_BYTES_MAX).contains(&caller.client_id.len()));
    assert!((0..=VERSION.max(611)).contains(&caller.release()));
    assert!(caller.remaining().is_none_or(|time| time <= DEADLINE_MAX));
    true
}

/// Reads a request with messages; properties of accepted ones are read back as they were sent.
pub(crate) fn sends(request: &[u8]) -> bool {
    let Ok(request) = SendMessageRequest::decode(request) else { return false };
    let accepted = request.messages.iter().filter(|message| {
        names::topic(message.topic.as_ref()).is_ok()
            && names::message(message, BODY_BYTES_MAX, NOW_MS).is_ok()
    });
    accepted.inspect(|message| check_properties(message)).count() > 0
}

fn check_properties(message: &TopicMessage) {
    let written = messages::properties_of(message, "orders", "10.0.0.1:5");
    let system = message.system_properties.as_ref().expect("of an accepted message");
    let get = |name: &[u8]| properties::get(&written, name);
    assert_eq!(get(name::UNIQ_KEY), Some(system.message_id.as_bytes()));
    let given = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
    if let Some(tag) = given(&system.tag) {
        assert_eq!(get(name::TAGS), Some(tag.as_bytes()));
    }
    if let Some(group) = given(&system.message_group) {
        assert_eq!(get(name::SHARDING_KEY), Some(group.as_bytes()));
    }
    for (name, value) in &message.user_properties {
        // Without a value, an entry is none. The system's entries come last and count.
        let found = properties::entries(&written).any(|entry| entry == (name.as_bytes(), value.as_bytes()));
        assert!(found || value.is_empty(), "{name}");
    }
    let is_half = messages::sys_flag_of(system) & sysflag::PREPARED != 0;
    assert_eq!(messages::type_of(system) == MessageType::Transaction, is_half);
}

/// Converts stored messages for clients; they encode and decode to the same.
pub(crate) fn deliveries(body: &[u8]) -> bool {
    let topic = Resource { name: "orders".to_owned(), ..Resource::default() };
    let whole = records(body).filter_map(Result::ok);
    let converted = whole.map(|record| messages::of_record(&record, &topic, NOW_MS));
    converted.inspect(assert_round_trip).count() > 0
}

/// Reads a receipt handle; a renewed one has the same place.
pub(crate) fn handle(text: &str) -> bool {
    let Ok(handle) = ReceiptHandle::parse(text) else { return false };
    assert!(handle.queue >= 0 && handle.offset >= 0 && handle.mark <= 2);
    assert!(handle.check_time(i64::MAX).is_err());
    let renewed = handle.renewed("1", "2", "3").expect("a handle");
    assert_eq!((renewed.queue, renewed.offset), (handle.queue, handle.offset));
    assert_eq!((renewed.position, &renewed.broker), (handle.position, &handle.broker));
    assert!(!handle.real_topic("g", "t").is_empty());
    true
}

/// Decodes every other kind of request; accepted ones are encoded and decoded to the same size.
pub(crate) fn requests(bytes: &[u8]) -> bool {
    fn again<M: Message + Default>(bytes: &[u8]) -> bool {
        let Ok(message) = M::decode(bytes) else { return false };
        let encoded = message.encode_to_vec();
        let decoded = M::decode(&*encoded).expect("an encoded message");
        assert_eq!(decoded.encoded_len(), encoded.len());
        true
    }
    let decoded = [
        again::<api::QueryRouteRequest>(bytes),
        again::<api::QueryAssignmentRequest>(bytes),
        again::<api::ReceiveMessageRequest>(bytes),
        again::<api::AckMessageRequest>(bytes),
        again::<api::ForwardToDeadLettersRequest>(bytes),
        again::<api::HeartbeatRequest>(bytes),
        again::<api::EndTransactionRequest>(bytes),
        again::<api::ChangeInvisibleDurationRequest>(bytes),
        again::<api::NotifyClientTerminationRequest>(bytes),
        again::<api::RecallMessageRequest>(bytes),
        again::<api::PullMessageRequest>(bytes),
        again::<api::UpdateOffsetRequest>(bytes),
        again::<api::GetOffsetRequest>(bytes),
        again::<api::QueryOffsetRequest>(bytes),
        again::<TelemetryCommand>(bytes),
    ];
    decoded.contains(&true)
}

fn assert_round_trip(message: &TopicMessage) {
    assert_eq!(TopicMessage::decode(&*message.encode_to_vec()).as_ref(), Ok(message));
}
