//! Replies to requests: stored at a broker, and made a record where their requester gets them.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use pyo3::prelude::*;
use pyo3::types::PyBytes;

use super::errors::raise;
use super::server::PyServer;
use crate::message::record::{RecordFields, Stamp};
use crate::positions::{PhysicalOffset, QueueOffset};
use crate::requests::send::SendHeader;

/// Store a reply whose requester has been sent it, as a message of its topic: response code 0, message id and offset in
/// its queue; or the code of the refusal, its reason and 0. May wait for the disk.
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
) -> PyResult<(i32, String, u64)> {
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
        return Err(raise("StoreError", "the server has no store"));
    };
    Ok(match py.detach(|| broker.store_reply(&fields, body, host)) {
        Ok((id, offset)) => (0, id, offset.0),
        Err(refusal) => (refusal.code, refusal.remark.into_owned(), 0),
    })
}

/// The bytes of a record, for a message that came as a request of a broker. Raises `DecodeError` for fields that make
/// none.
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

/// `ip:port` as any broker writes it: Java puts no brackets around an IPv6 address. One that cannot be read is no
/// reason to lose a message.
fn host(text: &str) -> SocketAddr {
    let parsed = || {
        let (ip, port) = text.trim_start_matches('/').rsplit_once(':')?;
        let ip: IpAddr = ip.trim_matches(['[', ']']).parse().ok()?;
        Some(SocketAddr::new(ip, port.parse().ok()?))
    };
    parsed().unwrap_or_else(|| SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)))
}
