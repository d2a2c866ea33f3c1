//! A master and its slaves over loopback: what a slave ends with, and what each side says of the other.
#![allow(clippy::expect_used, reason = "a test that cannot go on fails")]

mod store_model;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rmqpy::clock::SystemClock;
use rmqpy::ha::{
    Admission, AdmissionRules, Agreement, Connector, ConnectorOptions, Listener, ListenerOptions,
};
use rmqpy::positions::PhysicalOffset;
use rmqpy::replication::epochs::Epochs;
use rmqpy::replication::master::CopyFrom;
use rmqpy::replication::stream::{TICKET_TAKEN, introduction};
use rmqpy::store::disk::simulated::SimDisk;
use rmqpy::store::{Durability, Options, Store};
use store_model::workloads::{LARGE, NINE, ODD, SMALL};
use store_model::{Sample, open, options_with, put, read_all};

const SLAVE: ConnectorOptions = ConnectorOptions {
    silence_max: Duration::from_secs(2),
    heartbeat_interval: Duration::from_millis(100),
    asks: false,
};
const MASTER: ListenerOptions = ListenerOptions {
    copies: 1,
    gap_bytes_max: 1 << 20,
    silence_max: Duration::from_secs(2),
    heartbeat_interval: Duration::from_millis(100),
    transfer_bytes_max: 5000,
    copy_from: CopyFrom::First,
    slaves_max: 2,
};

fn store(disk: &SimDisk, durability: Durability, is_replica: bool) -> Arc<Store> {
    let options = Options { is_replica, threads: true, ..options_with(durability, "/store") };
    open(disk.shared(), options, SystemClock::shared()).expect("opens")
}

fn listen(store: &Arc<Store>, options: ListenerOptions) -> Listener {
    Listener::start(Arc::clone(store), anywhere(), options, None).expect("a free port")
}

fn anywhere() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 0))
}

fn follow(store: &Arc<Store>, master: &Listener) -> Connector {
    let connector = Connector::start(Arc::clone(store), SLAVE, None).expect("a replica");
    connector.set_master(Some(master.address().to_string()));
    connector
}

fn fill(store: &Store, bursts: &[&[Sample]]) {
    for burst in bursts {
        assert!(put(store, burst, false).iter().all(Result::is_ok), "there is room");
        store.flush().expect("a working disk");
    }
}

fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < Duration::from_secs(20), "waited in vain: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn has_all(slave: &Store, master: &Store) -> bool {
    slave.visible() == master.range().1
}

fn log_of(store: &Store) -> Vec<u8> {
    let (mut bytes, (mut at, _)) = (Vec::new(), store.range());
    while let Some(more) = store.log_bytes(at, usize::MAX) {
        at.0 += more.len() as u64;
        bytes.extend_from_slice(&more);
    }
    bytes
}

#[test]
fn a_slave_gets_what_there_is_and_what_comes_and_both_sides_say_so() {
    for durability in Durability::ALL {
        let master = store(&SimDisk::new(), durability, false);
        fill(&master, &[SMALL, LARGE, LARGE, ODD]);
        let listener = listen(&master, MASTER);
        let slave = store(&SimDisk::new(), durability, true);
        let connector = follow(&slave, &listener);
        wait_until("the slave has what there was", || has_all(&slave, &master));
        fill(&master, &[NINE, LARGE, LARGE, SMALL]);
        wait_until("the slave has what came", || has_all(&slave, &master));
        assert!(log_of(&slave) == log_of(&master), "{durability:?}");
        for (topic, ids) in master.topics() {
            for id in ids {
                assert_eq!(read_all(&slave, &topic, id), read_all(&master, &topic, id));
            }
        }
        let end = master.range().1;
        wait_until("the master knows", || listener.slaves().iter().all(|slave| slave.has == end));
        let slaves = listener.slaves();
        assert_eq!((slaves.len(), slaves[0].lag_bytes, slaves[0].is_in_sync), (1, 0, true));
        let status = connector.status();
        assert_eq!((status.is_connected, status.end, status.fault), (true, end, None));
        connector.stop();
        wait_until("the master misses it", || listener.slaves().is_empty());
    }
}

