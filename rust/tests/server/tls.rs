//! TLS over real sockets: ports shared with plain connections, bursts, hostile peers, and replaced certificates.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

use crate::echo::{BULK, BURST, ECHO, Echo, Peer, TIMEOUT, eventually, request, serve};
use rmqpy::remoting::frame::{self, Encoding, FrameLimits};
use rmqpy::remoting::header::{Header, HeaderWriter};
use rmqpy::remoting::{CallError, Client, ClientOptions, Server, ServerOptions};
use rmqpy::tls::{
    ClientCertificates, ClientTls, Identity, Made, ServerTls, Suites, Trust, authorities, make,
};
use rustls::pki_types::ServerName;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

const LOCAL: [&str; 2] = ["localhost", "127.0.0.1"];

fn names(of: &[&str]) -> Vec<String> {
    of.iter().map(ToString::to_string).collect()
}

fn authority(name: &str) -> Made {
    make(&names(&[name]), 2, true, None).unwrap()
}

fn issued(by: &Made, of: &[&str], days: u32) -> Made {
    make(&names(of), days, false, Some((&by.certificate, &by.key))).unwrap()
}

fn identity(made: &Made) -> Identity {
    Identity::read(made.certificate.as_bytes(), made.key.as_bytes(), None).unwrap()
}

fn serving(is_enforced: bool, by: &Made, clients: ClientCertificates) -> Arc<ServerTls> {
    Arc::new(
        ServerTls::new(is_enforced, identity(&issued(by, &LOCAL, 2)), clients, &Suites::default()).unwrap(),
    )
}

fn start(tls: &Arc<ServerTls>, options: ServerOptions) -> (Server<Echo>, SocketAddr) {
    let (server, _, address) = serve(ServerOptions { tls: Some(Arc::clone(tls)), ..options });
    (server, address)
}

fn trusting(by: &Made) -> Trust {
    Trust::Authorities(authorities(by.certificate.as_bytes()).unwrap())
}

fn client(trust: Trust, made: Option<&Made>) -> Client {
    let tls = ClientTls::new(trust, made.map(identity), None, &Suites::default()).unwrap();
    Client::start(ClientOptions { tls: Some(Arc::new(tls)), ..ClientOptions::default() }, Arc::new(()))
        .unwrap()
}

/// Returns the body of an echo, or the error.
fn echoed(client: &Client, address: SocketAddr, body: &[u8]) -> Result<Vec<u8>, CallError> {
    let (sender, receiver) = channel();
    let body = body.to_vec();
    let encode = move |opaque: i32, out: &mut Vec<u8>| {
        HeaderWriter::begin(out, Encoding::Json, ECHO, opaque, 0, None).finish(body.len())?;
        out.extend_from_slice(&body);
        Ok(())
    };
    client.peer(&address.to_string()).call(TIMEOUT, encode, move |reply| {
        sender.send(reply.map(|reply| reply.body.to_vec())).unwrap();
    });
    receiver.recv_timeout(TIMEOUT).unwrap()
}

