//! Greeting: performs the TLS handshake, if any, before the first frame of an accepted connection.
//!
//! The first byte distinguishes a TLS hello from a frame. Until the handshake is done the connection has neither a
//! session nor an inbox, and the deadline of its first frame is running. Each handshake costs a signature, so
//! handshakes pass the turnstile and requests are served in between. `handshakes` bounds their memory.
//!
//! Threads: the I/O thread the connection was dealt to.

use std::future::{Future as _, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Context;

use tokio::io::ReadBuf;
use tokio::net::TcpStream;

use crate::tls::{HELLO, Stream};

use super::idle_tracker::{IdleAction, IdleTracker};
use super::io_thread::IoThread;
use super::link::Link;
use super::service::{Close, Service};

/// Returns the stream of a connection that is ready for frames.
pub(super) async fn greet<S: Service>(
    thread: &Rc<IoThread<S>>,
    link: &Arc<Link<S::Event>>,
    tracker: &Rc<IdleTracker>,
    socket: TcpStream,
) -> Result<Stream, Close> {
    let Some(tls) = &thread.options.tls else { return Ok(Stream::Plain(socket)) };
    let first = poll_fn(|cx| {
        poll_end(thread, link, tracker, cx)?;
        let mut byte = [0];
        let peeked = socket.poll_peek(cx, &mut ReadBuf::new(&mut byte));
        peeked.map(|count| if count.is_ok_and(|count| count > 0) { Ok(byte[0]) } else { Err(Close::Peer) })
    });
    if first.await? == HELLO {
        thread.turnstile.pass().await;
    }
    let handshake = thread.handshakes.begin(link, tracker);
    let mut welcome = pin!(tls.welcome(socket, link.peer(), |bytes| handshake.holds(bytes)));
    let stream = poll_fn(|cx| {
        poll_end(thread, link, tracker, cx)?;
        welcome.as_mut().poll(cx).map(|stream| stream.map_err(|_| Close::Protocol("no handshake")))
    });
    stream.await
}

/// Returns whether the connection ends before its first frame: it timed out, or the server is stopping.
fn poll_end<S: Service>(
    thread: &IoThread<S>,
    link: &Link<S::Event>,
    tracker: &IdleTracker,
    cx: &Context<'_>,
) -> Result<(), Close> {
    link.register(cx.waker());
    match tracker.take_action() {
        Some(IdleAction::Close(why)) => Err(why),
        _ if thread.is_stopping() => Err(Close::Stopped),
        _ if link.is_closed() => Err(Close::Requested),
        _ => Ok(()),
    }
}