#[test]
fn a_slave_goes_on_where_it_was_when_either_side_starts_again() {
    let (disk, durability) = (SimDisk::new(), Durability::PageCache);
    let master = store(&SimDisk::new(), durability, false);
    let listener = listen(&master, MASTER);
    fill(&master, &[SMALL, LARGE]);
    let slave = store(&disk, durability, true);
    let connector = follow(&slave, &listener);
    wait_until("the slave has all", || has_all(&slave, &master));
    connector.stop();
    slave.abandon();
    drop((connector, slave));
    fill(&master, &[LARGE, ODD]);

    let slave = store(&disk, durability, true);
    let connector = follow(&slave, &listener);
    wait_until("the slave has all again", || has_all(&slave, &master));
    listener.stop();
    wait_until("the slave sees it", || connector.status().fault.is_some());
    fill(&master, &[NINE, LARGE]);
    let listener = listen(&master, MASTER);
    connector.set_master(Some(listener.address().to_string()));
    wait_until("the slave has the rest", || has_all(&slave, &master));
    assert!(log_of(&slave) == log_of(&master));
}

#[test]
fn more_slaves_than_there_may_be_are_closed() {
    let master = store(&SimDisk::new(), Durability::PageCache, false);
    let listener = listen(&master, MASTER);
    let connect = || begin(&listener, &0_u64.to_be_bytes());
    let _first = (connect(), connect());
    wait_until("two are there", || listener.slaves().len() == 2);
    let mut third = connect();
    assert_eq!(third.read(&mut [0]).expect("its end"), 0);
    wait_until("it is told", || listener.take_notes().iter().any(|(is_warning, _)| *is_warning));
}

#[test]
fn connections_that_say_nothing_keep_no_slave_out() {
    let master = store(&SimDisk::new(), Durability::PageCache, false);
    fill(&master, &[SMALL]);
    let listener = listen(&master, ListenerOptions { silence_max: Duration::from_secs(60), ..MASTER });
    let silent: Vec<_> = (0..300).map(|_| begin(&listener, &[])).collect();
    let slave = store(&SimDisk::new(), Durability::PageCache, true);
    let _connector = follow(&slave, &listener);
    wait_until("the slave has all", || has_all(&slave, &master));
    assert_eq!(listener.slaves().len(), 1, "who has said nothing is no slave");
    drop(silent);
}

const TICKET: [u8; 16] = *b"a ticket of ours";

fn guarded(store: &Arc<Store>, trusted: &[&str]) -> Listener {
    let trusted = trusted.iter().map(|address| address.parse().expect("an address")).collect();
    let admission = Admission::new(AdmissionRules { needs_ticket: true, trusted });
    let options = ListenerOptions { silence_max: Duration::from_secs(60), ..MASTER };
    Listener::start_with(Arc::clone(store), anywhere(), options, Epochs::default(), admission, None, None)
        .expect("a free port")
}

#[test]
fn with_access_control_a_stranger_gets_nothing_and_counts_for_nothing() {
    let master = store(&SimDisk::new(), Durability::PageCache, false);
    fill(&master, &[SMALL]);
    let listener = guarded(&master, &[]);
    listener.expect(TICKET);
    let end = master.range().1.0.to_be_bytes();
    let forged = introduction(&[7; 16]);
    let begun = Instant::now();
    for first in [&end[..], &0_u64.to_be_bytes(), &forged, &[&forged[..], &end].concat(), &[], &forged[..12]]
    {
        assert_eq!(begin(&listener, first).read(&mut [0]).unwrap_or(0), 0, "nothing is sent to it");
    }
    assert!(begun.elapsed() < Duration::from_secs(10), "it has a second to say who it is");
    assert!(listener.slaves().is_empty());
    assert_eq!(listener.refused().len(), 1, "what spoke as a slave is told");
    assert!(listener.refused()[0].reason.contains("haTrustedAddresses"));
    assert!(listener.refused()[0].lacks_ticket, "nothing is known of its log");

    let mut slave = begin(&listener, &[&introduction(&TICKET)[..], &end].concat());
    let mut answer = [0; 8];
    slave.read_exact(&mut answer).expect("an answer");
    assert_eq!(answer, TICKET_TAKEN);
    wait_until("it is a slave", || listener.slaves().len() == 1);
    assert_eq!(listener.refused(), []);
    let again = begin(&listener, &introduction(&TICKET)).read(&mut [0]).unwrap_or(0);
    assert_eq!(again, 0, "a ticket is for one connection");
}

