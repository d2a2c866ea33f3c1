//! Tickets: slaves that a master with access control admits, and masters that a slave follows.

use std::io::Read;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rmqpy::ha::{
    Admission, AdmissionRules, Agreement, Connector, ConnectorOptions, Listener, ListenerOptions,
};
use rmqpy::positions::PhysicalOffset;
use rmqpy::replication::epochs::Epochs;
use rmqpy::replication::master::Standing;
use rmqpy::replication::stream::{TICKET_TAKEN, introduction};
use rmqpy::store::disk::simulated::SimDisk;
use rmqpy::store::{Durability, Store};

use crate::store_model::workloads::{LARGE, SMALL};
use crate::{MASTER, SLAVE, anywhere, begin, fill, follow, has_all, listen, log_of, store, wait_until};

const TICKET: [u8; 16] = *b"a ticket of ours";

fn guarded(store: &Arc<Store>, trusted: &[&str]) -> Listener {
    let trusted = trusted.iter().map(|address| address.parse().expect("an address")).collect();
    let admission = Admission::new(AdmissionRules { needs_ticket: true, trusted, is_elected: false });
    let options = ListenerOptions { silence_max: Duration::from_secs(60), ..MASTER };
    Listener::start_with(Arc::clone(store), anywhere(), options, Epochs::default(), admission, None, None)
        .expect("a free port")
}

#[test]
fn with_access_control_a_peer_without_a_ticket_gets_nothing_and_is_not_counted() {
    let master = store(&SimDisk::new(), Durability::PageCache, false);
    fill(&master, &[SMALL]);
    let listener = guarded(&master, &[]);
    listener.expect(TICKET, None, Standing::Slave);
    let end = master.range().1.0.to_be_bytes();
    let forged = introduction(&[7; 16]);
    let begun = Instant::now();
    for first in [&end[..], &0_u64.to_be_bytes(), &forged, &[&forged[..], &end].concat(), &[], &forged[..12]]
    {
        assert_eq!(begin(&listener, first).read(&mut [0]).unwrap_or(0), 0, "nothing is sent to it");
    }
    assert!(begun.elapsed() < Duration::from_secs(50), "it has a second to show a ticket");
    assert!(listener.slaves().is_empty());
    assert_eq!(listener.refused().len(), 1, "a peer that reported as a slave is listed");
    assert!(listener.refused()[0].reason.contains("haTrustedAddresses"));
    assert!(listener.refused()[0].lacks_ticket, "its log is unknown");

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
fn a_slave_follows_only_the_master_that_issued_its_ticket() {
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
            right.expect(TICKET, None, Standing::Slave);
            let agreement = Agreement { ticket: Some(TICKET), ..Agreement::default() };
            connector.answer(question, Ok(agreement));
        }
    };
    wait_until("the other master refuses the ticket", || {
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

#[test]
fn an_observer_has_the_log_and_is_no_slave() {
    let master = store(&SimDisk::new(), Durability::PageCache, false);
    fill(&master, &[SMALL, LARGE]);
    let listener = listen(&master, ListenerOptions { copies: 2, ..MASTER });
    let observer = store(&SimDisk::new(), Durability::PageCache, true);
    let options = ConnectorOptions { asks: true, ..SLAVE };
    let connector = Connector::start(Arc::clone(&observer), options, None).expect("a replica");
    connector.set_master(Some(listener.address().to_string()));
    let agree = || {
        if let Some(question) = connector.wanted() {
            listener.expect(TICKET, None, Standing::Observer);
            let agreement = Agreement { ticket: Some(TICKET), ..Agreement::default() };
            connector.answer(question, Ok(agreement));
        }
    };
    for _ in 0..2 {
        fill(&master, &[SMALL]);
        wait_until("the observer has all", || {
            agree();
            has_all(&observer, &master)
        });
    }
    assert!(log_of(&observer) == log_of(&master));
    assert!(listener.slaves().is_empty());
    assert_eq!((master.copies_in_sync(), master.confirmed()), (1, PhysicalOffset(0)));
}

/// With a master that gives no tickets the question is repeated once there is a connection.
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
