//! TLS: the server's side of a mutated connection, from its first byte.
//!
//! A rustls client sends over a socket pair, and its bytes are changed in transit: the hello, the rest of the
//! handshake, or later records. The server must never accept changed bytes as the client's text.

use std::io::Read as _;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;

use crate::tls::{ClientCertificates, HELLO, Identity, ServerTls, Stream, Suites, authorities, make};

const PEER: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 1);
/// Maximum unread bytes that a connection may keep: see `tls::stream`.
const HELD_BYTES_MAX: usize = 64 << 10;
/// Maximum repetitions of the text, enough to fill more than one record.
const REPEATS_MAX: usize = 64;
/// How long a client waits for a reaction to changed bytes: a server may be waiting for an announced length.
const SILENCE: Duration = Duration::from_millis(5);

struct Ends {
    server: ServerTls,
    client: Arc<ClientConfig>,
}

static ENDS: LazyLock<Ends> = LazyLock::new(|| {
    let names = ["localhost".to_owned()];
    let authority = make(&names, 2, true, None).expect("an authority");
    let made = make(&names, 2, false, Some((&authority.certificate, &authority.key))).expect("a certificate");
    let identity = Identity::read(made.certificate.as_bytes(), made.key.as_bytes(), None)
        .expect("generated certificates parse");
    let roots = authorities(authority.certificate.as_bytes()).expect("it has a certificate");
    let server =
        ServerTls::new(false, identity, ClientCertificates::Optional(Arc::clone(&roots)), &Suites::default())
            .expect("a server");
    let client = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("usual protocols")
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ends { server, client: Arc::new(client) }
});

thread_local! {
    static RUNTIME: Runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
}

/// Sends these bytes and nothing more; the connection must be plain, or refused with a reason.
pub fn tls_hello(bytes: &[u8]) -> bool {
    run(async {
        let (mut client, server) = pair();
        client.write_all(bytes).await.expect("there is room");
        client.shutdown().await.expect("it is open");
        let welcomed = ENDS.server.welcome(server, PEER, |_| ()).await;
        let is_hello = bytes.first() == Some(&HELLO);
        let failures = ENDS.server.take_failures().rows;
        match welcomed {
            Ok(Stream::Plain(_)) => assert!(!is_hello && failures.is_empty()),
            Ok(Stream::Memory(_) | Stream::Tls(_)) => unreachable!("random bytes cannot finish a handshake"),
            Err(error) => {
                assert!(is_hello && !error.to_string().is_empty());
                assert_eq!(failures.len(), 1, "a refusal is recorded");
            }
        }
        is_hello
    })
}

/// Sends `text`, `repeats` times, with changed bytes: each edit is a position and an added value. The server reads
/// `read_bytes` at a time. Returns whether everything arrived.
pub fn tls_session(text: &[u8], repeats: usize, edits: &[(u16, u8)], read_bytes: usize) -> bool {
    let said = text.repeat(1 + repeats % REPEATS_MAX);
    let (received, was_changed, is_whole) = run(async {
        let (client, server) = pair();
        let listening = tokio::spawn(receive(server, read_bytes.max(1)));
        let was_changed = send(client, &said, edits).await;
        let (received, is_whole) = listening.await.expect("it does not panic");
        (received, was_changed, is_whole)
    });
    drop(ENDS.server.take_failures());
    assert!(said.starts_with(&received), "only sent text is received");
    assert!(was_changed || (is_whole && received == said), "unchanged text arrives whole");
    is_whole && received == said
}

/// Returns the bytes the server read, and whether the stream ended cleanly.
async fn receive(socket: TcpStream, read_bytes: usize) -> (Vec<u8>, bool) {
    let mut received = Vec::new();
    let Ok(mut stream) = ENDS.server.welcome(socket, PEER, |_| ()).await else { return (received, false) };
    if matches!(stream, Stream::Plain(_)) {
        // The first byte was changed, so these bytes belong to the frame reader.
        return (received, false);
    }
    let mut bytes = vec![0; read_bytes];
    loop {
        let read = stream.read(&mut bytes).await;
        assert!(stream.held_bytes() <= HELD_BYTES_MAX, "{} bytes are kept", stream.held_bytes());
        match read {
            Ok(0) => return (received, true),
            Ok(count) => received.extend(bytes.iter().take(count)),
            Err(_) => return (received, false),
        }
    }
}

/// Acts as the client until the server has read everything or refuses; returns whether a byte was changed.
async fn send(mut socket: TcpStream, said: &[u8], edits: &[(u16, u8)]) -> bool {
    let name = ServerName::try_from("localhost").expect("a name");
    let mut session = ClientConnection::new(Arc::clone(&ENDS.client), name).expect("a session");
    session.set_buffer_limit(None);
    let (mut position, mut was_changed, mut has_said) = (0, false, false);
    loop {
        if !session.is_handshaking() && !has_said {
            std::io::Write::write_all(&mut session.writer(), said).expect("the buffer is unlimited");
            session.send_close_notify();
            has_said = true;
        }
        let mut bytes = Vec::new();
        while session.wants_write() {
            session.write_tls(&mut bytes).expect("a vector takes everything");
        }
        for (at, added) in edits {
            let index = usize::from(*at).checked_sub(position);
            if let Some(byte) = index.and_then(|index| bytes.get_mut(index)).filter(|_| *added != 0) {
                *byte = byte.wrapping_add(*added);
                was_changed = true;
            }
        }
        position += bytes.len();
        // A server that has refused takes no more.
        if socket.write_all(&bytes).await.is_err() || has_said {
            break;
        }
        let mut answer = [0; 4096];
        let answering = socket.read(&mut answer);
        let count =
            if was_changed { timeout(SILENCE, answering).await.unwrap_or(Ok(0)) } else { answering.await };
        let count = count.unwrap_or(0);
        let mut answered = answer.get(..count).unwrap_or_default();
        let mut is_understood = count > 0;
        while is_understood && !answered.is_empty() {
            let is_read = session.read_tls(&mut answered.by_ref()).is_ok();
            is_understood = is_read && session.process_new_packets().is_ok();
        }
        if !is_understood {
            break;
        }
    }
    // After a refusal the socket is already closed.
    drop(socket.shutdown().await);
    drop(socket.read_to_end(&mut Vec::new()).await);
    was_changed
}

fn run<T>(work: impl Future<Output = T>) -> T {
    RUNTIME.with(|runtime| runtime.block_on(work))
}

/// Creates a socket pair.
fn pair() -> (TcpStream, TcpStream) {
    let (one, other) = UnixStream::pair().expect("descriptors");
    let end = |socket: UnixStream| {
        socket.set_nonblocking(true).expect("a socket");
        TcpStream::from_std(std::net::TcpStream::from(OwnedFd::from(socket))).expect("a runtime")
    };
    (end(one), end(other))
}