#[test]
fn a_slave_of_a_trusted_address_needs_no_ticket() {
    let master = store(&SimDisk::new(), Durability::PageCache, false);
    fill(&master, &[SMALL]);
    let listener = guarded(&master, &["127.0.0.1"]);
    let slave = store(&SimDisk::new(), Durability::PageCache, true);
    let _connector = follow(&slave, &listener);
    wait_until("the slave has all", || has_all(&slave, &master));
}

#[test]
fn a_slave_follows_the_master_whose_ticket_it_has_and_no_other() {
    let [master, other] = [(); 2].map(|()| store(&SimDisk::new(), Durability::PageCache, false));
    fill(&master, &[SMALL]);
    fill(&other, &[LARGE, LARGE]);
    let [right, wrong] = [&master, &other].map(|store| listen(store, MASTER));
    let slave = store(&SimDisk::new(), Durability::PageCache, true);
    let options = ConnectorOptions { asks: true, ..SLAVE };
    let connector = Connector::start(Arc::clone(&slave), options, None).expect("a replica");
    connector.set_master(Some(wrong.address().to_string()));
    let agree = || {
        if let Some(question) = connector.wanted() {
            right.expect(TICKET);
            let agreement = Agreement { epochs: Epochs::default(), ticket: Some(TICKET) };
            connector.answer(question, Ok(agreement));
        }
    };
    wait_until("the other one does not take it", || {
        agree();
        connector.status().fault.is_some_and(|fault| fault.contains("it is another broker"))
    });
    assert_eq!(slave.range().1, PhysicalOffset(0), "nothing was copied");
    connector.set_master(Some(right.address().to_string()));
    wait_until("the slave has all", || {
        agree();
        has_all(&slave, &master)
    });
    assert!(log_of(&slave) == log_of(&master));
}

/// Beside one that gives no ticket the question comes again once there is a connection.
#[test]
fn a_slave_follows_a_master_without_tickets_once_it_was_compared_while_connected() {
    let master = store(&SimDisk::new(), Durability::PageCache, false);
    fill(&master, &[SMALL]);
    let listener = listen(&master, MASTER);
    let slave = store(&SimDisk::new(), Durability::PageCache, true);
    let options = ConnectorOptions { asks: true, ..SLAVE };
    let connector = Connector::start(Arc::clone(&slave), options, None).expect("a replica");
    connector.set_master(Some(listener.address().to_string()));
    let mut questions = 0;
    wait_until("the slave has all", || {
        if let Some(question) = connector.wanted() {
            questions += 1;
            connector.answer(question, Ok(Agreement::default()));
        }
        has_all(&slave, &master)
    });
    assert_eq!(questions, 2);
}

#[test]
fn a_slave_that_is_ahead_of_its_master_is_refused_and_that_is_told() {
    let master = store(&SimDisk::new(), Durability::PageCache, false);
    fill(&master, &[SMALL]);
    let listener = listen(&master, MASTER);
    let mut slave = TcpStream::connect(listener.address()).expect("a connection");
    let end = master.range().1;
    slave.write_all(&(end.0 + 1).to_be_bytes()).expect("room");
    assert_eq!(slave.read(&mut [0]).expect("its end"), 0);
    wait_until("it is told", || {
        listener.take_notes().iter().any(|(_, note)| note.contains("one of them has lost something"))
    });
}

#[test]
fn a_slave_that_was_ahead_is_refused_when_its_master_has_grown_past_it() {
    let master = store(&SimDisk::new(), Durability::PageCache, false);
    fill(&master, &[SMALL]);
    let listener = listen(&master, MASTER);
    let end = master.range().1;
    let report = (end.0 + 8).to_be_bytes();
    assert_eq!(begin(&listener, &report).read(&mut [0]).expect("its end"), 0);
    fill(&master, &[LARGE]);
    assert_eq!(begin(&listener, &report).read(&mut [0]).expect("its end"), 0);
    wait_until("it is told", || {
        listener.refused().iter().any(|slave| slave.reason.contains("when this master's was shorter"))
    });
    wait_until("its connection is forgotten", || listener.slaves().is_empty());

    // Emptied, or another one there.
    for has in [0, end.0] {
        let mut slave = begin(&listener, &has.to_be_bytes());
        slave.read_exact(&mut [0; 12]).expect("a header");
        assert_eq!(listener.refused(), []);
    }
}

