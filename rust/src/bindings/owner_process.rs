//! Owner process: which process made an object, and the beginning of a new one by `fork()`.

use std::sync::atomic::{AtomicU32, Ordering};

use pyo3::prelude::*;
use pyo3::types::IntoPyDict;

use super::errors::raise;
use crate::store::disk::forget_inherited;

/// The number of this process; 0 until it is asked for. The system is asked once, and not for each message.
static PROCESS: AtomicU32 = AtomicU32::new(0);

fn process() -> u32 {
    match PROCESS.load(Ordering::Relaxed) {
        0 => {
            let process = std::process::id();
            PROCESS.store(process, Ordering::Relaxed);
            process
        }
        known => known,
    }
}

/// Has every process that Python forks know that it is one, and let go of its parent's stores: a child that lives on
/// locks none of them.
pub(super) fn begin_anew_in_children(py: Python<'_>) -> PyResult<()> {
    let begin = wrap_pyfunction!(begin_anew, py)?;
    let handlers = [("after_in_child", begin)].into_py_dict(py)?;
    py.import("os")?.call_method("register_at_fork", (), Some(&handlers)).map(drop)
}

#[pyfunction]
fn begin_anew() {
    PROCESS.store(0, Ordering::Relaxed);
    forget_inherited();
}

/// The process that made an object. After `fork()` its threads and sockets are the parent's.
#[derive(Clone, Copy, Debug)]
pub(super) struct OwnerProcess(u32);

impl OwnerProcess {
    pub(super) fn here() -> Self {
        Self(process())
    }

    /// Whether this is still the process the object was made in.
    pub(super) fn is_here(self) -> bool {
        self.0 == process()
    }

    /// Raises `ForkedError` in any other process.
    pub(super) fn check(self, what: &str) -> PyResult<()> {
        if self.is_here() {
            Ok(())
        } else {
            Err(raise("ForkedError", &format!("this {what} was made before fork(), by process {}", self.0)))
        }
    }
}
