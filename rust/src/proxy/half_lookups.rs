//! Lookups of half messages by their id.
//!
//! A client may end a transaction through a proxy that has not sent its half message, or has restarted since. The
//! brokers of the topic are then asked for the half message of this id, through their index.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{sleep, timeout};

use super::broker_call::{Answer, BrokerCall, TIMEOUT};
use super::halves::HalfPlace;
use super::shared::{Asking, Proxy};
use super::status::{Refused, code};
use super::topics::BrokerPlace;
use crate::message::properties::{self, name};
use crate::message::record::{self, RecordView};
use crate::message::topic::HALF_TOPIC;
use crate::remoting::codes::response;

/// Rounds of one lookup, and the pause between them: a broker's index follows its log.
const ROUNDS: usize = 3;
const PAUSE: Duration = Duration::from_millis(200);
/// The age of the oldest half message that is looked up. The check of an older one names its place.
const AGE_MS_MAX: i64 = 86_400_000;
/// Copies of one half message that are examined: each check of a broker stores one.
const COPIES_MAX: i64 = 32;
/// Messages by their key.
const QUERY_MESSAGE: i32 = 12;

impl Proxy {
    /// Returns the place of a half message.
    ///
    /// # Errors
    /// No broker of the topic has it, or none of them answers.
    pub(super) async fn half(
        &self,
        asking: &Asking<'_>,
        topic: &str,
        transaction_id: &str,
    ) -> Result<HalfPlace, Refused> {
        if let Some(place) = self.halves.find(topic, transaction_id) {
            return Ok(place);
        }
        let too_many = || Refused::new(code::TOO_MANY_REQUESTS, "too many transactions are looked up");
        let turn = timeout(TIMEOUT, self.halves.lookups.acquire()).await.map_err(|_| too_many())?;
        let _turn = turn.map_err(|_| too_many())?;
        let brokers = self.brokers_of([topic].into_iter(), asking.credentials.as_ref()).await?;
        for round in 0..ROUNDS {
            if round > 0 {
                sleep(PAUSE).await;
            }
            if let Some(place) = self.ask_for_half(asking, &brokers, topic, transaction_id).await? {
                return Ok(place);
            }
        }
        Err(Refused::new(code::INTERNAL_SERVER_ERROR, "cannot found transaction data"))
    }

    /// Asks every broker for a half message. An error of one counts only if no other has it.
    async fn ask_for_half(
        &self,
        asking: &Asking<'_>,
        brokers: &[BrokerPlace],
        topic: &str,
        transaction_id: &str,
    ) -> Result<Option<HalfPlace>, Refused> {
        let since_ms = self.now_ms().saturating_sub(AGE_MS_MAX).max(0);
        let call = || {
            let credentials = self.signer(asking.credentials.as_ref());
            BrokerCall::new(QUERY_MESSAGE, asking.client.language, credentials)
                .with("topic", HALF_TOPIC)
                .with("key", transaction_id)
                .number("maxNum", COPIES_MAX)
                .number("beginTimestamp", since_ms)
                .number("endTimestamp", i64::MAX)
                .with("_UNIQUE_KEY_QUERY", "true")
        };
        let asked: Vec<_> = brokers.iter().map(|broker| asking.ask(broker, call())).collect();
        let (mut found, mut failed) = (None, None);
        for (broker, answer) in brokers.iter().zip(asked) {
            match answer.await.and_then(|answer| copies(answer, asking.is_guarded)) {
                Ok(answer) => found = found.or_else(|| newest(&answer.body, broker, topic, transaction_id)),
                Err(refused) => failed = Some(refused),
            }
        }
        match (found, failed) {
            (None, Some(refused)) => Err(refused),
            (found, _) => Ok(found),
        }
    }
}

/// Returns the answer to a query; its body is empty if the broker does not have the message.
fn copies(answer: Answer, is_guarded: bool) -> Result<Answer, Refused> {
    if answer.code == response::QUERY_NOT_FOUND { Ok(Answer::default()) } else { answer.success(is_guarded) }
}

/// Returns the place of the newest copy of a half message among these records. An index finds hashes of keys, so others
/// may be among them.
fn newest(records: &[u8], broker: &BrokerPlace, topic: &str, transaction_id: &str) -> Option<HalfPlace> {
    let is_it = |half: &RecordView<'_>| {
        let value = |name| properties::get(half.properties(), name);
        half.topic() == HALF_TOPIC.as_bytes()
            && value(name::REAL_TOPIC) == Some(topic.as_bytes())
            && value(name::UNIQ_KEY) == Some(transaction_id.as_bytes())
    };
    let copies = record::records(records).map_while(Result::ok).filter(is_it);
    let half = copies.max_by_key(RecordView::queue_offset)?;
    let (offset, position) = (half.queue_offset().0, half.physical_offset().0);
    let broker = Arc::clone(&broker.name);
    Some(HalfPlace { broker, offset: offset.cast_signed(), position: position.cast_signed() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::record::{RecordFields, Stamp};
    use crate::positions::{PhysicalOffset, QueueOffset};

    fn half(topic: &str, real: &str, id: &str, offset: u64) -> Vec<u8> {
        let properties = format!("UNIQ_KEY\x01{id}\x02REAL_TOPIC\x01{real}\x02");
        let host = "10.0.0.1:10911".parse().expect("an address");
        let fields = RecordFields {
            queue_id: 0,
            flag: 0,
            sys_flag: 0,
            born_timestamp_ms: 1,
            born_host: host,
            store_host: host,
            reconsume_times: 0,
            prepared_transaction_offset: 0,
            body: b"half",
            body_crc: RecordFields::body_crc(b"half"),
            topic: topic.as_bytes(),
            properties: properties.as_bytes(),
        };
        let mut bytes = vec![0; fields.encoded_len()];
        let (physical, queue) = (PhysicalOffset(offset * 1_000), QueueOffset(offset));
        fields.encode(&mut bytes, Stamp { physical, queue, store_timestamp_ms: 2 });
        bytes
    }

    #[test]
    fn the_newest_copy_of_the_id_and_topic_is_chosen() {
        let broker = BrokerPlace { name: "a".into(), address: None };
        let records = [
            half(HALF_TOPIC, "t", "id", 9),
            half(HALF_TOPIC, "t", "id", 4),
            half(HALF_TOPIC, "t", "another", 11),
            half(HALF_TOPIC, "u", "id", 12),
            half("t", "t", "id", 13),
        ]
        .concat();
        let place = newest(&records, &broker, "t", "id").expect("a half message");
        assert_eq!((&*place.broker, place.offset, place.position), ("a", 9, 9_000));
        assert_eq!(newest(&records, &broker, "t", "none"), None);
        assert_eq!(newest(b"garbage", &broker, "t", "id"), None);
        assert_eq!(newest(b"", &broker, "t", "id"), None);
    }
}
