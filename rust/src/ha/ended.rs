//! Connection end: the reasons for the end of a connection at the replication port, for operators.

use std::fmt;
use std::io;

use crate::positions::PhysicalOffset;
use crate::replication::master::{Distrust, Standing};
use crate::replication::stream::StreamError;

#[derive(Debug)]
pub(super) enum Ended {
    ByPeer,
    Silence,
    Io(io::Error),
    Stream(StreamError),
    Distrust(Distrust),
    /// The maximum number of connections of this kind is connected.
    Full(usize, Standing),
    /// Access control is on, and the connection showed no ticket.
    NoTicket,
    /// The ticket is unknown here, or has expired.
    UnknownTicket,
    /// The connection reported no log end in time.
    Mute,
    /// The connection reported no log end, and newer connections needed its place.
    Crowded,
    /// The next bytes for the slave were deleted from the log.
    Gone(PhysicalOffset),
    /// The serving thread has stopped.
    Stopped,
}

impl fmt::Display for Ended {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ByPeer => write!(out, "closed by the slave"),
            Self::Silence => write!(out, "the slave sent nothing for too long"),
            Self::Io(error) => error.fmt(out),
            Self::Stream(error) => error.fmt(out),
            Self::Distrust(distrust) => distrust.fmt(out),
            Self::Stopped => write!(out, "this broker is stopping"),
            Self::Full(most, Standing::Slave) => write!(out, "the maximum of {most} slaves is connected"),
            Self::Full(most, Standing::Observer) => {
                write!(out, "the maximum of {most} backups are running; wait for the end of one")
            }
            Self::NoTicket => write!(
                out,
                "access control is on, and the connection showed no ticket: upgrade a slave of an older release first, \
                 and add the address of an Apache slave to haTrustedAddresses"
            ),
            Self::UnknownTicket => write!(
                out,
                "the ticket is unknown to this master, or has expired: the slave got it from another master than \
                 its haMasterAddress leads to, or this one was restarted"
            ),
            Self::Mute => write!(out, "it did not report the end of its log in time; it may not be a slave"),
            Self::Crowded => {
                write!(out, "it reported no end of its log, and other connections needed its place")
            }
            Self::Gone(at) => {
                write!(out, "position {at} of the log was deleted; restart the slave with an empty folder")
            }
        }
    }
}