#[test]
fn a_peer_that_says_nothing_is_closed() {
    let silent = Duration::from_millis(300);
    let master = store(&SimDisk::new(), Durability::PageCache, false);
    let listener = listen(&master, ListenerOptions { silence_max: silent, ..MASTER });
    let mut slave = TcpStream::connect(listener.address()).expect("a connection");
    slave.set_read_timeout(Some(Duration::from_secs(20))).expect("a socket");
    let mut read = Vec::new();
    slave.read_to_end(&mut read).expect("its end");
    assert!(read.is_empty(), "nothing is sent to who has not said where its log ends");
}

/// The bytes of the original's protocol: a report of 8 bytes, a header of 12 and the log, a header alone as a sign of life.
#[test]
fn the_stream_is_the_originals() {
    let master = store(&SimDisk::new(), Durability::PageCache, false);
    fill(&master, &[SMALL]);
    let listener = listen(&master, MASTER);
    let mut slave = TcpStream::connect(listener.address()).expect("a connection");
    slave.write_all(&100_u64.to_be_bytes()).expect("room");
    let log = log_of(&master);
    let mut header = [0; 12];
    slave.read_exact(&mut header).expect("a header");
    let bytes = (log.len() - 100) as u32;
    assert_eq!((&header[..8], &header[8..]), (&100_u64.to_be_bytes()[..], &bytes.to_be_bytes()[..]));
    let mut body = vec![0; bytes as usize];
    slave.read_exact(&mut body).expect("the log");
    assert!(body == log[100..]);
    slave.read_exact(&mut header).expect("a sign of life");
    let end = log.len() as u64;
    assert_eq!((&header[..8], &header[8..]), (&end.to_be_bytes()[..], &[0; 4][..]));
    slave.write_all(&end.to_be_bytes()).expect("room");
    wait_until("the report is read", || {
        listener.slaves().iter().any(|slave| slave.has == PhysicalOffset(end))
    });
}

/// Begins with what slaves say, or not.
fn begin(listener: &Listener, first: &[u8]) -> TcpStream {
    let mut peer = TcpStream::connect(listener.address()).expect("a connection");
    peer.set_read_timeout(Some(Duration::from_secs(20))).expect("a socket");
    peer.write_all(first).expect("room");
    peer
}

#[test]
fn a_peer_that_speaks_another_protocol_is_closed_and_counts_as_no_slave() {
    let master = store(&SimDisk::new(), Durability::PageCache, false);
    fill(&master, &[SMALL, LARGE]);
    let listener = listen(&master, MASTER);
    let tls_hello = [0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc];
    for nonsense in [&b"GET / HTTP/1.1\r\n\r\n"[..], &tls_hello, &[0xff; 64], &(-1_i64).to_be_bytes()] {
        assert_eq!(begin(&listener, nonsense).read(&mut [0]).unwrap_or(0), 0, "nothing is sent to it");
    }
    wait_until("they are let go", || listener.slaves().is_empty());
    assert_eq!(listener.refused(), [], "nobody's log does not fit");
    let told = listener.take_notes();
    assert!(told.iter().any(|(is_warning, note)| *is_warning && note.contains("no replication stream")));

    let controlled = [1_u32.to_be_bytes(), [0; 4], [0; 4], 2_u32.to_be_bytes()].concat();
    assert_eq!(begin(&listener, &controlled).read(&mut [0]).unwrap_or(0), 0);
    wait_until("it is told", || !listener.refused().is_empty());
    assert!(listener.refused()[0].reason.contains("enableControllerMode"));

    let slave = store(&SimDisk::new(), Durability::PageCache, true);
    let _connector = follow(&slave, &listener);
    wait_until("a slave is served as before", || has_all(&slave, &master));
}

#[test]
fn a_slave_that_reads_nothing_keeps_nobody_waiting_and_is_closed_in_time() {
    let master = store(&SimDisk::new(), Durability::PageCache, false);
    fill(&master, &[LARGE; 64]);
    let listener = listen(&master, ListenerOptions { silence_max: Duration::from_secs(1), ..MASTER });
    let stuck = begin(&listener, &0_u64.to_be_bytes());
    wait_until("it is a slave", || listener.slaves().len() == 1);
    let slave = store(&SimDisk::new(), Durability::PageCache, true);
    let connector = follow(&slave, &listener);
    wait_until("the other one has all", || has_all(&slave, &master));
    wait_until("the silent one is gone", || listener.slaves().len() == 1);
    assert!(connector.status().is_connected, "signs of life keep the other one");
    drop(stuck);
}

