//! Recall: withdrawal of a timed message before its delivery.
//!
//! A recall is stored as a timed message that names the other one and waits in the same slot of the wheel, where
//! delivery processes it first. A client that missed the reply may send the same handle again.
//!
//! Threads: the I/O thread of the connection; stored and answered with the sends of its burst.

use super::attributes::MessageAttributes;
use super::broker::Broker;
use super::send::StagedRecord;
use super::session::Session;
use crate::dataplane::delivery::timers::schedule::{self, Timing};
use crate::dataplane::state::metadata::PERMISSION_WRITE;
use crate::dataplane::state::rejection::{ErrorReply, Rejection, ask_the_master, unknown_topic};
use crate::dataplane::state::role::Role;
use crate::message::MessageType;
use crate::message::properties::{self, name};
use crate::message::recall_handle::{self, RecallHandle};
use crate::message::record::RecordFields;
use crate::message::topic::{RETRY_PREFIX, TIMER_TOPIC};
use crate::remoting::codes::{request, response};
use crate::remoting::frame::Frame;
use crate::requests::recall::RecallHeader;

/// The body and tag of a recall, as in Apache's broker.
const BODY: &[u8] = b"0";
const TAG: &[u8] = b"_RECALL_TAG_";

impl Broker {
    /// Returns the handle for recalling a timed message, as Apache's broker writes it; `None` for a retry.
    pub(super) fn recall_handle(
        &self,
        code: i32,
        topic: &str,
        timing: &Timing<'_>,
        staged: &StagedRecord<'_>,
        arena: &[u8],
    ) -> Option<Box<str>> {
        if code == request::SEND_BATCH_MESSAGE || topic.starts_with(RETRY_PREFIX) {
            return None;
        }
        let message_id = arena.get(staged.attributes.unique_key.clone())?;
        let handle = RecallHandle {
            topic,
            broker: &self.metadata.identity.broker,
            // Rounds to the same slot.
            time_ms: timing.out_ms.saturating_add(1),
            message_id: std::str::from_utf8(message_id).ok()?,
        };
        Some(handle.encode().into())
    }

    /// Checks a recall and sizes its record. Nothing is stored yet.
    pub(in crate::dataplane) fn stage_recall<'f>(
        &self,
        session: &mut Session,
        frame: &Frame<'f>,
    ) -> Result<StagedRecord<'f>, Rejection> {
        let context = session.context(frame.encoding);
        let Session { header, arena, .. } = session;
        let fields = RecallHeader::decode(header);
        if self.metadata.role() != Role::Master {
            return Err(ask_the_master().into());
        }
        self.check_recall(fields.topic)?;
        let text = recall_handle::text(fields.handle);
        let handle = text
            .as_deref()
            .and_then(recall_handle::parse)
            .ok_or_else(|| illegal("recall handle is invalid"))?;
        let now_ms = self.clock.wall_ms() as i64;
        self.check_handle(&handle, fields.topic, now_ms)?;
        let asked = self.recall_properties(&handle, fields.group, now_ms)?;
        let timing = schedule::timing(&self.store, now_ms, &asked, fields.topic, 0)?;
        let timing = timing.ok_or_else(too_late)?;
        let attributes = MessageAttributes::copied(arena, TIMER_TOPIC, &asked, &timing.properties())?;
        Ok(StagedRecord {
            queue: timing.queue,
            queue_id: 0,
            header: frame.header,
            flag: 0,
            sys_flag: 0,
            born_timestamp_ms: now_ms,
            reconsume_times: 0,
            body: BODY,
            body_crc: RecordFields::body_crc(BODY),
            attributes,
            message_type: MessageType::Delay,
            is_half: false,
            recall_handle: None,
            logical: None,
            context,
        })
    }

    /// Checks that this broker admits recalls for the topic, in the order of Apache's broker.
    fn check_recall(&self, topic: &str) -> Result<(), ErrorReply> {
        let recall = self.metadata.identity.recall;
        if !recall.is_served {
            let remark = "recall failed, operation is forbidden; set recallMessageEnable=true at the broker";
            return Err(ErrorReply::new(response::NO_PERMISSION, remark));
        }
        if self.metadata.permission() & PERMISSION_WRITE == 0 && !recall.is_served_unwritable {
            let remark = "recall failed, broker service not available: it is not writable";
            return Err(ErrorReply::new(response::SERVICE_NOT_AVAILABLE, remark));
        }
        if self.metadata.topic(topic).is_none() {
            return Err(unknown_topic(topic));
        }
        Ok(())
    }

    fn check_handle(&self, handle: &RecallHandle<'_>, topic: &str, now_ms: i64) -> Result<(), ErrorReply> {
        let broker = &self.metadata.identity.broker;
        if handle.topic != topic {
            return Err(illegal(&format!("topic not match: the handle is of topic {}", handle.topic)));
        }
        if handle.broker != *broker {
            let remark = format!("the message is at broker {}, and this is {broker}", handle.broker);
            return Err(illegal(&remark));
        }
        if handle.time_ms <= now_ms {
            return Err(too_late());
        }
        let delay_ms_max =
            i64::try_from(self.store.timer_options().delay_sec_max).unwrap_or(i64::MAX).saturating_mul(1_000);
        if handle.time_ms.saturating_sub(now_ms) > delay_ms_max {
            return Err(illegal("timestamp invalid: the delay exceeds timerMaxDelaySec"));
        }
        Ok(())
    }

    /// Returns the properties of a recall, the same as a client could send.
    fn recall_properties(
        &self,
        handle: &RecallHandle<'_>,
        group: &str,
        now_ms: i64,
    ) -> Result<Vec<u8>, ErrorReply> {
        let RecallHandle { topic, message_id, .. } = handle;
        // Both become property values.
        if [*message_id, group].iter().any(|text| text.bytes().any(|byte| byte < b' ')) {
            return Err(illegal("recall handle is invalid"));
        }
        let is_topic_in_key = self.metadata.identity.recall.is_topic_in_key;
        let key = if is_topic_in_key { format!("{topic}+{message_id}") } else { (*message_id).to_owned() };
        let mut asked = Vec::new();
        let mut writer = properties::Writer::new(&mut asked);
        writer
            .append(name::TIMER_DELETE_KEY, key.as_bytes())
            .append(name::UNIQ_KEY, message_id.as_bytes())
            .append(name::TAGS, TAG)
            .append(name::BORN_TIMESTAMP, now_ms.to_string().as_bytes())
            .append(name::TIMER_DELIVER_MS, handle.time_ms.to_string().as_bytes());
        if !group.is_empty() {
            writer.append(name::PRODUCER_GROUP, group.as_bytes());
        }
        Ok(asked)
    }
}

fn illegal(why: &str) -> ErrorReply {
    ErrorReply::new(response::ILLEGAL_OPERATION, format!("recall failed, {why}"))
}

fn too_late() -> ErrorReply {
    illegal("timestamp invalid: too late, the message was delivered")
}
