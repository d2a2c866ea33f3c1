//! Stop of a client: with grace, calls finish; without, they fail.

use std::sync::atomic::Ordering;
use std::sync::mpsc::channel;

use rmqpy::remoting::codes::flag;
use rmqpy::remoting::{CallError, ServerOptions};

use crate::echo::{ECHO, PARK, TIMEOUT, eventually, serve};
use crate::{ask, call, client, next, write};

#[test]
fn a_stop_lets_calls_finish_and_queued_requests_leave() {
    let (_server, echo, address) = serve(ServerOptions::default());
    let client = client();
    let peer = client.peer(&address.to_string());
    let (to, outcomes) = channel();
    call(&peer, PARK, b"", TIMEOUT, &to);
    eventually("parked", || !echo.parked.lock().is_empty());
    peer.send(|opaque, out| write(out, ECHO, opaque, flag::ONEWAY, b"goodbye")).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| client.stop(TIMEOUT));
        eventually("the goodbye left", || echo.handled.load(Ordering::SeqCst) == 2);
        let (owed, opaque) = echo.parked.lock().pop().unwrap();
        owed.post(opaque);
    });
    assert_eq!(next(&outcomes).unwrap().1, b"released");
    assert_eq!(ask(&client.peer(&address.to_string()), ECHO, b""), Err(CallError::Stopped));
}

#[test]
fn a_stop_without_grace_fails_what_is_in_flight() {
    let (_server, echo, address) = serve(ServerOptions::default());
    let client = client();
    let (to, outcomes) = channel();
    call(&client.peer(&address.to_string()), PARK, b"", TIMEOUT, &to);
    eventually("parked", || !echo.parked.lock().is_empty());
    drop(client);
    assert_eq!(next(&outcomes), Err(CallError::Stopped));
}
