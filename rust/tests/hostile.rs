//! Hostile input: sends every line of `tests/vectors/hostile.txt` to a server, and checks the answer, its cost and
//! the service to others.
//!
//! `cargo test --test hostile -- --nocapture` prints the table. `tests/hostile` sends the same lines to a whole
//! broker.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a failed expectation fails the test")]

mod echo;

use std::io::{ErrorKind, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use echo::{Peer, TIMEOUT, eventually, private_bytes, serve};
use parking_lot::Mutex;
use rmqpy::remoting::ServerOptions;

/// One test at a time: memory is measured for the whole process.
static ALONE: Mutex<()> = Mutex::new(());

/// Private memory an attack may leave: twice the largest frame, and the allocator's rounding.
const GROWTH_BYTES_MAX: u64 = 64 << 20;

struct Case {
    end: String,
    name: String,
    bytes: Vec<u8>,
}

fn cases() -> Vec<Case> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/vectors/hostile.txt");
    let text = std::fs::read_to_string(path).unwrap();
    let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines
        .map(|line| {
            let mut columns = line.splitn(3, '|').map(str::trim);
            let [end, name, recipe] = std::array::from_fn(|_| columns.next().expect(line).to_owned());
            Case { end, name, bytes: bytes(&recipe) }
        })
        .collect()
}

/// Builds the bytes of a recipe.
fn bytes(recipe: &str) -> Vec<u8> {
    let mut out = Vec::new();
    // The start of the last item, and the open frame: its encoding, start and end of header.
    let mut item = 0;
    let mut open: Option<(u8, usize, Option<usize>)> = None;
    let mut rest = recipe;
    while !rest.is_empty() {
        if let Some(text) = rest.strip_prefix('\'') {
            let (text, behind) = text.split_once('\'').expect(recipe);
            item = out.len();
            out.extend_from_slice(text.as_bytes());
            rest = behind.trim_start();
            continue;
        }
        let (word, behind) = rest.split_once(' ').unwrap_or((rest, ""));
        rest = behind.trim_start();
        match word {
            "json(" => open = Some((0, out.len(), None)),
            "bin(" => open = Some((1, out.len(), None)),
            "/" => open = open.map(|(encoding, start, _)| (encoding, start, Some(out.len()))),
            ")" => {
                let (encoding, start, header_end) = open.take().expect(recipe);
                let header_bytes = header_end.unwrap_or(out.len()) - start;
                let mut prefix = (out.len() - start + 4).to_be_bytes()[4..].to_vec();
                prefix.extend_from_slice(&((usize::from(encoding) << 24) | header_bytes).to_be_bytes()[4..]);
                out.splice(start..start, prefix);
                item = start;
            }
            _ => match word.strip_prefix('x') {
                Some(times) => {
                    let repeated = out[item..].repeat(times.parse().expect(recipe));
                    out.truncate(item);
                    out.extend(repeated);
                }
                None => {
                    item = out.len();
                    let digits = (0..word.len()).step_by(2);
                    out.extend(digits.map(|at| u8::from_str_radix(&word[at..at + 2], 16).expect(recipe)));
                }
            },
        }
    }
    out
}

/// Sends all bytes; returns how the connection ended.
fn attack(address: SocketAddr, case: &Case) -> &'static str {
    let mut peer = Peer::connect(address);
    let mut writer = peer.socket.try_clone().unwrap();
    std::thread::scope(|scope| {
        // On a thread, so that a response is read while a large frame is still being sent. The write fails when the
        // server closes.
        scope.spawn(move || writer.write_all(&case.bytes).is_ok());
        match case.end.as_str() {
            "waits" => {
                peer.socket.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
                match peer.socket.peek(&mut [0]) {
                    Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                        "waits"
                    }
                    _ => "did not wait",
                }
            }
            "ignored" => {
                peer.echoes(99);
                "ignored"
            }
            _ => match peer.answer() {
                None => "closed",
                Some(_) => {
                    peer.echoes(99);
                    "answered"
                }
            },
        }
    })
}

#[test]
fn every_attack_ends_as_expected_and_harms_no_other_connection() {
    let _alone = ALONE.lock();
    let (server, _, address) = serve(ServerOptions { io_threads: 1, ..ServerOptions::default() });
    let mut bystander = Peer::connect(address);
    let cases = cases();
    assert!(cases.len() >= 60, "only {} cases", cases.len());
    // Allocate the tables of the test and the first buffers.
    bystander.echoes(0);
    let before = private_bytes();
    let mut wrong = Vec::new();
    println!("{:<9} {:>9}  attack", "end", "RSS +KiB");
    for (number, case) in cases.iter().enumerate() {
        let end = attack(address, case);
        bystander.echoes(number as i32);
        let grown = private_bytes().saturating_sub(before);
        println!("{end:<9} {:>9}  {}", grown >> 10, case.name);
        if end != case.end || grown > GROWTH_BYTES_MAX {
            wrong.push(format!("{}: {end}, should be {}; {grown} bytes", case.name, case.end));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert_eq!(server.statistics().panics, 0);
    let closed = cases.iter().filter(|case| case.end == "closed").count() as u64;
    eventually("all that broke the protocol are counted", || server.statistics().closed_broken == closed);
}

#[test]
fn twenty_rounds_of_concurrent_attacks_leave_the_server_unchanged() {
    let _alone = ALONE.lock();
    let (server, _, address) = serve(ServerOptions::default());
    let cases: Vec<Case> = cases().into_iter().filter(|case| case.bytes.len() < 1 << 20).collect();
    let mut bystander = Peer::connect(address);
    for round in 0..20 {
        let peers: Vec<Peer> = cases
            .iter()
            .map(|case| {
                let mut peer = Peer::connect(address);
                // Ignore the result: only the state afterwards matters.
                drop(peer.socket.write_all(&case.bytes));
                peer
            })
            .collect();
        bystander.echoes(round);
        drop(peers);
    }
    eventually("only the bystander is left", || server.statistics().connections == 1);
    assert_eq!(server.statistics().panics, 0);
    bystander.socket.set_read_timeout(Some(TIMEOUT)).unwrap();
    bystander.echoes(1000);
}
