//! Options of a RocketMQ load, besides its plan.

use std::sync::Arc;

use crate::remoting::Encoding;
use crate::requests::credentials::Credentials;
use crate::tls::ClientTls;

/// How requests are written and connections are secured.
#[derive(Clone, Debug)]
pub struct RocketMqOptions {
    /// The encoding of headers.
    pub encoding: Encoding,
    /// Signs requests, if given.
    pub credentials: Option<Credentials>,
    /// Encrypts connections, if given.
    pub tls: Option<Arc<ClientTls>>,
}
