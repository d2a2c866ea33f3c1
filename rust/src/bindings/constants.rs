//! Constants shared with Python, which reads them from here.

use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::dataplane::delivery::{timers, transactions};
use crate::dataplane::state::{latency, metadata};
use crate::message::topic;
use crate::requests::{needs, pull};
use crate::store::SIZE_BOUNDS;

pub(super) fn add_to(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let tuple = |names: &[&str]| PyTuple::new(module.py(), names);
    module.add("RETRY_PREFIX", topic::RETRY_PREFIX)?;
    module.add("DEAD_LETTER_PREFIX", topic::DEAD_LETTER_PREFIX)?;
    module.add("LIGHT_PREFIX", topic::LIGHT_PREFIX)?;
    module.add("AUTO_CREATE_TOPIC", topic::AUTO_CREATE_TOPIC)?;
    module.add("SCHEDULE_TOPIC", topic::SCHEDULE_TOPIC)?;
    module.add("HALF_TOPIC", topic::HALF_TOPIC)?;
    module.add("OP_HALF_TOPIC", topic::OP_HALF_TOPIC)?;
    module.add("UNDECIDED_TOPIC", topic::UNDECIDED_TOPIC)?;
    module.add("SELF_TEST_TOPIC", topic::SELF_TEST_TOPIC)?;
    module.add("OFFSET_MOVED_TOPIC", topic::OFFSET_MOVED_TOPIC)?;
    module.add("BROKER_TOPICS", tuple(&topic::BROKER_TOPICS)?)?;
    module.add("SYSTEM_TOPICS", tuple(&topic::SYSTEM_TOPICS)?)?;
    module.add("SYSTEM_TOPIC_PREFIX", topic::SYSTEM_TOPIC_PREFIX)?;
    module.add("SYSTEM_GROUP_PREFIX", topic::SYSTEM_GROUP_PREFIX)?;
    module.add("TRANSACTION_GROUP", topic::TRANSACTION_GROUP)?;
    module.add("TRACE_TOPIC", topic::TRACE_TOPIC)?;
    module.add("BENCHMARK_TOPIC", topic::BENCHMARK_TOPIC)?;
    module.add("TOPIC_BYTES_MAX", topic::TOPIC_BYTES_MAX)?;
    module.add("GROUP_TOPIC_BYTES_MAX", topic::GROUP_TOPIC_BYTES_MAX)?;
    module.add("GROUP_BYTES_MAX", topic::GROUP_BYTES_MAX)?;
    module.add("PERMISSION_READ", metadata::PERMISSION_READ)?;
    module.add("PERMISSION_WRITE", metadata::PERMISSION_WRITE)?;
    module.add("HOT_CODES", PyTuple::new(module.py(), needs::HOT_CODES)?)?;
    module.add("PULL_SUSPEND", pull::SUSPEND)?;
    module.add("PULL_SUBSCRIPTION", pull::SUBSCRIPTION)?;
    module.add("LATENCY_BOUNDS_US", PyTuple::new(module.py(), latency::BOUNDS_US)?)?;
    module.add("TIMER_BOUNDS_S", PyTuple::new(module.py(), timers::statistics::DELAY_BOUNDS_S)?)?;
    module.add("TRANSACTION_BOUNDS_S", PyTuple::new(module.py(), transactions::LATENCY_BOUNDS_S)?)?;
    module.add("MESSAGE_SIZE_BOUNDS", PyTuple::new(module.py(), SIZE_BOUNDS)?)
}
