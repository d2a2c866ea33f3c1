//! High availability: a master and its slaves over loopback, their logs, and their view of each other.
#![allow(clippy::expect_used, reason = "a failed expectation fails the test")]

mod masters;
#[path = "../store_model/mod.rs"]
mod store_model;
mod streams;
mod tickets;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rmqpy::clock::SystemClock;
use rmqpy::ha::{Connector, ConnectorOptions, Listener, ListenerOptions};
use rmqpy::replication::master::CopyFrom;
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
        assert!(begin.elapsed() < Duration::from_secs(60), "waited in vain: {what}");
        // Between two looks.
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

/// Connects and sends first bytes, valid or not.
fn begin(listener: &Listener, first: &[u8]) -> TcpStream {
    let mut peer = TcpStream::connect(listener.address()).expect("a connection");
    peer.set_read_timeout(Some(Duration::from_secs(20))).expect("a socket");
    peer.write_all(first).expect("room");
    peer
}

#[test]
fn a_slave_gets_existing_and_new_records_and_both_sides_report_it() {
    for durability in Durability::ALL {
        let master = store(&SimDisk::new(), durability, false);
        fill(&master, &[SMALL, LARGE, LARGE, ODD]);
        let listener = listen(&master, MASTER);
        let slave = store(&SimDisk::new(), durability, true);
        let connector = follow(&slave, &listener);
        wait_until("the slave has the existing records", || has_all(&slave, &master));
        fill(&master, &[NINE, LARGE, LARGE, SMALL]);
        wait_until("the slave has the new records", || has_all(&slave, &master));
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
fn a_slave_continues_when_either_side_restarts() {
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
fn slaves_beyond_the_limit_are_closed() {
    let master = store(&SimDisk::new(), Durability::PageCache, false);
    let listener = listen(&master, MASTER);
    let connect = || begin(&listener, &0_u64.to_be_bytes());
    let _first = (connect(), connect());
    wait_until("two are there", || listener.slaves().len() == 2);
    let mut third = connect();
    assert_eq!(third.read(&mut [0]).expect("its end"), 0);
    wait_until("it is reported", || listener.take_notes().iter().any(|(is_warning, _)| *is_warning));
}

#[test]
fn silent_connections_do_not_exclude_slaves() {
    let master = store(&SimDisk::new(), Durability::PageCache, false);
    fill(&master, &[SMALL]);
    let listener = listen(&master, ListenerOptions { silence_max: Duration::from_secs(60), ..MASTER });
    let silent: Vec<_> = (0..300).map(|_| begin(&listener, &[])).collect();
    let slave = store(&SimDisk::new(), Durability::PageCache, true);
    let _connector = follow(&slave, &listener);
    wait_until("the slave has all", || has_all(&slave, &master));
    assert_eq!(listener.slaves().len(), 1, "a silent connection is not a slave");
    drop(silent);
}

#[test]
fn a_slave_that_is_ahead_of_its_master_is_refused_and_reported() {
    let master = store(&SimDisk::new(), Durability::PageCache, false);
    fill(&master, &[SMALL]);
    let listener = listen(&master, MASTER);
    let mut slave = TcpStream::connect(listener.address()).expect("a connection");
    let end = master.range().1;
    slave.write_all(&(end.0 + 1).to_be_bytes()).expect("room");
    assert_eq!(slave.read(&mut [0]).expect("its end"), 0);
    wait_until("it is reported", || {
        listener.take_notes().iter().any(|(_, note)| note.contains("one of them has lost data"))
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
    wait_until("it is reported", || {
        listener.refused().iter().any(|slave| slave.reason.contains("since this master's was shorter"))
    });
    wait_until("its connection is forgotten", || listener.slaves().is_empty());

    // Emptied, or another slave at that address.
    for has in [0, end.0] {
        let mut slave = begin(&listener, &has.to_be_bytes());
        slave.read_exact(&mut [0; 12]).expect("a header");
        assert_eq!(listener.refused(), []);
    }
}
