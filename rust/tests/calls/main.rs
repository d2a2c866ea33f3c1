//! Client over real sockets: many calls in flight, shared writes, and an outcome for every call.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a failed expectation fails the test")]

#[path = "../echo/mod.rs"]
mod echo;
mod linger;
mod stop;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use echo::{BULK, ECHO, PARK, QUIT, TIMEOUT, eventually, serve};
use parking_lot::Mutex;
use rmqpy::remoting::codes::flag;
use rmqpy::remoting::frame::{self, Encoding, FrameLimits};
use rmqpy::remoting::header::{Header, HeaderWriter};
use rmqpy::remoting::{CallError, Client, ClientOptions, FrameError, Peer, Requests, ServerOptions};

type Outcome = Result<(i32, Vec<u8>), CallError>;

fn client() -> Client {
    Client::start(ClientOptions::default(), Arc::new(())).unwrap()
}

fn write(out: &mut Vec<u8>, code: i32, opaque: i32, flag: i32, body: &[u8]) -> Result<(), FrameError> {
    HeaderWriter::begin(out, Encoding::Json, code, opaque, flag, None).finish(body.len())?;
    out.extend_from_slice(body);
    Ok(())
}

fn call(peer: &Peer, code: i32, body: &[u8], timeout: Duration, to: &Sender<Outcome>) {
    let to = to.clone();
    peer.call(
        timeout,
        |opaque, out| write(out, code, opaque, 0, body),
        move |reply| to.send(reply.map(|reply| (reply.header.opaque, reply.body.to_vec()))).unwrap(),
    );
}

fn next(outcomes: &Receiver<Outcome>) -> Outcome {
    outcomes.recv_timeout(TIMEOUT).expect("every call ends")
}

fn ask(peer: &Peer, code: i32, body: &[u8]) -> Outcome {
    let (to, outcomes) = channel();
    call(peer, code, body, TIMEOUT, &to);
    next(&outcomes)
}

/// Returns a listener for one connection, which the test serves by hand.
fn listener() -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    (listener, address)
}

/// Reads one frame from a plain socket: its opaque and flag.
fn read_frame(socket: &mut TcpStream) -> (i32, i32) {
    let mut bytes = vec![0; 4];
    socket.read_exact(&mut bytes).unwrap();
    let rest = u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]) as usize;
    bytes.resize(4 + rest, 0);
    socket.read_exact(&mut bytes[4..]).unwrap();
    let (frame, _) = frame::split(&bytes, &FrameLimits::default()).unwrap().unwrap();
    let mut header = Header::new();
    header.decode(&frame).unwrap();
    (header.opaque, header.flag)
}

#[test]
fn thousands_of_calls_in_flight_each_get_their_own_reply() {
    let (_server, _, address) = serve(ServerOptions::default());
    let client = client();
    let peer = client.peer(&address.to_string());
    let (to, outcomes) = channel();
    for number in 0..5000_u32 {
        let to = to.clone();
        peer.call(
            TIMEOUT,
            |opaque, out| write(out, ECHO, opaque, 0, &number.to_be_bytes()),
            move |reply| to.send((number, reply.unwrap().body.to_vec())).unwrap(),
        );
    }
    for _ in 0..5000 {
        let (number, body) = outcomes.recv_timeout(TIMEOUT).unwrap();
        assert_eq!(body, number.to_be_bytes());
    }
    assert_eq!(peer.calls(), 0);
}

#[test]
fn callers_of_many_threads_share_one_connection() {
    let (_server, echo, address) = serve(ServerOptions::default());
    let client = client();
    std::thread::scope(|scope| {
        for thread in 0..8_u8 {
            let (client, address) = (&client, address.to_string());
            scope.spawn(move || {
                for _ in 0..100 {
                    assert_eq!(ask(&client.peer(&address), ECHO, &[thread]).unwrap().1, [thread]);
                }
            });
        }
    });
    assert_eq!(echo.opened.load(Ordering::SeqCst), 1);
}

