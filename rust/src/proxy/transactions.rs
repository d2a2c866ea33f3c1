//! Transactions: EndTransaction, and the broker's checks of half messages, which producers answer.

use std::sync::Arc;

use super::api::{self, EndTransactionRequest, StatusResponse};
use super::api_telemetry::{Command, RecoverOrphanedTransaction, TelemetryCommand};
use super::caller::Caller;
use super::client::ConnectedClient;
use super::halves::HalfPlace;
use super::routes::named;
use super::shared::{Asking, Proxy};
use super::status::{Refused, code, status};
use super::{messages, names};
use crate::message::record::RecordView;
use crate::remoting::codes::request;
use crate::remoting::header::Header;
use crate::requests::end_transaction::{COMMIT, ROLLBACK, UNKNOWN};

impl Proxy {
    pub(super) async fn end_transaction(
        &self,
        caller: &Caller,
        asked: &EndTransactionRequest,
    ) -> StatusResponse {
        StatusResponse { status: Some(status(&self.end(caller, asked).await)) }
    }

    async fn end(&self, caller: &Caller, asked: &EndTransactionRequest) -> Result<(), Refused> {
        let topic = names::topic(asked.topic.as_ref())?;
        let id = &*asked.transaction_id;
        if id.trim().is_empty() {
            return Err(Refused::new(code::INVALID_TRANSACTION_ID, "transaction id cannot be blank"));
        }
        let decision = match asked.resolution {
            api::COMMIT => COMMIT,
            api::ROLLBACK => ROLLBACK,
            _ => UNKNOWN,
        };
        let is_checked = asked.source == api::SOURCE_SERVER_CHECK;
        let asking = Asking::of(self, caller)?;
        let place = self.half(&asking, topic, id).await?;
        let broker = self.broker(topic, &place.broker, asking.credentials.as_ref()).await?;
        let call = asking
            .call(request::END_TRANSACTION)
            .with("producerGroup", topic)
            .number("tranStateTableOffset", place.offset)
            .number("commitLogOffset", place.position)
            .number("commitOrRollback", decision.into())
            .with("fromTransactionCheck", if is_checked { "true" } else { "false" })
            .with("msgId", &*asked.message_id)
            .with("transactionId", id);
        let answer = asking.ask(&broker, call);
        if decision == UNKNOWN {
            // Apache's broker does not answer it.
            return Ok(());
        }
        answer.await?.success(asking.is_guarded).map(drop)
    }

    /// Asks a producer about a half message, by a request of the broker.
    pub(super) fn check_transaction(
        &self,
        (client, broker): &(Arc<ConnectedClient>, Arc<str>),
        header: &Header,
        record: &[u8],
    ) {
        let Ok(record) = RecordView::parse(record) else { return };
        let Ok(topic) = std::str::from_utf8(record.topic()) else { return };
        let number = |name| header.get(name).and_then(|text| text.parse().ok());
        let (Some(offset), Some(position)) = (number("tranStateTableOffset"), number("commitLogOffset"))
        else {
            return;
        };
        let id = header.get("transactionId").unwrap_or_default();
        self.halves.remember(topic, id, HalfPlace { broker: Arc::clone(broker), offset, position });
        let message = messages::of_record(&record, &named(topic), self.now_ms());
        let recover = RecoverOrphanedTransaction { message: Some(message), transaction_id: id.to_owned() };
        // Without a stream that takes it, the broker asks again later.
        client.command(TelemetryCommand {
            status: Some(super::status::ok()),
            command: Some(Command::RecoverOrphanedTransaction(recover)),
        });
    }
}
