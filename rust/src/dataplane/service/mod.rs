//! Service: the entry of the data plane, from a frame to its handler in `requests`, or to Python.
//!
//! The highest room; `DataPlane` composes the parts of the others.

mod cold_requests;
pub mod data_plane;
mod parked_sends;
mod table;