#[test]
fn replies_larger_than_any_buffer_arrive_whole() {
    let (_server, _, address) = serve(ServerOptions::default());
    let client = client();
    let peer = client.peer(&address.to_string());
    let (to, sizes) = channel();
    for size in [0_u64, 1, 4095, 4096, 300_000, 5_000_000, 16_000_000, 10] {
        let to = to.clone();
        peer.call(
            TIMEOUT,
            |opaque, out| {
                let mut writer = HeaderWriter::begin(out, Encoding::Binary, BULK, opaque, 0, None);
                writer.ext_u64("size", size);
                writer.finish(0)
            },
            move |reply| to.send((size, reply.unwrap().body.len() as u64)).unwrap(),
        );
    }
    for _ in 0..8 {
        let (size, received) = sizes.recv_timeout(TIMEOUT).unwrap();
        assert_eq!(size, received);
    }
}

#[test]
fn a_call_without_a_reply_ends_with_its_deadline_and_the_others_go_on() {
    let (_server, _, address) = serve(ServerOptions::default());
    let client = client();
    let peer = client.peer(&address.to_string());
    let (to, outcomes) = channel();
    let began = Instant::now();
    // The longest first: a later, shorter one must not wait for it.
    for timeout_ms in [2_000, 100, 1_000] {
        call(&peer, PARK, b"", Duration::from_millis(timeout_ms), &to);
    }
    for expected in [100, 1_000, 2_000] {
        let error = next(&outcomes).unwrap_err();
        assert!(matches!(error, CallError::Timeout { timeout_ms, .. } if timeout_ms == expected), "{error}");
        assert!(began.elapsed() >= Duration::from_millis(expected));
        assert_eq!(ask(&peer, ECHO, b"still here").unwrap().1, b"still here");
    }
}

#[test]
fn a_reply_after_the_deadline_is_dropped() {
    let (_server, echo, address) = serve(ServerOptions::default());
    let client = client();
    let peer = client.peer(&address.to_string());
    let (to, outcomes) = channel();
    // Connect first, so that the request is sent before its deadline.
    assert_eq!(ask(&peer, ECHO, b"").unwrap().1, b"");
    call(&peer, PARK, b"", Duration::from_millis(300), &to);
    assert!(matches!(next(&outcomes), Err(CallError::Timeout { .. })));
    eventually("parked", || !echo.parked.lock().is_empty());
    let (owed, opaque) = echo.parked.lock().pop().unwrap();
    owed.post(opaque);
    // The late reply was sent before this one, and dropped.
    assert_eq!(ask(&peer, ECHO, b"x").unwrap().1, b"x");
    assert!(outcomes.try_recv().is_err());
}

#[test]
fn replies_with_long_headers_that_arrive_together_are_all_handled() {
    const CALLS: usize = 24;
    let (listener, address) = listener();
    let server = std::thread::spawn(move || {
        let (mut socket, _) = listener.accept().unwrap();
        let (mut out, remark) = (Vec::new(), "m".repeat(9_000));
        for _ in 0..CALLS {
            let (opaque, _) = read_frame(&mut socket);
            HeaderWriter::begin(&mut out, Encoding::Json, 0, opaque, flag::RESPONSE, Some(&remark))
                .finish(0)
                .unwrap();
        }
        socket.write_all(&out).unwrap();
        // Nothing follows: what the client leaves in its buffer stays there.
        socket.read_exact(&mut [0]).unwrap_err();
    });
    let client = client();
    let peer = client.peer(&address);
    let (to, outcomes) = channel();
    (0..CALLS).for_each(|_| call(&peer, ECHO, b"", TIMEOUT, &to));
    for _ in 0..CALLS {
        next(&outcomes).unwrap();
    }
    drop((peer, client));
    server.join().unwrap();
}

#[test]
fn replies_to_no_request_are_dropped() {
    let (listener, address) = listener();
    let server = std::thread::spawn(move || {
        let (mut socket, _) = listener.accept().unwrap();
        let (opaque, _) = read_frame(&mut socket);
        let mut out = Vec::new();
        for stray in [opaque.wrapping_add(1), i32::MIN, -1, i32::MAX] {
            write(&mut out, 0, stray, flag::RESPONSE, b"stray").unwrap();
        }
        write(&mut out, 0, opaque, flag::RESPONSE, b"right").unwrap();
        // And again, after the call has ended.
        write(&mut out, 0, opaque, flag::RESPONSE, b"twice").unwrap();
        socket.write_all(&out).unwrap();
        read_frame(&mut socket);
    });
    let client = client();
    let peer = client.peer(&address);
    assert_eq!(ask(&peer, ECHO, b"").unwrap().1, b"right");
    peer.send(|opaque, out| write(out, ECHO, opaque, flag::ONEWAY, b"")).unwrap();
    server.join().unwrap();
}

