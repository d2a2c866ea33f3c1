//! A service small enough to be right at a glance, and a plain socket to talk to it; for the network tests.

#![allow(dead_code, reason = "each test binary uses its part")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on fails")]

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use parking_lot::Mutex;
use rmqpy::remoting::codes::flag;
use rmqpy::remoting::frame::{self, Encoding, Frame, FrameLimits};
use rmqpy::remoting::header::{Header, HeaderWriter};
use rmqpy::remoting::{Close, LargeBody, Link, Outbox, Owed, Server, ServerOptions, Service};

/// Answer the body as it is.
pub const ECHO: i32 = 1;
/// Answer as many bytes as the ext field `size` says, shared, not copied.
pub const BULK: i32 = 2;
/// Answer the number of frames in this burst, as ext field `burst`.
pub const BURST: i32 = 3;
/// Keep what is owed and the opaque in `Echo::parked`; the test that posts it answers. Refused with code 2 where there
/// is no room.
pub const PARK: i32 = 4;
/// Panic.
pub const PANIC: i32 = 5;
/// Close the connection.
pub const QUIT: i32 = 6;
/// Refused with code 3, by its header alone where it is large.
pub const UNWANTED: i32 = 7;
/// Keep the body in `Echo::kept` where it is large, without a copy.
pub const KEPT: i32 = 8;

/// An event that is counted and answers nothing.
pub const NOTICE: i32 = i32::MIN;

/// Longest that anything here is waited for; nothing takes this long unless it is broken, on a busy machine neither.
pub const TIMEOUT: Duration = Duration::from_secs(60);

#[derive(Debug, Default)]
pub struct Echo {
    pub parked: Mutex<Vec<(Owed<i32>, i32)>>,
    pub kept: Mutex<Vec<Bytes>>,
    pub opened: AtomicUsize,
    pub closed: AtomicUsize,
    pub handled: AtomicUsize,
    pub events: AtomicUsize,
    pub signals: AtomicUsize,
    /// What each session says that it holds back.
    pub held_bytes: AtomicUsize,
}

pub struct Session {
    link: Arc<Link<i32>>,
    header: Header,
    parked: usize,
}

impl Service for Echo {
    type Session = Session;
    /// The opaque of a parked request to answer.
    type Event = i32;

    fn open(&self, link: Arc<Link<i32>>) -> Session {
        self.opened.fetch_add(1, Ordering::SeqCst);
        Session { link, header: Header::new(), parked: 0 }
    }

    fn burst(&self, session: &mut Session, frames: &[Frame<'_>], out: &mut Outbox) -> Result<(), Close> {
        for frame in frames {
            session.header.decode(frame)?;
            self.handled.fetch_add(1, Ordering::SeqCst);
            let opaque = session.header.opaque;
            match session.header.code {
                ECHO => reply(out, opaque, frame.body),
                BULK => {
                    let size = session.header.get("size").and_then(|size| size.parse().ok()).unwrap_or(0);
                    response(out, opaque).finish(size).unwrap();
                    out.push_shared(Bytes::from(vec![b'b'; size]));
                }
                BURST => {
                    let mut writer = response(out, opaque);
                    writer.ext_u64("burst", frames.len() as u64);
                    writer.finish(0).unwrap();
                }
                PARK => match session.link.owe(frame.body.len()) {
                    Some(owed) => {
                        session.parked += 1;
                        self.parked.lock().push((owed, opaque));
                    }
                    None => HeaderWriter::begin(out.bytes(), frame.encoding, 2, opaque, flag::RESPONSE, None)
                        .finish(0)
                        .unwrap(),
                },
                PANIC => panic!("asked to"),
                QUIT => return Err(Close::Protocol("asked to")),
                _ if session.header.is_response() || session.header.is_oneway() => {}
                _ => HeaderWriter::begin(out.bytes(), frame.encoding, 3, opaque, flag::RESPONSE, None)
                    .finish(0)
                    .unwrap(),
            }
        }
        Ok(())
    }

    fn event(&self, session: &mut Session, opaque: i32, out: &mut Outbox) -> Result<(), Close> {
        self.events.fetch_add(1, Ordering::SeqCst);
        if opaque == NOTICE {
            return Ok(());
        }
        session.parked -= 1;
        reply(out, opaque, b"released");
        Ok(())
    }

    fn refuse(&self, session: &mut Session, head: &Frame<'_>, out: &mut Outbox) -> Result<(), Close> {
        session.header.decode(head)?;
        HeaderWriter::begin(out.bytes(), head.encoding, 2, session.header.opaque, flag::RESPONSE, None)
            .finish(0)
            .unwrap();
        Ok(())
    }

    fn weigh(
        &self,
        session: &mut Session,
        head: &Frame<'_>,
        body_bytes: usize,
        out: &mut Outbox,
    ) -> Result<LargeBody, Close> {
        session.header.decode(head)?;
        match session.header.code {
            UNWANTED => {
                let bytes = body_bytes.to_string();
                HeaderWriter::begin(
                    out.bytes(),
                    head.encoding,
                    3,
                    session.header.opaque,
                    flag::RESPONSE,
                    Some(&bytes),
                )
                .finish(0)
                .unwrap();
                Ok(LargeBody::Declined)
            }
            KEPT => Ok(LargeBody::Given),
            _ => Ok(LargeBody::Lent),
        }
    }

    fn given(
        &self,
        session: &mut Session,
        frame: &Frame<'_>,
        memory: Bytes,
        out: &mut Outbox,
    ) -> Result<(), Close> {
        session.header.decode(frame)?;
        self.kept.lock().push(memory.slice_ref(frame.body));
        reply(out, session.header.opaque, b"kept");
        Ok(())
    }

    fn signalled(&self, _: &mut Session, _: &mut Outbox) -> Result<(), Close> {
        self.signals.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }

    fn held_bytes(&self, _: &Session) -> usize {
        self.held_bytes.load(Ordering::SeqCst)
    }

    fn is_settled(&self, session: &Session) -> bool {
        session.parked == 0
    }

    fn close(&self, _: Session) {
        self.closed.fetch_add(1, Ordering::SeqCst);
    }
}

fn response(out: &mut Outbox, opaque: i32) -> HeaderWriter<'_> {
    HeaderWriter::begin(out.bytes(), Encoding::Json, 0, opaque, flag::RESPONSE, None)
}

