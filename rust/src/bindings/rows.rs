//! `Rows` and `Parcel`: an Arrow batch on its way out, row by row, without a Python object for any of them.

use std::collections::BTreeMap;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use super::arrow_import::batches;
use crate::client::rows as core;
use crate::client::rows::{Identity, Limits, Place, Placement, RowsError};

/// See `_native.pyi`.
#[pyclass(frozen, module = "rmqpy._native")]
pub struct Rows {
    parts: Vec<core::Rows>,
    alone_from_bytes: Option<usize>,
}

#[pymethods]
impl Rows {
    #[new]
    #[pyo3(signature = (batch, *, topic = None, id_seed = None, first_row = 0, properties = None,
                        compress_above = None))]
    fn new(
        batch: &Bound<'_, PyAny>,
        topic: Option<String>,
        id_seed: Option<Vec<u8>>,
        first_row: u64,
        properties: Option<BTreeMap<String, String>>,
        compress_above: Option<usize>,
    ) -> PyResult<Self> {
        let extra: Vec<(String, String)> = properties.unwrap_or_default().into_iter().collect();
        let mut first = first_row;
        let mut parts = Vec::new();
        for batch in batches(batch)? {
            let identity = id_seed.clone().map(|seed| Identity { seed, first });
            first += batch.num_rows() as u64;
            parts.push(core::Rows::new(&batch, topic.clone(), identity, extra.clone()).map_err(refused)?);
        }
        Ok(Self { parts, alone_from_bytes: compress_above })
    }

    fn topics(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        let found = py.detach(|| {
            let mut found = Vec::new();
            for part in &self.parts {
                found.extend(part.topics()?.into_iter().map(str::to_owned));
            }
            found.sort_unstable();
            found.dedup();
            Ok(found)
        });
        found.map_err(refused)
    }

    #[pyo3(signature = (topic, *, queues, placement = "turn", messages_max = 64, bytes_max = 1 << 20))]
    fn parcels(
        &self,
        py: Python<'_>,
        topic: &str,
        queues: usize,
        placement: &str,
        messages_max: usize,
        bytes_max: usize,
    ) -> PyResult<Vec<Parcel>> {
        let placement = match placement {
            "turn" => Placement::Turn,
            "hash" => Placement::Hash,
            "column" => Placement::Column,
            other => return Err(PyValueError::new_err(format!("placement {other:?}"))),
        };
        let limits = Limits { rows_max: messages_max, bytes_max, alone_from_bytes: self.alone_from_bytes };
        let parcels = py.detach(|| {
            let mut found = Vec::new();
            for (part, rows) in self.parts.iter().enumerate() {
                let parcels = rows.parcels(topic, queues, placement, limits)?;
                found.extend(parcels.into_iter().map(|parcel| Parcel { part, parcel }));
            }
            Ok(found)
        });
        parcels.map_err(refused)
    }

    fn __len__(&self) -> usize {
        self.parts.iter().map(core::Rows::len).sum()
    }
}

impl Rows {
    /// The rows a parcel was made of.
    pub fn part(&self, parcel: &Parcel) -> PyResult<&core::Rows> {
        self.parts.get(parcel.part).ok_or_else(|| PyValueError::new_err("a parcel of other rows"))
    }
}

/// See `_native.pyi`.
#[pyclass(frozen, module = "rmqpy._native")]
pub struct Parcel {
    part: usize,
    parcel: core::Parcel,
}

impl Parcel {
    /// The rows in it.
    pub fn core(&self) -> &core::Parcel {
        &self.parcel
    }
}

#[pymethods]
impl Parcel {
    #[getter]
    fn place(&self) -> (Option<usize>, Option<String>, Option<i32>) {
        match &self.parcel.place {
            Place::Any => (None, None, None),
            Place::Index(index) => (Some(*index), None, None),
            Place::Queue(broker, queue_id) => (None, broker.clone(), Some(*queue_id)),
        }
    }

    fn __len__(&self) -> usize {
        self.parcel.len()
    }
}

/// A row that cannot be sent, as the `ValueError` a message of the same content raises.
pub fn refused(error: RowsError) -> PyErr {
    PyValueError::new_err(error.to_string())
}
