//! Half messages: sends that go to the queue where they wait, and are open when they are stored.

use std::net::IpAddr;

use super::super::attributes::MessageAttributes;
use super::super::delays;
use super::super::event::Link;
use super::super::rejection::{ErrorReply, Rejection, not_served, put_refused, unavailable};
use super::super::timers::schedule;
use super::super::transactions::{Full, NewHalf, group_of, time_to_decide_ms, topic_of};
use super::{Broker, StagedRecord, StagedSend};
use crate::message::sysflag;
use crate::message::topic::{HALF_TOPIC, SCHEDULE_TOPIC, TIMER_TOPIC};
use crate::remoting::codes::response;
use crate::store::{Put, PutError};

/// Fields of a record with two addresses of IPv6, and of one more byte for the length of its topic.
const RECORD_BYTES_WITHOUT_TEXT: usize = 116;
/// The largest mark, which a commit stores in one piece with its message.
const MARK_BYTES_MAX: usize = 256;

impl Broker {
    /// The half of a transaction: it waits in a queue of its own.
    pub(super) fn stage_half<'f>(
        &self,
        arena: &mut Vec<u8>,
        mut staged: StagedRecord<'f>,
        topic: &str,
        client: IpAddr,
    ) -> Result<StagedSend<'f>, Rejection> {
        if self.metadata.rejects_transactions() {
            let remark = format!(
                "the broker[{}] sending transaction message is forbidden",
                self.metadata.identity.store_host
            );
            return Err(ErrorReply::new(response::NO_PERMISSION, remark).into());
        }
        let properties = arena.get(staged.attributes.properties.clone()).unwrap_or_default();
        let group = group_of(properties);
        if let Some(full) = self.transactions.full(group, client) {
            let whose = match full {
                Full::Group(open_max) => format!("the producer group {group} has {open_max}"),
                Full::Client(open_max) => format!("{client} has {open_max}"),
                Full::All => "the broker takes no more".to_owned(),
            };
            let remark = format!("too many transactions are open: {whose}; commit some or roll them back");
            return Err(ErrorReply::new(response::SYSTEM_BUSY, remark).into());
        }
        let (is_timed, level) = (staged.attributes.is_timed, staged.attributes.delay_level);
        staged.attributes = staged.attributes.half(arena, topic, &staged.queue_id.to_string())?;
        self.check_commit(arena, &staged, topic, level, is_timed)?;
        staged.queue = self.store.queue_or_create(HALF_TOPIC, 0).map_err(unavailable)?;
        staged.is_half = true;
        Ok(StagedSend::Message(staged))
    }

    /// Refuses what no commit could store or deliver: it would be answered, and then be open until it is given up.
    fn check_commit(
        &self,
        arena: &mut Vec<u8>,
        staged: &StagedRecord<'_>,
        topic: &str,
        level: u32,
        is_timed: bool,
    ) -> Result<(), ErrorReply> {
        let half = arena.get(staged.attributes.properties.clone()).unwrap_or_default().to_vec();
        let end = arena.len();
        let committed = if level > 0 {
            let slot = delays::slot(&self.store, level, topic, staged.queue_id)?;
            MessageAttributes::copied(arena, SCHEDULE_TOPIC, &half, &slot.properties())
        } else if is_timed
            && let Some(timing) =
                schedule::timing(&self.store, self.clock.wall_ms() as i64, &half, topic, staged.queue_id)?
        {
            MessageAttributes::copied(arena, TIMER_TOPIC, &half, &timing.properties())
        } else {
            MessageAttributes::copied(arena, topic, &half, &[])
        };
        arena.truncate(end);
        let properties = committed?.properties.len();
        let message =
            RECORD_BYTES_WITHOUT_TEXT + staged.body.len() + properties + topic.len().max(TIMER_TOPIC.len());
        match (message + MARK_BYTES_MAX) as u64 > self.store.record_bytes_max() {
            true => Err(put_refused(&PutError::TooLarge)),
            false => Ok(()),
        }
    }

    /// A half was stored: its producer has its time from now on.
    pub(super) fn open_half(&self, put: &Put<'_>, sender: &Link) {
        let Ok(stored) = &put.outcome else { return };
        let properties = put.record.properties;
        let time_ms = time_to_decide_ms(properties, self.metadata.transaction_timeout_ms());
        let due_ms = stored.store_timestamp_ms.saturating_add(time_ms);
        self.transactions.open(&NewHalf {
            offset: stored.queue_offset,
            physical: stored.physical,
            topic: topic_of(properties),
            group: group_of(properties),
            client: sender.peer().ip(),
            sender: Some(sender.id()),
            stored_ms: stored.store_timestamp_ms,
            due_ms,
            checks: 0,
        });
    }

    /// A send's transaction bits have to agree with its properties: Apache's broker stores what no reader finds.
    pub(super) fn check_flag(transaction: i32, is_prepared: bool) -> Result<(), ErrorReply> {
        match transaction {
            0 => Ok(()),
            sysflag::PREPARED if is_prepared => Ok(()),
            _ => Err(not_served("messages with the flag of a transaction and without TRAN_MSG")),
        }
    }
}
