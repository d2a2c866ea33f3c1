//! Broker regions: the region of each broker, and whether it wants traces, as learnt from replies.
//!
//! The latest reply counts. Any thread; a producer without traces has none.

use std::sync::Arc;

use hashbrown::HashMap;
use parking_lot::RwLock;

use crate::remoting::header::Header;

/// The region of a broker that names none, as in Java's clients.
const DEFAULT_REGION: &str = "DefaultRegion";

/// The regions of one producer's brokers; `None` for a broker that does not want traces.
#[derive(Debug, Default)]
pub(crate) struct BrokerRegions(RwLock<HashMap<Arc<str>, Option<Arc<str>>>>);

impl BrokerRegions {
    /// Records a broker's reply to a send.
    pub(crate) fn note_reply(&self, broker: &Arc<str>, header: &Header) {
        let (region, trace_on) = (header.get("MSG_REGION"), header.get("TRACE_ON"));
        // Refusals carry neither field.
        if region.is_some() || trace_on.is_some() {
            self.note(broker, region, trace_on != Some("false"));
        }
    }

    /// Records the region of `broker`.
    pub(crate) fn note(&self, broker: &Arc<str>, region: Option<&str>, wants_traces: bool) {
        let region = wants_traces.then_some(region.filter(|name| !name.is_empty()).unwrap_or(DEFAULT_REGION));
        if self.0.read().get(broker).is_none_or(|known| known.as_deref() != region) {
            self.0.write().insert(Arc::clone(broker), region.map(Arc::from));
        }
    }

    /// Returns the region of `broker`, by default for an unknown one; `None` if it does not want traces.
    pub(crate) fn of(&self, broker: &str) -> Option<Arc<str>> {
        self.0.read().get(broker).map_or_else(|| Some(DEFAULT_REGION.into()), Clone::clone)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_reply_of_a_broker_counts() {
        let (regions, broker): (_, Arc<str>) = (BrokerRegions::default(), "broker-a".into());
        let of = || regions.of(&broker);
        assert_eq!(of().as_deref(), Some(DEFAULT_REGION));
        for (region, wants_traces, expected) in [
            (Some("north"), true, Some("north")),
            (Some("north"), false, None),
            (None, true, Some(DEFAULT_REGION)),
            (Some(""), true, Some(DEFAULT_REGION)),
        ] {
            regions.note(&broker, region, wants_traces);
            assert_eq!(of().as_deref(), expected, "{region:?}");
        }
    }
}
