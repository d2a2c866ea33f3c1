//! End of a connection at the port for slaves: the reason, as an operator reads it.

use std::fmt;
use std::io;

use crate::positions::PhysicalOffset;
use crate::replication::master::Distrust;
use crate::replication::stream::StreamError;

/// Why a connection has ended.
#[derive(Debug)]
pub(super) enum Ended {
    ByPeer,
    Silence,
    Io(io::Error),
    Stream(StreamError),
    Distrust(Distrust),
    /// There are so many slaves already.
    Full(usize),
    /// Access control is on, and it showed no ticket.
    NoTicket,
    /// It showed one that this process did not give, or gave too long ago.
    UnknownTicket,
    /// It did not say in time that it is a slave.
    Mute,
    /// The same, and others came that wanted its place.
    Crowded,
    /// What it needs next is not in the log any more.
    Gone(PhysicalOffset),
    /// The thread that served it has.
    Stopped,
}

impl fmt::Display for Ended {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ByPeer => write!(out, "the slave closed it"),
            Self::Silence => write!(out, "the slave said nothing for too long"),
            Self::Io(error) => error.fmt(out),
            Self::Stream(error) => error.fmt(out),
            Self::Distrust(distrust) => distrust.fmt(out),
            Self::Stopped => write!(out, "this broker stops"),
            Self::Full(most) => write!(out, "there are {most} slaves already"),
            Self::NoTicket => write!(
                out,
                "access control is on, and it showed no ticket: a slave of an older release has to be upgraded first, \
                 and the address of an Apache slave belongs into haTrustedAddresses"
            ),
            Self::UnknownTicket => write!(
                out,
                "this master did not give the ticket that it showed, or gave it too long ago: the slave asks another \
                 master than its haMasterAddress leads to, or this one has started again"
            ),
            Self::Mute => write!(out, "it did not say in time where its log ends: it is no slave"),
            Self::Crowded => write!(out, "it had not said where its log ends when others came"),
            Self::Gone(at) => {
                write!(out, "position {at} of the log cannot be read any more; the slave has to begin anew")
            }
        }
    }
}
