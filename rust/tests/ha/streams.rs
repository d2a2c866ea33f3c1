//! Streams of a master, read by peers that a test drives.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use rmqpy::ha::{Admission, Listener, ListenerOptions};
use rmqpy::positions::PhysicalOffset;
use rmqpy::replication::epochs::Epochs;
use rmqpy::store::Durability;
use rmqpy::store::disk::simulated::SimDisk;

use crate::store_model::workloads::{LARGE, SMALL};
use crate::{MASTER, anywhere, begin, fill, follow, has_all, listen, log_of, store, wait_until};

#[test]
fn a_silent_peer_is_closed() {
    let silent = Duration::from_millis(300);
    let master = store(&SimDisk::new(), Durability::PageCache, false);
    let listener = listen(&master, ListenerOptions { silence_max: silent, ..MASTER });
    let mut slave = TcpStream::connect(listener.address()).expect("a connection");
    slave.set_read_timeout(Some(Duration::from_secs(20))).expect("a socket");
    let mut read = Vec::new();
    slave.read_to_end(&mut read).expect("its end");
    assert!(read.is_empty(), "nothing is sent before a report");
}

/// The bytes of Apache's protocol: a report of 8 bytes, a header of 12 and the log, a header alone as a heartbeat.
#[test]
fn the_stream_is_that_of_apache() {
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
    slave.read_exact(&mut header).expect("a heartbeat");
    let end = log.len() as u64;
    assert_eq!((&header[..8], &header[8..]), (&end.to_be_bytes()[..], &[0; 4][..]));
    slave.write_all(&end.to_be_bytes()).expect("room");
    wait_until("the report is read", || {
        listener.slaves().iter().any(|slave| slave.has == PhysicalOffset(end))
    });
}

#[test]
fn a_peer_with_another_protocol_is_closed_and_not_counted() {
    let master = store(&SimDisk::new(), Durability::PageCache, false);
    fill(&master, &[SMALL, LARGE]);
    let listener = listen(&master, MASTER);
    let tls_hello = [0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc];
    for nonsense in [&b"GET / HTTP/1.1\r\n\r\n"[..], &tls_hello, &[0xff; 64], &(-1_i64).to_be_bytes()] {
        assert_eq!(begin(&listener, nonsense).read(&mut [0]).unwrap_or(0), 0, "nothing is sent to it");
    }
    wait_until("they are closed", || listener.slaves().is_empty());
    assert_eq!(listener.refused(), [], "no log was judged");
    let notes = listener.take_notes();
    assert!(notes.iter().any(|(is_warning, note)| *is_warning && note.contains("not a replication stream")));

    let controlled = [1_u32.to_be_bytes(), [0; 4], [0; 4], 2_u32.to_be_bytes()].concat();
    assert_eq!(begin(&listener, &controlled).read(&mut [0]).unwrap_or(0), 0);
    wait_until("it is reported", || !listener.refused().is_empty());
    assert!(listener.refused()[0].reason.contains("enableControllerMode"));

    let slave = store(&SimDisk::new(), Durability::PageCache, true);
    let _connector = follow(&slave, &listener);
    wait_until("a slave is served as before", || has_all(&slave, &master));
}

#[test]
fn a_slave_that_reads_nothing_does_not_block_others_and_is_closed() {
    let master = store(&SimDisk::new(), Durability::PageCache, false);
    fill(&master, &[LARGE; 64]);
    let listener = listen(&master, ListenerOptions { silence_max: Duration::from_secs(1), ..MASTER });
    let stuck = begin(&listener, &0_u64.to_be_bytes());
    wait_until("it is a slave", || listener.slaves().len() == 1);
    let slave = store(&SimDisk::new(), Durability::PageCache, true);
    let connector = follow(&slave, &listener);
    wait_until("the other one has all", || has_all(&slave, &master));
    wait_until("the silent slave is closed", || listener.slaves().len() == 1);
    assert!(connector.status().is_connected, "heartbeats keep the other slave");
    drop(stuck);
}

/// A slave is woken once per transfer: header and bytes arrive in one segment.
#[test]
fn a_transfer_arrives_in_one_segment() {
    let master = store(&SimDisk::new(), Durability::PageCache, false);
    let listener = listen(&master, ListenerOptions { copies: 2, ..MASTER });
    let mut slave = begin(&listener, &0_u64.to_be_bytes());
    let mut buffer = vec![0; 1 << 16];
    for _ in 0..20 {
        let begin = master.range().1.0;
        fill(&master, &[SMALL]);
        let bytes = (master.range().1.0 - begin) as usize;
        let mut came = 12;
        // Heartbeats are headers without bytes.
        while came == 12 && buffer[8..12] == [0; 4] {
            came = slave.read(&mut buffer).expect("a transfer");
        }
        assert!(came >= 12 + bytes, "{came} of {bytes}");
        buffer[8..12].fill(0);
    }
}

#[test]
fn a_slave_that_replies_wait_for_is_served_with_senders_while_it_keeps_up() {
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
    // It reads everything but reports nothing.
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
    wait_until("it is not served there", || served() == 0);
    while slave.read(&mut [0; 1 << 10]).expect("its end") > 0 {}
}

/// Reads transfers until one ends at a position or behind it. Heartbeats are headers alone.
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
fn a_closed_slave_frees_its_place() {
    let master = store(&SimDisk::new(), Durability::PageCache, false);
    fill(&master, &[SMALL]);
    let listener = listen(&master, ListenerOptions { slaves_max: 1, ..MASTER });
    let first = begin(&listener, &0_u64.to_be_bytes());
    wait_until("it has its place", || listener.slaves().len() == 1);
    let slave = store(&SimDisk::new(), Durability::PageCache, true);
    let connector = follow(&slave, &listener);
    wait_until("the other slave is refused", || connector.status().fault.is_some());
    drop(first);
    wait_until("it has the place now", || has_all(&slave, &master));
}