/// A slave is woken once for what is sent together: it comes with its header, in one segment.
#[test]
fn a_transfer_comes_in_one_piece() {
    let master = store(&SimDisk::new(), Durability::PageCache, false);
    let listener = listen(&master, ListenerOptions { copies: 2, ..MASTER });
    let mut slave = begin(&listener, &0_u64.to_be_bytes());
    let mut buffer = vec![0; 1 << 16];
    for _ in 0..20 {
        let begin = master.range().1.0;
        fill(&master, &[SMALL]);
        let bytes = (master.range().1.0 - begin) as usize;
        let mut came = 12;
        // Signs of life are headers that announce nothing.
        while came == 12 && buffer[8..12] == [0; 4] {
            came = slave.read(&mut buffer).expect("a transfer");
        }
        assert!(came >= 12 + bytes, "{came} of {bytes}");
        buffer[8..12].fill(0);
    }
}

#[test]
fn a_slave_that_replies_wait_for_is_served_beside_senders_while_it_keeps_up() {
    let senders = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a reactor");
    let handle = senders.handle().clone();
    std::thread::spawn(move || senders.block_on(std::future::pending::<()>()));
    let served = || handle.metrics().num_alive_tasks();
    let disk = SimDisk::new();
    let master = store(&disk, Durability::PageCache, false);
    let options = ListenerOptions { copies: 2, transfer_bytes_max: 1 << 20, ..MASTER };
    let listener = Listener::start_with(
        Arc::clone(&master),
        anywhere(),
        options,
        Epochs::default(),
        Admission::default(),
        None,
        Some(handle.clone()),
    )
    .expect("a free port");
    let mut slave = begin(&listener, &0_u64.to_be_bytes());
    wait_until("it has all there is", || served() == 1);
    let far = PhysicalOffset(9 << 20);
    while master.range().1 < far {
        fill(&master, &[LARGE]);
    }
    // It takes what comes, and does not say that it has it.
    read_until(&mut slave, far);
    wait_until("it is far behind", || served() == 0);
    slave.write_all(&master.range().1.0.to_be_bytes()).expect("room");
    wait_until("it has all there is", || served() == 1);
    fill(&master, &[SMALL]);
    let end = master.range().1;
    read_until(&mut slave, end);
    slave.write_all(&end.0.to_be_bytes()).expect("room");
    wait_until("that is confirmed", || master.confirmed() == end);
    listener.stop();
    wait_until("nobody serves it", || served() == 0);
    while slave.read(&mut [0; 1 << 10]).expect("its end") > 0 {}
}

/// Reads transfers until one ends at a position or behind it. Signs of life are headers alone.
fn read_until(slave: &mut TcpStream, end: PhysicalOffset) {
    let mut at = 0;
    while at < end.0 {
        let mut header = [0; 12];
        slave.read_exact(&mut header).expect("a header");
        let [begin @ .., s0, s1, s2, s3] = header;
        let mut bytes = vec![0; u32::from_be_bytes([s0, s1, s2, s3]) as usize];
        slave.read_exact(&mut bytes).expect("the log");
        at = u64::from_be_bytes(begin) + bytes.len() as u64;
    }
}

#[test]
fn the_place_of_a_slave_that_went_is_free() {
    let master = store(&SimDisk::new(), Durability::PageCache, false);
    fill(&master, &[SMALL]);
    let listener = listen(&master, ListenerOptions { slaves_max: 1, ..MASTER });
    let first = begin(&listener, &0_u64.to_be_bytes());
    wait_until("it has its place", || listener.slaves().len() == 1);
    let slave = store(&SimDisk::new(), Durability::PageCache, true);
    let connector = follow(&slave, &listener);
    wait_until("the other one is told", || connector.status().fault.is_some());
    drop(first);
    wait_until("it has the place now", || has_all(&slave, &master));
}

/// A master that a test drives by hand: takes the next connection that reports, and its report. A slave that was just told
/// where its master is may begin twice.
fn accept(master: &TcpListener) -> (TcpStream, u64) {
    loop {
        let (mut slave, _) = master.accept().expect("a slave");
        let mut end = [0; 8];
        if slave.read_exact(&mut end).is_ok() {
            return (slave, u64::from_be_bytes(end));
        }
    }
}

fn transfer(at: u64, size: i32, body: &[u8]) -> Vec<u8> {
    [&at.to_be_bytes()[..], &size.to_be_bytes(), body].concat()
}

