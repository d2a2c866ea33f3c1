//! Receipt: interprets a broker's reply to a send attempt.
//!
//! Pure functions; any thread.

use std::sync::Arc;
use std::time::Duration;

use super::route_cache::Target;
use crate::remoting::codes::response;
use crate::remoting::{CallError, Reply};

/// The broker's reply for a stored message or batch.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Receipt {
    /// 0, or a code for a message stored less safely than requested.
    pub(crate) code: i32,
    pub(crate) broker: Arc<str>,
    pub(crate) queue_id: i32,
    /// Its offset in the queue; for a batch, that of the first message.
    pub(crate) queue_offset: i64,
    /// The broker's message id; comma-separated for a batch.
    pub(crate) offset_message_id: String,
    pub(crate) transaction_id: Option<String>,
    /// Handle for recalling a timed message before delivery.
    pub(crate) recall_handle: Option<String>,
}

/// The reason an attempt failed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum SendFailure {
    Broker {
        code: i32,
        remark: String,
    },
    /// Stored less safely than requested, and the producer wants a retry elsewhere.
    NotSafe(Receipt),
    /// No reply.
    Call(CallError),
    /// The reply lacks a field of the receipt.
    Malformed(String),
}

/// A failed attempt.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Attempt {
    pub(crate) target: Target,
    pub(crate) failure: SendFailure,
    pub(crate) elapsed: Duration,
}

/// Interprets the reply to an attempt.
pub(crate) fn judge(
    reply: &Reply<'_>,
    target: &Target,
    retry_not_safe: bool,
) -> Result<Receipt, SendFailure> {
    let header = reply.header;
    let is_stored = matches!(
        header.code,
        response::SUCCESS
            | response::FLUSH_DISK_TIMEOUT
            | response::SLAVE_NOT_AVAILABLE
            | response::FLUSH_SLAVE_TIMEOUT
    );
    if !is_stored {
        let remark = header.remark().unwrap_or_default().to_owned();
        return Err(SendFailure::Broker { code: header.code, remark });
    }
    let text = |name: &str| header.get(name).map(str::to_owned);
    let lacks = |name: &str| SendFailure::Malformed(format!("the reply of {} lacks {name}", target.address));
    let receipt = Receipt {
        code: header.code,
        broker: Arc::clone(&target.broker),
        queue_id: number(header.get("queueId")).ok_or_else(|| lacks("queueId"))?,
        queue_offset: number(header.get("queueOffset")).ok_or_else(|| lacks("queueOffset"))?,
        offset_message_id: text("msgId").ok_or_else(|| lacks("msgId"))?,
        transaction_id: text("transactionId"),
        recall_handle: text("recallHandle"),
    };
    if header.code != response::SUCCESS && retry_not_safe {
        return Err(SendFailure::NotSafe(receipt));
    }
    Ok(receipt)
}

fn number<N: std::str::FromStr>(digits: Option<&str>) -> Option<N> {
    digits?.parse().ok()
}
