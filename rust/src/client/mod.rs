//! The native half of every client: what goes out, what is under way, what came back.
//!
//! `fields` and `outgoing` make requests of messages, `rows` of tables, `shipment` and `call` are requests under way,
//! `completions` tells their reader what has landed, `notices` what servers said unasked, `window` bounds how much may be
//! on its way, `rota` says whose turn it is. `connections` carries them.
//!
//! Policy is not here: which broker, which queue, whether to try again is decided above, in Python. No thread of
//! this module ever enters Python, and nothing here waits while holding a lock that an I/O thread takes.

pub mod call;
pub mod completions;
pub mod connections;
pub mod fields;
pub mod notices;
pub mod outgoing;
pub mod rota;
pub mod rows;
pub mod shipment;
pub mod window;
