//! Admission: checks of permissions, and the destinations of sends.
//!
//! All checks use the metadata snapshot, before a byte is stored. A missing topic or group that Python must create
//! first is not a refusal: the frame is parked and handled again.

use std::sync::Arc;

use crate::dataplane::state::filter::{Filter, UnservedFilter};
use crate::dataplane::state::metadata::{Group, Metadata, PERMISSION_READ, PERMISSION_WRITE, Topic};
use crate::dataplane::state::rejection::{
    ErrorReply, Missing, Rejection, missing_reply, serves_no_reads, takes_no_messages, unknown_topic,
};
use crate::dataplane::state::role::Role;
use crate::message::properties::{self, name};
use crate::message::tag::TAGS_MAX;
use crate::message::topic::{
    self, BROKER_TOPICS, DEAD_LETTER_PREFIX, GROUP_BYTES_MAX, RETRY_PREFIX, REVIVE_TOPIC_PREFIX,
};
use crate::remoting::codes::response;
use crate::requests::pull::PullHeader;
use crate::requests::send::SendHeader;

/// The topic, and the queue if the send names one.
pub(in crate::dataplane) type Landing = (Arc<Topic>, Option<u32>);

/// Returns the destination of a send, checked in the order of Apache's broker.
///
/// # Errors
/// A refusal with its code, or the name that is missing.
pub(in crate::dataplane) fn send(metadata: &Metadata, to: &SendHeader<'_>) -> Result<Landing, Rejection> {
    if metadata.role() != Role::Master {
        return Err(takes_no_messages().into());
    }
    check_topic_name(to.topic)?;
    // Records of others in the revive topic would copy messages of any group.
    if BROKER_TOPICS.contains(&to.topic) || to.topic.starts_with(REVIVE_TOPIC_PREFIX) {
        let remark = format!("sending to topic[{}] is forbidden.", to.topic);
        return Err(ErrorReply::new(response::NO_PERMISSION, remark).into());
    }
    let topic = topic_of(metadata, to.topic)?;
    if metadata.permission() & PERMISSION_WRITE == 0 && topic.is_ordered {
        let remark = format!("the broker[{}] sending message is forbidden", metadata.identity.store_host);
        return Err(ErrorReply::new(response::NO_PERMISSION, remark).into());
    }
    // The queue of a static topic is checked when it is translated.
    if topic.mapping.is_none() && to.queue_id >= 0 && to.queue_id as u32 >= topic.queue_count() {
        let remark = format!(
            "request queueId[{}] is illegal, topic [{}] has {} queues",
            to.queue_id,
            to.topic,
            topic.queue_count()
        );
        return Err(ErrorReply::new(response::INVALID_PARAMETER, remark).into());
    }
    if let Some(name) = to.topic.strip_prefix(RETRY_PREFIX)
        && let group = popping_group(metadata, name).unwrap_or(name)
        && (is_exhausted(metadata, group, to)? || metadata.in_order.get(group).is_some())
    {
        let dead_letters = topic_of(metadata, &format!("{DEAD_LETTER_PREFIX}{group}"))?;
        return Ok((dead_letters, Some(0)));
    }
    Ok((topic, u32::try_from(to.queue_id).ok()))
}

/// Checks the size of a body: that of a message, or the whole of a batch.
pub(in crate::dataplane) fn body(metadata: &Metadata, body: &[u8]) -> Result<(), ErrorReply> {
    if body.is_empty() {
        return Err(ErrorReply::new(response::MESSAGE_ILLEGAL, "the message body is empty"));
    }
    let bytes_max = metadata.identity.message_bytes_max;
    if body.len() > bytes_max { Err(too_large(bytes_max)) } else { Ok(()) }
}

/// Returns the refusal of a body that exceeds the limit of a message.
pub(in crate::dataplane) fn too_large(bytes_max: usize) -> ErrorReply {
    let remark = format!(
        "the message is illegal, maybe msg body or properties length not matched. msg body length limit \
         {bytes_max}B, msg properties length limit 32KB."
    );
    ErrorReply::new(response::MESSAGE_ILLEGAL, remark)
}

