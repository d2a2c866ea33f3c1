//! Half messages: sends that go to the queue where they wait, and are open when they are stored.

use std::net::IpAddr;

use super::super::event::Link;
use super::super::rejection::{ErrorReply, Rejection, not_served, unavailable};
use super::super::timers::schedule;
use super::super::transactions::{Full, NewHalf, group_of, time_to_decide_ms, topic_of};
use super::{Broker, StagedRecord, StagedSend};
use crate::message::sysflag;
use crate::message::topic::HALF_TOPIC;
use crate::remoting::codes::response;
use crate::store::Put;

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
        if staged.attributes.is_timed && staged.attributes.delay_level == 0 {
            // What no commit could deliver is refused now.
            let properties = arena.get(staged.attributes.properties.clone()).unwrap_or_default();
            schedule::timing(&self.store, self.clock.wall_ms() as i64, properties, topic, staged.queue_id)?;
        }
        staged.attributes = staged.attributes.half(arena, topic, &staged.queue_id.to_string())?;
        staged.queue = self.store.queue_or_create(HALF_TOPIC, 0).map_err(unavailable)?;
        staged.is_half = true;
        Ok(StagedSend::Message(staged))
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
