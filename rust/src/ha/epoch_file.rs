//! Epoch file: `rmqpy/epochs` in the store, a line with number and begin for each epoch of the log.
//!
//! *Invariant*: it has every epoch of which a byte is in the log. It may have an epoch whose bytes a power loss
//! removed: a log that ends before an epoch began has lost its end, and the number must not be used again.
//! Threads: one at a time.

use std::fmt::Write;

use crate::positions::PhysicalOffset;
use crate::replication::epochs::{EpochStart, Epochs};
use crate::replication::leadership::next_epoch;
use crate::store::{Store, StoreError};

const NAME: &str = "epochs";

/// The known epochs of a store's log.
#[derive(Debug, Clone, Default)]
pub(super) struct KnownEpochs {
    /// Epochs that the log has reached and that have not expired.
    pub(super) epochs: Epochs,
    /// The largest number ever used in this store.
    pub(super) highest: u32,
    /// Whether the log has lost a newer epoch.
    pub(super) has_lost: bool,
}

/// Reads the file. Without a file, as in a store of Apache's broker, no epochs are known.
pub(super) fn load(store: &Store) -> Result<KnownEpochs, StoreError> {
    let text = store.own_file(NAME)?;
    let broken = || {
        StoreError::Layout {
        path: store.root().join("rmqpy").join(NAME),
        expected: "expected an epoch and where it begins in each line, both ascending; without the file this log is taken \
                   for one of an older release"
            .to_owned(),
    }
    };
    let entries: Option<Vec<_>> = String::from_utf8_lossy(&text).lines().map(entry).collect();
    let mut epochs = Epochs::from_entries(entries.ok_or_else(broken)?).map_err(|_| broken())?;
    let highest = epochs.number();
    let (first, end) = store.range();
    epochs.cut(PhysicalOffset(end.0 + 1));
    epochs.expire(first);
    let has_lost = epochs.number() != highest;
    Ok(KnownEpochs { epochs, highest, has_lost })
}

fn entry(line: &str) -> Option<EpochStart> {
    let (epoch, start) = line.split_once(' ')?;
    Some(EpochStart { epoch: epoch.parse().ok()?, start: PhysicalOffset(start.parse().ok()?) })
}

/// Replaces the file durably.
pub(super) fn save(store: &Store, epochs: &Epochs) -> Result<(), StoreError> {
    let mut text = String::new();
    for EpochStart { epoch, start } in epochs.entries() {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{epoch} {start}");
    }
    store.replace_own_file(NAME, text.as_bytes())
}

/// Returns the epochs of a log that this broker continues as a master. Begins an epoch if there is none, if the log
/// has lost its end, or if `epoch`, agreed with other replicas, is given.
pub(super) fn lead(store: &Store, broker_id: u64, epoch: Option<u32>) -> Result<Epochs, StoreError> {
    let KnownEpochs { mut epochs, highest, has_lost } = load(store)?;
    let end = store.range().1;
    let wanted = match epoch {
        Some(epoch) if epoch > highest => epoch,
        _ if epochs.entries().is_empty() || has_lost => next_epoch(highest, broker_id),
        _ => return Ok(epochs),
    };
    if let Err(error) = epochs.begin(wanted, end) {
        return Err(StoreError::Layout {
            path: store.root().to_owned(),
            expected: format!("cannot begin an epoch: {error}"),
        });
    }
    save(store, &epochs)?;
    Ok(epochs)
}
