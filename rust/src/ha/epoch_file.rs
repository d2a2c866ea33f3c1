//! Epoch file: `rmqpy/epochs` in the store, a line for each epoch of its log, its number and where it begins.
//!
//! Invariant: it never lacks an epoch of which a byte is in the log. It may have one of which a power loss left nothing: a
//! log that ends before an epoch began has lost its end, and its numbers must not be used again.
//! Threads: one at a time.

use std::fmt::Write;

use crate::positions::PhysicalOffset;
use crate::replication::epochs::{EpochStart, Epochs};
use crate::replication::leadership::next_epoch;
use crate::store::{Store, StoreError};

const NAME: &str = "epochs";

/// What is known of the epochs of a store's log.
#[derive(Debug, Clone, Default)]
pub(super) struct KnownEpochs {
    /// Those that the log has reached, and that have not expired.
    pub(super) epochs: Epochs,
    /// The largest number that was ever used here.
    pub(super) highest: u32,
    /// The log once had the beginning of a younger epoch, and has lost it.
    pub(super) has_lost: bool,
}

/// Reads the file; where there is none, as in a folder of Apache's, nothing is known.
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

/// Replaces the file, durably.
pub(super) fn save(store: &Store, epochs: &Epochs) -> Result<(), StoreError> {
    let mut text = String::new();
    for EpochStart { epoch, start } in epochs.entries() {
        // Writing to a string does not fail.
        let _ = writeln!(text, "{epoch} {start}");
    }
    store.replace_own_file(NAME, text.as_bytes())
}

/// The epochs of a log that a master goes on with; it begins one where it has to: where there was none, where the log has lost
/// its end, or where it is told to lead as of `epoch`, which has been agreed with others.
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
            expected: format!("epochs that go on: {error}"),
        });
    }
    save(store, &epochs)?;
    Ok(epochs)
}
