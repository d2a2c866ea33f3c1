//! Echo service: a simple service and a plain socket client, for the network tests.

#![allow(dead_code, reason = "each test binary uses its part")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a failed expectation fails the test")]

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
use rmqpy::remoting::{
    Close, LargeBody, Link, LinkId, Outbox, Owed, Server, ServerOptions, Service, TURN_FRAMES_MAX,
};

/// Return the body.
pub const ECHO: i32 = 1;
/// Return `size` (ext field) bytes, shared, not copied.
pub const BULK: i32 = 2;
/// Return the number of frames in this burst, as ext field `burst`.
pub const BURST: i32 = 3;
/// Keep the owed reply and the opaque in `Echo::parked`, for the test to answer. Refused with code 2 when there is no
/// room.
pub const PARK: i32 = 4;
/// Panic.
pub const PANIC: i32 = 5;
/// Close the connection.
pub const QUIT: i32 = 6;
/// Refuse with code 3; a large one by its header alone.
pub const UNWANTED: i32 = 7;
/// Keep a large body in `Echo::kept`, without a copy.
pub const KEPT: i32 = 8;

/// Wait until the test unlocks `Echo::gate`.
pub const GATE: i32 = 9;
/// Cost a turn, and return nothing.
pub const EXPENSIVE: i32 = 10;

/// An event that is counted and has no reply.
pub const NOTICE: i32 = i32::MIN;

/// Longest wait of any test here; only a defect takes this long, even on a busy machine.
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
    pub gate: Mutex<()>,
    /// The connections of the bursts, in order.
    pub bursts: Mutex<Vec<LinkId>>,
    /// The held bytes that each session reports.
    pub held_bytes: AtomicUsize,
}

pub struct Session {
    link: Arc<Link<i32>>,
    header: Header,
    parked: usize,
    cost: usize,
}

impl Service for Echo {
    type Session = Session;
    /// The opaque of a parked request to answer.
    type Event = i32;

    fn open(&self, link: Arc<Link<i32>>) -> Session {
        self.opened.fetch_add(1, Ordering::SeqCst);
        Session { link, header: Header::new(), parked: 0, cost: 0 }
    }

    fn burst(&self, session: &mut Session, frames: &[Frame<'_>], out: &mut Outbox) -> Result<(), Close> {
        self.bursts.lock().push(session.link.id());
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
                GATE => drop(self.gate.lock()),
                EXPENSIVE => session.cost += TURN_FRAMES_MAX,
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

    fn take_cost(&self, session: &mut Session) -> usize {
        std::mem::take(&mut session.cost)
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

/// Starts an echo server and returns its address.
pub fn serve(options: ServerOptions) -> (Server<Echo>, Arc<Echo>, SocketAddr) {
    let echo = Arc::new(Echo::default());
    let server = Server::start(Arc::clone(&echo), options).unwrap();
    let address = server.listen("127.0.0.1:0".parse().unwrap(), false).unwrap();
    (server, echo, address)
}

/// Builds a whole request frame.
pub fn request(code: i32, opaque: i32, ext: &[(&str, &str)], body: &[u8]) -> Vec<u8> {
    flagged_request(0, code, opaque, ext, body)
}

/// Likewise for a one-way request.
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

/// A response as tests check it.
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

    /// Returns the next response; `None` when the server closed the connection.
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

    /// Sends an echo request and expects its response.
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
        // Sleep, because the other thread may need the processor.
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
