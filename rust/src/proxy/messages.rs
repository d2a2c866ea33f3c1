//! Messages: between the form of 5.x clients and records.

use std::collections::HashMap;

use bytes::Bytes;
use md5::{Digest as _, Md5};

use super::api::{
    self, DeadLetterQueue, Digest, Resource, SystemProperties, Timestamp, TopicMessage, message_type,
};
use crate::message::MessageType;
use crate::message::compression::decompress;
use crate::message::id::OffsetMessageId;
use crate::message::properties::{self, name};
use crate::message::record::RecordView;
use crate::message::sysflag;

/// Largest body after decompression, which a record of any size could announce.
const BODY_BYTES_MAX: usize = 64 << 20;

/// Returns the properties of a message to `topic` as a record holds them.
pub(super) fn properties_of(message: &TopicMessage, topic: &str, peer: &str) -> Vec<u8> {
    let mut out = Vec::new();
    let mut writer = properties::Writer::new(&mut out);
    for (name, value) in &message.user_properties {
        writer.append(name.as_bytes(), value.as_bytes());
    }
    let Some(system) = &message.system_properties else { return out };
    let mut append = |name: &[u8], value: &str| {
        // A control character would begin another property.
        if !value.is_empty() && !value.chars().any(char::is_control) {
            writer.append(name, value.as_bytes());
        }
    };
    append(name::TAGS, system.tag.as_deref().unwrap_or_default());
    append(name::KEYS, &system.keys.join(" "));
    append(name::UNIQ_KEY, &system.message_id);
    append(name::WAIT, "true");
    append(name::SHARDING_KEY, system.message_group.as_deref().unwrap_or_default());
    append(name::LITE_TOPIC, system.lite_topic.as_deref().unwrap_or_default());
    append(b"TRACE_CONTEXT", system.trace_context.as_deref().unwrap_or_default());
    append(b"__BORNHOST", if system.born_host.is_empty() { peer } else { &system.born_host });
    if let Some(priority) = system.priority {
        append(name::PRIORITY, &priority.to_string());
    }
    if let Some(at) = system.born_timestamp {
        append(name::BORN_TIMESTAMP, &at.ms().to_string());
    }
    if let Some(at) = system.delivery_timestamp {
        append(name::TIMER_DELIVER_MS, &at.ms().to_string());
    }
    if system.message_type == message_type::TRANSACTION {
        append(name::TRANSACTION_PREPARED, "true");
        append(name::PRODUCER_GROUP, topic);
        if let Some(recovery) = system.orphaned_transaction_recovery_duration {
            append(name::CHECK_IMMUNITY_S, &recovery.seconds.to_string());
        }
    }
    out
}

/// Returns the type of a message by its properties, as Apache's proxy derives it.
pub(super) fn type_of(system: &SystemProperties) -> MessageType {
    let is_grouped = system.message_group.as_ref().is_some_and(|group| !group.is_empty());
    if system.message_type == message_type::TRANSACTION {
        MessageType::Transaction
    } else if system.delivery_timestamp.is_some() {
        MessageType::Delay
    } else if is_grouped {
        MessageType::Fifo
    } else if system.priority.is_some() {
        MessageType::Priority
    } else if system.lite_topic.as_ref().is_some_and(|lite_topic| !lite_topic.is_empty()) {
        MessageType::Lite
    } else {
        MessageType::Normal
    }
}

/// Returns the flags of a record of this message.
pub(super) fn sys_flag_of(system: &SystemProperties) -> i32 {
    let compressed = if system.body_encoding == api::ENCODING_GZIP { sysflag::COMPRESSED } else { 0 };
    let prepared = if system.message_type == message_type::TRANSACTION { sysflag::PREPARED } else { 0 };
    compressed | prepared
}

