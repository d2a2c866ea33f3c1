//! Sync: locks and atomics of the lock-free parts of the store, from parking_lot and the standard library.
//!
//! With the feature `loom` they are loom's under the same names, so that `models` can run the real code in every
//! interleaving. Waits have no timeout there: a thread that is not woken waits forever, and the model reports it.

#[cfg(not(feature = "loom"))]
pub(super) use parking_lot::{Condvar, Mutex, MutexGuard};
#[cfg(not(feature = "loom"))]
pub(super) use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, fence};

#[cfg(feature = "loom")]
pub(crate) use loom::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, fence};
#[cfg(feature = "loom")]
pub(crate) use modelled::{Condvar, Mutex, MutexGuard};

#[cfg(feature = "loom")]
mod modelled {
    use std::fmt;
    use std::ops::{Deref, DerefMut};
    use std::sync::PoisonError;
    use std::time::Duration;

    /// A loom mutex with parking_lot's interface.
    #[derive(Debug, Default)]
    pub(crate) struct Mutex<T>(loom::sync::Mutex<T>);

    /// Its guard. Empty only within [`Condvar::wait_for`].
    pub(crate) struct MutexGuard<'a, T>(Option<loom::sync::MutexGuard<'a, T>>);

    impl<T> Mutex<T> {
        pub(crate) fn new(value: T) -> Self {
            Self(loom::sync::Mutex::new(value))
        }

        pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
            MutexGuard(Some(self.0.lock().unwrap_or_else(PoisonError::into_inner)))
        }
    }

    impl<T> Deref for MutexGuard<'_, T> {
        type Target = T;

        fn deref(&self) -> &T {
            self.0.as_ref().unwrap_or_else(|| unreachable!("its holder waits"))
        }
    }

    impl<T> DerefMut for MutexGuard<'_, T> {
        fn deref_mut(&mut self) -> &mut T {
            self.0.as_mut().unwrap_or_else(|| unreachable!("its holder waits"))
        }
    }

    impl<T: fmt::Debug> fmt::Debug for MutexGuard<'_, T> {
        fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
            (**self).fmt(out)
        }
    }

    /// A loom condition variable with parking_lot's interface.
    #[derive(Debug, Default)]
    pub(crate) struct Condvar(loom::sync::Condvar);

    impl Condvar {
        pub(crate) fn new() -> Self {
            Self::default()
        }

        pub(crate) fn notify_one(&self) {
            self.0.notify_one();
        }

        pub(crate) fn notify_all(&self) {
            self.0.notify_all();
        }

        /// Waits until it is notified, without a timeout.
        pub(crate) fn wait_for<T>(&self, guard: &mut MutexGuard<'_, T>, _: Duration) {
            let held = guard.0.take();
            guard.0 = held.map(|held| self.0.wait(held).unwrap_or_else(PoisonError::into_inner));
        }
    }
}
