//! Bodies: of requests, whose bytes are counted against a limit of the server, and of responses, which keep their
//! connection from being idle.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Buf as _, Bytes};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use tokio::time::{Sleep, sleep};
use tonic::Status;

/// Time for the rest of a request that has begun.
const ARRIVAL: Duration = Duration::from_secs(30);
/// Bytes of all requests that are being received.
const RECEIVING_BYTES_MAX: usize = 256 << 20;

/// The calls of a connection in progress.
#[derive(Default)]
pub(super) struct Active(Arc<AtomicUsize>);

/// One call in progress.
pub(super) struct ActiveCall(Arc<AtomicUsize>);

impl Active {
    pub(super) fn count(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    pub(super) fn begin(&self) -> ActiveCall {
        self.0.fetch_add(1, Ordering::Relaxed);
        ActiveCall(Arc::clone(&self.0))
    }
}

impl Drop for ActiveCall {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The body of a request. The stream of telemetry is not counted, because it has no end and small messages.
pub(super) struct RequestBody {
    body: Incoming,
    all: Option<Arc<AtomicUsize>>,
    counted: usize,
    /// Ends a request that does not arrive; set while the first part is late.
    late: Option<Pin<Box<Sleep>>>,
}

impl RequestBody {
    pub(super) fn counted(body: Incoming, all: &Arc<AtomicUsize>) -> Self {
        Self { body, all: Some(Arc::clone(all)), counted: 0, late: None }
    }

    pub(super) fn uncounted(body: Incoming) -> Self {
        Self { body, all: None, counted: 0, late: None }
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let this = self.get_mut();
        let frame = match Pin::new(&mut this.body).poll_frame(cx) {
            Poll::Ready(Some(Ok(frame))) => frame,
            Poll::Ready(Some(Err(error))) => {
                return Poll::Ready(Some(Err(Status::unavailable(error.to_string()))));
            }
            Poll::Ready(None) => return Poll::Ready(None),
            Poll::Pending if this.all.is_none() => return Poll::Pending,
            Poll::Pending => {
                let late = this.late.get_or_insert_with(|| Box::pin(sleep(ARRIVAL)));
                let text = "the request did not arrive in time";
                return late.as_mut().poll(cx).map(|()| Some(Err(Status::deadline_exceeded(text))));
            }
        };
        if let (Some(all), Some(data)) = (&this.all, frame.data_ref()) {
            let bytes = data.remaining();
            this.counted += bytes;
            if all.fetch_add(bytes, Ordering::Relaxed) + bytes > RECEIVING_BYTES_MAX {
                let text = "the server is receiving too much, try again later";
                return Poll::Ready(Some(Err(Status::resource_exhausted(text))));
            }
        }
        Poll::Ready(Some(Ok(frame)))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for RequestBody {
    fn drop(&mut self) {
        if let Some(all) = &self.all {
            all.fetch_sub(self.counted, Ordering::Relaxed);
        }
    }
}

/// The body of a response, with its call.
pub(super) struct ResponseBody {
    pub(super) body: tonic::body::Body,
    pub(super) _call: ActiveCall,
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
