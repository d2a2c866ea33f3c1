//! Streams of masters that a test drives, followed by a slave.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use rmqpy::ha::{Connector, ConnectorOptions};
use rmqpy::positions::PhysicalOffset;
use rmqpy::store::Durability;
use rmqpy::store::disk::simulated::SimDisk;

use crate::store_model::workloads::{ODD, SMALL};
use crate::{MASTER, SLAVE, anywhere, fill, has_all, listen, log_of, store, wait_until};

/// A master driven by the test: accepts the next connection that reports, and its report. A slave that has just got its
/// master's address may connect twice.
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
fn a_slave_appends_no_invalid_or_partial_record() {
    let master = store(&SimDisk::new(), Durability::PageCache, false);
    fill(&master, &[SMALL, ODD]);
    let log = log_of(&master);
    let slave = store(&SimDisk::new(), Durability::PageCache, true);
    let by_hand = TcpListener::bind(anywhere()).expect("a free port");
    let connector = Connector::start(Arc::clone(&slave), SLAVE, None).expect("a replica");
    connector.set_master(Some(by_hand.local_addr().expect("bound").to_string()));
    // Half of the second record has arrived; the report ends with the first.
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
        assert_eq!(end, first as u64, "it continues behind the last whole record");
        peer.write_all(&nonsense).expect("room");
        peer.set_read_timeout(Some(Duration::from_secs(20))).expect("a socket");
        let mut reports = Vec::new();
        let _ = peer.read_to_end(&mut reports);
        assert!(reports.chunks(8).all(|report| report == (first as u64).to_be_bytes()));
        wait_until("the reason is reported", || connector.status().fault.is_some());
    }
    assert_eq!(slave.visible(), PhysicalOffset(first as u64));
    let listener = listen(&master, MASTER);
    connector.set_master(Some(listener.address().to_string()));
    wait_until("the slave has all of its master's", || has_all(&slave, &master));
    assert!(log_of(&slave) == log);
}

#[test]
fn a_failed_append_is_reported_until_one_succeeds() {
    let master = store(&SimDisk::new(), Durability::PageCache, false);
    fill(&master, &[SMALL]);
    let log = log_of(&master);
    let slave = store(&SimDisk::new(), Durability::PageCache, true);
    let by_hand = TcpListener::bind(anywhere()).expect("a free port");
    let connector = Connector::start(Arc::clone(&slave), SLAVE, None).expect("a replica");
    connector.set_master(Some(by_hand.local_addr().expect("bound").to_string()));
    let (mut peer, _) = accept(&by_hand);
    peer.write_all(&transfer(0, 40, &[0xee; 40])).expect("room");
    wait_until("the reason is reported", || connector.status().fault.is_some());
    let (mut peer, _) = accept(&by_hand);
    wait_until("it is back", || connector.status().is_connected);
    assert!(connector.status().fault.is_some(), "a connection alone does not clear the fault");
    peer.write_all(&transfer(0, log.len() as i32, &log)).expect("room");
    wait_until("it follows", || connector.status().fault.is_none());
    assert!(log_of(&slave) == log);
}

#[test]
fn a_slave_leaves_a_silent_master() {
    let slave = store(&SimDisk::new(), Durability::PageCache, true);
    let by_hand = TcpListener::bind(anywhere()).expect("a free port");
    let options = ConnectorOptions { silence_max: Duration::from_secs(1), ..SLAVE };
    let connector = Connector::start(Arc::clone(&slave), options, None).expect("a replica");
    connector.set_master(Some(by_hand.local_addr().expect("bound").to_string()));
    let (mut peer, _) = accept(&by_hand);
    for _ in 0..12 {
        // The interval of heartbeats; all of them take longer than `silence_max`.
        std::thread::sleep(Duration::from_millis(100));
        peer.write_all(&transfer(0, 0, &[])).expect("heartbeats keep it");
    }
    let _again = accept(&by_hand);
    let notes = connector.take_notes();
    assert!(notes.iter().any(|(_, note)| note.contains("sent nothing for too long")), "{notes:?}");
}