/// Returns a foreign client: rustls' own.
fn foreign(by: &Made, address: SocketAddr) -> StreamOwned<ClientConnection, TcpStream> {
    let mut roots = RootCertStore::empty();
    roots.add(rustls::pki_types::CertificateDer::from_pem_slice(by.certificate.as_bytes()).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let session =
        ClientConnection::new(Arc::new(config), ServerName::try_from("localhost").unwrap()).unwrap();
    let socket = TcpStream::connect(address).unwrap();
    socket.set_read_timeout(Some(TIMEOUT)).unwrap();
    StreamOwned::new(session, socket)
}

#[test]
fn plain_and_encrypted_connections_share_a_port_unless_encryption_is_enforced() {
    let by = authority("ours");
    for is_enforced in [false, true] {
        let tls = serving(is_enforced, &by, ClientCertificates::Ignored);
        let (server, address) = start(&tls, ServerOptions::default());
        assert_eq!(echoed(&client(trusting(&by), None), address, b"secret").unwrap(), b"secret");
        let mut plain = Peer::connect(address);
        if is_enforced {
            plain.send(&request(ECHO, 1, &[], b"plain"));
            assert_eq!(plain.answer(), None);
            eventually("it is counted", || server.statistics().closed_broken == 1);
            assert!(tls.take_failures().rows[0].1.contains("enforcing"));
        } else {
            plain.echoes(1);
        }
    }
}

#[test]
fn bodies_of_every_size_come_through_in_both_directions() {
    let by = authority("ours");
    let (_server, address) =
        start(&serving(true, &by, ClientCertificates::Ignored), ServerOptions::default());
    let client = client(trusting(&by), None);
    for size in [0, 1, 4095, 16_383, 16_384, 16_385, 262_144, 1_000_000, 4_000_000] {
        let body: Vec<u8> = (0..size).map(|index| (index * 7) as u8).collect();
        assert!(echoed(&client, address, &body).unwrap() == body, "{size} bytes came back different");
    }
}

#[test]
fn a_burst_stays_a_burst_and_large_shared_answers_are_whole() {
    let by = authority("ours");
    let (_server, address) =
        start(&serving(true, &by, ClientCertificates::Ignored), ServerOptions::default());
    let mut peer = foreign(&by, address);
    let mut frames: Vec<u8> = (0..64).flat_map(|opaque| request(BURST, opaque, &[], b"")).collect();
    frames.extend(request(BULK, 64, &[("size", "3000000")], b""));
    peer.write_all(&frames).unwrap();
    let (mut received, mut largest, mut bulk) = (Vec::new(), 0, 0);
    let mut header = Header::new();
    while bulk == 0 {
        let mut bytes = vec![0; 1 << 16];
        let count = peer.read(&mut bytes).unwrap();
        assert!(count > 0, "the connection stays");
        received.extend_from_slice(&bytes[..count]);
        while let Some((frame, size)) = frame::split(&received, &FrameLimits::default()).unwrap() {
            header.decode(&frame).unwrap();
            match header.get("burst") {
                Some(burst) => largest = largest.max(burst.parse::<usize>().unwrap()),
                None => bulk = frame.body.len(),
            }
            received.drain(..size);
        }
    }
    assert_eq!(bulk, 3_000_000);
    assert!(largest > 16, "one read of the socket hands over many frames, not {largest}");
}

#[test]
fn a_client_error_names_the_reason_and_the_remedy() {
    let (by, other) = (authority("ours"), authority("others"));
    let cases: [(Made, Trust, &str); 3] = [
        (issued(&by, &LOCAL, 0), trusting(&by), "has expired"),
        (issued(&by, &["elsewhere.example"], 2), trusting(&by), "is not for 127.0.0.1, but for"),
        (issued(&by, &LOCAL, 2), trusting(&other), "no trusted authority has signed"),
    ];
    for (certificate, trust, text) in cases {
        let tls =
            ServerTls::new(true, identity(&certificate), ClientCertificates::Ignored, &Suites::default())
                .unwrap();
        let (_server, address) = start(&Arc::new(tls), ServerOptions::default());
        let error = echoed(&client(trust, None), address, b"").unwrap_err();
        assert!(matches!(error, CallError::Connect { .. }), "nothing was sent: {error}");
        assert!(error.to_string().contains(text), "{error}");
        let careless = client(Trust::Anybody, None);
        assert_eq!(echoed(&careless, address, b"x").unwrap(), b"x", "verify=False");
    }
}

#[test]
fn a_configured_name_is_checked_in_place_of_the_address() {
    let by = authority("ours");
    let tls = ServerTls::new(
        true,
        identity(&issued(&by, &["broker.example"], 2)),
        ClientCertificates::Ignored,
        &Suites::default(),
    )
    .unwrap();
    let (_server, address) = start(&Arc::new(tls), ServerOptions::default());
    for (name, is_right) in [("broker.example", true), ("another.example", false)] {
        let tls = ClientTls::new(trusting(&by), None, Some(name), &Suites::default()).unwrap();
        let options = ClientOptions { tls: Some(Arc::new(tls)), ..ClientOptions::default() };
        let client = Client::start(options, Arc::new(())).unwrap();
        assert_eq!(echoed(&client, address, b"").is_ok(), is_right, "{name}");
    }
}

#[test]
fn certificates_of_clients_are_requested_and_checked() {
    let (by, other) = (authority("ours"), authority("others"));
    let (alice, eve) = (issued(&by, &["alice"], 2), issued(&other, &["eve"], 2));
    let trusted = || authorities(by.certificate.as_bytes()).unwrap();
    for (clients, expected) in [
        (ClientCertificates::Ignored, [true, true, true]),
        (ClientCertificates::Optional(trusted()), [true, false, true]),
        (ClientCertificates::Required(trusted()), [true, false, false]),
    ] {
        let (_server, address) = start(&serving(true, &by, clients), ServerOptions::default());
        for (own, is_served) in [Some(&alice), Some(&eve), None].into_iter().zip(expected) {
            let outcome = echoed(&client(trusting(&by), own), address, b"");
            assert_eq!(outcome.is_ok(), is_served, "{own:?}: {outcome:?}");
            if let Err(error) = outcome {
                assert!(error.to_string().contains("certificate"), "it names the reason: {error}");
            }
        }
    }
}

#[test]
fn a_new_certificate_is_shown_to_new_connections_and_old_ones_continue() {
    let (by, next) = (authority("ours"), authority("next"));
    let tls = serving(true, &by, ClientCertificates::Ignored);
    let (_server, address) = start(&tls, ServerOptions::default());
    let old = client(trusting(&by), None);
    echoed(&old, address, b"").unwrap();
    let mismatched = Identity::read(next.certificate.as_bytes(), by.key.as_bytes(), None)
        .expect("each is valid on its own");
    assert!(tls.replace(mismatched, ClientCertificates::Ignored, &Suites::default()).is_err());
    echoed(&client(trusting(&by), None), address, b"").expect("an invalid identity changes nothing");
    tls.replace(identity(&issued(&next, &LOCAL, 2)), ClientCertificates::Ignored, &Suites::default())
        .unwrap();
    echoed(&old, address, b"").unwrap();
    echoed(&client(trusting(&next), None), address, b"").unwrap();
    assert!(echoed(&client(trusting(&by), None), address, b"").is_err());
}

#[test]
fn a_hanging_handshake_times_out_and_does_not_block_others() {
    let by = authority("ours");
    let options =
        ServerOptions { io_threads: 1, first_frame: Duration::from_millis(400), ..ServerOptions::default() };
    let tls = serving(false, &by, ClientCertificates::Ignored);
    let (server, address) = start(&tls, options);
    let hanging: Vec<TcpStream> = (0..200)
        .map(|number: usize| {
            let mut socket = TcpStream::connect(address).unwrap();
            // Nothing at all, one byte, or a record that announces more than comes.
            socket.write_all([&b""[..], b"\x16", b"\x16\x03\x01\x02\x00\x01"][number % 3]).unwrap();
            socket
        })
        .collect();
    echoed(&client(trusting(&by), None), address, b"meanwhile").unwrap();
    Peer::connect(address).echoes(1);
    eventually("they are ended", || server.statistics().closed_slow >= hanging.len() as u64);
    for mut socket in hanging {
        socket.set_read_timeout(Some(TIMEOUT)).unwrap();
        assert_eq!(socket.read(&mut [0; 16]).unwrap_or(0), 0);
    }
}

#[test]
fn hostile_bytes_behind_a_first_byte_of_tls_end_only_their_own_connection() {
    let by = authority("ours");
    let tls = serving(false, &by, ClientCertificates::Ignored);
    let (server, address) = start(&tls, ServerOptions { io_threads: 1, ..ServerOptions::default() });
    let mut seed = 0x9e37_79b9_u32;
    let mut random = move || {
        seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (seed >> 16) as u8
    };
    // A real hello, mutated, and noise behind the first bytes of one.
    let mut hello = Vec::new();
    let mut probe = foreign(&by, address);
    probe.conn.write_tls(&mut hello).unwrap();
    drop(probe);
    for round in 0..300_usize {
        let mut bytes = hello.clone();
        if round % 2 == 0 {
            for _ in 0..=round % 7 {
                let at = 1 + usize::from(random()) * bytes.len() / 256 % (bytes.len() - 1);
                bytes[at] = random();
            }
        } else {
            bytes.truncate(1 + round % 12);
            bytes.extend((0..round * 37).map(|_| random()));
        }
        let mut socket = TcpStream::connect(address).unwrap();
        // The connection may be closed before everything is sent.
        drop(socket.write_all(&bytes));
    }
    echoed(&client(trusting(&by), None), address, b"still there").unwrap();
    Peer::connect(address).echoes(1);
    let failures = tls.take_failures();
    assert!(failures.rows.len() == 16 && failures.more > 0, "bounded: {}", failures.rows.len());
    eventually("all are gone", || server.statistics().connections <= 1);
    assert_eq!(server.statistics().panics, 0);
}

#[test]
fn noise_in_the_place_of_records_ends_an_established_connection() {
    let by = authority("ours");
    let tls = serving(true, &by, ClientCertificates::Ignored);
    let (server, address) = start(&tls, ServerOptions::default());
    let mut peer = foreign(&by, address);
    peer.write_all(&request(ECHO, 1, &[], b"first")).unwrap();
    assert!(peer.read(&mut [0; 512]).unwrap() > 0);
    peer.sock.write_all(b"\x17\x03\x03\x00\x20 this was never encrypted by it ").unwrap();
    assert_eq!(peer.sock.read_to_end(&mut Vec::new()).map(|_| ()).ok(), Some(()), "the server has closed it");
    eventually("it is gone", || server.statistics().connections == 0);
}

#[test]
fn a_mismatch_of_plain_and_tls_is_explained() {
    let by = authority("ours");
    let (_plain, _, address) = serve(ServerOptions::default());
    let error = echoed(&client(trusting(&by), None), address, b"").unwrap_err();
    assert!(error.to_string().contains("may not support TLS"), "{error}");
}

#[test]
fn a_server_uses_only_the_configured_protocols_and_ciphers() {
    let by = authority("ours");
    let suites = |protocols, ciphers| Suites::named(protocols, ciphers).unwrap();
    let answer = |server: &Suites, client: &Suites| {
        let own = identity(&issued(&by, &LOCAL, 2));
        let tls = Arc::new(ServerTls::new(true, own, ClientCertificates::Ignored, server).unwrap());
        let (_server, address) = start(&tls, ServerOptions::default());
        let tls = Arc::new(ClientTls::new(trusting(&by), None, None, client).unwrap());
        let options = ClientOptions { tls: Some(tls), ..ClientOptions::default() };
        echoed(&Client::start(options, Arc::new(())).unwrap(), address, b"x")
            .map_err(|error| error.to_string())
    };
    let (old, new) = (suites("TLSv1.2", ""), suites("TLSv1.3", ""));
    let aes = suites("", "TLS_AES_256_GCM_SHA384,TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384");
    let chacha = suites("", "ECDHE-ECDSA-CHACHA20-POLY1305:TLS_CHACHA20_POLY1305_SHA256");
    for (server, client) in [(&old, &old), (&new, &new), (&aes, &old), (&aes, &new), (&chacha, &old)] {
        assert_eq!(answer(server, client), Ok(b"x".to_vec()), "{server:?} {client:?}");
    }
    for (server, client) in [(&old, &new), (&new, &old), (&aes, &chacha)] {
        let refusal = answer(server, client).unwrap_err();
        assert!(refusal.contains("no common"), "{refusal}");
    }
}

#[test]
fn ciphers_that_do_not_fit_the_key_are_refused_at_the_start() {
    let own = identity(&issued(&authority("ours"), &LOCAL, 2));
    let rsa = Suites::named("", "ECDHE-RSA-AES128-GCM-SHA256").unwrap();
    let refusal = ServerTls::new(true, own, ClientCertificates::Ignored, &rsa).unwrap_err();
    assert!(refusal.to_string().contains("the server's key, which is ECDSA"), "{refusal}");
}

/// Returns the first `bytes` of a record with a hello of the claimed size.
fn part_of_a_hello(claimed: usize, bytes: usize) -> Vec<u8> {
    let mut hello = vec![1, (claimed >> 16) as u8, (claimed >> 8) as u8, claimed as u8, 3, 3];
    hello.resize(bytes, 0);
    let record = |part: &[u8]| {
        let length = (part.len() as u16).to_be_bytes();
        [&[22, 3, 1, length[0], length[1]], part].concat()
    };
    hello.chunks(4 << 10).flat_map(record).collect()
}

#[test]
fn stalled_handshakes_have_a_share_of_the_buffers_and_the_oldest_are_evicted() {
    let by = authority("ours");
    let options = ServerOptions { buffers_bytes_max: 4 << 20, io_threads: 1, ..ServerOptions::default() };
    let share = options.buffers_bytes_max / 4;
    let (server, address) = start(&serving(true, &by, ClientCertificates::Ignored), options);
    let hello = part_of_a_hello(7 << 10, 6 << 10);
    let connected: Vec<TcpStream> = (0..400)
        .map(|_| {
            let mut socket = TcpStream::connect(address).unwrap();
            socket.write_all(&hello).unwrap();
            socket
        })
        .collect();
    eventually("the oldest are closed", || server.statistics().closed_slow > 300);
    assert!(server.statistics().buffers_bytes <= share, "{} bytes", server.statistics().buffers_bytes);
    // A client that completes the handshake is served, and the newest handshakes may continue.
    assert_eq!(echoed(&client(trusting(&by), None), address, b"served").unwrap(), b"served");
    let still_open = |mut socket: &TcpStream| {
        socket.set_nonblocking(true).unwrap();
        socket.read(&mut [0]).is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock)
    };
    assert!(!still_open(&connected[0]));
    assert!(still_open(&connected[399]));
    drop(connected);
    eventually("all memory is freed", || server.statistics().buffers_bytes < 64 << 10);
}

#[test]
fn a_hello_is_bounded() {
    let by = authority("ours");
    let tls = serving(true, &by, ClientCertificates::Ignored);
    let (_server, address) = start(&tls, ServerOptions::default());
    let mut socket = TcpStream::connect(address).unwrap();
    socket.set_read_timeout(Some(TIMEOUT)).unwrap();
    socket.write_all(&part_of_a_hello(60 << 10, 12 << 10)).unwrap();
    assert_eq!(socket.read(&mut [0]).unwrap_or_default(), 0);
    eventually("it is reported", || {
        tls.take_failures().rows.iter().any(|(_, why)| why.contains("the hello exceeds"))
    });
}
