//! Counts: calls of each method, and those that were refused.
//!
//! Threads: any.

use std::sync::atomic::{AtomicU64, Ordering};

use super::status::code;

macro_rules! methods {
    ($($method:ident),* $(,)?) => {
        /// The methods that are served.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(super) enum Method { $($method),* }

        impl Method {
            const NAMES: &[&str] = &[$(stringify!($method)),*];
            const COUNT: usize = Self::NAMES.len();

            /// Returns the method of this name.
            pub(super) fn named(name: &str) -> Option<Self> {
                match name {
                    $(stringify!($method) => Some(Self::$method),)*
                    _ => None,
                }
            }
        }
    };
}

methods!(
    AckMessage,
    ChangeInvisibleDuration,
    EndTransaction,
    ForwardMessageToDeadLetterQueue,
    GetOffset,
    Heartbeat,
    NotifyClientTermination,
    PullMessage,
    QueryAssignment,
    QueryOffset,
    QueryRoute,
    RecallMessage,
    ReceiveMessage,
    SendMessage,
    SyncLiteSubscription,
    Telemetry,
    UpdateOffset,
);

/// The counts of one method.
#[derive(Default)]
struct MethodCounts {
    calls: AtomicU64,
    refused: AtomicU64,
}

/// The counts of all methods.
#[derive(Default)]
pub(super) struct Counts {
    methods: [MethodCounts; Method::COUNT],
}

impl Counts {
    /// Counts a call.
    pub(super) fn begin(&self, method: Method) {
        if let Some(counts) = self.methods.get(method as usize) {
            counts.calls.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Counts the status of an answer. A receive that finds no message is not refused.
    pub(super) fn end(&self, method: Method, status_code: i32) {
        if !matches!(status_code, code::OK | code::MESSAGE_NOT_FOUND)
            && let Some(counts) = self.methods.get(method as usize)
        {
            counts.refused.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Returns calls and refused calls by method.
    pub(super) fn read(&self) -> Vec<(&'static str, u64, u64)> {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let counts = Method::NAMES.iter().zip(&self.methods);
        counts.map(|(method, counts)| (*method, read(&counts.calls), read(&counts.refused))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_and_refusals_are_counted_by_method() {
        let counts = Counts::default();
        let method = Method::named("SendMessage").expect("a method");
        for status in [code::OK, code::MESSAGE_NOT_FOUND, code::TOPIC_NOT_FOUND] {
            counts.begin(method);
            counts.end(method, status);
        }
        assert_eq!(Method::named("Reflect"), None);
        let seen: Vec<_> = counts.read().into_iter().filter(|(_, calls, _)| *calls > 0).collect();
        assert_eq!(seen, [("SendMessage", 3, 1)]);
    }
}