fn reply(out: &mut Outbox, opaque: i32, body: &[u8]) {
    response(out, opaque).finish(body.len()).unwrap();
    out.bytes().extend_from_slice(body);
}

/// A server that echoes, and its address.
pub fn serve(options: ServerOptions) -> (Server<Echo>, Arc<Echo>, SocketAddr) {
    let echo = Arc::new(Echo::default());
    let server = Server::start(Arc::clone(&echo), options).unwrap();
    let address = server.listen("127.0.0.1:0".parse().unwrap(), false).unwrap();
    (server, echo, address)
}

/// One whole request frame.
pub fn request(code: i32, opaque: i32, ext: &[(&str, &str)], body: &[u8]) -> Vec<u8> {
    flagged_request(0, code, opaque, ext, body)
}

/// The same of one that is not answered.
pub fn oneway(code: i32, ext: &[(&str, &str)], body: &[u8]) -> Vec<u8> {
    flagged_request(flag::ONEWAY, code, 0, ext, body)
}

fn flagged_request(flag: i32, code: i32, opaque: i32, ext: &[(&str, &str)], body: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut writer = HeaderWriter::begin(&mut out, Encoding::Json, code, opaque, flag, None);
    for (name, value) in ext {
        writer.ext(name, value);
    }
    writer.finish(body.len()).unwrap();
    out.extend_from_slice(body);
    out
}

/// An answer as a test looks at it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    pub opaque: i32,
    pub code: i32,
    pub remark: Option<String>,
    pub ext: Vec<(String, String)>,
    pub body: Vec<u8>,
}

/// A plain blocking client.
pub struct Peer {
    pub socket: TcpStream,
    read: Vec<u8>,
}

impl Peer {
    pub fn connect(to: SocketAddr) -> Self {
        Self::over(TcpStream::connect(to).unwrap())
    }

    pub fn over(socket: TcpStream) -> Self {
        socket.set_read_timeout(Some(TIMEOUT)).unwrap();
        socket.set_nodelay(true).unwrap();
        Self { socket, read: Vec::new() }
    }

    pub fn send(&mut self, bytes: &[u8]) {
        self.socket.write_all(bytes).unwrap();
    }

    /// The next answer; `None` when the server closed the connection.
    pub fn answer(&mut self) -> Option<Answer> {
        loop {
            if let Some((frame, size)) = frame::split(&self.read, &FrameLimits::default()).unwrap() {
                let mut header = Header::new();
                header.decode(&frame).unwrap();
                assert!(header.is_response());
                let ext = header.ext().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
                let answer = Answer {
                    opaque: header.opaque,
                    code: header.code,
                    remark: header.remark().map(str::to_owned),
                    ext,
                    body: frame.body.to_vec(),
                };
                self.read.drain(..size);
                return Some(answer);
            }
            let mut buffer = vec![0; 64 << 10];
            match self.socket.read(&mut buffer) {
                Ok(0) => return None,
                Ok(count) => self.read.extend_from_slice(&buffer[..count]),
                Err(error) if error.kind() == ErrorKind::ConnectionReset => return None,
                Err(error) => panic!("no answer: {error}"),
            }
        }
    }

    /// Asks and expects to be echoed.
    pub fn echoes(&mut self, opaque: i32) {
        self.send(&request(ECHO, opaque, &[], b"hello"));
        let answer = self.answer().expect("an open connection");
        assert_eq!((answer.opaque, answer.body.as_slice()), (opaque, b"hello".as_slice()));
    }
}

/// Waits until a condition of another thread is true.
pub fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let until = Instant::now() + TIMEOUT;
    while !condition() {
        assert!(Instant::now() < until, "never: {what}");
        // Off the processor, which the other thread may need.
        std::thread::park_timeout(Duration::from_millis(1));
    }
}

/// Private memory of this process, in bytes.
pub fn private_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("RssAnon:")).unwrap();
    let kib: u64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    kib << 10
}