#[test]
fn a_lost_connection_fails_every_call_in_flight_and_the_next_peer_is_a_new_one() {
    let (_server, echo, address) = serve(ServerOptions::default());
    let client = client();
    let peer = client.peer(&address.to_string());
    let (to, outcomes) = channel();
    for _ in 0..100 {
        call(&peer, PARK, b"", TIMEOUT, &to);
    }
    call(&peer, QUIT, b"", TIMEOUT, &to);
    for _ in 0..101 {
        assert!(matches!(next(&outcomes), Err(CallError::Disconnected { .. })));
    }
    assert!(!peer.is_open());
    assert!(
        matches!(ask(&peer, ECHO, b""), Err(CallError::Disconnected { .. })),
        "an ended peer stays ended"
    );
    assert_eq!(ask(&client.peer(&address.to_string()), ECHO, b"again").unwrap().1, b"again");
    assert_eq!(echo.opened.load(Ordering::SeqCst), 2);
}

#[test]
fn a_refused_connection_fails_what_was_queued_for_it() {
    let (listener, address) = listener();
    drop(listener);
    let client = client();
    let error = ask(&client.peer(&address), ECHO, b"").unwrap_err();
    assert!(matches!(error, CallError::Connect { .. }), "{error}");
    let error = ask(&client.peer("no port here"), ECHO, b"").unwrap_err();
    assert!(matches!(error, CallError::Connect { .. }), "{error}");
}

#[test]
fn names_are_resolved() {
    let (_server, _, address) = serve(ServerOptions::default());
    let client = client();
    let peer = client.peer(&format!("localhost:{}", address.port()));
    assert_eq!(ask(&peer, ECHO, b"x").unwrap().1, b"x");
    assert_eq!(peer.local().unwrap().ip(), address.ip());
}

#[test]
fn a_connection_that_cannot_be_made_in_time_fails() {
    // A full backlog: the kernel ignores further attempts, as a dead host does.
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    socket.bind(&"127.0.0.1:0".parse::<SocketAddr>().unwrap().into()).unwrap();
    socket.listen(0).unwrap();
    let address = socket.local_addr().unwrap().as_socket().unwrap();
    let _queued = TcpStream::connect(address).unwrap();
    let options = ClientOptions { connect: Duration::from_secs(2), ..ClientOptions::default() };
    let client = Client::start(options, Arc::new(())).unwrap();
    let (to, outcomes) = channel();
    let peer = client.peer(&address.to_string());
    call(&peer, ECHO, b"", Duration::from_millis(20), &to);
    call(&peer, ECHO, b"", TIMEOUT, &to);
    assert!(matches!(next(&outcomes), Err(CallError::Timeout { .. })), "its own deadline is earlier");
    assert!(matches!(next(&outcomes), Err(CallError::Connect { .. })));
}

#[test]
fn a_server_that_left_a_call_without_a_reply_is_silent_from_the_next_call_on() {
    let (_listener, address) = listener();
    let client = client();
    let peer = client.peer(&address);
    let (to, outcomes) = channel();
    let limit = Duration::from_millis(50);
    call(&peer, ECHO, b"", limit, &to);
    assert!(matches!(next(&outcomes), Err(CallError::Timeout { .. })));
    assert!(!peer.is_silent(limit), "no call waits");
    call(&peer, ECHO, b"", TIMEOUT, &to);
    assert!(peer.is_silent(limit));
}

#[test]
fn the_queue_to_a_peer_that_reads_nothing_is_bounded() {
    let (listener, address) = listener();
    let options = ClientOptions { outgoing_bytes_max: 1 << 20, ..ClientOptions::default() };
    let client = Client::start(options, Arc::new(())).unwrap();
    let peer = client.peer(&address);
    let (to, outcomes) = channel();
    let body = vec![0; 64 << 10];
    // Socket buffers take some MiB; then the client must refuse.
    let refused = (0..1000).find_map(|_| {
        call(&peer, ECHO, &body, TIMEOUT, &to);
        outcomes.try_recv().ok()
    });
    assert!(matches!(refused, Some(Err(CallError::Overloaded { .. }))), "{refused:?}");
    drop(listener);
}