/// Returns a stored message as its client expects it, under the topic that it asked for. The body is decompressed,
/// because clients differ in the formats that they can read.
pub(super) fn of_record(record: &RecordView<'_>, topic: &Resource, now_ms: i64) -> TopicMessage {
    let value = |name: &[u8]| {
        properties::get(record.properties(), name).map(|value| String::from_utf8_lossy(value).into_owned())
    };
    let number = |name: &[u8]| value(name).and_then(|text| text.parse::<i64>().ok());
    let (body, body_encoding) = match decompress(record.sys_flag(), record.body(), BODY_BYTES_MAX) {
        Ok(body) => (Bytes::from(body.into_owned()), api::ENCODING_IDENTITY),
        Err(_) => (Bytes::copy_from_slice(record.body()), api::ENCODING_GZIP),
    };
    let offset_id = OffsetMessageId { store_host: record.store_host(), physical: record.physical_offset() };
    let delivery_ms = number(name::TIMER_DELAY_SEC)
        .map(|seconds| now_ms.saturating_add(seconds.saturating_mul(1_000)))
        .or_else(|| number(name::TIMER_DELIVER_MS));
    let dead_letter = value(b"DLQ_ORIGIN_TOPIC").zip(value(b"DLQ_ORIGIN_MESSAGE_ID"));
    let kind = if value(name::TRANSACTION_PREPARED).as_deref() == Some("true") {
        message_type::TRANSACTION
    } else if delivery_ms.is_some() || value(name::DELAY).is_some() || value(name::TIMER_DELAY_MS).is_some() {
        message_type::DELAY
    } else if value(name::SHARDING_KEY).is_some() {
        message_type::FIFO
    } else if value(name::PRIORITY).is_some() {
        message_type::PRIORITY
    } else if value(name::LITE_TOPIC).is_some() {
        message_type::LITE
    } else {
        message_type::NORMAL
    };
    let system = SystemProperties {
        tag: value(name::TAGS),
        keys: value(name::KEYS)
            .map(|keys| keys.split(' ').filter(|key| !key.is_empty()).map(str::to_owned).collect())
            .unwrap_or_default(),
        message_id: value(name::UNIQ_KEY).unwrap_or_else(|| offset_id.to_string()),
        body_digest: Some(Digest { kind: api::DIGEST_MD5, checksum: checksum(&body) }),
        body_encoding,
        message_type: kind,
        born_timestamp: Some(Timestamp::of_ms(record.born_timestamp_ms())),
        born_host: value(b"__BORNHOST").unwrap_or_else(|| record.born_host().to_string()),
        store_timestamp: Some(Timestamp::of_ms(record.store_timestamp_ms())),
        store_host: record.store_host().to_string(),
        delivery_timestamp: delivery_ms.map(Timestamp::of_ms),
        receipt_handle: None,
        queue_id: record.queue_id().cast_signed(),
        queue_offset: Some(record.queue_offset().0.cast_signed()),
        delivery_attempt: Some(record.reconsume_times().saturating_add(1)),
        message_group: value(name::SHARDING_KEY),
        trace_context: value(b"TRACE_CONTEXT"),
        orphaned_transaction_recovery_duration: None,
        dead_letter_queue: dead_letter.map(|(topic, message_id)| DeadLetterQueue { topic, message_id }),
        lite_topic: value(name::LITE_TOPIC),
        priority: number(name::PRIORITY).and_then(|priority| i32::try_from(priority).ok()),
    };
    let user_properties: HashMap<String, String> = properties::entries(record.properties())
        .map(|(name, value)| (String::from_utf8_lossy(name), String::from_utf8_lossy(value)))
        .filter(|(name, _)| !properties::is_reserved(name))
        .map(|(name, value)| (name.into_owned(), value.into_owned()))
        .collect();
    TopicMessage { topic: Some(topic.clone()), user_properties, system_properties: Some(system), body }
}

/// Returns the MD5 of a body in upper-case digits, the one digest that all clients compute alike.
fn checksum(body: &[u8]) -> String {
    Md5::digest(body).iter().map(|byte| format!("{byte:02X}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_digest_of_a_body_is_its_md5_in_upper_case() {
        assert_eq!(checksum(b"foobar"), "3858F62230AC3C915F300C664312C63F");
    }

    #[test]
    fn properties_name_the_half_of_a_transaction_and_its_group() {
        let system = SystemProperties {
            message_id: "01AB".to_owned(),
            message_type: message_type::TRANSACTION,
            keys: vec!["a".to_owned(), "b".to_owned()],
            ..SystemProperties::default()
        };
        let message = TopicMessage { system_properties: Some(system.clone()), ..TopicMessage::default() };
        let written = properties_of(&message, "orders", "10.0.0.1:5");
        let get = |name| properties::get(&written, name);
        assert_eq!(get(name::PRODUCER_GROUP), Some(b"orders".as_slice()));
        assert_eq!(get(name::KEYS), Some(b"a b".as_slice()));
        assert_eq!(get(name::UNIQ_KEY), Some(b"01AB".as_slice()));
        assert_eq!(get(b"__BORNHOST"), Some(b"10.0.0.1:5".as_slice()));
        assert_eq!(sys_flag_of(&system), sysflag::PREPARED);
        assert_eq!(type_of(&system), MessageType::Transaction);
    }

    #[test]
    fn a_priority_makes_the_type_where_no_other_property_does() {
        let urgent = SystemProperties { priority: Some(7), ..SystemProperties::default() };
        let message = TopicMessage { system_properties: Some(urgent.clone()), ..TopicMessage::default() };
        let written = properties_of(&message, "orders", "10.0.0.1:5");
        assert_eq!(properties::get(&written, name::PRIORITY), Some(b"7".as_slice()));
        assert_eq!(type_of(&urgent), MessageType::Priority);
        let grouped = SystemProperties { message_group: Some("customer".to_owned()), ..urgent.clone() };
        assert_eq!(type_of(&grouped), MessageType::Fifo);
        let delayed = SystemProperties { delivery_timestamp: Some(Timestamp::of_ms(1)), ..urgent };
        assert_eq!(type_of(&delayed), MessageType::Delay);
    }
}
