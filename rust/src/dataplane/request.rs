//! Request: what its handlers, its reply and the statistics know of it once its header has been decoded.

use std::time::Duration;

use crate::remoting::codes::request;
use crate::remoting::frame::{Encoding, Frame};

/// What a reply needs of its request besides the content.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RequestContext {
    pub(super) code: i32,
    /// When the request was taken up, on the data plane's clock.
    pub(super) came_at: Duration,
    pub(crate) opaque: i32,
    /// Encoding of the request, and so of the reply.
    pub(crate) encoding: Encoding,
    /// Nothing is to be written at all.
    pub(super) is_oneway: bool,
}

/// What a latency histogram is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RequestKind {
    /// Request code; -1 for those beyond the limit.
    pub(crate) code: i32,
    pub(crate) answer: i32,
    /// The request waited for a message.
    pub(crate) is_long_polling: bool,
}

impl RequestKind {
    /// An answer that was given as soon as it could be.
    pub(super) fn of(context: RequestContext, answer: i32) -> Self {
        Self { code: context.code, answer, is_long_polling: false }
    }
}

/// A frame out of its read buffer.
#[derive(Debug)]
pub struct OwnedFrame {
    encoding: Encoding,
    header: Box<[u8]>,
    body: Box<[u8]>,
    pub(super) parkings: u8,
    /// When it was first taken up, on the data plane's clock.
    pub(super) came_at: Duration,
}

impl OwnedFrame {
    /// A copy of `frame`, to be parked for the `parkings`th time.
    pub(super) fn of(frame: &Frame<'_>, parkings: u8, came_at: Duration) -> Self {
        let (header, body) = (frame.header.into(), frame.body.into());
        Self { encoding: frame.encoding, header, body, parkings, came_at }
    }

    pub(super) fn frame(&self) -> Frame<'_> {
        Frame { encoding: self.encoding, header: &self.header, body: &self.body }
    }

    pub(super) fn size(&self) -> usize {
        self.header.len() + self.body.len()
    }
}

pub(super) fn is_send(code: i32) -> bool {
    matches!(code, request::SEND_MESSAGE | request::SEND_MESSAGE_V2 | request::SEND_BATCH_MESSAGE)
}
