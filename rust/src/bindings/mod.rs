//! The only modules that know Python: one file per exposed class.
//!
//! *Architecture invariant*: no thread of ours attaches to the interpreter. Python calls in; whatever may wait
//! releases it first.

use pyo3::prelude::*;

mod errors;
mod metadata;
mod offsets;
mod server;
mod store;

#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_function(wrap_pyfunction!(server::attach_count, module)?)?;
    module.add_class::<store::PyStore>()?;
    module.add_class::<metadata::PyMetadata>()?;
    module.add_class::<offsets::PyOffsets>()?;
    module.add_class::<server::PyRequest>()?;
    module.add_class::<server::PyServer>()?;
    Ok(())
}
