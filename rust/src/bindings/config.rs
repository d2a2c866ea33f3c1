//! Configuration: converts the dataclasses of `rmqpy.config` to structs of the core.
//!
//! Fields are read by name: a setting appears in its dataclass, in the struct that uses it, and in one line here.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use pyo3::conversion::FromPyObjectOwned;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use super::errors::raise;
use crate::dataplane::state::filter::SqlSupport;
use crate::dataplane::state::metadata::{Identity, RecallOptions};
use crate::dataplane::state::pop_options::PopOptions;
use crate::dataplane::state::role::{CopyRules, SlaveReads};
use crate::store::{CompactionOptions, Durability, Options, Retention, Setting, StorePaths, TimerOptions};

/// A number that a store checks.
#[pyclass(frozen, get_all, module = "rmqpy._native")]
pub(super) struct StoreSetting {
    /// The default.
    default: u64,
    /// The minimum.
    low: u64,
    /// The maximum.
    high: u64,
    /// The unit.
    unit: &'static str,
}

/// Return each number that a store checks, by its key in broker.conf.
#[pyfunction]
pub(super) fn store_settings() -> BTreeMap<&'static str, StoreSetting> {
    let settings = Options::new(PathBuf::new()).settings().into_iter();
    let row = |setting: Setting| {
        let (default, unit, bounds) = (setting.value, setting.unit, setting.bounds);
        (setting.key, StoreSetting { default, low: *bounds.start(), high: *bounds.end(), unit })
    };
    settings.map(row).collect()
}

/// Reads the options of a store from a `StoreConfig`. Raises `ConfigError` for a number out of bounds.
pub(super) fn store_options(config: &Bound<'_, PyAny>) -> PyResult<Options> {
    let durability: String = field(config, "durability")?;
    let options = Options {
        segment_bytes: field(config, "segment_bytes")?,
        queue_file_bytes: field(config, "queue_file_bytes")?,
        index_slots: field(config, "index_slots")?,
        index_entries: field(config, "index_entries")?,
        index_enabled: field(config, "is_indexed")?,
        durability: Durability::ALL
            .into_iter()
            .find(|known| known.name() == durability)
            .ok_or_else(|| PyValueError::new_err(format!("{durability:?} is not a durability")))?,
        ring_bytes: field(config, "ring_bytes")?,
        flush_interval_ms: field(config, "flush_interval_ms")?,
        retention: retention(config, 0)?,
        in_memory_percent: field(config, "in_memory_percent")?,
        delay_levels_ms: field(config, "delays_ms")?,
        timers: TimerOptions {
            is_enabled: field(config, "has_timers")?,
            precision_ms: field(config, "timer_precision_ms")?,
            delay_sec_max: field(config, "timer_delay_sec_max")?,
            roll_window_slots: field(config, "timer_roll_window_slots")?,
            log_file_bytes: field(config, "timer_log_file_bytes")?,
            ..TimerOptions::default()
        },
        compaction: CompactionOptions {
            is_enabled: field(config, "has_compaction")?,
            threads: field(config, "compaction_threads")?,
            interval_ms: field(config, "compaction_interval_ms")?,
            map_bytes: field(config, "compaction_map_bytes")?,
            bytes_per_second: field(config, "compaction_bytes_per_second")?,
            ..CompactionOptions::default()
        },
        multi_dispatch: field::<bool>(config, "has_lights")? && field(config, "dispatches_to_lights")?,
        has_light_quota: field(config, "has_light_quota")?,
        light_queues_max: field(config, "light_queues_max")?,
        paths: store_paths(config, StorePaths::below(field::<PathBuf>(config, "folder")?))?,
        ..Options::new(PathBuf::new())
    };
    options.check().map_err(|error| raise("ConfigError", &error.to_string()))?;
    Ok(options)
}

/// Reads the paths of a `StoreConfig`; `others` supplies those it does not name.
pub(super) fn store_paths(config: &Bound<'_, PyAny>, others: StorePaths) -> PyResult<StorePaths> {
    type Named = (Option<PathBuf>, Option<PathBuf>, Option<PathBuf>);
    let (log, queues, index): Named = field(config, "named_folders")?;
    Ok(StorePaths {
        root: others.root,
        log: log.unwrap_or(others.log),
        queues: queues.unwrap_or(others.queues),
        index: index.unwrap_or(others.index),
    })
}

