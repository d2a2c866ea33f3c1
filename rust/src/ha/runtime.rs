//! HA thread: the runtime of a listener or connector, with an orderly stop.

use std::future::Future;
use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;

use parking_lot::Mutex;
use tokio::sync::Notify;

#[derive(Debug)]
pub(super) struct HaThread {
    stopping: Arc<Notify>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl HaThread {
    /// Runs the future of `work` until it ends, or the thread is stopped.
    pub(super) fn start<F: Future<Output = ()>>(
        work: impl FnOnce() -> F + Send + 'static,
    ) -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let stopping = Arc::new(Notify::new());
        let stopped = Arc::clone(&stopping);
        let thread = std::thread::Builder::new().name("rmqpy-ha".to_owned()).spawn(move || {
            runtime.block_on(async {
                tokio::select! {
                    () = stopped.notified() => {}
                    () = work() => {}
                }
            });
        })?;
        Ok(Self { stopping, thread: Mutex::new(Some(thread)) })
    }

    /// Stops the thread and closes its connections.
    pub(super) fn stop(&self) {
        self.stopping.notify_one();
        if let Some(thread) = self.thread.lock().take() {
            // A panic of the thread has closed the connections already.
            let _ = thread.join();
        }
    }
}

impl Drop for HaThread {
    fn drop(&mut self) {
        self.stop();
    }
}
