//! Workloads of a store before it crashes.
//!
//! Most crash bugs need three operations, so there are many small workloads rather than a large one.

use super::{Sample, sample};

/// A step of a workload.
#[derive(Clone, Copy)]
pub enum Step {
    Put(&'static [Sample]),
    Batch(&'static [Sample]),
    Flush,
    Keep,
    Checkpoint,
    /// A clean stop and a new start.
    Reopen,
    /// More than three days pass, and expired files are deleted.
    Expire,
}

use Step::{Batch, Checkpoint, Expire, Flush, Keep, Put, Reopen};

pub const SMALL: &[Sample] = &[sample("a", 0, 100), sample("a", 1, 700), sample("b", 0, 40)];
pub const ODD: &[Sample] = &[sample("a", 0, 1), sample("c", 3, 511), sample("a", 0, 3000)];
pub const LARGE: &[Sample] = &[sample("b", 0, 20_000), sample("a", 1, 20_000)];
pub const NINE: &[Sample] = &[sample("a", 0, 64); 9];
/// Fills a file of the log almost completely.
const FULL: &[Sample] = &[sample("a", 0, 30_000), sample("b", 0, 35_000)];
/// More queues than any other workload.
const WIDE: &[Sample] = &[
    sample("d", 0, 10),
    sample("d", 1, 10),
    sample("d", 2, 10),
    sample("d", 3, 10),
    sample("e", 0, 10),
    sample("f", 7, 10),
];

pub const WORKLOADS: [(&str, &[Step]); 15] = [
    ("single puts", &[Put(SMALL), Flush, Put(ODD), Flush, Put(SMALL)]),
    ("queue file roll", &[Put(NINE), Flush, Keep, Put(NINE), Keep, Flush, Checkpoint, Put(ODD)]),
    ("segment roll", &[Put(LARGE), Keep, Flush, Put(LARGE), Put(SMALL), Flush, Keep, Put(ODD), Flush]),
    ("batches", &[Batch(NINE), Flush, Batch(LARGE), Keep, Batch(LARGE), Flush, Put(SMALL), Flush]),
    ("checkpoints", &[Put(SMALL), Checkpoint, Put(ODD), Flush, Checkpoint, Put(NINE), Flush, Put(SMALL)]),
    ("clean stops", &[Put(SMALL), Reopen, Put(ODD), Flush, Reopen, Put(NINE), Flush]),
    (
        "stops between segments",
        &[Put(LARGE), Keep, Put(LARGE), Reopen, Put(LARGE), Keep, Flush, Put(ODD), Flush],
    ),
    ("stops with nothing between", &[Reopen, Reopen, Put(SMALL), Reopen, Reopen, Flush, Put(ODD), Flush]),
    ("one late flush", &[Put(SMALL), Put(ODD), Put(NINE), Keep, Put(SMALL), Put(LARGE), Flush]),
    (
        "many queues",
        &[Put(WIDE), Flush, Keep, Put(WIDE), Checkpoint, Put(WIDE), Flush, Reopen, Put(WIDE), Flush],
    ),
    ("a full file", &[Batch(FULL), Keep, Flush, Batch(FULL), Checkpoint, Keep, Put(SMALL), Flush]),
    (
        "a checkpoint after every message",
        &[Put(ODD), Checkpoint, Put(LARGE), Checkpoint, Keep, Put(ODD), Checkpoint],
    ),
    (
        "files expire",
        &[Put(LARGE), Keep, Put(LARGE), Keep, Put(NINE), Flush, Put(LARGE), Keep, Expire, Put(SMALL), Flush],
    ),
    (
        "files expire twice",
        &[
            Put(FULL),
            Keep,
            Put(NINE),
            Put(NINE),
            Put(FULL),
            Keep,
            Expire,
            Put(FULL),
            Keep,
            Reopen,
            Expire,
            Put(ODD),
        ],
    ),
    (
        "files expire while messages are in no file",
        &[
            Put(LARGE),
            Keep,
            Put(LARGE),
            Keep,
            Expire,
            Put(NINE),
            Put(LARGE),
            Keep,
            Put(SMALL),
            Expire,
            Put(ODD),
            Flush,
        ],
    ),
];
