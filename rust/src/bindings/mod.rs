//! Bindings: the only modules that depend on Python, one file per exposed class. `help` shows their doc comments;
//! the stub, `_native.pyi`, repeats them with types.
//!
//! *Architecture invariant*: no Rust thread attaches to the interpreter. Python calls in; a call that may block
//! releases it first.

#![allow(clippy::too_many_arguments, reason = "keywords of Python methods, not Rust interfaces")]
#![allow(clippy::doc_lazy_continuation, reason = "Python docstrings with doctest examples")]

mod access;
mod arrow_import;
mod call;
mod client;
mod columns;
mod completions;
mod config;
mod constants;
mod controller;
mod decode_failure;
mod due_messages;
mod errors;
mod ext;
mod hand_clock;
mod lite;
mod load;
mod message;
mod metadata;
mod namespace;
mod offsets;
mod owner_process;
mod received;
mod record_filter;
mod replication;
mod replies;
mod request;
mod rows;
mod send_future;
mod sender;
mod sending;
mod server;
mod server_answers;
mod server_request;
mod server_statistics;
mod sql;
mod stopped_store;
mod store;
mod tls;
mod transactions;
mod waiting;

use pyo3::prelude::*;

#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    constants::add_to(module)?;
    owner_process::reset_in_children(module.py())?;
    module.add_function(wrap_pyfunction!(server::attach_count, module)?)?;
    module.add_function(wrap_pyfunction!(config::store_settings, module)?)?;
    module.add_function(wrap_pyfunction!(sql::sql_error, module)?)?;
    module.add_function(wrap_pyfunction!(sql::sql_matches, module)?)?;
    module.add_function(wrap_pyfunction!(access::hot_needs, module)?)?;
    module.add_function(wrap_pyfunction!(access::check_entry, module)?)?;
    module.add_function(wrap_pyfunction!(access::decide, module)?)?;
    module.add_function(wrap_pyfunction!(access::is_listed, module)?)?;
    module.add_function(wrap_pyfunction!(access::record_stored_at_ms, module)?)?;
    module.add_function(wrap_pyfunction!(access::record_topic, module)?)?;
    module.add_function(wrap_pyfunction!(access::record_destination, module)?)?;
    module.add_function(wrap_pyfunction!(access::signature, module)?)?;
    module.add_function(wrap_pyfunction!(lite::lite_queue, module)?)?;
    module.add_function(wrap_pyfunction!(lite::lite_parts, module)?)?;
    module.add_function(wrap_pyfunction!(replies::store_reply, module)?)?;
    module.add_function(wrap_pyfunction!(replies::encode_record, module)?)?;
    module.add_function(wrap_pyfunction!(tls::make_certificate, module)?)?;
    module.add_function(wrap_pyfunction!(tls::tls_suites, module)?)?;
    module.add_function(wrap_pyfunction!(tls::certificate_expiry, module)?)?;
    module.add_class::<tls::PyServerTls>()?;
    module.add_class::<tls::PyClientTls>()?;
    module.add_class::<hand_clock::PyHandClock>()?;
    module.add_class::<store::PyStore>()?;
    module.add_class::<store::ArrivalCounts>()?;
    module.add_class::<store::FollowedPage>()?;
    module.add_class::<stopped_store::PyStoppedStore>()?;
    module.add_class::<stopped_store::RecordPage>()?;
    module.add_class::<stopped_store::InvalidRange>()?;
    module.add_class::<stopped_store::LogComparison>()?;
    module.add_class::<stopped_store::TopicCounts>()?;
    module.add_class::<config::StoreSetting>()?;
    module.add_class::<offsets::GroupStepBack>()?;
    module.add_class::<access::AccessRefusal>()?;
    module.add_class::<record_filter::RecordFilter>()?;
    module.add_class::<record_filter::RecordGroup>()?;
    module.add_class::<record_filter::SelectedRecords>()?;
    module.add_class::<replication::PyReplication>()?;
    module.add_class::<replication::ConnectedSlave>()?;
    module.add_class::<replication::RefusedSlave>()?;
    module.add_class::<replication::FollowedMaster>()?;
    module.add_class::<replication::SharedRange>()?;
    module.add_class::<controller::PyController>()?;
    module.add_class::<controller::BrokerSet>()?;
    module.add_class::<controller::ControlledReplica>()?;
    module.add_class::<controller::ControllerOutcome>()?;
    module.add_class::<controller::ControllerCall>()?;
    module.add_class::<controller::ControllerWork>()?;
    module.add_class::<metadata::PyMetadata>()?;
    module.add_class::<offsets::PyOffsets>()?;
    module.add_class::<offsets::OrderedBatch>()?;
    module.add_class::<request::PyRequest>()?;
    module.add_class::<server::PyServer>()?;
    module.add_class::<server_statistics::DeliveryCounts>()?;
    module.add_class::<server_statistics::ReplyLatencies>()?;
    module.add_class::<due_messages::DueMessages>()?;
    module.add_class::<due_messages::EscapedMessage>()?;
    module.add_class::<due_messages::TimerStatistics>()?;
    module.add_class::<due_messages::TopicTimers>()?;
    module.add_class::<transactions::Transactions>()?;
    module.add_class::<transactions::DueHalf>()?;
    module.add_class::<transactions::TopicTransactions>()?;
    module.add_class::<lite::LiteConsumers>()?;
    module.add_class::<lite::LiteConsumer>()?;
    module.add_class::<lite::LostLiteTopic>()?;
    module.add_class::<namespace::Namespace>()?;
    module.add_class::<client::Client>()?;
    module.add_class::<call::Call>()?;
    module.add_class::<completions::Completions>()?;
    module.add_class::<server_request::ServerRequest>()?;
    module.add_class::<message::Message>()?;
    module.add_class::<received::ReceivedMessage>()?;
    module.add_class::<sending::NotSent>()?;
    module.add_class::<sender::Sender>()?;
    module.add_class::<send_future::SendFuture>()?;
    module.add_class::<send_future::FailedAttempt>()?;
    module.add_class::<rows::Rows>()?;
    module.add_class::<rows::SendBatch>()?;
    module.add_class::<columns::Columns>()?;
    module.add_class::<columns::ArrowBatch>()?;
    module.add_class::<load::Load>()?;
    Ok(())
}