#[test]
fn calls_in_flight_are_bounded_too() {
    let (_server, _, address) = serve(ServerOptions::default());
    let options = ClientOptions { calls_max: 3, ..ClientOptions::default() };
    let client = Client::start(options, Arc::new(())).unwrap();
    let peer = client.peer(&address.to_string());
    let (to, outcomes) = channel();
    for _ in 0..4 {
        call(&peer, PARK, b"", Duration::from_secs(1), &to);
    }
    assert!(matches!(next(&outcomes), Err(CallError::Overloaded { .. })));
    for _ in 0..3 {
        assert!(matches!(next(&outcomes), Err(CallError::Timeout { .. })));
    }
}

#[test]
fn an_oversized_request_leaves_nothing_in_the_buffer() {
    let (_server, _, address) = serve(ServerOptions::default());
    let client = client();
    let peer = client.peer(&address.to_string());
    let (to, outcomes) = channel();
    let ended = to.clone();
    peer.call(
        TIMEOUT,
        |opaque, out| {
            write(out, ECHO, opaque, 0, b"half of it")?;
            Err(FrameError::UnknownEncoding(9))
        },
        move |reply| ended.send(reply.map(|_| (0, Vec::new()))).unwrap(),
    );
    assert_eq!(next(&outcomes), Err(CallError::Unsendable(FrameError::UnknownEncoding(9))));
    assert_eq!(ask(&peer, ECHO, b"x").unwrap().1, b"x");
}

#[derive(Default)]
struct Received {
    requests: Mutex<Vec<(i32, i32, Vec<u8>)>>,
    closed: AtomicUsize,
}

impl Requests for Received {
    fn request(&self, peer: &Arc<Peer>, header: &Header, body: &[u8]) {
        self.requests.lock().push((header.code, header.opaque, body.to_vec()));
        peer.send(|_, out| write(out, 0, header.opaque, flag::RESPONSE, b"done")).unwrap();
    }

    fn closed(&self, _: &Arc<Peer>, _: &CallError) {
        self.closed.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn requests_of_the_server_are_received_and_answered_under_their_own_opaque() {
    let (listener, address) = listener();
    let received = Arc::new(Received::default());
    let client = Client::start(ClientOptions::default(), Arc::<Received>::clone(&received)).unwrap();
    let peer = client.peer(&address);
    peer.send(|opaque, out| write(out, ECHO, opaque, flag::ONEWAY, b"")).unwrap();
    let (mut socket, _) = listener.accept().unwrap();
    let (opaque, flags) = read_frame(&mut socket);
    assert_eq!(flags, flag::ONEWAY);
    // The same opaque as ours: the two spaces are independent.
    let mut out = Vec::new();
    write(&mut out, 40, opaque, 0, b"rebalance").unwrap();
    socket.write_all(&out).unwrap();
    assert_eq!(read_frame(&mut socket), (opaque, flag::RESPONSE));
    assert_eq!(*received.requests.lock(), [(40, opaque, b"rebalance".to_vec())]);
    drop(socket);
    eventually("the end is reported", || received.closed.load(Ordering::SeqCst) == 1);
}

#[test]
fn a_server_that_sends_nonsense_is_disconnected() {
    for nonsense in
        [&b"HTTP/1.1 400 Bad Request\r\n\r\n"[..], &[0, 0, 0, 8, 0, 0, 0, 4, b'{', b'{', b'{', b'{']]
    {
        let (listener, address) = listener();
        let client = client();
        let peer = client.peer(&address);
        let (to, outcomes) = channel();
        call(&peer, ECHO, b"", TIMEOUT, &to);
        let (mut socket, _) = listener.accept().unwrap();
        socket.write_all(nonsense).unwrap();
        assert!(matches!(next(&outcomes), Err(CallError::Disconnected { .. })));
    }
}

#[test]
fn a_callback_may_call_and_may_panic() {
    let (_server, _, address) = serve(ServerOptions::default());
    let client = client();
    let peer = client.peer(&address.to_string());
    peer.call(
        TIMEOUT,
        |opaque, out| write(out, ECHO, opaque, 0, b""),
        |_| panic!("not the connection's fault"),
    );
    let (to, outcomes) = channel();
    let again = Arc::clone(&peer);
    peer.call(
        TIMEOUT,
        |opaque, out| write(out, ECHO, opaque, 0, b""),
        move |_| call(&again, ECHO, b"second", TIMEOUT, &to),
    );
    assert_eq!(next(&outcomes).unwrap().1, b"second");
}
