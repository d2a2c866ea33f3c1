//! Names: the rules for topics, groups and messages of 5.x clients.

use std::collections::BTreeMap;

use super::api::{self, Resource, TopicMessage, message_type};
use super::status::{Refused, code};
use crate::message::lite;
use crate::message::properties::is_reserved;
use crate::message::topic;

/// User properties of a message, and the bytes of its properties.
const PROPERTIES_MAX: usize = 128;
const PROPERTIES_BYTES_MAX: usize = 16_384;
/// A message group has fewer bytes than this.
const MESSAGE_GROUP_BYTES: usize = 64;
/// Longest delay of a message, in milliseconds.
const DELAY_MS_MAX: i64 = 86_400_000;
/// Longest time before the producer of a transaction is asked, in seconds.
const RECOVERY_SECONDS_MAX: i64 = 3_600;

/// Properties of a client: how many, and the bytes of a name, a value, and all.
const CLIENT_PROPERTIES_MAX: usize = 32;
const CLIENT_NAME_BYTES_MAX: usize = 64;
const CLIENT_VALUE_BYTES_MAX: usize = 256;
const CLIENT_PROPERTIES_BYTES_MAX: usize = 4_096;

fn refuse<T>(code: i32, text: impl Into<String>) -> Result<T, Refused> {
    Err(Refused::new(code, text))
}

/// Returns the name of a topic that clients may use.
pub(super) fn topic(resource: Option<&Resource>) -> Result<&str, Refused> {
    allowed(resource, ["topic", "topic"], code::ILLEGAL_TOPIC, topic::bytes_max, topic::is_system)
}

/// Returns the name of a consumer group that clients may use.
pub(super) fn group(resource: Option<&Resource>) -> Result<&str, Refused> {
    let bytes_max = |_: &str| topic::GROUP_BYTES_MAX;
    let what = ["consumer group", "group"];
    allowed(resource, what, code::ILLEGAL_CONSUMER_GROUP, bytes_max, topic::is_internal_group)
}

/// `what` is the name of the kind without and with a value behind it.
fn allowed<'r>(
    resource: Option<&'r Resource>,
    [missing, what]: [&str; 2],
    code: i32,
    bytes_max: impl FnOnce(&str) -> usize,
    is_system: impl FnOnce(&str) -> bool,
) -> Result<&'r str, Refused> {
    let name = resource.map_or("", |resource| resource.name.trim());
    let bytes_max = bytes_max(name);
    if name.is_empty() {
        refuse(code, format!("{missing} cannot be blank"))
    } else if name.len() > bytes_max {
        refuse(code, format!("{what} [{name}] has more than {bytes_max} characters"))
    } else if !name.bytes().all(topic::is_name_byte) {
        let rule = "letters, digits and %, |, - and _";
        refuse(code, format!("{what} [{name}] has characters other than {rule}"))
    } else if is_system(name) {
        refuse(code, format!("{what} [{name}] is a system {what}"))
    } else {
        Ok(name)
    }
}

/// Checks the name of a lite topic.
pub(super) fn lite_topic(name: &str) -> Result<(), Refused> {
    if lite::is_name(name) {
        return Ok(());
    }
    let text = format!("lite topic [{}] is not 1 to {} letters, digits, _ and -", name, lite::NAME_BYTES_MAX);
    refuse(code::ILLEGAL_LITE_TOPIC, text)
}

/// Checks the properties that a client gives itself.
pub(super) fn client_properties(properties: &BTreeMap<String, String>) -> Result<(), Refused> {
    let code = code::INVALID_CLIENT_PROPERTIES;
    if properties.len() > CLIENT_PROPERTIES_MAX {
        return refuse(code, format!("more than {CLIENT_PROPERTIES_MAX} client properties"));
    }
    let is_inner = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte);
    let mut bytes = 0;
    for (name, value) in properties {
        let is_name = name.len() <= CLIENT_NAME_BYTES_MAX
            && name.as_bytes().first().is_some_and(u8::is_ascii_alphabetic)
            && name.bytes().all(is_inner)
            && !name.starts_with("rocketmq.");
        if !is_name || value.len() > CLIENT_VALUE_BYTES_MAX {
            let text = format!("client property [{name}] is not allowed or has too long a value");
            return refuse(code, text);
        }
        bytes += name.len() + value.len();
    }
    if bytes > CLIENT_PROPERTIES_BYTES_MAX {
        return refuse(code, format!("client properties have more than {CLIENT_PROPERTIES_BYTES_MAX} bytes"));
    }
    Ok(())
}