/// Reads the retention of messages from a `StoreConfig`.
pub(super) fn retention(config: &Bound<'_, PyAny>, utc_offset_ms: i64) -> PyResult<Retention> {
    let force_percent = field(config, "force_percent")?;
    Ok(Retention {
        reserved_ms: field::<u64>(config, "reserved_hours")? * 3_600_000,
        delete_hours: field(config, "delete_hours")?,
        utc_offset_ms,
        expire_percent: field(config, "expire_percent")?,
        force_percent: field::<bool>(config, "deletes_by_force")?.then_some(force_percent),
        full_percent: field(config, "full_percent")?,
        keeps_waiting: !field::<bool>(config, "deletes_waiting")?,
        ..Retention::default()
    })
}

/// Reads the identity of a broker from a `BrokerConfig`; `store_host` is the address its messages carry.
pub(super) fn identity(config: &Bound<'_, PyAny>, store_host: &str) -> PyResult<Identity> {
    let store_host = store_host
        .parse()
        .map_err(|_| PyValueError::new_err(format!("store_host must be ip:port, not {store_host:?}")))?;
    Ok(Identity {
        cluster: field(config, "cluster")?,
        broker: field(config, "name")?,
        store_host,
        region: field(config, "region")?,
        is_trace_on: field(config, "trace_on")?,
        message_bytes_max: field(&config.getattr("store")?, "message_bytes_max")?,
        pull_messages_max: field(config, "pull_messages_max")?,
        pull_bytes_max: field(config, "pull_bytes_max")?,
        is_long_polling: field(config, "long_polling")?,
        short_polling_ms: field(config, "short_polling_ms")?,
        is_tiered: field(&config.getattr("tiered")?, "is_on")?,
        is_auto_create_topics: field(config, "auto_create_topics")?,
        has_lights: field(&config.getattr("store")?, "has_lights")?,
        creations_per_minute: field(config, "creations_per_minute")?,
        sql: match (field(config, "serves_sql")?, field(config, "is_sql_strict")?) {
            (false, _) => SqlSupport::Off,
            (true, true) => SqlSupport::Strict,
            (true, false) => SqlSupport::Lenient,
        },
        recall: RecallOptions {
            is_served: field(config, "serves_recall")?,
            is_served_unwritable: field(config, "serves_recall_unwritable")?,
            is_topic_in_key: field(config, "is_topic_in_recall_key")?,
        },
        slave_reads: SlaveReads {
            is_served: field(&config.getattr("replication")?, "serves_reads")?,
            checks_offsets: field(&config.getattr("replication")?, "checks_offsets")?,
            may_act: field(&config.getattr("replication")?, "may_act")?,
        },
        copies: CopyRules {
            copies: field(&config.getattr("replication")?, "copies")?,
            copies_min: field(&config.getattr("replication")?, "copies_min")?,
            timeout: Duration::from_millis(field(&config.getattr("replication")?, "slave_timeout_ms")?),
            is_controlled: field(&config.getattr("replication")?, "is_controlled")?,
        },
        pop: pop_options(config)?,
    })
}

fn pop_options(config: &Bound<'_, PyAny>) -> PyResult<PopOptions> {
    let in_flight_max: u64 = field(config, "pop_in_flight_max")?;
    Ok(PopOptions {
        parked_per_group_max: field(config, "pop_polls_per_group_max")?,
        parked_max: field(config, "pop_polls_max")?,
        retry_first_percent: field(config, "pop_retry_first_percent")?,
        retry_first_percent_by_priority: field(config, "pop_retry_first_percent_by_priority")?,
        is_larger_more_urgent: field(config, "is_larger_priority_more_urgent")?,
        keeps_retry_queues: field(config, "pop_keeps_retry_queues")?,
        is_retry_v2: field(config, "pop_retry_v2")?,
        reads_retry_v1: field(config, "pop_reads_retry_v1")?,
        shows_retry_topic: field(config, "pop_shows_retry_topic")?,
        in_flight_max: field::<bool>(config, "pop_limits_in_flight")?.then_some(in_flight_max),
        has_dead_letters: field(config, "pop_has_dead_letters")?,
        lite_subscriptions_max: field(config, "lite_subscriptions_max")?,
    })
}

pub(super) fn field<'py, T: FromPyObjectOwned<'py>>(config: &Bound<'py, PyAny>, name: &str) -> PyResult<T> {
    config.getattr(name)?.extract().map_err(Into::into)
}
