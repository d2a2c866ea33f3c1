//! Request: the decoded facts that handlers, replies and statistics share.

use std::time::Duration;

use crate::remoting::frame::{Encoding, Frame};
use crate::remoting::header::Header;
use crate::requests::needs::{HotRequest, hot_request};

/// The properties of a request that its reply needs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RequestContext {
    pub(in crate::dataplane) code: i32,
    /// The start of processing, on the data plane's clock.
    pub(in crate::dataplane) came_at: Duration,
    pub(crate) opaque: i32,
    /// The encoding of the request, and so of the reply.
    pub(crate) encoding: Encoding,
    /// Whether no reply is written.
    pub(in crate::dataplane) is_oneway: bool,
}

impl RequestContext {
    /// Of a request that came at this time, in this encoding.
    pub(in crate::dataplane) fn of(header: &Header, came_at: Duration, encoding: Encoding) -> Self {
        Self { code: header.code, came_at, opaque: header.opaque, encoding, is_oneway: header.is_oneway() }
    }
}

/// The key of a latency histogram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RequestKind {
    /// The request code; -1 for those beyond the limit.
    pub(crate) code: i32,
    pub(crate) answer: i32,
    /// Whether the request waited for a message.
    pub(crate) is_long_polling: bool,
}

impl RequestKind {
    /// Returns the kind of a reply that was not parked.
    pub(in crate::dataplane) fn of(context: RequestContext, answer: i32) -> Self {
        Self { code: context.code, answer, is_long_polling: false }
    }
}

/// A frame copied out of its read buffer.
#[derive(Debug)]
pub struct OwnedFrame {
    encoding: Encoding,
    header: Box<[u8]>,
    body: Box<[u8]>,
    pub(in crate::dataplane) parkings: u8,
    /// The first start of processing, on the data plane's clock.
    pub(in crate::dataplane) came_at: Duration,
}

impl OwnedFrame {
    /// Copies `frame`, to be parked for the `parkings`th time.
    pub(in crate::dataplane) fn of(frame: &Frame<'_>, parkings: u8, came_at: Duration) -> Self {
        let (header, body) = (frame.header.into(), frame.body.into());
        Self { encoding: frame.encoding, header, body, parkings, came_at }
    }

    pub(in crate::dataplane) fn frame(&self) -> Frame<'_> {
        Frame { encoding: self.encoding, header: &self.header, body: &self.body }
    }

    pub(in crate::dataplane) fn size(&self) -> usize {
        self.header.len() + self.body.len()
    }
}

pub(in crate::dataplane) fn is_send(code: i32) -> bool {
    hot_request(code) == Some(HotRequest::Send)
}