/// Checks that a message has a key, if its topic is compacted. The refusal begins like Apache's.
pub(in crate::dataplane) fn key(topic: &Topic, properties: &[u8]) -> Result<(), ErrorReply> {
    let has_key = || {
        let key = properties::get(properties, name::KEYS);
        key.is_some_and(|key| key.iter().any(|byte| !byte.is_ascii_whitespace()))
    };
    if !topic.is_compacted || has_key() {
        return Ok(());
    }
    let remark = format!(
        "Required message key is missing: topic [{}] keeps the newest message of each key; set the property KEYS",
        topic.name
    );
    Err(ErrorReply::new(response::MESSAGE_ILLEGAL, remark))
}

/// Returns the group of a POP retry topic, given its name without the prefix: both the group and the topic exist.
fn popping_group<'n>(metadata: &Metadata, name: &'n str) -> Option<&'n str> {
    if metadata.group(name).is_some() {
        return None;
    }
    let separators = name.match_indices(['_', '+']);
    let mut parts = separators.filter_map(|(at, _)| Some((name.get(..at)?, name.get(at + 1..)?)));
    let found =
        parts.find(|(group, topic)| metadata.group(group).is_some() && metadata.topic(topic).is_some());
    found.map(|(group, _)| group)
}

fn is_exhausted(metadata: &Metadata, group: &str, to: &SendHeader<'_>) -> Result<bool, ErrorReply> {
    let Some(group) = metadata.group(group) else {
        let remark = format!("subscription group not exist, {group}");
        return Err(ErrorReply::new(response::SUBSCRIPTION_GROUP_NOT_EXIST, remark));
    };
    // Sends compare with `>`, send-backs with `>=`, and clients rely on both.
    Ok(to.reconsume_times > to.reconsume_max.unwrap_or(group.retry_max))
}

/// Returns the topic, or whether it can be created.
pub(in crate::dataplane) fn topic_of(metadata: &Metadata, name: &str) -> Result<Arc<Topic>, Rejection> {
    if let Some(topic) = metadata.topic(name) {
        return Ok(topic);
    }
    if metadata.identity.is_auto_create_topics || topic::is_of_group(name) {
        return Err(Rejection::Missing(Missing::Topic, name.to_owned()));
    }
    Err(unknown_topic(name).into())
}

/// Returns that a group is missing and can be created, unless its name is illegal.
pub(super) fn missing_group(name: &str) -> Rejection {
    let is_legal = !name.is_empty() && name.len() <= GROUP_BYTES_MAX && name.bytes().all(topic::is_name_byte);
    if is_legal {
        return Rejection::Missing(Missing::Group, name.to_owned());
    }
    missing_reply(Missing::Group, name).into()
}

fn check_topic_name(name: &str) -> Result<(), ErrorReply> {
    let is_of_group = topic::is_of_group(name);
    let bytes_max = topic::bytes_max(name);
    // `+` separates group and topic in the name of a POP retry topic of the second kind.
    let is_legal = !name.is_empty()
        && name.bytes().all(|byte| topic::is_name_byte(byte) || (is_of_group && byte == b'+'));
    if !is_legal {
        let remark =
            "the specified topic is blank or contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$";
        return Err(ErrorReply::new(response::INVALID_PARAMETER, remark));
    }
    if name.len() > bytes_max {
        let remark = format!("the specified topic is longer than topic max length {bytes_max}.");
        return Err(ErrorReply::new(response::INVALID_PARAMETER, remark));
    }
    Ok(())
}