/// Checks a message that is sent.
pub(super) fn message(message: &TopicMessage, body_bytes_max: usize, now_ms: i64) -> Result<(), Refused> {
    let Some(system) = &message.system_properties else {
        return refuse(code::ILLEGAL_MESSAGE_ID, "message id cannot be blank");
    };
    let has_control = |text: &str| text.chars().any(char::is_control);
    let given = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
    if given(&system.tag).is_some_and(|tag| tag.trim().is_empty() || tag.contains('|') || has_control(&tag)) {
        return refuse(code::ILLEGAL_MESSAGE_TAG, "tag cannot be blank or contain | or a control character");
    }
    if system.keys.iter().any(|key| key.trim().is_empty() || has_control(key)) {
        return refuse(code::ILLEGAL_MESSAGE_KEY, "key cannot be blank or contain a control character");
    }
    let is_wrong =
        |group: String| group.trim().is_empty() || has_control(&group) || group.len() >= MESSAGE_GROUP_BYTES;
    if given(&system.message_group).is_some_and(is_wrong) {
        let rule = "cannot be blank, contain a control character or have";
        let text = format!("message group {rule} {MESSAGE_GROUP_BYTES} bytes or more");
        return refuse(code::ILLEGAL_MESSAGE_GROUP, text);
    }
    if let Some(name) = given(&system.lite_topic) {
        lite_topic(&name)?;
    }
    if let Some(priority) = system.priority.filter(|priority| *priority < 0) {
        return refuse(code::BAD_REQUEST, format!("priority must not be negative: {priority}"));
    }
    if message.user_properties.len() > PROPERTIES_MAX {
        let text = format!("more than {PROPERTIES_MAX} user properties");
        return refuse(code::MESSAGE_PROPERTIES_TOO_LARGE, text);
    }
    let mut bytes =
        system.tag.as_ref().map_or(0, String::len) + system.keys.iter().map(String::len).sum::<usize>();
    for (name, value) in &message.user_properties {
        if is_reserved(name) {
            let text = format!("property key is reserved: {name}");
            return refuse(code::ILLEGAL_MESSAGE_PROPERTY_KEY, text);
        }
        if name.is_empty() || has_control(name) || has_control(value) {
            let text = "property key or value is empty or has a control character";
            return refuse(code::ILLEGAL_MESSAGE_PROPERTY_KEY, text);
        }
        bytes += name.len() + value.len();
    }
    if bytes > PROPERTIES_BYTES_MAX {
        let text = format!("the properties have {bytes} bytes; the limit is {PROPERTIES_BYTES_MAX}");
        return refuse(code::MESSAGE_PROPERTIES_TOO_LARGE, text);
    }
    if message.body.is_empty() {
        return refuse(code::MESSAGE_BODY_EMPTY, "message body cannot be empty");
    }
    if message.body.len() > body_bytes_max {
        let text = format!("message body has {} bytes; the limit is {body_bytes_max}", message.body.len());
        return refuse(code::MESSAGE_BODY_TOO_LARGE, text);
    }
    if system.message_id.trim().is_empty() || has_control(&system.message_id) {
        return refuse(code::ILLEGAL_MESSAGE_ID, "message id cannot be blank or contain a control character");
    }
    let is_late = |at: &api::Timestamp| at.ms().saturating_sub(now_ms) > DELAY_MS_MAX;
    if system.delivery_timestamp.as_ref().is_some_and(is_late) {
        let text = format!("the delay is longer than {DELAY_MS_MAX} ms");
        return refuse(code::ILLEGAL_DELIVERY_TIME, text);
    }
    let recovery = system.orphaned_transaction_recovery_duration;
    if system.message_type == message_type::TRANSACTION
        && recovery.is_some_and(|recovery| recovery.seconds > RECOVERY_SECONDS_MAX)
    {
        let text = format!("the transaction recovery time is longer than {RECOVERY_SECONDS_MAX} s");
        return refuse(code::BAD_REQUEST, text);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;
    use crate::proxy::api::SystemProperties;

    fn sent(change: impl FnOnce(&mut TopicMessage, &mut SystemProperties)) -> Result<(), i32> {
        let mut message = TopicMessage { body: "x".into(), ..TopicMessage::default() };
        let mut system = SystemProperties { message_id: "1".to_owned(), ..SystemProperties::default() };
        change(&mut message, &mut system);
        message.system_properties = Some(system);
        super::message(&message, 4, 0).map_err(|refused| refused.code)
    }

    #[test]
    fn a_message_is_checked_against_the_limits() {
        assert_eq!(sent(|_, _| ()), Ok(()));
        assert_eq!(sent(|message, _| message.body = "12345".into()), Err(code::MESSAGE_BODY_TOO_LARGE));
        assert_eq!(sent(|message, _| message.body = "".into()), Err(code::MESSAGE_BODY_EMPTY));
        assert_eq!(sent(|_, system| system.tag = Some("a|b".to_owned())), Err(code::ILLEGAL_MESSAGE_TAG));
        assert_eq!(sent(|_, system| system.keys = vec![" ".to_owned()]), Err(code::ILLEGAL_MESSAGE_KEY));
        assert_eq!(sent(|_, system| system.message_group = Some("g".repeat(63))), Ok(()));
        let long = |_: &mut TopicMessage, system: &mut SystemProperties| {
            system.message_group = Some("g".repeat(64));
        };
        assert_eq!(sent(long), Err(code::ILLEGAL_MESSAGE_GROUP));
        let property = |name: &str, value: String| HashMap::from([(name.to_owned(), value)]);
        let reserved = |message: &mut TopicMessage, _: &mut SystemProperties| {
            message.user_properties = property("KEYS", "1".to_owned());
        };
        assert_eq!(sent(reserved), Err(code::ILLEGAL_MESSAGE_PROPERTY_KEY));
        let large = |message: &mut TopicMessage, _: &mut SystemProperties| {
            message.user_properties = property("a", "x".repeat(PROPERTIES_BYTES_MAX));
        };
        assert_eq!(sent(large), Err(code::MESSAGE_PROPERTIES_TOO_LARGE));
        let late = |_: &mut TopicMessage, system: &mut SystemProperties| {
            system.delivery_timestamp = Some(api::Timestamp::of_ms(DELAY_MS_MAX + 1));
        };
        assert_eq!(sent(late), Err(code::ILLEGAL_DELIVERY_TIME));
        assert_eq!(sent(|_, system| system.priority = Some(-1)), Err(code::BAD_REQUEST));
        assert_eq!(sent(|_, system| system.priority = Some(0)), Ok(()));
    }

    #[test]
    fn names_of_topics_and_groups_are_checked() {
        let named = |name: &str| Resource { name: name.to_owned(), ..Resource::default() };
        for name in ["", " ", "a b", "TBW102", "rmq_sys_x", &"t".repeat(128)] {
            assert_eq!(topic(Some(&named(name))).map_err(|refused| refused.code), Err(code::ILLEGAL_TOPIC));
        }
        assert_eq!(topic(Some(&named("%RETRY%g_orders"))), Ok("%RETRY%g_orders"));
        assert!(
            group(Some(&named(&"g".repeat(121)))).is_err() && group(Some(&named("CID_RMQ_SYS_x"))).is_err()
        );
        assert_eq!(group(Some(&named("workers"))), Ok("workers"));
    }
}
