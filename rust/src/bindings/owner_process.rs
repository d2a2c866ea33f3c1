//! Owner process: the process that made an object, and the hook in a child after `fork()`.

use std::sync::atomic::{AtomicU32, Ordering};

use pyo3::prelude::*;
use pyo3::types::IntoPyDict;

use super::errors::raise;
use crate::store::disk::forget_inherited;

/// The cached id of this process, 0 while unset: avoids a system call per message.
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

/// Registers a fork hook: a child resets the process id and closes its copies of the parent's stores, so that it
/// holds no locks.
pub(super) fn reset_in_children(py: Python<'_>) -> PyResult<()> {
    let begin = wrap_pyfunction!(reset_child, py)?;
    let handlers = [("after_in_child", begin)].into_py_dict(py)?;
    py.import("os")?.call_method("register_at_fork", (), Some(&handlers)).map(drop)
}

#[pyfunction]
fn reset_child() {
    PROCESS.store(0, Ordering::Relaxed);
    forget_inherited();
}

/// The process that made an object. After `fork()` its threads and sockets belong to the parent.
#[derive(Clone, Copy, Debug)]
pub(super) struct OwnerProcess(u32);

impl OwnerProcess {
    pub(super) fn here() -> Self {
        Self(process())
    }

    /// Whether the object was made in this process.
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
