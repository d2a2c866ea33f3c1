//! The remoting server over real sockets: bursts, order, bounds, and that nobody suffers for another's misbehaviour.

mod echo;

use echo::{Peer, serve};
use rmqpy::remoting::ServerOptions;

#[test]
fn an_echo_comes_back_under_its_opaque() {
    let (_server, _, address) = serve(ServerOptions::default());
    let mut peer = Peer::connect(address);
    for opaque in [0, 1, i32::MAX, i32::MIN, -1] {
        peer.echoes(opaque);
    }
}