/// Returns the group and the topic of a pull if they are readable.
///
/// # Errors
/// A refusal with its code, or the group that is missing.
pub(in crate::dataplane) fn pull(
    metadata: &Metadata,
    from: &PullHeader<'_>,
) -> Result<(Arc<Group>, Arc<Topic>), Rejection> {
    let is_served = match metadata.role() {
        Role::Master | Role::Acting => true,
        Role::Slave | Role::Orphan => metadata.identity.slave_reads.is_served,
    };
    if !is_served {
        return Err(serves_no_reads().into());
    }
    if metadata.permission() & PERMISSION_READ == 0 {
        let remark = format!("the broker[{}] pulling message is forbidden", metadata.identity.store_host);
        return Err(ErrorReply::forbidden(response::NO_PERMISSION, 1, remark).into());
    }
    let Some(group) = metadata.group(from.group) else {
        return Err(missing_group(from.group));
    };
    if !group.is_consume_enabled {
        let remark = format!("subscription group no permission, {}", from.group);
        return Err(ErrorReply::forbidden(response::NO_PERMISSION, 2, remark).into());
    }
    let Some(topic) = metadata.topic(from.topic) else {
        return Err(unknown_topic(from.topic).into());
    };
    if topic.permission & PERMISSION_READ == 0 {
        let remark = format!("the topic[{}] pulling message is forbidden", from.topic);
        return Err(ErrorReply::forbidden(response::NO_PERMISSION, 3, remark).into());
    }
    let is_known = from.queue_id >= 0 && topic.has_read_queue(from.queue_id as u32);
    // The queue of a static topic is checked when it is translated.
    if !is_known && topic.mapping.is_none() {
        let remark = format!(
            "queueId[{}] is illegal, topic:[{}] topicConfig.readQueueNums:[{}] consumer:[{}]",
            from.queue_id, from.topic, topic.read_queues, from.group
        );
        return Err(ErrorReply::new(response::INVALID_PARAMETER, remark).into());
    }
    // Also checked for pulls that carry a filter, as those of most clients do: the decision is the broker's.
    let is_broadcast = || metadata.subscriptions.get(from.group).is_some_and(|members| members.is_broadcast);
    if !group.is_broadcast_enabled && is_broadcast() {
        let remark = format!("the consumer group[{}] can not consume by broadcast way", from.group);
        return Err(ErrorReply::forbidden(response::NO_PERMISSION, 4, remark).into());
    }
    if metadata.is_forbidden(from.group, from.topic) {
        let remark = format!("the consumer group[{}] is forbidden for topic[{}]", from.group, from.topic);
        return Err(ErrorReply::forbidden(response::NO_PERMISSION, 5, remark).into());
    }
    Ok((group, topic))
}

/// Returns the filter that the group registered for this topic, for pulls that carry none.
///
/// # Errors
/// 24 if the group or the topic is not registered, 25 if the client has a newer subscription, 27 if its SQL is
/// invalid.
pub(super) fn registered_filter(
    metadata: &Metadata,
    from: &PullHeader<'_>,
) -> Result<Arc<Filter>, ErrorReply> {
    let unknown = |what: &str| {
        let remark = format!("the consumer's {what} not exist, group: {}, topic: {}", from.group, from.topic);
        ErrorReply::new(response::SUBSCRIPTION_NOT_EXIST, remark)
    };
    let members = metadata.subscriptions.get(from.group).ok_or_else(|| unknown("group info"))?;
    let subscription = members.by_topic.get(from.topic).ok_or_else(|| unknown("subscription"))?;
    if subscription.version < from.subscription_version {
        return Err(ErrorReply::new(
            response::SUBSCRIPTION_NOT_LATEST,
            "the consumer's subscription not latest",
        ));
    }
    subscription.filter.clone().map_err(|unserved| match unserved {
        // Apache's broker compiles registered expressions and answers a pull like this if that failed.
        UnservedFilter::Sql(error) => ErrorReply::new(
            response::FILTER_DATA_NOT_EXIST,
            format!("the broker's consumer filter data is not exist, the expression is wrong: {error}"),
        ),
        unserved => unserved_filter(unserved, from.topic),
    })
}

/// The remark of Apache's broker, which clients compare.
const SQL_OFF: &str = "The broker does not support consumer to filter message by SQL92; \
                       set enablePropertyFilter=true in its configuration";

/// Returns the refusal of a subscription that is not served.
pub(super) fn unserved_filter(unserved: UnservedFilter, topic: &str) -> ErrorReply {
    let reason = match unserved {
        UnservedFilter::SqlOff => return ErrorReply::new(response::SYSTEM_ERROR, SQL_OFF),
        UnservedFilter::Kind => "only the types TAG and SQL92 are served".to_owned(),
        UnservedFilter::Sql(error) => error.to_string(),
        UnservedFilter::TooManyTags => {
            format!("it has more than {TAGS_MAX} tags; subscribe to fewer, or to all with *")
        }
    };
    let remark = format!("parse the consumer's subscription of topic [{topic}] failed: {reason}");
    ErrorReply::new(response::SUBSCRIPTION_PARSE_FAILED, remark)
}
