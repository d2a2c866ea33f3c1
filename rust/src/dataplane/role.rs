//! Role: what a broker is to the others of its name.
//!
//! Values only; any thread.

/// Reading from slaves.
#[derive(Debug, Clone, Copy, Default)]
pub struct SlaveReads {
    /// Whether consumers that are far behind are sent to a slave, and whether a slave answers them.
    pub is_served: bool,
    /// Whether a slave corrects consumers that ask for what it does not have.
    pub checks_offsets: bool,
}

/// What a broker is to the others of its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// It takes messages.
    Master,
    /// It copies a master, which answers.
    Slave,
    /// It copies a master, which does not answer at present.
    Orphan,
}

impl Role {
    /// The role of this number; numbers are those of the variants.
    pub(super) fn of(number: u8) -> Self {
        match number {
            0 => Self::Master,
            1 => Self::Slave,
            _ => Self::Orphan,
        }
    }
}
