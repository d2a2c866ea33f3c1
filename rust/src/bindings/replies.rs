//! Replies: stores replies to requests, and builds the records their requesters receive.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use pyo3::prelude::*;
use pyo3::types::PyBytes;

use super::errors::raise;
use super::offsets::refusal;
use super::server::PyServer;
use crate::message::record::{RecordFields, Stamp};
use crate::positions::{PhysicalOffset, QueueOffset};
use crate::requests::send::SendHeader;

/// Store a reply that its requester has received, as a message of its topic. Returns its message id and queue offset.
/// May wait for the disk. Raises `BrokerError` if the message is refused.
#[pyfunction]
#[pyo3(signature = (server, *, topic, queue_id, sys_flag, born_ms, born_host, flag, properties, reconsume_times, body))]
pub(super) fn store_reply(
    py: Python<'_>,
    server: &PyServer,
    topic: &str,
    queue_id: i32,
    sys_flag: i32,
    born_ms: i64,
    born_host: &str,
    flag: i32,
    properties: &str,
    reconsume_times: i32,
    body: &[u8],
) -> PyResult<(String, u64)> {
    let fields = SendHeader {
        topic,
        queue_id,
        sys_flag,
        born_timestamp_ms: born_ms,
        flag,
        properties,
        reconsume_times,
        ..SendHeader::default()
    };
    let host = host(born_host);
    let Some(broker) = &server.data_plane.broker else {
        return Err(raise("StoreError", "the server does not have a store"));
    };
    let stored = py.detach(|| broker.store_reply(&fields, body, host));
    stored.map(|(id, offset)| (id, offset.0)).map_err(|error_reply| refusal(&error_reply))
}

/// Build the record of a message that a broker sent in a request. Raises `DecodeError` for invalid fields.
#[pyfunction]
#[pyo3(signature = (*, topic, queue_id, flag, sys_flag, born_ms, born_host, stored_ms, store_host, reconsume_times,
                    properties, body))]
pub(super) fn encode_record<'py>(
    py: Python<'py>,
    topic: &str,
    queue_id: i32,
    flag: i32,
    sys_flag: i32,
    born_ms: i64,
    born_host: &str,
    stored_ms: i64,
    store_host: &str,
    reconsume_times: i32,
    properties: &str,
    body: &[u8],
) -> PyResult<Bound<'py, PyBytes>> {
    let fields = RecordFields {
        queue_id: queue_id.max(0).unsigned_abs(),
        flag,
        sys_flag,
        born_timestamp_ms: born_ms,
        born_host: host(born_host),
        store_host: host(store_host),
        reconsume_times,
        prepared_transaction_offset: 0,
        body,
        body_crc: RecordFields::body_crc(body),
        topic: topic.as_bytes(),
        properties: properties.as_bytes(),
    };
    fields.check().map_err(|error| raise("DecodeError", &error.to_string()))?;
    let stamp = Stamp { physical: PhysicalOffset(0), queue: QueueOffset(0), store_timestamp_ms: stored_ms };
    PyBytes::new_with(py, fields.encoded_len(), |into| {
        fields.encode(into, stamp);
        Ok(())
    })
}

/// Parses `ip:port`; Java writes IPv6 addresses without brackets. An unparsable address must not lose the message.
fn host(text: &str) -> SocketAddr {
    let parsed = || {
        let (ip, port) = text.trim_start_matches('/').rsplit_once(':')?;
        let ip: IpAddr = ip.trim_matches(['[', ']']).parse().ok()?;
        Some(SocketAddr::new(ip, port.parse().ok()?))
    };
    parsed().unwrap_or_else(|| SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)))
}
