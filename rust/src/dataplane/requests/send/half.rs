//! Half messages: sends that are stored in the queue of halves and open a transaction.

use std::net::IpAddr;

use super::super::attributes::MessageAttributes;
use super::{Broker, StagedRecord, StagedSend};
use crate::dataplane::delivery::delays;
use crate::dataplane::delivery::timers::schedule;
use crate::dataplane::delivery::transactions::{Full, NewHalf, group_of, time_to_decide_ms, topic_of};
use crate::dataplane::state::rejection::{ErrorReply, Rejection, not_served, put_refused, unavailable};
use crate::dataplane::waiting::event::Link;
use crate::message::sysflag;
use crate::message::topic::{HALF_TOPIC, SCHEDULE_TOPIC, TIMER_TOPIC};
use crate::remoting::codes::response;
use crate::store::{Put, PutError};

/// The fields of a record with two IPv6 addresses, and one more byte for the length of its topic.
const RECORD_BYTES_WITHOUT_TEXT: usize = 116;
/// The largest mark, which a commit appends together with its message.
const MARK_BYTES_MAX: usize = 256;

impl Broker {
    /// Stages the half of a transaction for the queue of halves.
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
                Full::All => "the broker has reached its limit".to_owned(),
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

    /// Refuses a half that no commit could store or deliver, because it would stay open until it is discarded.
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

    /// Opens the transaction of a stored half; the producer's time to decide starts now.
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

    /// Checks that the transaction bits match the properties. Apache's broker stores a mismatch where no reader finds
    /// it.
    pub(super) fn check_flag(transaction: i32, is_prepared: bool) -> Result<(), ErrorReply> {
        match transaction {
            0 => Ok(()),
            sysflag::PREPARED if is_prepared => Ok(()),
            _ => Err(not_served("messages with the flag of a transaction and without TRAN_MSG")),
        }
    }
}
