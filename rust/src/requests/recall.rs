//! Recall: RECALL_MESSAGE, which recalls a timed message before delivery.

use crate::remoting::header::Header;

#[derive(PartialEq, Eq, Debug)]
pub(crate) struct RecallHeader<'h> {
    pub(crate) group: &'h str,
    pub(crate) topic: &'h str,
    pub(crate) handle: &'h str,
}

impl<'h> RecallHeader<'h> {
    pub(crate) fn decode(header: &'h Header) -> Self {
        let mut fields = Self { group: "", topic: "", handle: "" };
        for (name, value) in header.ext() {
            match name {
                "producerGroup" => fields.group = value,
                "topic" => fields.topic = value,
                "recallHandle" => fields.handle = value,
                _ => {}
            }
        }
        fields
    }
}
