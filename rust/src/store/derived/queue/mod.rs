//! Queues: ConsumeQueues of all topics, from a unit of 20 bytes to their files.

pub(crate) mod consume_queue;
pub(crate) mod queue_file_cache;
pub(crate) mod queue_files;
pub(crate) mod queues;
pub(crate) mod start_over;
pub(crate) mod unit;
