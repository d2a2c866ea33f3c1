//! Queues: ConsumeQueues of all topics, from a unit of 20 bytes to their files.

pub mod consume_queue;
pub mod queue_file_cache;
pub mod queue_files;
pub mod queues;
pub mod unit;
