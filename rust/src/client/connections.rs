//! Requests onto the wire, replies to whom they belong.
//!
//! Owns the connections of one client, one per address, made when first used. Invariant: whatever was started here
//! gets an outcome within its timeout. Any thread; nothing here waits for the network.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::call::Call;
use super::completions::Announce;
use super::notices::Notices;
use super::outgoing::Outgoing;
use super::shipment::{Shipment, Target};
use crate::columns::RowError;
use crate::remoting::codes::{flag, language};
use crate::remoting::header::HeaderWriter;
use crate::remoting::{CallError, Client, ClientOptions, Encoding, FrameError, Haste};

/// The connections of one client.
pub struct Connections {
    net: Client,
    notices: Arc<Notices>,
    encoding: Encoding,
}

/// A request in the words of the protocol.
#[derive(Clone, Copy, Debug)]
pub struct Ask<'a> {
    /// Request code.
    pub code: i32,
    /// Header fields.
    pub ext: &'a [(String, String)],
    /// Body.
    pub body: &'a [u8],
}

impl Ask<'_> {
    fn frame(
        &self,
        out: &mut Vec<u8>,
        encoding: Encoding,
        opaque: i32,
        flags: i32,
    ) -> Result<(), FrameError> {
        let mut header =
            HeaderWriter::begin_as(language::PYTHON, out, encoding, self.code, opaque, flags, None);
        for (name, value) in self.ext {
            header.ext(name, value);
        }
        header.finish(self.body.len())?;
        out.extend_from_slice(self.body);
        Ok(())
    }
}

impl Connections {
    /// Starts the I/O thread; connects to nobody yet.
    ///
    /// # Errors
    /// When the system gives no thread.
    pub fn start(connect: Duration, encoding: Encoding) -> io::Result<Self> {
        let options = ClientOptions { connect, ..ClientOptions::default() };
        let notices = Arc::new(Notices::new(encoding));
        Ok(Self { net: Client::start(options, Arc::clone(&notices) as _)?, notices, encoding })
    }

    /// Tells `announce` what servers say without being asked.
    pub fn listen(&self, announce: Announce) {
        self.notices.listen(announce);
    }

    /// Sends a request; `call` gets the outcome.
    pub fn call(&self, address: &str, ask: &Ask<'_>, timeout: Duration, call: Arc<Call>) {
        self.net.peer(address).call(
            timeout,
            |opaque, out| ask.frame(out, self.encoding, opaque, 0),
            move |outcome| call.settle(outcome),
        );
    }

    /// Sends a pull. `read` gets the messages of its reply on the I/O thread, `call` all the rest.
    pub fn pull(
        &self,
        address: &str,
        ask: &Ask<'_>,
        timeout: Duration,
        call: Arc<Call>,
        read: impl FnOnce(&[u8]) -> Result<usize, RowError> + Send + 'static,
    ) {
        self.net.peer(address).call(
            timeout,
            |opaque, out| ask.frame(out, self.encoding, opaque, 0),
            move |outcome| call.settle_read(outcome, read),
        );
    }

    /// Sends a request nobody answers.
    ///
    /// # Errors
    /// When it cannot even be queued.
    pub fn tell(&self, address: &str, ask: &Ask<'_>) -> Result<(), CallError> {
        self.net.peer(address).send(|opaque, out| ask.frame(out, self.encoding, opaque, flag::ONEWAY))
    }

    /// Makes the attempt a shipment stands at; its time is what is left of the shipment's.
    pub fn ship(&self, shipment: &Arc<Shipment>) {
        let target = shipment.target();
        let left = shipment.deadline().saturating_duration_since(Instant::now());
        let landing = Arc::clone(shipment);
        let peer = self.net.peer(&target.address);
        // Who waits for an answer is not kept waiting for others' messages to travel with.
        let haste = if shipment.is_announced() { Haste::InCompany } else { Haste::AtOnce };
        peer.call_with(
            haste,
            left,
            |opaque, out| frame(shipment.outgoing(), out, self.encoding, opaque, false, &target),
            move |outcome| landing.land(outcome),
        );
    }

    /// Sends a message nobody confirms.
    ///
    /// # Errors
    /// When it cannot even be queued.
    pub fn ship_oneway(&self, outgoing: &Outgoing, target: &Target) -> Result<(), CallError> {
        self.net
            .peer(&target.address)
            .send(|opaque, out| frame(outgoing, out, self.encoding, opaque, true, target))
    }

    /// Lets what is queued leave within `grace`, then ends everything. Idempotent.
    pub fn stop(&self, grace: Duration) {
        self.net.stop(grace);
    }
}

fn frame(
    outgoing: &Outgoing,
    out: &mut Vec<u8>,
    encoding: Encoding,
    opaque: i32,
    is_oneway: bool,
    target: &Target,
) -> Result<(), FrameError> {
    outgoing.head(out, encoding, opaque, is_oneway, target)?;
    out.extend_from_slice(outgoing.body());
    Ok(())
}
