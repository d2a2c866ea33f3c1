//! Listener: the port of 5.x clients. Connections are encrypted or not, as their first byte says, and speak HTTP/2.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsRawFd as _;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use hyper::server::conn::http2::Builder;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::bodies::{Active, ResponseBody};
use super::caller::Addresses;
use super::service;
use super::shared::Proxy;
use crate::tls::{ServerTls, Stream};

/// Connections that the kernel may queue before they are accepted.
const BACKLOG: i32 = 1_024;
/// Pause of an acceptor that ran out of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Time until the first request, handshake included.
const GREETING: Duration = Duration::from_secs(10);
/// A connection without calls for this long is closed.
const IDLE: Duration = Duration::from_secs(120);
/// The interval in which connections are checked for that.
const IDLE_CHECK: Duration = Duration::from_secs(30);
/// Interval and timeout of pings to clients, so that the end of an unreachable one is noticed.
const PING: Duration = Duration::from_secs(30);
const PING_TIMEOUT: Duration = Duration::from_secs(20);
/// Calls of one connection: each long poll and each telemetry stream is one.
const STREAMS_MAX: u32 = 1_024;
/// Streams that a client may reset before they are accepted, as in a flood of resets.
const RESETS_MAX: usize = 64;
/// Bytes of the headers of one call.
const HEADERS_BYTES_MAX: u32 = 16 << 10;
/// Bytes of requests in flight, of one call and of one connection.
const STREAM_WINDOW: u32 = 1 << 20;
const CONNECTION_WINDOW: u32 = 4 << 20;
/// Bytes of responses that wait for a client to read, of one call.
const SEND_BUFFER_BYTES: usize = 256 << 10;
const PROTOCOLS: &[&[u8]] = &[b"h2"];

/// Binds the port; 0 selects a free one.
pub(super) fn bind(address: SocketAddr) -> io::Result<std::net::TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    // A restarted broker must not wait for its predecessor's connections to leave TIME_WAIT.
    socket.set_reuse_address(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    socket.set_nonblocking(true)?;
    Ok(socket.into())
}

/// Accepts connections until the task is aborted, which ends all of them.
pub(super) async fn accept(proxy: Arc<Proxy>, listener: std::net::TcpListener, tls: Arc<ServerTls>) {
    // Register with this thread's reactor.
    let Ok(listener) = TcpListener::from_std(listener) else { return };
    let mut connections = JoinSet::new();
    let receiving = Arc::<AtomicUsize>::default();
    loop {
        while connections.try_join_next().is_some() {}
        let Ok((socket, peer)) = listener.accept().await else {
            // Mostly out of descriptors; an immediate retry would only burn CPU.
            sleep(ACCEPT_PAUSE).await;
            continue;
        };
        let descriptor = usize::try_from(socket.as_raw_fd()).unwrap_or(0);
        let Some(permit) = proxy.connector.admit(peer.ip(), descriptor) else { continue };
        let (Ok(local), Ok(())) = (socket.local_addr(), socket.set_nodelay(true)) else { continue };
        let (proxy, tls, receiving) = (Arc::clone(&proxy), Arc::clone(&tls), Arc::clone(&receiving));
        connections.spawn(async move {
            let stream = greet(socket, peer, &tls).await;
            if let Some(stream) = stream {
                serve(proxy, stream, Addresses { peer, local }, receiving).await;
            }
            drop(permit);
        });
    }
}

/// Returns the stream of a connection after its handshake, if it has one. `ServerTls` keeps the reason of a failure.
async fn greet(socket: TcpStream, peer: SocketAddr, tls: &ServerTls) -> Option<Stream> {
    timeout(GREETING, tls.welcome_as(PROTOCOLS, socket, peer, |_| ())).await.ok()?.ok()
}

async fn serve(proxy: Arc<Proxy>, stream: Stream, addresses: Addresses, receiving: Arc<AtomicUsize>) {
    let active = Arc::<Active>::default();
    let calls = Arc::clone(&active);
    let service = service_fn(move |request| {
        let call = calls.begin();
        let served = service::serve(Arc::clone(&proxy), addresses, Arc::clone(&receiving), request);
        async move {
            let response = served.await;
            Ok::<_, Infallible>(response.map(|body| ResponseBody { body, _call: call }))
        }
    });
    let mut builder = Builder::new(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        .keep_alive_interval(PING)
        .keep_alive_timeout(PING_TIMEOUT)
        .max_concurrent_streams(STREAMS_MAX)
        .max_pending_accept_reset_streams(RESETS_MAX)
        .max_header_list_size(HEADERS_BYTES_MAX)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_send_buf_size(SEND_BUFFER_BYTES);
    let mut connection = pin!(builder.serve_connection(TokioIo::new(stream), service));
    let mut idle = Duration::ZERO;
    loop {
        tokio::select! {
            // The client knows why it failed.
            _ended = connection.as_mut() => return,
            () = sleep(IDLE_CHECK) => {
                idle = if active.count() == 0 { idle + IDLE_CHECK } else { Duration::ZERO };
                if idle >= IDLE {
                    connection.as_mut().graceful_shutdown();
                }
            }
        }
    }
}
