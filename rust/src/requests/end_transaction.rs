//! End of a transaction: END_TRANSACTION, a producer's decision about a half message.

use crate::remoting::error::FieldError;
#[cfg(feature = "load")]
use crate::remoting::header::HeaderWriter;
use crate::remoting::header::{Header, number};

/// The decisions, which are the transaction bits of a system flag.
pub(crate) const COMMIT: i32 = 8;
pub(crate) const ROLLBACK: i32 = 12;
/// The producer has not decided yet.
pub(crate) const UNKNOWN: i32 = 0;

#[derive(PartialEq, Eq, Debug)]
pub(crate) struct EndTransactionHeader<'h> {
    pub(crate) group: &'h str,
    /// Offset of the half message in its queue; -1 if missing.
    pub(crate) queue_offset: i64,
    /// Its position in the log; -1 if missing.
    pub(crate) offset: i64,
    pub(crate) decision: i32,
    /// Whether this answers a check by the broker.
    pub(crate) is_checked: bool,
}

impl<'h> EndTransactionHeader<'h> {
    pub(crate) fn decode(header: &'h Header) -> Result<Self, FieldError> {
        let mut fields =
            Self { group: "", queue_offset: -1, offset: -1, decision: UNKNOWN, is_checked: false };
        for (name, value) in header.ext() {
            match name {
                "producerGroup" => fields.group = value,
                "tranStateTableOffset" => fields.queue_offset = number(name, value)?,
                "commitLogOffset" => fields.offset = number(name, value)?,
                "commitOrRollback" => fields.decision = number(name, value)?,
                "fromTransactionCheck" => fields.is_checked = value.eq_ignore_ascii_case("true"),
                _ => {}
            }
        }
        Ok(fields)
    }

    /// Writes every field, and the message's unique id, which rmqpy's broker ignores.
    #[cfg(feature = "load")]
    pub(crate) fn encode(&self, unique_id: &str, out: &mut HeaderWriter<'_>) {
        out.ext("producerGroup", self.group)
            .ext_i64("tranStateTableOffset", self.queue_offset)
            .ext_i64("commitLogOffset", self.offset)
            .ext_i64("commitOrRollback", self.decision.into())
            .ext_bool("fromTransactionCheck", self.is_checked)
            .ext("msgId", unique_id)
            .ext("transactionId", unique_id);
    }
}