#[test]
fn a_slave_appends_nothing_of_a_master_that_sends_nonsense_or_stops_in_the_middle() {
    let master = store(&SimDisk::new(), Durability::PageCache, false);
    fill(&master, &[SMALL, ODD]);
    let log = log_of(&master);
    let slave = store(&SimDisk::new(), Durability::PageCache, true);
    let by_hand = TcpListener::bind(anywhere()).expect("a free port");
    let connector = Connector::start(Arc::clone(&slave), SLAVE, None).expect("a replica");
    connector.set_master(Some(by_hand.local_addr().expect("bound").to_string()));
    // Of the second record half has come: what counts ends with the first.
    let first = u32::from_be_bytes([log[0], log[1], log[2], log[3]]) as usize;
    let half = first + 40;
    let (mut peer, end) = accept(&by_hand);
    assert_eq!(end, 0);
    peer.write_all(&transfer(0, log.len() as i32, &log[..half])).expect("room");
    let mut end = [0; 8];
    while u64::from_be_bytes(end) != first as u64 {
        peer.read_exact(&mut end).expect("a report");
    }
    drop(peer);
    for nonsense in [
        transfer(first as u64, -1, &[]),
        transfer(first as u64, i32::MAX, &[]),
        transfer(u64::MAX, 0, &[]),
        transfer(first as u64 + 8, 40, &log[..40]),
        transfer(first as u64, 40, &[0xee; 40]),
        b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec(),
    ] {
        let (mut peer, end) = accept(&by_hand);
        assert_eq!(end, first as u64, "it goes on behind the last whole record");
        peer.write_all(&nonsense).expect("room");
        peer.set_read_timeout(Some(Duration::from_secs(20))).expect("a socket");
        let mut reports = Vec::new();
        let _ = peer.read_to_end(&mut reports);
        assert!(reports.chunks(8).all(|report| report == (first as u64).to_be_bytes()));
        wait_until("it says why it left", || connector.status().fault.is_some());
    }
    assert_eq!(slave.visible(), PhysicalOffset(first as u64));
    let listener = listen(&master, MASTER);
    connector.set_master(Some(listener.address().to_string()));
    wait_until("the slave has all of its master's", || has_all(&slave, &master));
    assert!(log_of(&slave) == log);
}

#[test]
fn what_a_slave_could_not_append_is_told_until_it_appends() {
    let master = store(&SimDisk::new(), Durability::PageCache, false);
    fill(&master, &[SMALL]);
    let log = log_of(&master);
    let slave = store(&SimDisk::new(), Durability::PageCache, true);
    let by_hand = TcpListener::bind(anywhere()).expect("a free port");
    let connector = Connector::start(Arc::clone(&slave), SLAVE, None).expect("a replica");
    connector.set_master(Some(by_hand.local_addr().expect("bound").to_string()));
    let (mut peer, _) = accept(&by_hand);
    peer.write_all(&transfer(0, 40, &[0xee; 40])).expect("room");
    wait_until("it says why it left", || connector.status().fault.is_some());
    let (mut peer, _) = accept(&by_hand);
    wait_until("it is back", || connector.status().is_connected);
    assert!(connector.status().fault.is_some(), "a connection has mended nothing");
    peer.write_all(&transfer(0, log.len() as i32, &log)).expect("room");
    wait_until("it follows", || connector.status().fault.is_none());
    assert!(log_of(&slave) == log);
}

#[test]
fn a_slave_leaves_a_master_that_says_nothing_for_too_long() {
    let slave = store(&SimDisk::new(), Durability::PageCache, true);
    let by_hand = TcpListener::bind(anywhere()).expect("a free port");
    let options = ConnectorOptions { silence_max: Duration::from_millis(300), ..SLAVE };
    let connector = Connector::start(Arc::clone(&slave), options, None).expect("a replica");
    connector.set_master(Some(by_hand.local_addr().expect("bound").to_string()));
    let (mut peer, _) = accept(&by_hand);
    for _ in 0..6 {
        std::thread::sleep(Duration::from_millis(100));
        peer.write_all(&transfer(0, 0, &[])).expect("signs of life keep it");
    }
    let _again = accept(&by_hand);
    let notes = connector.take_notes();
    assert!(notes.iter().any(|(_, note)| note.contains("said nothing for too long")), "{notes:?}");
}
