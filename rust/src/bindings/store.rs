//! `Store`: a message store directory, opened by one process.

use std::sync::Arc;

use pyo3::prelude::*;

use super::errors::raise;
use crate::store::Store;

/// A message store directory, opened by one process.
#[pyclass(name = "Store", module = "rmqpy._native", frozen)]
pub struct PyStore {
    store: Option<Arc<Store>>,
}

impl PyStore {
    /// The store behind it.
    pub(super) fn opened(&self) -> PyResult<Arc<Store>> {
        self.store.clone().ok_or_else(|| raise("StoreError", "the store is not open"))
    }
}
